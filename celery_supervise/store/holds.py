"""Statements of holds: a task or an owner of which nothing starts for now. They move no job.

A hold takes effect through `ticket_released_at` alone, without which no claim succeeds: whoever issues a ticket leaves
it out (`not_held`), `HOLD_BACK` takes it back, the relay's `RELEASE` does not give it.
"""

from __future__ import annotations

from .sql import Statement

HOLD = Statement(
    "hold",
    """
INSERT INTO {s}.holds AS holds (namespace, kind, name, reason, actor)
VALUES (:namespace, CAST(:kind AS text), CAST(:name AS text), CAST(:reason AS text), CAST(:actor AS text))
ON CONFLICT (namespace, kind, name) DO UPDATE SET reason = excluded.reason, actor = excluded.actor
RETURNING holds.*""",
)

LET_GO = Statement(
    "let_go",
    """
DELETE FROM {s}.holds AS holds
WHERE holds.namespace = :namespace AND holds.kind = CAST(:kind AS text) AND holds.name = CAST(:name AS text)
RETURNING holds.*""",
)

HOLDS = Statement(
    "holds", "SELECT * FROM {s}.holds AS holds WHERE holds.namespace = :namespace ORDER BY held_at, kind, name"
)

HOLD_BACK = Statement(
    "hold_back",
    """
WITH held AS MATERIALIZED (
    SELECT jobs.id FROM {s}.jobs AS jobs
    WHERE jobs.namespace = :namespace AND jobs.current_state IN ('parked', 'pending')
      AND jobs.ticket_released_at IS NOT NULL
      AND EXISTS (SELECT FROM {s}.holds AS holds WHERE holds.namespace = jobs.namespace
                  AND ((holds.kind = 'task' AND holds.name = jobs.task)
                       OR (holds.kind = 'owner' AND holds.name = jobs.owner_id)))
    LIMIT :batch
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
),
j AS (
    UPDATE {s}.jobs AS jobs SET ticket_released_at = NULL
    FROM held WHERE jobs.id = held.id AND jobs.ticket_released_at IS NOT NULL
    RETURNING jobs.id, jobs.ticket_id
),
o AS (
    -- a message that is out finds a ticket that may not be used; there is nothing to send until it is released again
    UPDATE {s}.outbox AS outbox SET done_at = clock_timestamp() FROM j WHERE outbox.id = j.ticket_id
)
SELECT j.id AS job_id FROM j""",
)
"""What was let out before its hold, or by a statement that began before it. Waits for nobody: what is locked just now
is looked at again by the next pass."""
