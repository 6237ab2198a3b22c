"""The loop that makes the broker follow the rows: release what is due, publish, find what was lost, settle.

Holds no transaction open while it sends (protocol 23). Every part is a function of one pass: repeatable, bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from . import queries
from .errors import PublishFailed
from .events import events_of
from .holds import hold_back, holds
from .intake import legible
from .lifecycle import State
from .model import Depth, Message, MessageKind, Publisher, Settlement, Stored
from .notices import notice_of
from .releasing import Releaser
from .store.cleanups import SENT
from .store.door import Door, Row
from .store.publishing import (
    COUNT_OUT,
    DROP,
    NOTE_ERROR,
    NOTE_QUEUE,
    REPUBLISH,
    SETTLED,
    STAMP,
    TAKE,
    TAKE_SETTLING,
)
from .windows import LimitOf

logger = events_of(__name__)

BATCH = 100
PUBLISHING = 1.0  # seconds after which a pass of publishing begins nothing more
TELLING = 10.0  # seconds after which a pass of telling ends
BY_AGE_AFTER = timedelta(minutes=5)  # where the broker cannot be counted
FEW = 1000  # copies that a queue may have by age alone
COPIES = 25  # or one in so many of a long one


@dataclass(frozen=True)
class Relayed:
    """What one pass did."""

    released: int = 0
    published: int = 0
    dropped: int = 0
    settled: int = 0
    republished: int = 0


class Relay:
    """Publishes for one namespace.

    `settling`: how long after its publish a ticket counts as arrived. `window`, `running`: see `Releaser`. `allowed`
    is asked at each pass, and raises where this process must not send: see `brokers`.
    """

    def __init__(
        self,
        door: Door,
        publisher: Publisher,
        *,
        settling: timedelta,
        window: int = 1000,
        running: LimitOf | None = None,
        allowed: Callable[[], None] = lambda: None,
    ) -> None:
        self._door = door
        self._publisher = publisher
        self._settling = settling
        self._allowed = allowed
        self._releaser = Releaser(door, window=window, running=running)

    def run_once(self) -> Relayed:
        """Release, publish and settle what is due now."""
        return replace(self.publish_once(), settled=self.settle_once())

    def publish_once(self) -> Relayed:
        """Release and publish what is due now. Waits for no result backend."""
        self._allowed()
        if holds(self._door):
            hold_back(self._door)
        done, until = Relayed(), time.monotonic() + PUBLISHING
        while True:
            released = self._releaser.release_once()
            published, dropped, taken = self._publish_due()
            done = Relayed(done.released + released, done.published + published, done.dropped + dropped)
            # what is left, and what the broker did not take, is for the next pass
            if taken < BATCH or published + dropped < taken or time.monotonic() > until:
                return done

    # --- publishing --------------------------------------------------------------------------------------

    def _publish_due(self) -> tuple[int, int, int]:
        rows = self._door.all(TAKE, batch=BATCH)
        stale = [row["id"] for row in rows if row["stale"] or _is_gone(row)]
        sent = [row["id"] for row in rows if row["id"] not in stale and self._send(row)]
        if stale:
            self._door.all(DROP, ids=stale)
        if sent:
            self._door.all(STAMP, ids=sent)
        for row in rows:
            if row["kind"] == MessageKind.CLEANUP and row["id"] in sent:
                self._door.one(SENT, id=row["id"])  # one by one: erase takes rows of a job in another order
        return len(sent), len(stale), len(rows)

    def _send(self, row: Row) -> bool:
        try:
            self._publisher.publish(_message(row))
        except PublishFailed as error:
            logger.warning("supervise.publish_failed", extra={"job_id": row["job_id"], "why": error.detail})
            self._door.one(NOTE_ERROR, id=row["id"], error=legible(error.detail, limit=500))
            return False
        return True

    # --- lost messages -----------------------------------------------------------------------------------

    def find_lost(self) -> int:
        """Publish again the released tickets that the broker no longer has: by evidence per queue (24)."""
        self._allowed()
        return sum(self._heal(row) for row in self._door.all(COUNT_OUT, queue=None, at=None))

    def _heal(self, row: Row) -> int:
        try:
            found = self._publisher.depth(row["queue"])
        except PublishFailed as error:  # it takes nothing just now, and a count that fails is no count of zero
            logger.warning("supervise.broker_not_counted", extra={"queue": row["queue"], "why": error.detail})
            return 0
        missing = 0 if found is None else self._missing(row["queue"], row["at"], found.count)
        before = self._missing(row["queue"], row["last_at"], row["last_found"]) if row["low_sweeps"] else 0
        self._door.one(
            NOTE_QUEUE,
            queue=row["queue"],
            at=row["at"],
            released=row["released"],
            found=None if found is None else found.count,
            low=min(missing, 1),
        )
        if _hides_losses(row, found):
            return self._republish(row["queue"], _few(row), settling=BY_AGE_AFTER, by_age=True)
        lost = min(missing, before)
        return self._republish(row["queue"], lost, settling=self._settling, by_age=False) if lost else 0

    def _missing(self, queue: str, at: datetime, found: int) -> int:
        """How many messages the broker was short of when it had `found`, soon after `at`.

        Judged by what is known now: what was claimed or ended since, or is in a worker's hands, is not lost; what was
        published since it could not have.
        """
        now = self._door.one(COUNT_OUT, queue=queue, at=at)
        return max(0, now["expected"] - found) if now else 0

    def _republish(self, queue: str, batch: int, *, settling: timedelta, by_age: bool) -> int:
        rows = self._door.all(REPUBLISH, queue=queue, batch=batch, settling=settling, by_age=by_age)
        for row in rows:
            logger.warning("supervise.republished", extra={"job_id": row["job_id"], "queue": queue})
        return len(rows)

    # --- settling ----------------------------------------------------------------------------------------

    def settle_once(self) -> int:
        """Tell Celery of the ends that nobody has told it. A result backend that hangs may hold this up for long."""
        self._allowed()
        settled, until = 0, time.monotonic() + TELLING
        for row in self._door.all(TAKE_SETTLING, batch=BATCH):
            settled += self._settle(row)
            if time.monotonic() > until:  # what is left is taken again when it is due once more
                break
        return settled

    def _settle(self, row: Row) -> bool:
        settlement = settlement_of(self._door, row["job_id"], row["settle_id"])
        if settlement is None:
            return False
        try:
            told = self._publisher.tell(settlement)
        except PublishFailed as error:
            logger.warning("supervise.settle_failed", extra={"job_id": row["job_id"], "why": error.detail})
            return False
        return told and bool(mark_settled(self._door, [Told(row["job_id"], settlement.settle_id)], actor="relay"))


def _hides_losses(row: Row, found: Depth | None) -> bool:
    """Whether messages of others may stand in the place of lost ones, as far as one can count."""
    return found is None or (not found.exact and found.count > row["expected"])


def _few(row: Row) -> int:
    """How many to send again by their age alone: a backlog that only waits must not multiply."""
    allowed: int = max(FEW, row["released"] // COPIES) - row["copies"]
    return min(BATCH, max(0, allowed))


def _is_gone(row: Row) -> bool:
    """Whether the job has no message any more. A notice needs none."""
    return row["data"] is None and row["kind"] != MessageKind.NOTIFY


def _message(row: Row) -> Message:
    if row["kind"] == MessageKind.NOTIFY:
        return notice_of(row)
    return Message(
        id=row["id"],
        kind=MessageKind(row["kind"]),
        job_id=row["job_id"],
        task=row["task"],
        queue=row["queue"],
        envelope=Stored(bytes(row["data"]), row["encoding"], row["key_id"]),
        state=State(row["current_state"]),
        stop_reason=row["watchdog_stop_reason"],
        detail=row["detail"],
    )


def settlement_of(door: Door, job_id: str, settle_id: UUID) -> Settlement | None:
    """All that is needed to tell Celery how the job ended."""
    job = queries.job(door, job_id)
    if job is None:
        return None
    kind = {State.COMPLETED: "result", State.FAILED: "error"}.get(job.state)
    return Settlement(
        job=job,
        settle_id=settle_id,
        envelope=queries.payload(door, job_id, "envelope"),
        outcome=queries.payload(door, job_id, kind) if kind else None,
        worker=queries.last_worker(door, job_id),
    )


@dataclass(frozen=True)
class Told:
    """Celery has been told of a job's end: by settle id, or (None) by the incarnation whose attempt ended it.

    `failed`: what it was told, None where it was read off the row. A job that ended otherwise is not settled by
    it: a child that completed its job and could not store the result tells its parent of a failure.
    """

    job_id: str
    settle_id: UUID | None = None
    failed: bool | None = None


def mark_settled(door: Door, told: Sequence[Told], *, actor: str, incarnation: UUID | None = None) -> list[str]:
    """Celery has been told of these jobs.

    Returns the ids of those that were marked; one that is locked just now is not: give it again.
    """
    if not told:
        return []
    rows = door.all(
        SETTLED,
        job_ids=[one.job_id for one in told],
        settle_ids=[None if one.settle_id is None else str(one.settle_id) for one in told],
        failed=[one.failed for one in told],
        incarnation=incarnation,
        actor=actor,
    )
    return [row["job_id"] for row in rows]
