"""How much is let out: limits of owners, and which queues this process saw full a moment ago. Reads nothing itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .errors import ConfigError
from .intake import MOST
from .wording import shown

LimitOf = Callable[[str], "int | None"]
"""How many jobs an owner may have; None: as many as it likes."""

FRESH = 1.0
"""Seconds for which a count of what is out of a queue is believed (protocol 25)."""


class Windows:
    """What a process knows of how full its queues are. A bound that is soft: others submit at the same time."""

    def __init__(self, size: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = size
        self._clock = clock
        self._seen: dict[str, tuple[float, bool]] = {}

    def is_full(self, queue: str) -> bool:
        """Whether it was full when it was counted last, a moment ago."""
        until, full = self._seen.get(queue, (0.0, False))
        return full and self._clock() < until

    def to_count(self, queue: str) -> int | None:
        """So many to count to with the next submit; None: it was counted a moment ago, or nobody counts."""
        until, _ = self._seen.get(queue, (0.0, False))
        return None if self._clock() < until else self._size

    def counted(self, queue: str, *, full: bool | None) -> None:
        """What the count said; None: there was none."""
        if full is not None:
            self._seen[queue] = (self._clock() + FRESH, full)


def limits(setting: str, given: int | LimitOf | None) -> LimitOf | None:
    """The limit of an owner, by what a setting says: one number for all, or the shop's function. None: no limit."""
    if given is None:
        return None
    if isinstance(given, int):
        return lambda _owner: given

    def of(owner: str) -> int | None:
        limit: Any = given(owner)
        if limit is None:
            return None
        if isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0:
            return min(limit, MOST)
        raise ConfigError(
            setting, f"gave {shown(limit)} for an owner; it must give a whole number, or None for no limit"
        )

    return of
