"""Statements of jobs that run and make no progress: noted once a stage, ended where the task asks for it.

A heartbeat shows that a process lives, nothing more. Progress is a checkpoint, or what the body says by `progress`.
"""

from __future__ import annotations

from ..lifecycle import Event
from .sql import FACTS, RETURNING, Plan, Statement, end_attempt, judge_and_move, log, many_jobs, stamp


def _since(row: str) -> str:
    """When the job last went on: came to its stage, saved something, or told of progress."""
    return f"greatest({row}.stage_at, {row}.progress_at)"


def _stalled(row: str, at: str = "t.at") -> str:
    return f"{row}.current_state = 'running' AND {row}.stalled_at IS NULL AND {_since(row)} + {row}.stall_after <= {at}"


LOCK_STALLED = Statement(
    "lock_stalled",
    f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),
t AS MATERIALIZED (SELECT clock_timestamp() AS at)
SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs, s, t
WHERE jobs.namespace = :namespace AND {_stalled("jobs")}
  AND (jobs.sweep_after IS NULL OR jobs.sweep_after <= t.at)
  AND (CAST(:job_ids AS text[]) IS NULL OR jobs.id = ANY(:job_ids))
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)
"""Looks at all jobs that run: as many as there are processes to run them."""

NOTE_STALLED = Statement(
    "note_stalled",
    many_jobs()
    + f""",
j AS (
    UPDATE {{s}}.jobs AS jobs SET stalled_at = t.at, log_seq = t.log_seq + 1
    FROM t WHERE jobs.id = t.id AND {_stalled("t")}
    RETURNING {{moved}}
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, 'stalled', CAST(:actor AS text), t.at,
           jsonb_strip_nulls(jsonb_build_object('node', t.node, 'since', {stamp(_since("t"))},
                                                'stage_since', {stamp("t.stage_at")}, 'attempt', t.attempt_count))
    FROM j JOIN t ON t.id = j.id
)
SELECT j.id AS job_id, j.current_state, j.watchdog_stop_reason, j.generation, j.ticket_id FROM j""",
)
"""No mutation for a client: a busy job can always be paused. The next checkpoint takes the mark away."""

_end = Plan(
    events=(Event.CANCEL, Event.EXPIRE, Event.STALL_CANCEL, Event.STALL_FAIL),
    verdict=f"CASE WHEN {FACTS['cancel_requested']} THEN 'cancel' WHEN {FACTS['time_over']} THEN 'expire'"
    " WHEN t.on_stall = 'cancel' THEN 'stall_cancel' ELSE 'stall_fail' END",
    where="t.current_state = 'running' AND t.stalled_at IS NOT NULL AND t.on_stall <> 'log'",
    reason={Event.STALL_CANCEL: "'stalled'", Event.STALL_FAIL: "'stalled'"},
    head=many_jobs(),
    settle="gen_random_uuid()",
    data="jsonb_strip_nulls(jsonb_build_object('node', p.node))",
)

END_STALLED = Statement(
    "end_stalled",
    judge_and_move(_end) + end_attempt(cause="CAST(:cause AS text)") + log(_end) + RETURNING,
)
"""After ``NOTE_STALLED``, in its transaction. The attempt is over, whatever its process hangs in; what it still writes
is refused."""

COUNT_STALLED = Statement(
    "count_stalled",
    f"""
SELECT count(*) AS live,
       count(*) FILTER (WHERE jobs.on_stall <> 'log' AND {_stalled("jobs", "clock_timestamp()")}) AS over
FROM {{s}}.jobs AS jobs WHERE jobs.namespace = :namespace AND jobs.current_state = 'running'""",
)
