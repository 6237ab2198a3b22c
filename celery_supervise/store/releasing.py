"""Statements that let tickets out, queue by queue and owner by owner (protocol 25). They move no job, and send nothing.

A ticket is due and not released while its queue is full, its owner runs as many jobs as it may, or it is held. Each
statement here is one of a transaction that holds the queue's advisory lock: one relay counts and releases at a time,
and what it counts is newer than the last one's commit.
"""

from __future__ import annotations

from .sql import Statement, not_held

_UNRELEASED = "jobs.ticket_id IS NOT NULL AND jobs.ticket_released_at IS NULL"
_WAITS = f"jobs.namespace = :namespace AND {_UNRELEASED}"
# as the index for turns has it (see the schema), and the two as mere filters
_LANE = f"""{_UNRELEASED}
      AND jobs.namespace || '/' || jobs.queue = CAST(:namespace AS text) || '/' || CAST(:queue AS text)
      AND (jobs.namespace = :namespace) IS TRUE AND (jobs.queue = :queue) IS TRUE"""
_FREE = not_held("jobs.namespace", "jobs.task", "jobs.owner_id")
_OWNER = "coalesce(jobs.owner_id, '')"
# by statement_timestamp(): an index scan cannot be bounded by clock_timestamp(), which may change while it runs
_NOW = "jobs.ticket_due_at <= statement_timestamp()"


def waiting_queues() -> str:
    """The recursive CTE of the queues that have tickets to release, now or later: one probe of an index for each."""
    return f"""
waiting (queue) AS (
    (SELECT jobs.queue FROM {{s}}.jobs AS jobs WHERE {_WAITS} ORDER BY jobs.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT jobs.queue FROM {{s}}.jobs AS jobs WHERE {_WAITS} AND jobs.queue > waiting.queue
            ORDER BY jobs.queue LIMIT 1)
    FROM waiting WHERE waiting.queue IS NOT NULL
)"""


def due_in(queue: str, columns: str, also: str = "true") -> str:
    """The tickets of a queue that are due and free, the longest due first."""
    return f"""SELECT {columns} FROM {{s}}.jobs AS jobs
    WHERE {_WAITS} AND jobs.queue = {queue} AND {_NOW} AND {_FREE} AND {also} ORDER BY jobs.ticket_due_at"""


DUE_QUEUES = Statement(
    "due_queues",
    f"""
WITH RECURSIVE {waiting_queues()}
SELECT waiting.queue FROM waiting
WHERE EXISTS (SELECT FROM {{s}}.jobs AS jobs WHERE {_WAITS} AND jobs.queue = waiting.queue AND {_NOW})""",
)

LOCK_QUEUE = Statement(
    "lock_queue",
    """
SELECT 1 AS locked WHERE pg_try_advisory_xact_lock(
    hashtextextended('{s}.release:' || CAST(:namespace AS text) || ':' || CAST(:queue AS text), 0))""",
)
"""Nobody waits for it: whoever holds it lets out what is due."""

ROOM = Statement(
    "room",
    """
SELECT :window - (
           SELECT count(*) FROM (
               SELECT FROM {s}.outbox AS outbox
               WHERE outbox.namespace = :namespace AND outbox.queue = :queue AND outbox.published_at IS NOT NULL
                 AND outbox.done_at IS NULL AND outbox.kind = 'run' LIMIT :window) AS sent)
       - (
           SELECT count(*) FROM (
               SELECT FROM {s}.outbox AS outbox
               WHERE outbox.namespace = :namespace AND outbox.queue = :queue AND outbox.published_at IS NULL
                 AND outbox.done_at IS NULL AND outbox.kind = 'run' LIMIT :window) AS unsent) AS room,
       (SELECT queues.served_owner FROM {s}.queues AS queues
        WHERE queues.namespace = :namespace AND queues.name = :queue) AS served""",
)
"""How many more tickets the queue takes, and the owner that was served last. Released ones have a copy (`publish`)."""

COUNT_DUE = Statement(
    "count_due",
    f"""
SELECT count(*) AS due FROM ({due_in(":queue", "jobs.id")} LIMIT CAST(:most AS integer)) AS due""",
)

OWNERS = Statement(
    "owners",
    f"""
WITH RECURSIVE owner (name) AS (
    (SELECT {_OWNER} FROM {{s}}.jobs AS jobs
     WHERE {_LANE} AND {_OWNER} >= CAST(:since AS text)
     ORDER BY {_OWNER} LIMIT 1)
    UNION ALL
    SELECT (SELECT {_OWNER} FROM {{s}}.jobs AS jobs
            WHERE {_LANE} AND {_OWNER} > owner.name ORDER BY {_OWNER} LIMIT 1)
    FROM owner WHERE owner.name IS NOT NULL
)
SELECT looked.name, EXISTS (
           SELECT FROM {{s}}.jobs AS jobs WHERE {_LANE} AND {_OWNER} = looked.name AND {_NOW}) AS due
FROM (SELECT owner.name FROM owner WHERE owner.name IS NOT NULL LIMIT CAST(:most AS integer)) AS looked""",
)
"""The next owners by name who have tickets in the queue, '' for none: a probe or two of an index for each."""

BUSY = Statement(
    "busy",
    """
SELECT part.owner_id AS owner, count(*) AS jobs FROM (
    SELECT jobs.owner_id FROM {s}.jobs AS jobs
    WHERE jobs.namespace = :namespace AND jobs.current_state = 'running' AND jobs.queue = :queue
      AND (jobs.owner_id = ANY(CAST(:owners AS text[]))) IS TRUE
    UNION ALL
    SELECT jobs.owner_id FROM {s}.outbox AS outbox
    JOIN {s}.jobs AS jobs ON jobs.id = outbox.job_id AND jobs.ticket_id = outbox.id
    WHERE outbox.namespace = :namespace AND outbox.queue = :queue AND outbox.done_at IS NULL AND outbox.kind = 'run'
      AND jobs.ticket_released_at IS NOT NULL AND (jobs.owner_id = ANY(CAST(:owners AS text[]))) IS TRUE) AS part
GROUP BY part.owner_id""",
)
"""What runs and what is released, by owner. Parked jobs, and those that wait for a time, are none of it."""


def _release(chosen: str) -> str:
    return f"""
WITH due AS MATERIALIZED ({chosen}),
locked AS MATERIALIZED (
    SELECT jobs.id FROM due JOIN {{s}}.jobs AS jobs ON jobs.id = due.id
    WHERE jobs.ticket_id IS NOT NULL AND jobs.ticket_released_at IS NULL
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
),
j AS (
    UPDATE {{s}}.jobs AS jobs SET ticket_released_at = clock_timestamp()
    FROM locked WHERE jobs.id = locked.id AND jobs.ticket_id IS NOT NULL AND jobs.ticket_released_at IS NULL
    RETURNING jobs.id, jobs.namespace, jobs.queue, jobs.ticket_id, jobs.ticket_due_at
),
o AS (
    -- one that was held back has a copy already
    INSERT INTO {{s}}.outbox AS outbox (id, namespace, kind, job_id, queue, due_at)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at FROM j
    ON CONFLICT (id) DO UPDATE SET published_at = NULL, publish_until = NULL, done_at = NULL
)
SELECT j.id AS job_id FROM j"""


RELEASE = Statement("release", _release(f"{due_in(':queue', 'jobs.id')} LIMIT CAST(:most AS integer)"))

RELEASE_SHARES = Statement(
    "release_shares",
    _release(
        f"""
    SELECT part.id
    FROM unnest(CAST(:owners AS text[]), CAST(:shares AS integer[])) AS owner (name, share)
    CROSS JOIN LATERAL (
        SELECT jobs.id FROM {{s}}.jobs AS jobs WHERE {_LANE} AND {_OWNER} = owner.name AND {_NOW} AND {_FREE}
        ORDER BY jobs.ticket_due_at LIMIT owner.share) AS part"""
    ),
)

NOTE_SERVED = Statement(
    "note_served",
    """
INSERT INTO {s}.queues AS queues (namespace, name, served_owner)
VALUES (:namespace, :queue, CAST(:owner AS text))
ON CONFLICT (namespace, name) DO UPDATE SET served_owner = excluded.served_owner
RETURNING queues.name""",
)
