"""Who is let into a queue next: as many as it takes, owner by owner in turn, no owner above its limit (protocol 25).

Decides about tickets that are due and not about jobs; sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .events import events_of
from .store.door import Door, Row
from .store.releasing import (
    BUSY,
    COUNT_DUE,
    DUE_QUEUES,
    LOCK_QUEUE,
    NOTE_SERVED,
    OWNERS,
    RELEASE,
    RELEASE_SHARES,
    ROOM,
)
from .windows import LimitOf

logger = events_of(__name__)

BATCH = 100
"""Tickets that one transaction releases, at most."""

LOOKED_AT = 500
"""Owners that one transaction looks at, at most; the next goes on behind them."""

NOBODY = ""
"""How jobs without an owner are called among owners: no owner is. They are served in turn, and nobody counts them."""

Run = Callable[..., Sequence[Row]]


class Releaser:
    """Lets tickets out for one namespace.

    `window`: how many of a queue may be out, released and not yet taken by a worker. `running`: how many jobs of an
    owner may run in a queue, those that are out included; None: nobody counts.
    """

    def __init__(self, door: Door, *, window: int, running: LimitOf | None = None) -> None:
        self._door = door
        self._window = window
        self._running = running

    def release_once(self) -> int:
        """Let out what is due, a part of each queue's. How many."""
        return sum(self._release(str(row["queue"])) for row in self._door.all(DUE_QUEUES))

    def _release(self, queue: str) -> int:
        with self._door.batch() as run:
            if not run(LOCK_QUEUE, queue=queue):
                return 0
            (row,) = run(ROOM, queue=queue, window=self._window)
            room = min(int(row["room"]), BATCH)
            if room <= 0:
                return 0
            if self._running is None and run(COUNT_DUE, queue=queue, most=room + 1)[0]["due"] <= room:
                return len(run(RELEASE, queue=queue, most=room))
            return self._share_out(run, queue, room, served=row["served"] or "")

    def _share_out(self, run: Run, queue: str, room: int, *, served: str) -> int:
        looked, owners = _in_turn(run, queue, served)
        shares = dealt(room, self._allowed(run, queue, room, owners))
        given = {owner: share for owner, share in zip(owners, shares, strict=True) if share}
        rows = run(RELEASE_SHARES, queue=queue, owners=list(given), shares=list(given.values()))
        run(NOTE_SERVED, queue=queue, owner=next(reversed(given), looked))
        return len(rows)

    def _allowed(self, run: Run, queue: str, room: int, owners: Sequence[str]) -> list[int]:
        """How many more of each owner may be out or run."""
        if self._running is None:
            return [room] * len(owners)
        busy = {row["owner"]: int(row["jobs"]) for row in run(BUSY, queue=queue, owners=owners)}
        return [_left(self._running, owner, busy.get(owner, 0), room) for owner in owners]


def _left(limit_of: LimitOf, owner: str, busy: int, room: int) -> int:
    if owner == NOBODY:
        return room
    try:
        limit = limit_of(owner)
    except Exception as error:  # noqa: BLE001  # an owner of whom the shop cannot tell must not hold up all others
        logger.warning("supervise.limit_unknown", extra={"owner": owner, "why": f"{type(error).__name__}: {error}"})
        return 0
    return room if limit is None else max(0, limit - busy)


def _in_turn(run: Run, queue: str, served: str) -> tuple[str, list[str]]:
    """The last owner that was looked at; and those with due tickets, whose turn is next first.

    Behind the one that was served last, then again from the first: that one comes at the end.
    """
    rows = list(run(OWNERS, queue=queue, since=served, most=LOOKED_AT))
    behind = [row for row in rows if row["name"] != served]
    if len(rows) < LOOKED_AT:
        behind += run(OWNERS, queue=queue, since=NOBODY, most=LOOKED_AT)
    looked = behind[-1]["name"] if behind else served
    return looked, list(dict.fromkeys(row["name"] for row in behind if row["due"]))


def dealt(room: int, allowed: Sequence[int]) -> list[int]:
    """Deal `room` out, one by one in rounds, to each as many as it is allowed.

    >>> dealt(5, [9, 1, 9])
    [2, 1, 2]
    """
    shares = [0] * len(allowed)
    while room and (hungry := [one for one, most in enumerate(allowed) if shares[one] < most]):
        for one in hungry[:room]:
            shares[one] += 1
        room -= min(room, len(hungry))
    return shares
