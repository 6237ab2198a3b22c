"""Statements of cleanups (`on_abandon`): registered by the holder, sent through the outbox once the job is over (27).

They are looked for where Celery is told of the end: that is after its commit, in a snapshot that has all which the
fenced attempts registered, and happens to each job. So no statement that ends a job has to know of them.
"""

from __future__ import annotations

from .sql import Statement, one_job

OWN = "position(CAST(cleanups.attempt_token AS text) IN cleanups.name) > 0"
"""Whether it is of what only its own attempt makes: it can take nothing from any other."""

OPEN = "cleanups.dispatched_at IS NULL AND cleanups.dropped_at IS NULL AND cleanups.data IS NOT NULL"


def identity(why: str) -> str:
    """The fixed id of a message: of the same cleanup for the same reason there is one, however often it is sent."""
    text = f"octet_length(cleanups.job_id) || ':' || cleanups.job_id || cleanups.name || ':' || {why}"
    return f"CAST(encode(substring(sha256(convert_to({text}, 'UTF8')) FROM 1 FOR 16), 'hex') AS uuid)"


REGISTER = Statement(
    "register",
    one_job()
    + """,
c AS (
    INSERT INTO {s}.cleanups (job_id, name, attempt_token, data, encoding, key_id, registered_at)
    SELECT t.id, :name, CAST(:token AS uuid), CAST(:data AS bytea), :encoding, :key_id, t.at FROM t
    WHERE t.current_state = 'running' AND t.current_token = CAST(:token AS uuid)
    ON CONFLICT (job_id, name) DO UPDATE
    SET attempt_token = excluded.attempt_token, data = excluded.data, encoding = excluded.encoding,
        key_id = excluded.key_id, registered_at = excluded.registered_at
    RETURNING cleanups.job_id
)
SELECT c.job_id FROM c""",
)
"""Fenced, not judged: what it takes back has not happened yet. Registered again, the newest one counts."""


def send_after(ended: str) -> str:
    """The CTE that puts the cleanups of the jobs in the CTE `ended` into the outbox.

    Of a job that completed: only those of what another attempt alone had made, which is nobody's now.
    """
    return f""",
cleaning AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, data)
    SELECT {identity("'end'")}, {ended}.namespace, 'cleanup', cleanups.job_id, {ended}.queue, clock_timestamp(),
           jsonb_build_object('name', cleanups.name)
    FROM {ended} JOIN {{s}}.cleanups AS cleanups ON cleanups.job_id = {ended}.id
    WHERE {OPEN} AND ({ended}.current_state <> 'completed' OR ({_of_another(ended)}))
    ON CONFLICT DO NOTHING
)"""


def _of_another(ended: str) -> str:
    """The statement that ends an attempt does not see its outcome yet: that one is known by its settle id."""
    return f"""{OWN} AND cleanups.attempt_token IS DISTINCT FROM {ended}.settle_id AND NOT EXISTS (
        SELECT FROM {{s}}.attempts AS attempts
        WHERE attempts.token = cleanups.attempt_token AND attempts.outcome = 'completed')"""


def drop_after(ended: str) -> str:
    """The CTE that drops the cleanups of the jobs in the CTE `ended` that completed."""
    return f""",
dropped AS (
    UPDATE {{s}}.cleanups AS cleanups SET dropped_at = clock_timestamp()
    FROM {ended}
    WHERE cleanups.job_id = {ended}.id AND {ended}.current_state = 'completed' AND {OPEN} AND NOT ({_of_another(ended)})
)"""


SEND_AGAIN = Statement(
    "send_again",
    one_job()
    + f""",
n AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, data)
    SELECT {identity("CAST(:token AS text)")}, t.namespace, 'cleanup', t.id, t.queue, t.at,
           jsonb_build_object('name', cleanups.name, 'attempt', CAST(:token AS text))
    FROM t JOIN {{s}}.cleanups AS cleanups ON cleanups.job_id = t.id
    JOIN {{s}}.attempts AS attempts ON attempts.job_id = t.id AND attempts.token = CAST(:token AS uuid)
    WHERE t.current_token IS DISTINCT FROM CAST(:token AS uuid)
      AND cleanups.data IS NOT NULL AND cleanups.dropped_at IS NULL
      AND (t.current_state IN ('cancelled', 'expired', 'failed')
           OR position(CAST(:token AS text) IN cleanups.name) > 0)
    ON CONFLICT DO NOTHING
    RETURNING id
)
SELECT n.id FROM n""",
)
"""A stale attempt was refused: what it did since its job was taken from it, a cleanup sent before has not seen.

Where the job goes on, or completed, only what no other attempt has: else the winner's output would go with it.
"""

SENT = Statement(
    "sent",
    """
UPDATE {s}.cleanups AS cleanups SET dispatched_at = clock_timestamp()
FROM {s}.outbox AS outbox
WHERE outbox.id = CAST(:id AS uuid) AND outbox.kind = 'cleanup' AND outbox.namespace = :namespace
  AND cleanups.job_id = outbox.job_id AND cleanups.name = outbox.data ->> 'name'
  AND cleanups.dispatched_at IS NULL AND cleanups.dropped_at IS NULL
RETURNING cleanups.job_id""",
)
"""The broker has it. Until then erase leaves its data, and prune its job."""
