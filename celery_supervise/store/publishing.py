"""Statements of the relay: take and stamp what is to publish, settle. They hold no lock while sending."""

from __future__ import annotations

from .cleanups import drop_after, send_after
from .sql import LAZY, Statement

# What is due is found by statement_timestamp(): these searches wait for no lock, and an index scan cannot be bounded
# by clock_timestamp(), which may change while it runs. A pass must cost what it takes, not what is scheduled.

TAKE = Statement(
    "take",
    """
WITH due AS MATERIALIZED (
    SELECT outbox.id FROM {s}.outbox AS outbox
    WHERE outbox.namespace = :namespace AND outbox.published_at IS NULL AND outbox.done_at IS NULL
      AND outbox.due_at <= statement_timestamp()
      AND (outbox.publish_until IS NULL OR outbox.publish_until <= clock_timestamp())
    ORDER BY outbox.due_at LIMIT :batch
    FOR NO KEY UPDATE SKIP LOCKED
),
taken AS (
    UPDATE {s}.outbox AS outbox
    SET publish_until = clock_timestamp() + CAST(:publish_hold AS interval) * least(power(2, outbox.tries), 4),
        tries = outbox.tries + 1
    FROM due WHERE outbox.id = due.id
    RETURNING outbox.id, outbox.kind, outbox.job_id, outbox.queue, outbox.data, outbox.due_at
)
SELECT taken.id, taken.kind, taken.job_id, taken.queue, taken.data AS detail, jobs.task, jobs.current_state,
       jobs.watchdog_stop_reason,
       CASE taken.kind WHEN 'cleanup' THEN cleanups.data ELSE payloads.data END AS data,
       CASE taken.kind WHEN 'cleanup' THEN cleanups.encoding ELSE payloads.encoding END AS encoding,
       CASE taken.kind WHEN 'cleanup' THEN cleanups.key_id ELSE payloads.key_id END AS key_id,
       taken.kind = 'run' AND (jobs.ticket_id IS DISTINCT FROM taken.id) AS stale
FROM taken
LEFT JOIN {s}.jobs AS jobs ON jobs.id = taken.job_id
LEFT JOIN {s}.payloads AS payloads ON payloads.job_id = taken.job_id AND payloads.kind = 'envelope'
LEFT JOIN {s}.cleanups AS cleanups
    ON taken.kind = 'cleanup' AND cleanups.job_id = taken.job_id AND cleanups.name = taken.data ->> 'name'
ORDER BY taken.due_at""",
)
"""Stamps what it takes and commits: publishing happens afterwards, with no transaction open (23)."""


def _free(which: str) -> str:
    """Those rows of the outbox that nobody holds.

    Waits for nothing: a relay marks many rows, and so does a sweep, in another order. What a claim or a sweep holds
    just now is done with anyway; if not, it is sent once more.
    """
    return f"""
l AS MATERIALIZED (
    SELECT outbox.id FROM {{s}}.outbox AS outbox
    WHERE outbox.id = {which} AND (outbox.namespace = :namespace) IS TRUE
    FOR NO KEY UPDATE SKIP LOCKED
)"""


def _stamp(which: str) -> str:
    return f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true){LAZY}),{_free(which)}
UPDATE {{s}}.outbox AS outbox
SET published_at = clock_timestamp(), first_published_at = coalesce(outbox.first_published_at, clock_timestamp()),
    publish_count = outbox.publish_count + 1, publish_until = NULL, tries = 0, last_error = NULL,
    done_at = CASE WHEN outbox.kind = 'run' THEN outbox.done_at ELSE clock_timestamp() END
FROM s, l WHERE outbox.id = l.id
RETURNING outbox.id"""


_MANY = "ANY(CAST(:ids AS uuid[]))"

STAMP = Statement("stamp", _stamp(_MANY))
"""A stamp that is lost in a crash costs one message too many: it does not wait for the disk."""

STAMP_ONE = Statement("stamp_one", _stamp("CAST(:id AS uuid)"), hot=True)
"""The same for who has just published. Of many, a kept plan would not know how many, and read the whole table."""

DROP = Statement(
    "drop",
    f"""
WITH{_free(_MANY)}
UPDATE {{s}}.outbox AS outbox SET done_at = clock_timestamp()
FROM l WHERE outbox.id = l.id AND outbox.done_at IS NULL
RETURNING outbox.id""",
)

NOTE_ERROR = Statement(
    "note_error",
    """
UPDATE {s}.outbox AS outbox SET last_error = :error
WHERE outbox.id = CAST(:id AS uuid) AND outbox.namespace = :namespace
RETURNING outbox.id""",
)

# --- lost messages: evidence per queue (protocol 24) -----------------------------------------------------

COUNT_OUT = Statement(
    "count_out",
    """
WITH t AS MATERIALIZED (
    SELECT clock_timestamp() AS now, coalesce(CAST(:at AS timestamptz), clock_timestamp()) AS at
),
released AS (
    SELECT outbox.queue, count(*) AS released, count(*) FILTER (WHERE outbox.publish_until > t.now) AS reserved,
           CAST(sum(outbox.publish_count) - count(*) AS bigint) AS copies
    FROM {s}.outbox AS outbox, t
    WHERE outbox.namespace = :namespace AND outbox.published_at IS NOT NULL AND outbox.done_at IS NULL
      AND outbox.published_at <= t.at AND (CAST(:queue AS text) IS NULL OR outbox.queue = :queue)
    GROUP BY outbox.queue
)
SELECT released.queue, released.released, released.copies, released.released - released.reserved AS expected,
       queues.checked_at AS last_at, queues.broker_count AS last_found, coalesce(queues.low_sweeps, 0) AS low_sweeps,
       t.now AS at
FROM released LEFT JOIN {s}.queues AS queues ON queues.namespace = :namespace AND queues.name = released.queue, t""",
)
"""Per queue: the tickets that were published by `at` and are unclaimed, and of how many more messages than one each;
those that no worker says it has in hand are `expected` to wait in the broker. And what the sweep before this one saw.
"""

NOTE_QUEUE = Statement(
    "note_queue",
    """
INSERT INTO {s}.queues AS queues (namespace, name, released_count, broker_count, low_sweeps, checked_at)
VALUES (:namespace, :queue, :released, CAST(:found AS integer), :low, CAST(:at AS timestamptz))
ON CONFLICT (namespace, name) DO UPDATE
SET released_count = excluded.released_count, broker_count = excluded.broker_count,
    low_sweeps = CASE WHEN :low > 0 THEN queues.low_sweeps + 1 ELSE 0 END, checked_at = excluded.checked_at
RETURNING queues.low_sweeps""",
)

REPUBLISH = Statement(
    "republish",
    """
WITH lost AS MATERIALIZED (
    SELECT outbox.id FROM {s}.outbox AS outbox JOIN {s}.jobs AS jobs ON jobs.ticket_id = outbox.id
    WHERE outbox.namespace = :namespace AND outbox.queue = :queue AND outbox.published_at IS NOT NULL
      AND outbox.done_at IS NULL AND (outbox.publish_until IS NULL OR outbox.publish_until <= clock_timestamp())
      AND outbox.published_at <= clock_timestamp()
          - CAST(:settling AS interval)
          * CASE WHEN :by_age THEN least(power(2, outbox.publish_count - 1), 64) ELSE 1 END
    ORDER BY outbox.published_at LIMIT :batch
    FOR NO KEY UPDATE OF outbox SKIP LOCKED
)
UPDATE {s}.outbox AS outbox SET published_at = NULL, publish_until = NULL
FROM lost WHERE outbox.id = lost.id
RETURNING outbox.id, outbox.job_id""",
)

RESERVED = Statement(
    "reserved",
    f"""
WITH{_free(_MANY)}
UPDATE {{s}}.outbox AS outbox SET publish_until = clock_timestamp() + CAST(:lease AS interval)
FROM l WHERE outbox.id = l.id AND outbox.published_at IS NOT NULL AND outbox.done_at IS NULL
  AND (outbox.publish_until IS NULL OR outbox.publish_until < clock_timestamp() + CAST(:lease AS interval) / 2)
RETURNING outbox.id""",
)
"""A worker has these tickets in hand, and has not begun: for a lease nobody calls them lost (24)."""

# --- settling --------------------------------------------------------------------------------------------

SETTLE_TRIES = 100
"""At a try an hour, in the end, four days; then it is for people: `doctor` shows it."""

TAKE_SETTLING = Statement(
    "take_settling",
    f"""
WITH due AS MATERIALIZED (
    SELECT jobs.id FROM {{s}}.jobs AS jobs
    WHERE jobs.namespace = :namespace AND jobs.settled_at IS NULL AND jobs.settle_due_at <= statement_timestamp()
      AND jobs.settle_tries < {SETTLE_TRIES}
      AND jobs.current_state IN ('cancelled', 'completed', 'expired', 'failed')
    ORDER BY jobs.settle_due_at LIMIT :batch
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
),
j AS (
    UPDATE {{s}}.jobs AS jobs
    SET settle_id = gen_random_uuid(), settle_tries = jobs.settle_tries + 1,
        settle_due_at = clock_timestamp() + CAST(:lease AS interval) * least(power(2, jobs.settle_tries), 64)
    FROM due WHERE jobs.id = due.id AND jobs.settled_at IS NULL AND jobs.settle_due_at <= clock_timestamp()
    RETURNING jobs.id, jobs.namespace, jobs.queue, jobs.current_state, jobs.settle_id, jobs.settle_tries
){send_after("j")}
SELECT j.id AS job_id, j.settle_id, j.settle_tries FROM j""",
)
"""A teller wins a compare-and-swap on the due time before it tells (26); a new id, so that the old one is void."""

HASTEN_SETTLING = Statement(
    "hasten_settling",
    """
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true))
UPDATE {s}.jobs AS jobs SET settle_due_at = clock_timestamp()
FROM {s}.attempts AS attempts, s
WHERE attempts.job_id = :job_id AND attempts.ticket_id = CAST(:ticket_id AS uuid)
  AND attempts.incarnation = CAST(:incarnation AS uuid) AND attempts.pid = :pid
  AND jobs.id = attempts.job_id AND jobs.namespace = :namespace AND jobs.settle_id = attempts.token
  AND jobs.settled_at IS NULL
RETURNING jobs.id AS job_id""",
)
"""The finisher is known to be dead: its lease on telling Celery ends now."""

CLAIM_SETTLING = Statement(
    "claim_settling",
    """
UPDATE {s}.jobs AS jobs
SET settle_id = CAST(:new_settle_id AS uuid), settle_due_at = clock_timestamp() + CAST(:lease AS interval)
WHERE jobs.id = :job_id AND jobs.namespace = :namespace AND jobs.settle_id = CAST(:settle_id AS uuid)
  AND jobs.settled_at IS NULL
RETURNING jobs.id AS job_id, jobs.current_state, jobs.watchdog_stop_reason""",
)
"""The worker that received a settle message takes the settling over: a second copy of it finds another id."""

SETTLED = Statement(
    "settled",
    f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),
x AS MATERIALIZED (
    SELECT * FROM unnest(CAST(:job_ids AS text[]), CAST(:settle_ids AS uuid[]), CAST(:failed AS boolean[]))
        AS x (job_id, settle_id, failed)
),
l AS MATERIALIZED (
    SELECT {{read}}, x.settle_id AS told, x.failed FROM {{s}}.jobs AS jobs JOIN x ON x.job_id = jobs.id, s
    ORDER BY jobs.id FOR NO KEY UPDATE OF jobs SKIP LOCKED
),
t AS MATERIALIZED (SELECT l.*, clock_timestamp() AS at FROM l),
j AS (
    UPDATE {{s}}.jobs AS jobs SET settled_at = t.at, log_seq = t.log_seq + 1
    FROM t
    WHERE jobs.id = t.id AND t.namespace = :namespace AND t.settled_at IS NULL AND t.settle_id IS NOT NULL
      AND (t.failed IS NULL OR t.failed = (t.current_state <> 'completed')) AND (
        t.settle_id = t.told
        OR (t.told IS NULL AND EXISTS (
            SELECT FROM {{s}}.attempts AS attempts
            WHERE attempts.token = t.settle_id AND attempts.incarnation = CAST(:incarnation AS uuid))))
    RETURNING jobs.id, jobs.log_seq, jobs.settled_at, jobs.settle_id, jobs.current_state, jobs.namespace, jobs.queue
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, 'settled', :actor, j.settled_at, jsonb_build_object('state', j.current_state) FROM j
),
o AS (
    DELETE FROM {{s}}.outbox AS outbox USING j
    WHERE outbox.job_id = j.id
      AND (outbox.kind IN ('run', 'settle') OR (outbox.kind = 'notify' AND outbox.done_at IS NOT NULL))
){send_after("j")}{drop_after("j")}
SELECT j.id AS job_id FROM j""",
)
"""Celery has been told. By the settle id; a worker's main process, which knows only its incarnation, gives NULL.

Rows are locked by their ids alone. What has just ended is not settled, which no statistics say: named beside the ids,
it is taken for next to nothing, and all jobs of the namespace are looked at.
"""

STILL_UNSETTLED = Statement(
    "still_unsettled",
    """
SELECT jobs.id AS job_id, jobs.current_state FROM {s}.jobs AS jobs
JOIN {s}.attempts AS attempts ON attempts.token = jobs.settle_id
WHERE jobs.id = ANY(:job_ids) AND jobs.namespace = :namespace AND jobs.settled_at IS NULL
  AND attempts.incarnation = CAST(:incarnation AS uuid)""",
)
"""Told, but the row was locked when it was to be marked: it is given again (`SETTLED` skips locked rows)."""
