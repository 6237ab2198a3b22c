"""The story that `python3 example_project` tells: a payment run that waits for a person and survives its workers.

Uses the library as a shop would: the app, the service, the CLI. Ends with exit code 0 only if all of it came true.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from example_project import embedded
from example_project.machine import private_folder
from example_project.processes import Process, ProcessFailed
from example_project.story import Story

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENDORS = HERE / "data" / "vendors.csv"
BATCH = "2026-11"
PATIENCE = 90.0  # seconds for one thing to happen
POLL = 0.05


@dataclass(frozen=True)
class Stage:
    """Where the story plays: servers and folders, as environment variables for every process in it."""

    folder: Path
    env: Mapping[str, str]

    @property
    def books(self) -> str:
        """The bank's books."""
        return self.env["EXAMPLE_BANK"]

    def celery(self, *words: str) -> list[str]:
        """A celery command of this project."""
        return [sys.executable, "-m", "celery", "-A", "example_project.app", *words]

    def worker(self, name: str) -> Process:
        """A worker with two processes."""
        options = [
            "--queues",
            "interactive,batch",
            "--concurrency",
            "2",
            "--loglevel",
            "INFO",
            "--hostname",
            f"{name}@demo",
            "--without-mingle",
        ]
        return self._process(name, "worker", *options)

    def beat(self) -> Process:
        """The scheduler: the library's own entries are in it by themselves."""
        return self._process("beat", "beat", "--schedule", str(self.folder / "schedule"), "--pidfile", "")

    def _process(self, name: str, *words: str) -> Process:
        return Process(self.celery(*words), self.folder / f"{name}.log", cwd=ROOT, env=self.env)

    def run(self, *words: str) -> str:
        """Run a celery command to its end, as in another terminal; its output."""
        command = self.celery(*words)
        done = subprocess.run(command, cwd=ROOT, env=dict(self.env), capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"celery {' '.join(words)} exited with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


@contextmanager
def stage() -> Iterator[Stage]:
    """Private servers, but where environment variables name real ones."""
    with ExitStack() as stack:
        database = os.environ.get("SUPERVISE_DATABASE_URL") or stack.enter_context(embedded.postgres()).url
        broker = os.environ.get("CELERY_BROKER_URL") or stack.enter_context(embedded.redis()).url
        folder = stack.enter_context(private_folder("example", None))
        for name in ("out", "tmp"):
            (folder / name).mkdir()
        servers = {
            "SUPERVISE_DATABASE_URL": database,
            "CELERY_BROKER_URL": broker,
            "CELERY_RESULT_BACKEND": os.environ.get("CELERY_RESULT_BACKEND", broker),
            "EXAMPLE_BANK": str(folder / "bank.sqlite"),
        }
        os.environ.update(servers)
        # processes of Celery that are killed leave folders in TMPDIR
        yield Stage(folder, {**os.environ, **servers, "TMPDIR": str(folder / "tmp")})


def until(what: str, check: Callable[[], Any]) -> Any:
    """Wait until `check` gives something; say what did not happen if it never does."""
    deadline = time.monotonic() + PATIENCE
    while not (found := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"it did not happen within {PATIENCE:.0f} s: {what}")
        time.sleep(POLL)
    return found


def main(argv: list[str]) -> int:
    """Tell the story; the exit code."""
    parser = argparse.ArgumentParser(prog="python3 example_project", description=__doc__)
    parser.add_argument("--auto", action="store_true", help="answer the question without asking you")
    options = parser.parse_args(argv)
    story = Story()
    try:
        with stage() as here:
            return tell(story, here, auto=options.auto)
    except (ProcessFailed, TimeoutError, NobodyHere) as failure:
        story.failed(str(failure))
        return 1
    except KeyboardInterrupt:
        story.say("Stopped. Nothing is left behind.")
        return 130


def tell(story: Story, here: Stage, *, auto: bool) -> int:
    """The chapters, in order."""
    from example_project.play import Play  # noqa: PLC0415  # its app reads the variables that `stage` has just set

    play = Play(story, here)
    play.migrate()
    with here.beat():
        job_id, question_id = play.submit_and_park()
        play.answer(question_id, auto=auto)
        play.resume_and_kill(job_id)
        return play.prove(job_id)


def kill_group(process: Process) -> None:
    """Kill -9 the worker and all its children at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class NobodyHere(Exception):
    """There is nobody at this terminal who could answer."""


def asked_here(prompt: str, answered_elsewhere: Callable[[], bool]) -> bool | None:
    """Yes or no from this terminal; None if the question was answered from another one meanwhile.

    Anything else is asked for again: a mistyped key pays nobody, and refuses nothing. Raises `NobodyHere`.
    """
    typed = _Typed()
    _write(prompt)
    while not answered_elsewhere():
        line = typed.line(0.5)
        if line in YES_OR_NO:
            return line.startswith("y")
        if line is not None:
            _write(prompt)
    return None


class _Typed:
    """Lines from this terminal, past Python's own buffer, which would hide from `select` what it holds."""

    def __init__(self) -> None:
        self._rest = ""

    def line(self, seconds: float) -> str | None:
        """The next line, in lower case; None if there is none within so many seconds. Raises `NobodyHere`."""
        if "\n" not in self._rest:
            if not select.select([sys.stdin], [], [], seconds)[0]:
                return None
            read = os.read(sys.stdin.fileno(), 4096).decode(errors="replace")
            if not read and not self._rest:
                raise NobodyHere("nobody can answer here: start it with --auto, or in a terminal")
            self._rest += read or "\n"
        line, _, self._rest = self._rest.partition("\n")
        return line.strip().lower()


YES_OR_NO = ("y", "yes", "n", "no")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
