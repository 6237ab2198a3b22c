"""Statements that count, for `stats` and metrics. They change nothing and wait for nothing.

What each costs grows with what is open or waiting, never with the log or with how much has ended: those are counted in
an index alone. All stop at `:most` rows a state, which is told.
"""

from __future__ import annotations

from ..lifecycle import OPEN, TERMINAL
from .releasing import due_in, waiting_queues
from .sql import Statement


def _states(states: frozenset[str]) -> str:
    return "unnest(ARRAY[" + ", ".join(f"'{state}'" for state in sorted(states)) + "]) AS state (name)"


ENDED = Statement(
    "ended",
    f"""
SELECT state.name, counted.jobs FROM {_states(TERMINAL)} CROSS JOIN LATERAL (
    SELECT count(*) AS jobs FROM (
        SELECT FROM {{s}}.jobs AS jobs WHERE jobs.namespace = :namespace AND jobs.current_state = state.name
        LIMIT :most) AS part) AS counted""",
)

OPEN_JOBS = Statement(
    "open_jobs",
    f"""
SELECT state.name, clock_timestamp() AS at, counted.* FROM {_states(OPEN)} CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, min(part.created_at) AS oldest, coalesce(sum(part.lost_count), 0) AS lost,
           count(*) FILTER (WHERE part.current_state = 'parked' AND coalesce(part.watchdog_stop_reason, '') = '')
               AS without_reason
    FROM (
        SELECT jobs.created_at, jobs.lost_count, jobs.current_state, jobs.watchdog_stop_reason
        FROM {{s}}.jobs AS jobs WHERE jobs.namespace = :namespace AND jobs.current_state = state.name
        ORDER BY jobs.created_at LIMIT :most) AS part) AS counted""",
)

STAGES = Statement(
    "stages",
    """
SELECT jobs.task, jobs.node, count(*) AS jobs, max(clock_timestamp() - jobs.stage_at) AS longest,
       avg(clock_timestamp() - jobs.stage_at) AS mean,
       max(clock_timestamp() - coalesce(jobs.progress_at, jobs.started_at)) AS progress_age,
       max(clock_timestamp() - attempts.heartbeat_at) AS heartbeat_age,
       count(*) FILTER (
           WHERE clock_timestamp() - greatest(jobs.stage_at, jobs.progress_at) > jobs.stall_after) AS stalled
FROM {s}.jobs AS jobs JOIN {s}.attempts AS attempts ON attempts.token = jobs.current_token
WHERE jobs.namespace = :namespace AND jobs.current_state = 'running'
GROUP BY jobs.task, jobs.node ORDER BY longest DESC""",
)
"""What runs, by the checkpoint it passed last: so many rows, at most, as the workers have processes."""

PARKED = Statement(
    "parked",
    """
SELECT split_part(coalesce(part.watchdog_stop_reason, ''), ':', 1) AS reason, count(*) AS jobs,
       max(clock_timestamp() - coalesce(attempts.ended_at, part.created_at)) AS oldest
FROM (
    SELECT jobs.id, jobs.watchdog_stop_reason, jobs.attempt_count, jobs.created_at FROM {s}.jobs AS jobs
    WHERE jobs.namespace = :namespace AND jobs.current_state = 'parked'
    ORDER BY jobs.created_at LIMIT :most) AS part
LEFT JOIN {s}.attempts AS attempts ON attempts.job_id = part.id AND attempts.number = part.attempt_count
GROUP BY reason ORDER BY reason""",
)
"""A job is parked since its last attempt ended; one whose pause was seen before any, since it was made."""

_UNCOUNTED = "(CAST(:counted AS boolean) IS NOT TRUE OR jobs.owner_id IS NULL)"

RUNNABLE = Statement(
    "runnable",
    f"""
WITH RECURSIVE {waiting_queues()}
SELECT part.queue, count(*) AS jobs, max(clock_timestamp() - part.due_at) AS oldest,
       count(*) FILTER (WHERE part.publish_count > 1) AS republished
FROM (
    (SELECT outbox.queue, outbox.due_at, outbox.publish_count, outbox.kind FROM {{s}}.outbox AS outbox
     WHERE outbox.namespace = :namespace AND outbox.published_at IS NOT NULL AND outbox.done_at IS NULL LIMIT :most)
    UNION ALL
    (SELECT outbox.queue, outbox.due_at, outbox.publish_count, outbox.kind FROM {{s}}.outbox AS outbox
     WHERE outbox.namespace = :namespace AND outbox.published_at IS NULL AND outbox.done_at IS NULL
       AND outbox.due_at <= statement_timestamp()
     LIMIT :most)
    UNION ALL
    (SELECT due.queue, due.ticket_due_at, 0, 'run' FROM waiting CROSS JOIN LATERAL (
         {due_in("waiting.queue", "jobs.queue, jobs.ticket_due_at", _UNCOUNTED)} LIMIT :most) AS due)) AS part
WHERE part.kind = 'run' GROUP BY part.queue ORDER BY part.queue""",
)
"""What workers could take now, were there more of them: sent, about to be, or waiting for room in its queue. Not what
waits for its owner to have less: more workers would not start it."""

REFUSED = Statement(
    "refused_writes",
    f"""
SELECT count(*) AS writes FROM {_states(OPEN)} JOIN {{s}}.jobs AS jobs ON jobs.current_state = state.name
JOIN {{s}}.log AS log ON log.job_id = jobs.id
WHERE jobs.namespace = :namespace AND jobs.lost_count > 0 AND log.event = 'refused'""",
)
"""Of open jobs that lost an attempt: only what such an attempt still writes is refused. By the log's own key."""
