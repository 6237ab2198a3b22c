"""Keeps a process from forking while one of its threads connects to Postgres. Knows no pool and no job.

A worker's main process has threads of ours, and forks a child whenever one is to be replaced. What a thread has locked
in C at that instant (libpq, OpenSSL, the resolver) nobody unlocks in the child, which waits for ever as it connects.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LONGEST: Final = 10.0
"""Seconds for which a fork waits: longer than a connection takes. Then it is better to fork than to stand still."""
LOOK: Final = 0.002


class Forks:
    """Of this process: its threads that connect just now, and whether it is about to fork.

    No lock, which would be one more to be held at a fork, and would stop all green threads of a thread.
    """

    def __init__(self) -> None:
        self._connecting: list[object] = []
        self._forking = False

    @contextmanager
    def held_off(self) -> Iterator[None]:
        """No fork begins within this, and this does not begin within one."""
        mark = object()
        self._connecting.append(mark)
        while self._forking:  # it looked before we were here: let it go first
            self._connecting.remove(mark)
            time.sleep(LOOK)
            self._connecting.append(mark)
        try:
            yield
        finally:
            if mark in self._connecting:  # else this is a child, which has forgotten its parent's
                self._connecting.remove(mark)

    def before(self) -> None:
        """Wait until nobody connects."""
        self._forking = True
        until = time.monotonic() + LONGEST
        while self._connecting and time.monotonic() < until:
            time.sleep(LOOK)

    def in_parent(self) -> None:
        """Go on."""
        self._forking = False

    def in_child(self) -> None:
        """Of the threads that there were, this one alone is left."""
        self._connecting.clear()
        self._forking = False


FORKS: Final = Forks()
os.register_at_fork(before=FORKS.before, after_in_parent=FORKS.in_parent, after_in_child=FORKS.in_child)
