"""A job and all that bears on whether it moves, read at one instant. Changes nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .model import Hold, Job
from .rows import as_job
from .store.door import Door, Row
from .store.sql import Statement

COUNTED: Final = 1000
"""So many messages before a job's own are counted, at most."""

STANDING = Statement(
    "standing",
    """
SELECT jobs.*, clock_timestamp() AS at, a.worker, a.number, a.heartbeat_at, a.lease_until, a.outcome, a.cause,
       a.ended_at IS NULL AS lives, a.hand_over_at IS NOT NULL AS leaves,
       o.published_at, o.first_published_at, o.due_at, o.last_error,
       q.question_key, q.assignees,
       (SELECT count(*) FROM (
            SELECT FROM {s}.outbox AS other
            WHERE other.namespace = o.namespace AND other.queue = o.queue AND other.done_at IS NULL
              AND other.published_at < o.published_at LIMIT :most) AS ahead) AS ahead,
       CASE WHEN jobs.ticket_released_at IS NULL AND jobs.ticket_id IS NOT NULL THEN (
           SELECT count(*) FROM (
               SELECT FROM {s}.outbox AS other
               WHERE other.namespace = jobs.namespace AND other.queue = jobs.queue AND other.done_at IS NULL
                 AND other.published_at IS NOT NULL LIMIT :most) AS out) END AS out,
       CASE WHEN jobs.ticket_released_at IS NULL AND jobs.ticket_id IS NOT NULL THEN (
           SELECT count(*) FROM (
               SELECT FROM {s}.jobs AS other
               WHERE other.namespace = jobs.namespace AND other.current_state = 'running'
                 AND other.queue = jobs.queue AND other.owner_id = jobs.owner_id LIMIT :most) AS busy) END AS busy,
       (SELECT l.actor FROM {s}.log AS l WHERE l.job_id = jobs.id AND l.event = 'pause_requested'
        ORDER BY l.sequence_num DESC LIMIT 1) AS paused_by,
       h.kind AS held_kind, h.name AS held_name, h.reason AS held_why, h.actor AS held_by, h.held_at,
       c.actor AS cancelled_by, c.data ->> 'why' AS cancelled_why
FROM {s}.jobs AS jobs
LEFT JOIN LATERAL (
    SELECT * FROM {s}.attempts AS a WHERE a.job_id = jobs.id ORDER BY a.number DESC LIMIT 1) AS a ON true
LEFT JOIN LATERAL (
    SELECT * FROM {s}.holds AS h WHERE h.namespace = jobs.namespace
      AND ((h.kind = 'task' AND h.name = jobs.task) OR (h.kind = 'owner' AND h.name = jobs.owner_id))
    ORDER BY h.held_at LIMIT 1) AS h ON true
LEFT JOIN {s}.outbox AS o ON o.id = jobs.ticket_id
LEFT JOIN {s}.questions AS q ON q.id = jobs.question_id
LEFT JOIN LATERAL (
    SELECT l.actor, l.data FROM {s}.log AS l
    WHERE l.job_id = jobs.id AND l.event IN ('cancel_requested', 'cancelled') AND jobs.cancel_requested_at IS NOT NULL
    ORDER BY l.sequence_num LIMIT 1) AS c ON true
WHERE jobs.id = :job_id AND (jobs.namespace = :namespace) IS TRUE
  AND (CAST(:owner_id AS text) IS NULL OR jobs.owner_id = :owner_id)""",
)
"""By keys, but for the log, of which it reads this job's, and the messages before its own."""


@dataclass(frozen=True)
class Running:
    """The job's newest attempt. `lives`: it has not ended; `leaves`: its worker is stopping."""

    number: int
    worker: str
    heartbeat_at: datetime
    lease_until: datetime
    lives: bool
    leaves: bool
    outcome: str | None
    cause: str | None


@dataclass(frozen=True)
class Sending:
    """The message that is to start the job. `ahead`: messages in its queue that were sent before, at most `COUNTED`."""

    due_at: datetime
    published_at: datetime | None
    first_published_at: datetime | None
    last_error: str | None
    ahead: int


@dataclass(frozen=True)
class Standing:
    """A job at the moment `at`, on the database's clock.

    Of one that is not `released`: `out`, how many are out of its queue; `busy`, how many of its owner run in it. Both
    at most `COUNTED`.
    """

    at: datetime
    job: Job
    attempt: Running | None = None
    message: Sending | None = None
    released: bool = True
    out: int = 0
    busy: int = 0
    incompatible_since: datetime | None = None
    stage_at: datetime | None = None
    stall_after: timedelta | None = None
    asked_of: Sequence[str] = ()
    question_key: str | None = None
    paused_by: str | None = None
    cancelled_by: str | None = None
    cancelled_why: str | None = None
    held: Hold | None = None


def standing(door: Door, job_id: str, *, owner_id: str | None = None) -> Standing | None:
    """How the job stands, None if there is none of this namespace and owner."""
    row = door.one(STANDING, job_id=job_id, owner_id=owner_id, most=COUNTED)
    if row is None:
        return None
    return Standing(
        at=row["at"],
        job=as_job(row),
        attempt=_attempt(row) if row["number"] is not None else None,
        message=_message(row) if row["due_at"] is not None else None,
        released=row["ticket_released_at"] is not None,
        out=row["out"] or 0,
        busy=row["busy"] or 0,
        incompatible_since=row["incompatible_since"],
        stage_at=row["stage_at"],
        stall_after=row["stall_after"],
        asked_of=tuple(row["assignees"] or ()),
        question_key=row["question_key"],
        paused_by=row["paused_by"],
        cancelled_by=row["cancelled_by"],
        cancelled_why=row["cancelled_why"],
        held=_held(row) if row["held_kind"] is not None else None,
    )


def _held(row: Row) -> Hold:
    return Hold(row["held_kind"], row["held_name"], row["held_why"], row["held_by"], row["held_at"])


def _attempt(row: Row) -> Running:
    return Running(
        number=row["number"],
        worker=row["worker"],
        heartbeat_at=row["heartbeat_at"],
        lease_until=row["lease_until"],
        lives=row["lives"],
        leaves=row["leaves"],
        outcome=row["outcome"],
        cause=row["cause"],
    )


def _message(row: Row) -> Sending:
    return Sending(
        due_at=row["due_at"],
        published_at=row["published_at"],
        first_published_at=row["first_published_at"],
        last_error=row["last_error"],
        ahead=row["ahead"],
    )
