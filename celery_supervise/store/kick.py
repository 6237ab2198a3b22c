"""The statement by which one job's message is to be sent now. The relay's, for one job and by hand; decides nothing."""

from __future__ import annotations

from .sql import Statement, not_held, one_job

KICK = Statement(
    "kick",
    one_job()
    + """,
j AS (
    UPDATE {s}.jobs AS jobs SET ticket_released_at = coalesce(t.ticket_released_at, t.at)
    FROM t
    WHERE jobs.id = t.id AND t.ticket_id IS NOT NULL AND t.ticket_due_at <= t.at AND t.pause_requested_at IS NULL
      AND """
    + not_held("t.namespace", "t.task", "t.owner_id")
    + """
    RETURNING jobs.id, jobs.namespace, jobs.ticket_id, jobs.ticket_due_at, jobs.task, jobs.queue, jobs.current_state
),
o AS (
    -- as unsent as it was at first, and nobody else's to send while the caller does
    INSERT INTO {s}.outbox AS outbox (id, namespace, kind, job_id, queue, due_at, publish_until)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at,
           clock_timestamp() + CAST(:hold AS interval)
    FROM j
    ON CONFLICT (id) DO UPDATE
    SET published_at = NULL, done_at = NULL, publish_until = excluded.publish_until
    RETURNING outbox.job_id
)
SELECT j.id AS job_id, j.ticket_id, j.task, j.queue, j.current_state FROM j JOIN o ON o.job_id = j.id""",
)
"""A second message for the same ticket is one that finds it used: the claim decides (protocol 1)."""
