"""Child processes that cannot outlive this one. Knows nothing of servers or Celery."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
WAIT_SECONDS = 30.0
LOG_TAIL = 3000


class ProcessFailed(RuntimeError):
    """A process could not be found, started or stopped; the message says why."""


@dataclass
class Process:
    """One command under guard.py: it ends with `stop`, and with this Python process, however that ends."""

    argv: Sequence[str | Path]
    log: Path
    """Its output, appended to at each start."""
    cwd: Path | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)
    folder: Path | None = None
    """Deleted by the guard if this Python process dies without stopping the command."""
    account: pwd.struct_passwd | None = None
    """Whom to run as; needs root."""
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 20.0
    """Seconds between that signal and SIGKILL."""
    pid: int = field(default=0, init=False)
    """Of the command itself, not of its guard. Another one after each start; 0 while stopped."""
    _guard: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> Process:  # noqa: PYI034 - Self is newer than Python 3.10
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the command. Raises ProcessFailed where it cannot be executed."""
        with self.log.open("ab") as log:
            self._guard = subprocess.Popen(
                self._guarded_argv(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        assert self._guard.stdout is not None
        with self._guard.stdout as report:
            pid = report.readline()
        if not pid:
            self.stop()
            raise ProcessFailed(f"could not run {self.argv[0]}\n{self.tail()}")
        self.pid = int(pid)

    def _guarded_argv(self) -> list[str]:
        owner = f"{self.account.pw_uid}:{self.account.pw_gid}" if self.account else ""
        # -I -S: no site-packages and no PYTHON* variables, which also makes the guard start in 20 ms
        guard = [
            sys.executable,
            "-I",
            "-S",
            str(GUARD),
            str(os.getpid()),
            self.stop_signal.name,
            str(self.grace),
        ]
        return [*guard, str(self.folder or ""), owner, *map(str, self.argv)]

    @property
    def running(self) -> bool:
        """Whether the command has yet to end."""
        return self._guard is not None and self._guard.poll() is None

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the command alone, not its children. Nothing happens where it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for the command to end and return its exit code as a shell reports it (137: killed).

        Raises subprocess.TimeoutExpired.
        """
        assert self._guard is not None, "never started"
        code = self._guard.wait(seconds)
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        return code

    def kill(self) -> int:
        """End the command alone, unawares, by SIGKILL; its children live on. Returns the exit code."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def stop(self) -> None:
        """End the command in order, or by SIGKILL after `grace`, and what is left of its process group."""
        if self._guard is None:
            return
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self.wait(self.grace + WAIT_SECONDS)
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.pid = 0

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL:]
