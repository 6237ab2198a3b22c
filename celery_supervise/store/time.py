"""Statements of time: what the sweeps end. Bounded batches; found by an index, judged again under the lock."""

from __future__ import annotations

from ..lifecycle import Event
from .notices import of_question
from .sql import RETURNING, Plan, Statement, close_question, consume, end_attempt, judge_and_move, log, many_jobs

_OURS = """jobs.namespace = :namespace AND jobs.current_state IN ('parked', 'pending', 'running')
       AND (jobs.sweep_after IS NULL OR jobs.sweep_after <= t.at)
       AND (CAST(:job_ids AS text[]) IS NULL OR jobs.id = ANY(:job_ids))"""


def _over(column: str, *, also: str = "") -> str:
    """The jobs whose time in `column` is over. Each search is bounded, so it must look at ours only."""
    return f"""
    (SELECT jobs.id FROM {{s}}.jobs AS jobs, t
     WHERE jobs.{column} <= t.at AND jobs.{column} IS NOT NULL{also} AND {_OURS}
     ORDER BY jobs.{column} LIMIT 4 * :batch)"""


LOCK_OVER = Statement(
    "lock_over",
    f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),
t AS MATERIALIZED (SELECT clock_timestamp() AS at),
due AS MATERIALIZED ({_over("expires_at")} UNION {_over("wait_until")} UNION {_over("active_until")} UNION
    {_over("start_by", also=" AND jobs.current_state = 'pending' AND jobs.started_at IS NULL")}
)
SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs JOIN due ON jobs.id = due.id, s, t
WHERE {_OURS}
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)

_expire = Plan(
    events=(Event.CANCEL, Event.EXPIRE),
    verdict="CASE WHEN t.cancel_requested_at IS NOT NULL THEN 'cancel' ELSE 'expire' END",
    where="t.expires_at <= t.at OR t.wait_until <= t.at OR t.active_until <= t.at"
    " OR (t.start_by <= t.at AND t.started_at IS NULL AND t.current_state = 'pending')",
    which_time="CASE WHEN v.expires_at <= v.at THEN 'deadline' WHEN v.active_until <= v.at THEN 'max_active'"
    " ELSE 'start_by' END",
    head=many_jobs(),
    settle="gen_random_uuid()",
    data="jsonb_build_object('who', 'clock')",
)

EXPIRE = Statement(
    "expire",
    judge_and_move(_expire)
    + close_question()
    + of_question("'expired'", when="p.question_id IS NOT NULL")
    + end_attempt()
    + consume()
    + log(_expire)
    + RETURNING,
)

COUNT_OVER = Statement(
    "count_over",
    """
SELECT count(*) AS live,
       count(*) FILTER (WHERE least(jobs.expires_at, jobs.wait_until, jobs.active_until) <= clock_timestamp()) AS over
FROM {s}.jobs AS jobs
WHERE jobs.namespace = :namespace AND jobs.current_state IN ('parked', 'pending', 'running')
  AND (jobs.expires_at IS NOT NULL OR jobs.wait_until IS NOT NULL OR jobs.active_until IS NOT NULL)""",
)

STAMP_BAD = Statement(
    "stamp_bad",
    """
WITH l AS MATERIALIZED (
    SELECT jobs.id FROM {s}.jobs AS jobs
    WHERE jobs.id = :job_id AND jobs.namespace = :namespace
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE {s}.jobs AS jobs
SET sweep_after = clock_timestamp() + CAST(:backoff AS interval)
FROM l WHERE jobs.id = l.id
RETURNING jobs.id AS job_id""",
)
"""A row that makes a batch fail is left out for a while, so that it holds up no other (21). Waits for nobody."""

# --- the rows of `sweeps`: one run a period and namespace ------------------------------------------------

BEGIN_SWEEP = Statement(
    "begin_sweep",
    """
INSERT INTO {s}.sweeps AS sweeps (namespace, name, claimed_by, claimed_at)
VALUES (:namespace, :name, CAST(:by AS uuid), clock_timestamp())
ON CONFLICT (namespace, name) DO UPDATE SET claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at
WHERE sweeps.claimed_at IS NULL OR sweeps.claimed_at <= excluded.claimed_at - CAST(:period AS interval)
RETURNING clock_timestamp() AS at, sweeps.last_ok_at, sweeps.hold_until, sweeps.hold_reason, sweeps.mass_seen_at,
    clock_timestamp() - pg_postmaster_start_time() AS server_age""",
)

END_SWEEP = Statement(
    "end_sweep",
    """
UPDATE {s}.sweeps AS sweeps
SET last_ok_at = CASE WHEN CAST(:error AS text) IS NULL THEN sweeps.claimed_at ELSE sweeps.last_ok_at END,
    last_count = :count,
    mass_seen_at = CASE WHEN CAST(:mass AS boolean) THEN clock_timestamp() ELSE sweeps.mass_seen_at END,
    last_error_at = CASE WHEN CAST(:error AS text) IS NULL THEN sweeps.last_error_at ELSE clock_timestamp() END,
    last_error = coalesce(CAST(:error AS text), sweeps.last_error)
WHERE sweeps.namespace = :namespace AND sweeps.name = :name
RETURNING sweeps.name""",
)
"""It went well when it began: of what came while it stood still it says nothing, and the next one shall notice."""

HOLD_SWEEP = Statement(
    "hold_sweep",
    """
UPDATE {s}.sweeps AS sweeps
SET hold_until = clock_timestamp() + CAST(:lease AS interval), hold_reason = CAST(:why AS text),
    mass_seen_at = CASE WHEN CAST(:mass AS boolean) THEN clock_timestamp() ELSE sweeps.mass_seen_at END
WHERE sweeps.namespace = :namespace AND sweeps.name = :name
  AND (sweeps.hold_until IS NULL OR sweeps.hold_until < clock_timestamp() - CAST(:lease AS interval))
RETURNING sweeps.hold_until""",
)
