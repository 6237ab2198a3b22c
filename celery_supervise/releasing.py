"""Who is let into a queue next: as many as it takes, owner by owner in turn, no owner above its limit (protocol 25).

Decides about tickets that are due and not about jobs; sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
        asked = self._ask(queue)
        with self._door.batch() as run:
            if not run(LOCK_QUEUE, queue=queue):
                return 0
            (row,) = run(ROOM, queue=queue, window=self._window)
            room, served = min(int(row["room"]), BATCH), row["served"] or NOBODY
            if room <= 0 or (asked is not None and asked.served != served):  # another relay has been faster
                return 0
            if asked is None and run(COUNT_DUE, queue=queue, most=room + 1)[0]["due"] <= room:
                return len(run(RELEASE, queue=queue, most=room))
            return _share_out(run, queue, room, served=served, asked=asked)

    def _ask(self, queue: str) -> _Asked | None:
        """The limits of the owners whose turn is next; None where there are none.

        The shop's own code may take long: no transaction is open, and no other relay waits for it.
        """
        if self._running is None:
            return None
        (row,) = self._door.all(ROOM, queue=queue, window=self._window)
        served = row["served"] or NOBODY
        _, owners = _in_turn(self._door.all, queue, served) if row["room"] > 0 else ("", [])
        return _Asked(served, {owner: _limit(self._running, owner) for owner in owners})


@dataclass(frozen=True)
class _Asked:
    """What was asked when `served` was the owner that was served last: how many each may run; None: no limit."""

    served: str
    limits: Mapping[str, int | None]


def _share_out(run: Run, queue: str, room: int, *, served: str, asked: _Asked | None) -> int:
    looked, owners = _in_turn(run, queue, served)
    allowed = [room] * len(owners) if asked is None else _allowed(run, queue, room, owners, asked.limits)
    given = {owner: share for owner, share in zip(owners, dealt(room, allowed), strict=True) if share}
    rows = run(RELEASE_SHARES, queue=queue, owners=list(given), shares=list(given.values()))
    run(NOTE_SERVED, queue=queue, owner=next(reversed(given), looked))
    return len(rows)


def _allowed(run: Run, queue: str, room: int, owners: Sequence[str], limits: Mapping[str, int | None]) -> list[int]:
    """How many more of each owner may be out or run; of one who has come since they were asked for, none yet."""
    busy = {row["owner"]: int(row["jobs"]) for row in run(BUSY, queue=queue, owners=owners)}
    found = [(limits.get(owner, 0), busy.get(owner, 0)) for owner in owners]
    return [room if limit is None else max(0, limit - runs) for limit, runs in found]


def _limit(limit_of: LimitOf, owner: str) -> int | None:
    if owner == NOBODY:
        return None
    try:
        return limit_of(owner)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # an owner of whom it cannot tell must not hold up others
        logger.warning("supervise.limit_unknown", extra={"owner": owner, "why": f"{type(error).__name__}: {error}"})
        return 0


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
