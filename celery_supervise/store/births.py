"""Statements that make a job: submit. One statement: job, payload, ticket's copy, log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from ..errors import Busy
from ..lifecycle import BORN, OPEN, State
from ..model import NewJob, Submitted, When
from .door import Door, Row
from .joining import Joined
from .sql import Statement, let_out, stamp

ENVELOPE_REF = "00000000-0000-0000-0000-000000000000"
"""The `ref` of a job's envelope in `payloads`: there is one."""

_FREE = let_out(":namespace", ":task", "CAST(:owner AS text)")

_OPEN = ", ".join(f"'{state}'" for state in sorted(OPEN))


def over_limit(owner: str) -> str:
    """That an owner has as many open jobs as it may: read once the owner's lock is held, by a new statement."""
    return f"""CASE WHEN CAST(:open_limit AS integer) IS NOT NULL THEN (
               SELECT count(*) >= CAST(:open_limit AS integer) FROM (
                   SELECT FROM {{s}}.jobs AS jobs
                   WHERE jobs.namespace = :namespace AND jobs.owner_id = {owner}
                     AND jobs.current_state IN ({_OPEN}) LIMIT CAST(:open_limit AS integer)) AS open) END"""


_FULL = """CASE WHEN CAST(:window AS integer) IS NOT NULL THEN (
               SELECT count(*) >= CAST(:window AS integer) FROM (
                   SELECT FROM {s}.outbox AS outbox
                   WHERE outbox.namespace = :namespace AND outbox.queue = :queue AND outbox.published_at IS NOT NULL
                     AND outbox.done_at IS NULL LIMIT CAST(:window AS integer)) AS out) END"""
"""Counted only now and then, without a lock: a soft bound (protocol 25)."""


@dataclass(frozen=True)
class Given:
    """Where the statement has its jobs from: its parameters; or a further source of ``w``, with a row for each."""

    source: str = ""
    columns: str = ""  # of the source, in w
    own: str = "true"  # that w is of the job j
    names: str = ""  # what is returned of w, too


_ONE: Final = Given()


def birth(given: Given = _ONE, *, full: str = "CAST(NULL AS boolean)", over: str = "CAST(NULL AS boolean)") -> str:
    """The statement that makes jobs."""
    envelopes = "j" if given is _ONE else f"j JOIN w ON {given.own}"
    return f"""
WITH {{gate}}
t AS MATERIALIZED (SELECT clock_timestamp() AS at),
w AS (
    SELECT {given.columns}t.at,
           greatest(t.at, coalesce(CAST(:due_at AS timestamptz), t.at + CAST(:due_in AS interval), t.at)) AS due,
           coalesce(CAST(:deadline_at AS timestamptz), t.at + CAST(:deadline_in AS interval)) AS deadline,
           coalesce(CAST(:start_by_at AS timestamptz), t.at + CAST(:start_by_in AS interval)) AS start_by,
           {full} AS full, {over} AS over
    FROM t{{gated}}{given.source}
),
j AS (
    INSERT INTO {{s}}.jobs (
        id, namespace, task, owner_id, queue, priority, current_state, log_seq,
        ticket_id, ticket_due_at, ticket_released_at, run_id, lost_limit, created_at, expires_at, start_by,
        active_left, stall_after, on_stall, stored_bytes, ignore_result, input_digest, input_version, task_version,
        idempotency_key, rerun_of)
    SELECT :job_id, :namespace, :task, :owner, :queue, CAST(:priority AS smallint), '{BORN.to}', 1,
           CAST(:ticket_id AS uuid), w.due,
           CASE WHEN w.due <= w.at AND :release AND w.full IS NOT TRUE AND {_FREE} THEN w.at END,
           CAST(:run_id AS uuid), :lost_limit, w.at, w.deadline, w.start_by,
           CAST(:max_active AS interval), CAST(:stall_after AS interval), :on_stall, :stored_bytes, :ignore_result,
           :input_digest, :input_version, :task_version, :idempotency_key, :rerun_of
    FROM w
    WHERE (w.deadline IS NULL OR w.deadline > w.at) AND w.over IS NOT TRUE
      AND NOT (:received AND EXISTS (SELECT FROM {{s}}.tombstones AS b WHERE b.job_id = :job_id))
    ON CONFLICT DO NOTHING
    RETURNING *
),
y AS (
    INSERT INTO {{s}}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, 'envelope', '{ENVELOPE_REF}', :data, :encoding, :key_id FROM {envelopes}
),
o AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, publish_until, published_at, publish_count)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at,
           j.created_at + CAST(:publish_hold AS interval), CASE WHEN :received THEN j.created_at END,
           CASE WHEN :received THEN 1 ELSE 0 END
    FROM j WHERE j.ticket_released_at IS NOT NULL
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, 1, '{BORN.log}', :actor, j.created_at,
           jsonb_strip_nulls(jsonb_build_object('task', j.task, 'owner', j.owner_id, 'queue', j.queue,
               'deadline', {stamp("j.expires_at")}, 'max_active', CAST(j.active_left AS text), 'rerun_of', j.rerun_of,
               'input', j.input_digest, 'generation', 1))
    FROM j
)
SELECT {given.names}w.at, w.deadline <= w.at AS late, w.full, w.over, j.id AS job_id, j.generation,
       j.ticket_released_at IS NOT NULL AS released
FROM w LEFT JOIN j ON {given.own}"""


SUBMIT = Statement("submit", birth(), hot=True)

SUBMIT_COUNTED = Statement("submit_counted", birth(full=_FULL, over=over_limit("CAST(:owner AS text)")))
"""It counts what is out, or, beside the owner's lock, what the holder of that lock before it has committed."""

_OWNERS_LOCK = """hashtextextended(
    'celery_supervise.owner:' || CAST(:namespace AS text) || ':' || CAST(:owner AS text), 0)"""

LOCK_OWNER = Statement(
    "lock_owner",
    f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true))
SELECT CAST(pg_advisory_xact_lock({_OWNERS_LOCK}) AS text) AS locked FROM s""",
)

TRY_OWNER = Statement("try_owner", f"SELECT pg_try_advisory_xact_lock({_OWNERS_LOCK}) AS locked")
"""In a caller's transaction, which waits for nobody (protocol 10)."""

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
    window: int | None,
    open_limit: int | None,
    joined: Joined | None,
    **hold: timedelta,
) -> Row:
    """Insert the job. The row says whether it was made (`job_id`), or came too late (`late`).

    `window`: count what is out of the queue, and release nothing where it is so many (`full`). `open_limit`: make no
    job where the owner has so many (`over`). `hold`: another ``publish_hold`` than the door's.
    """
    params = parameters(job) | dict(
        actor=actor,
        received=received,
        release=release,
        **hold,
    )
    if window is None and open_limit is None:
        row = door.one(SUBMIT, joined, **params)
    else:
        row = _counting(door, joined, window=window, open_limit=open_limit, **params)
    if row is None:
        raise AssertionError("submit returned no row")
    return row


def parameters(job: NewJob) -> dict[str, Any]:
    """What the statement is told of a job."""
    return dict(
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
        **when("due", job.due),
        **when("deadline", job.deadline),
        **when("start_by", job.start_by),
    )


def _counting(door: Door, joined: Joined | None, /, **params: Any) -> Row | None:
    if params["open_limit"] is None:
        return door.one(SUBMIT_COUNTED, joined, **params)
    if joined is None:
        return door.locked(LOCK_OWNER, SUBMIT_COUNTED, **params)
    locked = door.one(TRY_OWNER, joined, owner=params["owner"])
    if locked is None or not locked["locked"]:
        raise Busy("another submit of this owner is under way")
    return door.one(SUBMIT_COUNTED, joined, **params)


def find_twin(door: Door, job: NewJob, *, joined: Joined | None) -> Row | None:
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
