"""What time decides: expire, reap, remind, in bounded batches. Each pass may be repeated, and run beside others.

A sweep only finds what nobody touched: the rules it applies are the store's, judged again under each job's lock.
It holds back, never longer than one lease, where what it sees looks like an outage of ours and not of the workers
(protocol 21): better a lease late than the same work twice. And since it may itself be stopped between any two of
its statements, a pass ends only leases that were over when it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from . import retention
from .errors import Conflict, DatabaseUnavailable, NotMigrated
from .events import events_of
from .holding import moved
from .intake import legible
from .model import Moved
from .moments import apart
from .relay import Relay
from .store.door import Door, Row
from .store.leases import COUNT_LEASES, LOCK_LAPSED, REAP
from .store.reminders import LOCK_REMINDED, REMIND
from .store.sql import Statement
from .store.stalls import COUNT_STALLED, END_STALLED, LOCK_STALLED, NOTE_STALLED
from .store.time import BEGIN_SWEEP, COUNT_OVER, END_SWEEP, EXPIRE, HOLD_SWEEP, LOCK_OVER, STAMP_BAD
from .store.versions import LOCK_INCOMPATIBLE, SHELVE

logger = events_of(__name__)

LOST = "lost"
PRUNING = "prune"
RENEWING = "renew"
BATCH = 100
STALE_PERIODS = 3
CLOCK_JUMP = timedelta(seconds=5)
MASS_FLOOR = 20
MASS_SHARE = 0.2
BAD_ROW_BACKOFF = timedelta(minutes=5)
VERSION_GRACE = timedelta(hours=1)
OF_PERIOD = 0.9  # a sweep of another worker within this part of a period is enough


@dataclass(frozen=True)
class Sweep:
    """One kind of sweep: how its rows are found and locked, how they move, how many wait."""

    name: str
    lock: Statement
    move: Statement
    count: Statement | None
    why: str
    then: Statement | None = None  # moves the same jobs on, in the same transaction
    warns: str | None = None  # the event that the library's own log has for each job


EXPIRY = Sweep("expire", LOCK_OVER, EXPIRE, COUNT_OVER, "clock")
REAPING = Sweep("reap", LOCK_LAPSED, REAP, COUNT_LEASES, "its lease ended")
REMINDING = Sweep("remind", LOCK_REMINDED, REMIND, None, "a question's time is nearly over")
SHELVING = Sweep("shelve", LOCK_INCOMPATIBLE, SHELVE, None, "no code can run it")
"""These two take nothing from anybody: they hold back from nothing."""
STALLING = Sweep(
    "stall", LOCK_STALLED, NOTE_STALLED, COUNT_STALLED, "it made no progress", END_STALLED, "supervise.stalled"
)
SWEEPS = (EXPIRY, REAPING, STALLING, REMINDING, SHELVING)


@dataclass(frozen=True)
class Own:
    """What the sweeping process runs itself, as it knows for sure whatever its heartbeats have managed to say.

    A process that stood still as a whole finds, when it goes on, that its own leases are over.
    """

    incarnation: UUID | None = None
    jobs: Callable[[], Sequence[str]] = tuple


@dataclass(frozen=True)
class Pass:
    """One pass of a sweep: at which time of the database it began (None: only now), and what it spares."""

    sweep: Sweep
    began: datetime | None = None
    own: Own = field(default_factory=Own)


@dataclass(frozen=True)
class Swept:
    """What one pass did. `ran` is False where another process has just done it, or the pass held back."""

    name: str
    ran: bool
    moved: Sequence[Moved] = ()
    held: str | None = None


@dataclass
class Clocks:
    """The database's clock and the local monotonic one at the last pass of this process."""

    seen: dict[str, tuple[datetime, float]] = field(default_factory=dict)

    def jumped(self, name: str, at: datetime) -> bool:
        """Whether the database's clock went on by more than the time that really passed."""
        before = self.seen.get(name)
        self.seen[name] = (at, time.monotonic())
        if before is None:
            return False
        return apart(before[0], at) > timedelta(seconds=time.monotonic() - before[1]) + CLOCK_JUMP


class Sweeper:
    """Runs sweeps for one namespace. `identity` names this process in the rows of `sweeps`."""

    def __init__(
        self, door: Door, *, period: timedelta, version_grace: timedelta = VERSION_GRACE, identity: UUID | None = None
    ) -> None:
        self._door = door
        self._period = period
        self._grace = version_grace
        self._identity = identity or uuid4()
        self._clocks = Clocks()

    def run_once(self, sweep: Sweep, *, force: bool = False, own: Own | None = None) -> Swept:
        """One pass: nothing if another process made one within the period (unless `force`).

        Of what the calling process runs itself (`own`) no lease ends.
        """
        period = timedelta(0) if force else self._period * OF_PERIOD
        row = self._door.one(BEGIN_SWEEP, name=sweep.name, by=self._identity, period=period)
        if row is None:
            return Swept(sweep.name, ran=False)
        mass = self._mass(sweep)
        held = self._held(sweep, row, mass) if sweep.count else None
        if held:
            self._end(sweep, count=0)
            return Swept(sweep.name, ran=False, held=held)
        return self._run(Pass(sweep, row["at"], own or Own()), mass=mass is not None)

    def find_lost(self, relay: Relay, *, force: bool = False) -> int:
        """Publish again what the broker has lost; one process a period counts."""
        return self._in_turn(LOST, relay.find_lost, force=force)

    def prune(self, older_than: timedelta, *, force: bool = False) -> int:
        """Remove jobs that ended longer ago than that, a bounded number of them; one process a period does."""

        def some() -> int:
            return retention.prune(self._door, older_than, actor="sweep", limit=retention.A_PASS).pruned

        return self._in_turn(PRUNING, some, force=force)

    def renew(self, act: Callable[[], int], every: timedelta | None, *, force: bool = False) -> int:
        """Renew what a result backend keeps for jobs that wait; one process in that time does. None: nothing is to."""
        return 0 if every is None else self._in_turn(RENEWING, act, force=force, period=every)

    def _in_turn(self, name: str, act: Callable[[], int], *, force: bool, period: timedelta | None = None) -> int:
        period = timedelta(0) if force else (period or self._period) * OF_PERIOD
        if self._door.one(BEGIN_SWEEP, name=name, by=self._identity, period=period) is None:
            return 0
        found = act()
        self._door.one(END_SWEEP, name=name, error=None, count=found, mass=False)
        return found

    def _run(self, run: Pass, *, mass: bool) -> Swept:
        sweep = run.sweep
        done: list[Moved] = []
        until = time.monotonic() + self._period.total_seconds() / 2
        try:
            while part := self._batch(run):
                done += part
                if mass or len(part) < BATCH or time.monotonic() > until:
                    break
        except Exception as error:
            self._end(sweep, count=len(done), mass=mass, error=legible(str(error), limit=500))
            raise
        self._end(sweep, count=len(done), mass=mass)
        return Swept(sweep.name, ran=True, moved=done)

    def _end(self, sweep: Sweep, *, count: int, mass: bool = False, error: str | None = None) -> None:
        self._door.one(END_SWEEP, name=sweep.name, error=error, count=count, mass=mass)

    # --- holding back ------------------------------------------------------------------------------------

    def _held(self, sweep: Sweep, row: Row, mass: str | None) -> str | None:
        """Why this pass takes nothing, None where it may. Never longer than one lease."""
        at, hold_until = row["at"], row["hold_until"]
        jumped = self._clocks.jumped(sweep.name, at)
        if hold_until is not None and at < hold_until:
            return str(row["hold_reason"])
        if hold_until is not None and at < hold_until + self._door.lease:
            return None
        why = self._outage(row, jumped=jumped) or (None if self._goes_on(row) else mass)
        if why is None:
            return None
        self._door.one(HOLD_SWEEP, name=sweep.name, why=why, mass=why == mass)
        logger.warning("supervise.sweep_held", extra={"sweep": sweep.name, "why": why})
        return why

    def _goes_on(self, row: Row) -> bool:
        """Whether the mass is the one that was held back for already: each pass that sees it says so."""
        seen: datetime | None = row["mass_seen_at"]
        return seen is not None and row["at"] - seen <= self._door.lease + STALE_PERIODS * self._period

    def _outage(self, row: Row, *, jumped: bool) -> str | None:
        last = row["last_ok_at"]
        if last is not None and row["at"] - last > STALE_PERIODS * self._period:
            return "the sweeps stood still: heartbeats may have, too"
        if row["server_age"] < self._door.lease:
            return "Postgres has just started: heartbeats may have failed before"
        if jumped:
            return "the database's clock jumped"
        return None

    def _mass(self, sweep: Sweep) -> str | None:
        counted = self._door.one(sweep.count) if sweep.count else None
        if counted is None or counted["over"] <= max(MASS_FLOOR, MASS_SHARE * counted["live"]):
            return None
        return f"more than {MASS_SHARE:.0%} at once: {counted['over']} of {counted['live']}"

    # --- batches -----------------------------------------------------------------------------------------

    def _batch(self, part: Pass) -> list[Moved]:
        try:
            return self._move(part, None)
        except (DatabaseUnavailable, NotMigrated):
            raise
        except Exception as error:  # one bad row, or one that is held, must not keep the others: row by row
            logger.exception("supervise.sweep_batch_failed", extra={"sweep": part.sweep.name, "why": str(error)})
        return self._one_by_one(part)

    def _move(self, part: Pass, job_ids: Sequence[str] | None) -> list[Moved]:
        sweep = part.sweep
        with self._door.batch() as run:
            locked = run(sweep.lock, job_ids=job_ids, **self._bounds(part))
            if not locked:
                return []
            given = {
                "job_ids": [row["job_id"] for row in locked],
                "actor": "sweep",
                "cause": sweep.why,
                "settle_after": timedelta(0),
                "publish_hold": timedelta(0),
            }
            rows = [*run(sweep.move, **given), *(run(sweep.then, **given) if sweep.then else ())]
        last = {row["job_id"]: row for row in rows}
        for job_id in last if sweep.warns else ():
            logger.warning(sweep.warns, extra={"job_id": job_id})
        return [moved(row) for row in last.values()]

    def _bounds(self, part: Pass) -> Mapping[str, Any]:
        """What is found, beside what each sweep looks for. What this process runs is asked after the pass began."""
        return {
            "batch": BATCH,
            "grace": self._grace,
            "began": part.began,
            "incarnation": part.own.incarnation,
            "own": list(part.own.jobs()),
        }

    def _one_by_one(self, part: Pass) -> list[Moved]:
        with self._door.batch() as run:
            ids = [row["job_id"] for row in run(part.sweep.lock, job_ids=None, **self._bounds(part))]
        return [change for job_id in ids for change in self._alone(part, job_id)]

    def _alone(self, part: Pass, job_id: str) -> list[Moved]:
        try:
            return self._move(part, [job_id])
        except (DatabaseUnavailable, NotMigrated):
            raise
        except Conflict:  # somebody holds a row of it, for longer than we wait
            logger.warning("supervise.sweep_row_busy", extra={"sweep": part.sweep.name, "job_id": job_id})
            return self._left_out(job_id, self._door.lease)
        except Exception:  # the next passes leave it out, `doctor` shows it
            logger.exception("supervise.sweep_row_failed", extra={"sweep": part.sweep.name, "job_id": job_id})
            return self._left_out(job_id, BAD_ROW_BACKOFF)

    def _left_out(self, job_id: str, backoff: timedelta) -> list[Moved]:
        self._door.one(STAMP_BAD, job_id=job_id, backoff=backoff)
        return []


def run_all(sweeper: Sweeper, *, force: bool = False, then: Callable[[Moved], None] | None = None) -> list[Swept]:
    """Every sweep once. `then` is called with each job that moved."""
    done = [sweeper.run_once(sweep, force=force) for sweep in SWEEPS]
    if then:
        for swept in done:
            for change in swept.moved:
                then(change)
    return done
