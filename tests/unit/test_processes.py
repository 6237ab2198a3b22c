"""Guarded processes: how they end, and what they tell of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from example_project.processes import Process, ProcessFailed
from tests.tools import alive, wait_for

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit("interrupted"))
print("up", flush=True)
time.sleep(600)
"""
PARENT_OF_ONE = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def python(code: str, folder: Path, *, grace: float = 20.0) -> Process:
    """A guarded Python that runs `code`."""
    return Process([sys.executable, "-c", code], folder / "log", grace=grace)


def test_output_and_exit_code_are_kept(tmp_path: Path) -> None:
    """What it printed to either stream is in the log, and its exit code is told."""
    with python("import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)", tmp_path) as process:
        assert process.wait() == 3
    assert sorted(process.tail().split()) == ["one", "two"]


def test_starts_again_with_another_pid(tmp_path: Path) -> None:
    """A stopped process can be started again; the log goes on."""
    process = python("print('up', flush=True); import time; time.sleep(600)", tmp_path)
    pids = set()
    for times in (1, 2):
        with process:
            wait_for(lambda: process.tail().count("up") == times)  # noqa: B023 - called at once
            pids.add(process.pid)
        assert not process.running
    assert len(pids) == 2


def test_unknown_command_is_reported(tmp_path: Path) -> None:
    """A command that cannot be executed is an error that names it."""
    with pytest.raises(ProcessFailed, match="could not run /no/such/command"):
        Process(["/no/such/command"], tmp_path / "log").start()


def test_stop_sends_the_signal_asked_for(tmp_path: Path) -> None:
    """`stop` ends the process with its own stop signal, in its own way."""
    process = Process([sys.executable, "-c", POLITE], tmp_path / "log", stop_signal=signal.SIGINT)
    with process:
        wait_for(lambda: "up" in process.tail())
    assert "interrupted" in process.tail()


def test_stubborn_process_is_killed(tmp_path: Path) -> None:
    """A process that ignores its stop signal is killed when its grace is over."""
    with python(STUBBORN, tmp_path, grace=0.2) as process:
        wait_for(lambda: "up" in process.tail())
        pid = process.pid
    assert not alive(pid)


def test_kill_leaves_children_and_stop_does_not(tmp_path: Path) -> None:
    """`kill` ends the process alone, as the kernel would; `stop` then ends the children it left."""
    process = python(PARENT_OF_ONE, tmp_path)
    with process:
        child = int(wait_for(lambda: process.tail().strip()))
        assert process.kill() == 137
        assert alive(child)
    wait_for(lambda: not alive(child))


def test_waiting_for_what_does_not_end_is_an_error(tmp_path: Path) -> None:
    """`wait` gives up after the seconds it was given, and the process goes on."""
    with python("import time; time.sleep(600)", tmp_path) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.running
