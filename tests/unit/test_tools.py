"""The tools of the tests themselves: waiting and freezing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.tools import alive, family, frozen, wait_for


def test_wait_for_returns_what_it_saw() -> None:
    """The first true value is returned."""
    values = iter([0, None, "", "seen", "later"])
    assert wait_for(lambda: next(values)) == "seen"


def test_wait_for_tells_what_it_waited_for() -> None:
    """After the time it fails with the condition and the last value."""
    with pytest.raises(AssertionError, match=r"waited 0\.1 s for the moon; last seen: 0"):
        wait_for(lambda: 0, timeout=0.1, what="the moon")


def test_wait_for_tells_where_the_condition_stands() -> None:
    """A condition without a name is told by its place."""
    with pytest.raises(AssertionError, match=r"for \S+test_tools.py:\d+; last seen: None"):
        wait_for(lambda: None, timeout=0.0)


PARENT_OF_ONE = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
"""


def stopped(pids: list[int]) -> list[bool]:
    """Which of them stand still."""
    return [psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids]


def fail_while_frozen(pids: list[int]) -> None:
    """Freeze them, and raise ZeroDivisionError when they are."""
    with frozen(*pids):
        wait_for(lambda: stopped(pids) == [True, True])
        raise ZeroDivisionError


def test_frozen_family_stands_still_for_the_block() -> None:
    """Within the block a process and its child stand still; after it they go on, even when it fails."""
    with subprocess.Popen([sys.executable, "-c", PARENT_OF_ONE]) as process:
        wait_for(lambda: len(family(process.pid)) == 2)
        pids = family(process.pid)
        with pytest.raises(ZeroDivisionError):
            fail_while_frozen(pids)
        wait_for(lambda: stopped(pids) == [False, False])
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
    assert not alive(process.pid)
