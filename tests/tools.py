"""What a test needs to watch and disturb processes and connections: waiting, freezing, a TCP proxy."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import psutil

Seen = TypeVar("Seen")
POLL_SECONDS = 0.02


def wait_for(condition: Callable[[], Seen], *, timeout: float = 20.0, what: str = "") -> Seen:
    """Call `condition` until it returns something true, and return that.

    Fails after `timeout` seconds with `what` (or the place of the condition) and what it returned last.
    """
    deadline = time.monotonic() + timeout
    while True:
        seen = condition()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s for {what or place(condition)}; last seen: {seen!r}")
        time.sleep(POLL_SECONDS)


def place(function: Callable[[], object]) -> str:
    """Where a function was written."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def named(part: object) -> str:
    """A parameter's id for pytest that is the same in each of xdist's processes: without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", ascii(part))[:40]


def family(pid: int) -> list[int]:
    """A process and all that descends from it, parents first."""
    head = psutil.Process(pid)
    return [head.pid, *(child.pid for child in head.children(recursive=True))]


def alive(pid: int) -> bool:
    """Whether a process still runs; one that ended but was not yet reaped does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(psutil.Process(pid).status()) != psutil.STATUS_ZOMBIE
    return False


@contextlib.contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """SIGSTOP these processes, in this order, for the block; `*family(pid)` are a whole server's."""
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
