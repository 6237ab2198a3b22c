"""Statements by which `doctor` looks at the database. They change nothing, and run once in a while."""

from __future__ import annotations

from .sql import Statement

SERVER = Statement(
    "server",
    """
SELECT current_database() AS name, current_user AS role,
       split_part(current_setting('server_version'), ' ', 1) AS version,
       CAST(current_setting('max_connections') AS integer) AS allowed,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connected""",
)

OWNED = Statement(
    "owned",
    """
SELECT count(*) FILTER (WHERE pg_has_role(c.relowner, 'USAGE')) AS owned
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = CAST(:schema AS text) AND c.relkind = 'r'""",
)
"""Tables whose owner this role is, or may act as: a superuser owns all."""

COUNTS = Statement(
    "counts",
    """
SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open,
       count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended
FROM {s}.jobs WHERE namespace = :namespace""",
)

UNTOLD = Statement(
    "untold",
    """
SELECT count(*) AS jobs, max(clock_timestamp() - finished_at) AS age,
       (array_agg(id ORDER BY finished_at))[1:5] AS ids
FROM {s}.jobs
WHERE namespace = :namespace AND settled_at IS NULL
  AND finished_at < clock_timestamp() - CAST(:after AS interval)""",
)

UNSENT = Statement(
    "unsent",
    """
SELECT count(*) AS messages, max(clock_timestamp() - outbox.due_at) AS age,
       (array_agg(outbox.last_error) FILTER (WHERE outbox.last_error IS NOT NULL))[1] AS error
FROM {s}.outbox AS outbox
WHERE outbox.namespace = :namespace AND outbox.published_at IS NULL AND outbox.done_at IS NULL
  AND outbox.due_at < clock_timestamp() - CAST(:after AS interval)""",
)
"""What is due and let out; a job that waits for room in its queue is not late."""

UNSTARTED = Statement(
    "unstarted",
    """
SELECT jobs.queue, count(*) AS jobs, max(clock_timestamp() - jobs.ticket_released_at) AS age
FROM {s}.jobs AS jobs JOIN {s}.outbox AS outbox ON outbox.id = jobs.ticket_id
WHERE jobs.namespace = :namespace AND outbox.published_at IS NOT NULL
  AND jobs.ticket_released_at < clock_timestamp() - CAST(:after AS interval)
GROUP BY jobs.queue ORDER BY jobs.queue""",
)

UNRUNNABLE = Statement(
    "unrunnable",
    """
SELECT jobs.task, jobs.task_version AS version, count(*) AS jobs,
       max(clock_timestamp() - jobs.incompatible_since) AS age
FROM {s}.jobs AS jobs
WHERE jobs.namespace = :namespace AND jobs.current_state IN ('pending', 'parked')
  AND jobs.incompatible_since < clock_timestamp() - CAST(:after AS interval)
GROUP BY jobs.task, jobs.task_version ORDER BY jobs.task, version""",
)

SET_ASIDE = Statement(
    "set_aside",
    """
SELECT count(*) AS jobs, (array_agg(id ORDER BY id))[1:5] AS ids
FROM {s}.jobs WHERE namespace = :namespace AND sweep_after > clock_timestamp() AND finished_at IS NULL""",
)
"""Rows that made a sweep fail (protocol 21)."""

LONGEST = Statement(
    "longest",
    """
SELECT max(coalesce(attempts.ended_at, clock_timestamp()) - attempts.started_at) AS time
FROM {s}.attempts AS attempts JOIN {s}.jobs AS jobs ON jobs.id = attempts.job_id
WHERE jobs.namespace = :namespace""",
)
