"""Statements of leases: heartbeat, hand-over flag, lose, reap. A lease is judged on the attempt's own row."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ..lifecycle import Event
from .door import Door
from .sql import LIVE, RETURNING, Plan, Statement, judge_and_move, judged, many_jobs, outcome_of, publish

HEARTBEAT = Statement(
    "heartbeat",
    """
WITH l AS MATERIALIZED (
    SELECT attempts.token FROM {s}.attempts AS attempts
    WHERE attempts.incarnation = CAST(:incarnation AS uuid) AND attempts.job_id = ANY(:job_ids)
      AND attempts.ended_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
),
t AS MATERIALIZED (SELECT l.token, clock_timestamp() AS at FROM l)
UPDATE {s}.attempts AS attempts
SET lease_until = t.at + CAST(:lease AS interval), heartbeat_at = t.at
FROM t WHERE attempts.token = t.token
RETURNING attempts.job_id, attempts.token""",
)
"""Renews what this worker runs. A row that is locked is skipped: that means "not known", never "lost" (19)."""

TELLING_LEASES = 5
"""For so many leases after a job's end its own worker may keep others from telling Celery. Up to 5.5 a worker that
reconnects to its broker can miss that a child is done, and takes its request for active for ever.
"""

RENEW_SETTLING = Statement(
    "renew_settling",
    f"""
WITH l AS MATERIALIZED (
    SELECT jobs.id FROM {{s}}.jobs AS jobs
    JOIN {{s}}.attempts AS attempts ON attempts.job_id = jobs.id AND attempts.token = jobs.settle_id
    WHERE jobs.id = ANY(:job_ids) AND jobs.settled_at IS NULL
      AND attempts.incarnation = CAST(:incarnation AS uuid)
      AND jobs.finished_at > clock_timestamp() - {TELLING_LEASES} * CAST(:lease AS interval)
    FOR NO KEY UPDATE OF jobs SKIP LOCKED
)
UPDATE {{s}}.jobs AS jobs SET settle_due_at = clock_timestamp() + CAST(:lease AS interval)
FROM l WHERE jobs.id = l.id AND jobs.settled_at IS NULL
RETURNING jobs.id AS job_id""",
)
"""The finisher's parent keeps other tellers away while Celery is being told (26). A settle id is its token."""

FIND_STAYING = Statement(
    "find_staying",
    "SELECT token FROM {s}.attempts"
    " WHERE incarnation = CAST(:incarnation AS uuid) AND ended_at IS NULL AND hand_over_at IS NULL",
)

ASK_HAND_OVER = Statement(
    "ask_hand_over",
    """
WITH {gate}
t AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE {s}.attempts AS attempts SET hand_over_at = t.at
FROM t{gated}
WHERE attempts.token = CAST(:token AS uuid) AND attempts.ended_at IS NULL AND attempts.hand_over_at IS NULL
RETURNING attempts.job_id""",
)


def ask_hand_over(door: Door, incarnation: UUID) -> list[str]:
    """Flag every running attempt of a worker: its body leaves at its next checkpoint. The ids of their jobs.

    One by one: a statement that held several rows would deadlock with a sweep that takes them in another order.
    """
    staying = [row["token"] for row in door.all(FIND_STAYING, incarnation=incarnation)]
    flagged = [door.one(ASK_HAND_OVER, token=token) for token in staying]
    return [row["job_id"] for row in flagged if row is not None]


FIND_BY_TICKET = Statement(
    "find_by_ticket",
    "SELECT token, terminate_at FROM {s}.attempts"
    " WHERE job_id = :job_id AND ticket_id = CAST(:ticket_id AS uuid) AND ended_at IS NULL"
    " AND incarnation = CAST(:incarnation AS uuid) AND pid = :pid",
)
"""The attempt that a process of this worker began. The ticket alone is not enough: a child that died before its
claim leaves the same message, and so the same ticket, to another worker.
"""

# --- lose: the parent saw its child die, or a lease ended ------------------------------------------------

_lose = Plan(
    events=(Event.CANCEL, Event.EXPIRE, Event.GIVE_UP, Event.LOSE),
    verdict=judged(Event.LOSE, otherwise="CASE WHEN t.lost_count + 1 >= t.lost_limit THEN 'give_up' ELSE 'lose' END"),
    where="t.current_state = 'running' AND t.current_token = CAST(:token AS uuid)",
    joins=f"""
,w AS (
    UPDATE {{s}}.attempts AS attempts
    SET ended_at = v.at, outcome = {outcome_of("v.verdict")}, cause = CAST(:cause AS text)
    FROM v
    WHERE attempts.token = v.current_token AND {LIVE}
    RETURNING attempts.job_id, attempts.number
)""",
    reason={Event.GIVE_UP: "'worker_lost'"},
    entries="CASE WHEN m.ends THEN 2 ELSE 1 END",
    settle="gen_random_uuid()",
    sets={"lost_count": "p.lost_count + 1"},
)

_LOST_LOG = """,
g AS (
    INSERT INTO {s}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, p.log_seq + e.number, e.event, CAST(:actor AS text), p.at, e.data
    FROM j JOIN p ON p.id = j.id
    CROSS JOIN LATERAL (
        SELECT 'lease_lost' AS event, 1 AS number,
               jsonb_build_object('why', CAST(:cause AS text), 'attempt', p.attempt_count, 'state', j.current_state,
                                  'generation', j.generation) AS data
        UNION ALL
        SELECT p.log_event, 2,
               jsonb_strip_nulls(jsonb_build_object('state', j.current_state, 'generation', j.generation,
                                                    'reason', j.watchdog_stop_reason))
        WHERE p.ends
    ) AS e
)"""

LOSE = Statement("lose", judge_and_move(_lose) + publish() + _LOST_LOG + RETURNING)
"""By the token of the attempt whose process is known to be dead: no lease is waited for (20)."""

# --- reap: a batch, jobs locked by ``LOCK_LAPSED`` in the same transaction -------------------------------

LOCK_LAPSED = Statement(
    "lock_lapsed",
    """
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),
due AS MATERIALIZED (
    SELECT attempts.job_id, attempts.token FROM {s}.attempts AS attempts
    JOIN {s}.jobs AS jobs ON jobs.id = attempts.job_id AND jobs.current_token = attempts.token
    WHERE attempts.ended_at IS NULL AND attempts.lease_until < coalesce(CAST(:began AS timestamptz), clock_timestamp())
      AND jobs.namespace = :namespace
      AND NOT (attempts.job_id = ANY(CAST(:own AS text[]))
               AND attempts.incarnation IS NOT DISTINCT FROM CAST(:incarnation AS uuid))
      AND (jobs.sweep_after IS NULL OR jobs.sweep_after <= clock_timestamp())
      AND (CAST(:job_ids AS text[]) IS NULL OR attempts.job_id = ANY(:job_ids))
    ORDER BY attempts.lease_until LIMIT 4 * :batch
)
SELECT jobs.id AS job_id FROM {s}.jobs AS jobs JOIN due ON jobs.id = due.job_id, s
WHERE jobs.namespace = :namespace AND jobs.current_state = 'running' AND jobs.current_token = due.token
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)
"""Leases that were over when the pass began: a sweep that stood still afterwards knows nothing of what came then.
Nor does it take what its own process runs, whose heartbeats stood still with it.
"""

_reap = replace(
    _lose,
    head=many_jobs(),
    where="t.current_state = 'running'",
    # The decision: the attempt's own conditional update, rechecked if a heartbeat held the row (19).
    joins=_lose.joins.replace(LIVE, f"{LIVE} AND attempts.lease_until < v.at"),
    ticket="gen_random_uuid()",
)

REAP = Statement("reap", judge_and_move(_reap) + publish() + _LOST_LOG + RETURNING)

COUNT_LEASES = Statement(
    "count_leases",
    """
SELECT count(*) AS live, count(*) FILTER (WHERE attempts.lease_until < clock_timestamp()) AS over
FROM {s}.attempts AS attempts JOIN {s}.jobs AS jobs ON jobs.id = attempts.job_id
WHERE attempts.ended_at IS NULL AND jobs.namespace = :namespace""",
)
