"""Statements that make a job: submit. One statement: job, payload, ticket's copy, log."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.engine import Connection

from ..lifecycle import BORN, State
from ..model import NewJob, Submitted, When
from .door import Door, Row
from .sql import Statement, not_held, stamp

ENVELOPE_REF = "00000000-0000-0000-0000-000000000000"
"""The `ref` of a job's envelope in `payloads`: there is one."""

_FREE = not_held(":namespace", ":task", "CAST(:owner AS text)")

SUBMIT = Statement(
    "submit",
    f"""
WITH {{gate}}
t AS MATERIALIZED (SELECT clock_timestamp() AS at),
w AS (
    SELECT t.at,
           greatest(t.at, coalesce(CAST(:due_at AS timestamptz), t.at + CAST(:due_in AS interval), t.at)) AS due,
           coalesce(CAST(:deadline_at AS timestamptz), t.at + CAST(:deadline_in AS interval)) AS deadline,
           coalesce(CAST(:start_by_at AS timestamptz), t.at + CAST(:start_by_in AS interval)) AS start_by
    FROM t{{gated}}
),
j AS (
    INSERT INTO {{s}}.jobs (
        id, namespace, task, owner_id, queue, priority, current_state, log_seq,
        ticket_id, ticket_due_at, ticket_released_at, run_id, lost_limit, created_at, expires_at, start_by,
        active_left, stall_after, on_stall, stored_bytes, ignore_result, input_digest, input_version, task_version,
        idempotency_key, rerun_of)
    SELECT :job_id, :namespace, :task, :owner, :queue, CAST(:priority AS smallint), '{BORN.to}', 1,
           CAST(:ticket_id AS uuid), w.due, CASE WHEN w.due <= w.at AND :release AND {_FREE} THEN w.at END,
           CAST(:run_id AS uuid), :lost_limit, w.at, w.deadline, w.start_by,
           CAST(:max_active AS interval), CAST(:stall_after AS interval), :on_stall, :stored_bytes, :ignore_result,
           :input_digest, :input_version, :task_version, :idempotency_key, :rerun_of
    FROM w
    WHERE (w.deadline IS NULL OR w.deadline > w.at)
      AND NOT (:received AND EXISTS (SELECT FROM {{s}}.tombstones AS b WHERE b.job_id = :job_id))
    ON CONFLICT DO NOTHING
    RETURNING *
),
y AS (
    INSERT INTO {{s}}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, 'envelope', '{ENVELOPE_REF}', :data, :encoding, :key_id FROM j
),
o AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, publish_until, published_at, publish_count)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at,
           CASE WHEN j.ticket_released_at IS NOT NULL THEN j.created_at + CAST(:publish_hold AS interval) END,
           CASE WHEN :received AND j.ticket_released_at IS NOT NULL THEN j.created_at END,
           CASE WHEN :received THEN 1 ELSE 0 END
    FROM j
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, 1, '{BORN.log}', :actor, j.created_at,
           jsonb_strip_nulls(jsonb_build_object('task', j.task, 'owner', j.owner_id, 'queue', j.queue,
               'deadline', {stamp("j.expires_at")}, 'max_active', CAST(j.active_left AS text), 'rerun_of', j.rerun_of,
               'input', j.input_digest, 'generation', 1))
    FROM j
)
SELECT w.at, w.deadline <= w.at AS late, j.id AS job_id, j.generation, j.ticket_released_at IS NOT NULL AS released
FROM w LEFT JOIN j ON true""",
    hot=True,
)

FIND_TWIN = Statement(
    "find_twin",
    """
SELECT id AS job_id, namespace, task, owner_id, current_state, generation, input_digest, input_version,
       idempotency_key, ticket_id, run_id, (SELECT count(*) FROM {s}.tombstones AS b WHERE b.job_id = :job_id) AS pruned
FROM {s}.jobs
WHERE id = :job_id
   OR (namespace = :namespace AND coalesce(owner_id, '') = coalesce(CAST(:owner AS text), '')
       AND task = :task AND idempotency_key = :idempotency_key)
ORDER BY id = :job_id DESC LIMIT 1""",
)


def submit(
    door: Door,
    job: NewJob,
    *,
    actor: str,
    received: bool,
    release: bool,
    joined: Connection | None,
    **hold: timedelta,
) -> Row:
    """Insert the job. The row says whether it was made (`job_id`), or came too late (`late`).

    `hold`: another ``publish_hold`` than the door's.
    """
    row = door.one(
        SUBMIT,
        joined,
        job_id=job.id,
        task=job.task,
        owner=job.owner_id,
        queue=job.queue,
        priority=job.priority,
        ticket_id=job.ticket_id,
        run_id=job.run_id,
        lost_limit=job.lost_limit,
        max_active=job.max_active,
        stall_after=job.stall_after,
        on_stall=job.on_stall,
        stored_bytes=job.stored_bytes,
        ignore_result=job.ignore_result,
        input_digest=job.input_digest,
        input_version=job.input_version,
        task_version=job.task_version,
        idempotency_key=job.idempotency_key,
        rerun_of=job.rerun_of,
        data=job.envelope.data,
        encoding=job.envelope.encoding,
        key_id=job.envelope.key_id,
        actor=actor,
        received=received,
        release=release,
        **hold,
        **when("due", job.due),
        **when("deadline", job.deadline),
        **when("start_by", job.start_by),
    )
    if row is None:
        raise AssertionError("submit returned no row")
    return row


def find_twin(door: Door, job: NewJob, *, joined: Connection | None) -> Row | None:
    """The job that already has this id or idempotency key, read by a new statement (protocol 18)."""
    return door.one(
        FIND_TWIN, joined, job_id=job.id, owner=job.owner_id, task=job.task, idempotency_key=job.idempotency_key
    )


def when(name: str, value: When | None) -> dict[str, datetime | timedelta | None]:
    """The two parameters of a time: absolute, or from the database's now."""
    absolute = value if isinstance(value, datetime) else None
    relative = value if isinstance(value, timedelta) else None
    return {f"{name}_at": absolute, f"{name}_in": relative}


def submitted(row: Row, *, created: bool) -> Submitted:
    """The outcome of a submit from the row made or found."""
    return Submitted(
        job_id=row["job_id"],
        state=State(row["current_state"]) if "current_state" in row else BORN.to,
        generation=row["generation"],
        created=created,
        released=bool(row.get("released", True)),
    )
