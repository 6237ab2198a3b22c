"""A time limit on one call of the task's own code. Knows no job; saves nothing.

In the main thread of a process (prefork, solo) a signal interrupts Python code, sleeps and sockets that hang. In other
threads, and under gevent, nothing can: there the time is judged when the call comes back.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final, NoReturn

from .errors import StepTimedOut

SOON: Final = 0.05  # seconds after which to ring again where our own code was at work
AT_ONCE: Final = 0.001


@contextmanager
def limited(name: str, timeout: timedelta | None, *, busy: Callable[[], bool]) -> Iterator[None]:
    """Raise `StepTimedOut` in the block when `timeout` is over, or at its end if it could not be interrupted.

    `busy`: whether code of ours is at work just now, which must not be interrupted in the middle of a commit.
    """
    if timeout is None:
        yield
        return
    due = time.monotonic() + timeout.total_seconds()

    def ring() -> NoReturn:
        raise StepTimedOut.of(name, timeout)

    if threading.current_thread() is threading.main_thread():
        with Alarm(due, timeout.total_seconds(), ring=ring, busy=busy):
            yield
    else:
        yield
    if time.monotonic() >= due:  # not interrupted, or swallowed
        ring()


class Alarm:
    """Rings at a monotonic time, and again every `every` seconds, until the block is left.

    An alarm that is set already (an outer step's, a test runner's) goes on: it rings at its own time, inside or later.
    """

    def __init__(self, due: float, every: float, *, ring: Callable[[], NoReturn], busy: Callable[[], bool]) -> None:
        self._due = due
        self._every = every
        self._act = ring
        self._busy = busy
        self._on = False
        self._handler: Any = None
        self._outer: tuple[float, float] | None = None  # when, how often

    def __enter__(self) -> None:
        """Set the alarm."""
        self._handler = signal.getsignal(signal.SIGALRM)
        left, every = signal.setitimer(signal.ITIMER_REAL, 0)
        now = time.monotonic()
        self._outer = (now + left, every) if left else None
        self._on = True
        signal.signal(signal.SIGALRM, self._ring)
        first = min(self._due, self._outer[0]) if self._outer else self._due
        signal.setitimer(signal.ITIMER_REAL, max(first - now, AT_ONCE), self._every)

    def __exit__(self, *_: object) -> None:
        """Take it away, and set the outer one again."""
        self._on = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if self._handler is None else self._handler)
        if self._outer is not None:
            due, every = self._outer
            signal.setitimer(signal.ITIMER_REAL, max(due - time.monotonic(), AT_ONCE), every)

    def _ring(self, number: int, frame: Any) -> None:
        if not self._on:
            return
        if self._busy():
            signal.setitimer(signal.ITIMER_REAL, SOON, self._every)
            return
        now = time.monotonic()
        if self._outer is not None and self._outer[0] <= now:
            self._pass_on(number, frame)
        if now < self._due:
            signal.setitimer(signal.ITIMER_REAL, max(self._due - now, AT_ONCE), self._every)
            return
        self._act()

    def _pass_on(self, number: int, frame: Any) -> None:
        """The outer alarm's time has come; what it raises ends this block, too."""
        outer, self._outer = self._outer, None
        if outer is not None and outer[1]:
            self._outer = (time.monotonic() + outer[1], outer[1])
        if callable(self._handler):
            self._handler(number, frame)
