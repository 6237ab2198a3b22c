"""Statements of the attempt that holds a job: claim, checkpoint, ask, complete, fail, retry, hand over. Each is one.

All but the claim are fenced by the attempt's token; all are judged in the one order of ``lifecycle.JUDGEMENT``.
No row means refused: the supervisor then reads once, to say why.
"""

from __future__ import annotations

from ..lifecycle import Event, verdicts
from .notices import notice
from .sql import (
    FACTS,
    LIVE,
    RETURNING,
    THE_HOLDERS,
    Plan,
    Statement,
    consume,
    end_attempt,
    judge_and_move,
    judged,
    log,
    one_job,
    outcome_of,
    planned,
    publish,
    stamp,
)

LOG_AGAIN = "interval '10 s'"
"""A node that is saved again and again is logged no more often than this."""

# --- claim -----------------------------------------------------------------------------------------------

_CLAIM_FACTS = {
    **FACTS,
    "time_over": "(t.expires_at <= t.at OR t.active_left <= interval '0'"
    " OR (t.start_by <= t.at AND t.started_at IS NULL))",
}

_claim = Plan(
    events=verdicts(Event.CLAIM),
    verdict=judged(Event.CLAIM, facts=_CLAIM_FACTS),
    # The ticket is in the job's own row: a claim is a compare-and-swap on it, whoever waited for whom.
    where="t.ticket_id = CAST(:ticket_id AS uuid) AND t.ticket_due_at <= t.at"
    " AND t.ticket_released_at IS NOT NULL AND t.task_version = ANY(CAST(:versions AS integer[]))",
    which_time="CASE WHEN v.expires_at <= v.at THEN 'deadline'"
    " WHEN v.active_left <= interval '0' THEN 'max_active' ELSE 'start_by' END",
    token="CAST(:token AS uuid)",
    active="p.at + p.active_left",
    settle="CAST(:token AS uuid)",
    data="jsonb_build_object('worker', CAST(:worker AS text), 'attempt', p.attempt_count + 1)",
    sets={
        "attempt_count": "p.attempt_count + CASE WHEN p.to_state = 'running' THEN 1 ELSE 0 END",
        "started_at": "CASE WHEN p.to_state = 'running' THEN coalesce(p.started_at, p.at) ELSE p.started_at END",
        "stage_at": "p.at",
        "stalled_at": "NULL",
        "incompatible_since": "NULL",
    },
)

CLAIM = Statement(
    "claim",
    judge_and_move(_claim)
    + """,
a AS (
    INSERT INTO {s}.attempts (token, job_id, number, run_id, ticket_id, incarnation, worker, pid, task_version,
                              started_at, lease_until, heartbeat_at, checkpoint_ref)
    SELECT j.current_token, j.id, j.attempt_count, j.run_id, CAST(:ticket_id AS uuid), CAST(:incarnation AS uuid),
           :worker, :pid, j.task_version, p.at, p.at + CAST(:lease AS interval), p.at, j.node
    FROM j, p WHERE p.id = j.id AND j.current_state = 'running'
    RETURNING lease_until
)"""
    + consume()
    + log(_claim)
    + """
SELECT j.id AS job_id, j.current_state, j.watchdog_stop_reason, j.generation, j.settle_id, j.task, j.run_id,
       j.attempt_count, j.expires_at, j.owner_id, j.stored_bytes, j.lost_count, p.verdict,
       p.current_state = 'parked' OR p.attempt_count > 0 AS resumed,
       (SELECT lease_until FROM a) AS lease_until
FROM j, p WHERE p.id = j.id""",
    # Lost in a crash, it leaves the ticket in the row; the attempt that nobody knows finds its writes refused. A
    # checkpoint of this attempt that is on the disk has taken its claim along.
    lazy=True,
    hot=True,
)

# --- checkpoint ------------------------------------------------------------------------------------------

_checkpoint = planned(
    Event.CHECKPOINT,
    # Only this attempt writes this row, so that the statement's own snapshot is new enough for it; or else it is
    # the repetition of a commit that came through after its connection died, and the job's row has its node.
    reads=""", coalesce(c.logged_at, CASE WHEN t.node = CAST(:node AS text) THEN t.progress_at END) AS logged_at,
    coalesce(c.size, CASE WHEN t.node = CAST(:node AS text) THEN CAST(:size AS integer) END, 0) AS size_before""",
    beside="""
    LEFT JOIN {s}.checkpoints AS c ON c.job_id = :job_id AND c.run_id = t.run_id AND c.node = :node""",
    entries=f"(coalesce(v.logged_at + {LOG_AGAIN} <= v.at, true))::integer + (v.verdict <> 'checkpoint')::integer",
    settle="CAST(:token AS uuid)",
    sets={
        "node": "CAST(:node AS text)",
        "progress_seq": "p.progress_seq + 1",
        "progress_at": "p.at",
        "stage_at": "CASE WHEN p.node IS DISTINCT FROM CAST(:node AS text) THEN p.at ELSE p.stage_at END",
        "stalled_at": "NULL",
        "stored_bytes": "p.stored_bytes + CAST(:size AS bigint) - p.size_before",
    },
)

CHECKPOINT = Statement(
    "checkpoint",
    judge_and_move(_checkpoint)
    + f""",
k AS (
    INSERT INTO {{s}}.checkpoints AS k (job_id, run_id, node, kind, position, data, encoding, key_id, size,
                                        attempt_token, saved_at, logged_at)
    SELECT j.id, j.run_id, :node, :kind, j.progress_seq, CAST(:data AS bytea), :encoding, :key_id, :size,
           CAST(:token AS uuid), p.at, p.at
    FROM j, p WHERE p.id = j.id
    ON CONFLICT (job_id, run_id, node) DO UPDATE SET
        kind = excluded.kind, data = excluded.data, encoding = excluded.encoding, key_id = excluded.key_id,
        size = excluded.size, attempt_token = excluded.attempt_token, saved_at = excluded.saved_at,
        logged_at = CASE WHEN k.logged_at + {LOG_AGAIN} <= excluded.logged_at
                         THEN excluded.logged_at ELSE k.logged_at END
),
a AS (
    UPDATE {{s}}.attempts AS attempts
    SET lease_until = p.at + CAST(:lease AS interval), heartbeat_at = p.at, checkpoint_ref = :node,
        ended_at = CASE WHEN p.to_state <> 'running' THEN p.at END,
        outcome = CASE WHEN p.to_state <> 'running' THEN {outcome_of("p.verdict")} END,
        outcome_generation = CASE WHEN p.to_state <> 'running' THEN j.generation END
    FROM j, p
    WHERE p.id = j.id AND attempts.token = CAST(:token AS uuid) AND {LIVE}
    RETURNING attempts.lease_until, attempts.hand_over_at
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, p.log_seq + e.number, e.event, :actor, p.at, e.data
    FROM j JOIN p ON p.id = j.id
    CROSS JOIN LATERAL (
        SELECT 'checkpoint' AS event, 1 AS number,
               jsonb_build_object('node', CAST(:node AS text), 'size', CAST(:size AS integer)) AS data
        WHERE coalesce(p.logged_at + {LOG_AGAIN} <= p.at, true)
        UNION ALL
        SELECT p.log_event, p.entries,
               jsonb_strip_nulls(jsonb_build_object('state', j.current_state, 'generation', j.generation,
                                                    'reason', j.watchdog_stop_reason, 'node', CAST(:node AS text)))
        WHERE p.verdict <> 'checkpoint'
    ) AS e
)
SELECT j.id AS job_id, j.current_state, j.watchdog_stop_reason, j.generation, j.ticket_id, j.settle_id,
       j.pause_requested_at IS NOT NULL AS pause_requested, p.verdict, false AS publish_now,
       (SELECT hand_over_at IS NOT NULL FROM a) AS hand_over
FROM j, p WHERE p.id = j.id""",
    hot=True,
)

_judge = planned(Event.CHECKPOINT, entries="(v.verdict <> 'checkpoint')::integer", settle="CAST(:token AS uuid)")

JUDGE = Statement(
    "judge",
    judge_and_move(_judge)
    + end_attempt(token=THE_HOLDERS)
    + """,
g AS (
    INSERT INTO {s}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, p.log_event, :actor, p.at,
           jsonb_strip_nulls(jsonb_build_object('state', j.current_state, 'generation', j.generation,
                                                'reason', j.watchdog_stop_reason))
    FROM j JOIN p ON p.id = j.id WHERE p.verdict <> 'checkpoint'
)"""
    + RETURNING,
)
"""A checkpoint that saves nothing: what is left to do after a joined transaction was rolled back."""

# --- ask -------------------------------------------------------------------------------------------------

_ask = planned(
    Event.ASK,
    reason={Event.ASK: "'awaiting_user_answer:' || CAST(:key AS text)"},
    question="CASE WHEN p.verdict = 'ask' THEN CAST(:question_id AS uuid) END",
    wait="CASE WHEN p.verdict = 'ask' THEN p.at + CAST(:ttl AS interval) END",
    settle="CAST(:token AS uuid)",
    data="CASE WHEN p.verdict = 'ask' THEN jsonb_build_object('key', CAST(:key AS text),"
    " 'question', CAST(:question_id AS text), 'digest', CAST(:digest AS text),"
    f" 'until', {stamp('j.wait_until')})"
    " ELSE jsonb_build_object() END",
)

ASK = Statement(
    "ask",
    judge_and_move(_ask)
    + """,
u AS (
    UPDATE {s}.questions AS questions SET status = 'superseded', closed_at = p.at
    FROM j, p
    WHERE p.id = j.id AND p.verdict = 'ask' AND questions.id = CAST(:supersedes AS uuid)
      AND questions.status = 'answered'
    RETURNING questions.id
),
q AS (
    INSERT INTO {s}.questions (id, job_id, run_id, question_key, question_data, encoding, key_id, answer_schema,
                               digest, asked_by, asked_at, expires_at, remind_at, assignees, approvals,
                               self_approval)
    SELECT CAST(:question_id AS uuid), j.id, j.run_id, :key, :data, :encoding, :key_id,
           CAST(:answer_schema AS json), :digest, p.current_token, p.at, j.wait_until,
           j.wait_until - CAST(:remind_before AS interval), CAST(:assignees AS text[]), :approvals, :self_approval
    FROM j, p, (SELECT count(*) FROM u) AS after_u
    WHERE p.id = j.id AND p.verdict = 'ask'
)"""
    + notice(
        "'asked'",
        when="p.verdict = 'ask'",
        key="CAST(:key AS text)",
        assignees="CAST(:assignees AS text[])",
        deadline="j.wait_until",
        question="j.question_id",
        # known to the asker, who sends it at once
        identity="j.question_id",
        hold="p.at + CAST(:publish_hold AS interval)",
    )
    + end_attempt(token=THE_HOLDERS)
    + log(_ask)
    + RETURNING,
)

# --- the ends of an attempt ------------------------------------------------------------------------------

CAUSE = "jsonb_strip_nulls(jsonb_build_object('error', CAST(:error_type AS text)))"


def _kept(kind: Event, column: str) -> str:
    """The CTE that keeps a result or an error: as the job's own, or as one that was rejected."""
    return f""",
y AS (
    INSERT INTO {{s}}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, CASE p.verdict WHEN '{kind}' THEN '{column}' ELSE 'rejected' END, CAST(:token AS uuid),
           CAST(:data AS bytea), :encoding, :key_id
    FROM j, p WHERE p.id = j.id AND CAST(:data AS bytea) IS NOT NULL
)"""


_complete = planned(
    Event.COMPLETE,
    settle="CAST(:token AS uuid)",
    data="CASE WHEN p.verdict = 'complete' THEN jsonb_build_object('size', CAST(:size AS bigint))"
    " ELSE jsonb_build_object('rejected_result', CAST(:size AS bigint)) END",
    sets={"stored_bytes": "p.stored_bytes + CAST(:size AS bigint)", "progress_at": "p.at"},
)

COMPLETE = Statement(
    "complete",
    judge_and_move(_complete)
    + _kept(Event.COMPLETE, "result")
    + end_attempt(token=THE_HOLDERS)
    + log(_complete)
    + RETURNING,
    hot=True,
)

_fail = planned(
    Event.FAIL,
    reason={Event.FAIL: "CAST(:reason AS text)"},
    settle="CAST(:token AS uuid)",
    data=CAUSE,
)

FAIL = Statement(
    "fail",
    judge_and_move(_fail)
    + _kept(Event.FAIL, "error")
    + end_attempt(token=THE_HOLDERS, cause="CAST(:cause AS text)", traceback="CAST(:traceback AS text)")
    + log(_fail)
    + RETURNING,
)

_hand_over = planned(Event.HAND_OVER, settle="CAST(:token AS uuid)", data="jsonb_build_object('node', p.node)")

HAND_OVER = Statement(
    "hand_over", judge_and_move(_hand_over) + end_attempt(token=THE_HOLDERS) + publish() + log(_hand_over) + RETURNING
)

PROGRESS = Statement(
    "progress",
    """
WITH {gate}
t AS MATERIALIZED (SELECT clock_timestamp() AS at)
UPDATE {s}.jobs AS jobs
SET progress_current = CAST(:current AS bigint), progress_total = CAST(:total AS bigint),
    progress_message = CAST(:message AS text), progress_seq = jobs.progress_seq + 1, progress_at = t.at
FROM t{gated}
WHERE jobs.id = :job_id AND jobs.current_token = CAST(:token AS uuid)
RETURNING jobs.id AS job_id""",
)

REFUSED = Statement(
    "refused",
    one_job()
    + """,
r AS (
    SELECT t.id, t.log_seq, t.erased_at, attempts.outcome FROM t JOIN {s}.attempts AS attempts
    ON attempts.token = CAST(:token AS uuid) AND attempts.job_id = t.id
    WHERE t.current_token IS DISTINCT FROM CAST(:token AS uuid)
),
y AS (
    INSERT INTO {s}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT r.id, 'rejected', CAST(:token AS uuid), CAST(:data AS bytea), :encoding, :key_id FROM r
    WHERE CAST(:data AS bytea) IS NOT NULL AND r.erased_at IS NULL
      AND r.outcome IN ('cancelled', 'expired', 'failed', 'lost')
    ON CONFLICT DO NOTHING
    RETURNING octet_length(data) AS size
),
j AS (
    UPDATE {s}.jobs AS jobs SET log_seq = r.log_seq + 1
    FROM r
    WHERE jobs.id = r.id AND (NOT CAST(:if_kept AS boolean) OR EXISTS (SELECT FROM y))
    RETURNING jobs.id, jobs.log_seq, jobs.current_state
),
g AS (
    INSERT INTO {s}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, 'refused', :actor, t.at,
           jsonb_strip_nulls(jsonb_build_object('why', 'stale_attempt', 'call', CAST(:call AS text),
                                                'state', j.current_state, 'rejected_result', (SELECT size FROM y)))
    FROM j JOIN t ON t.id = j.id
)
SELECT j.id AS job_id, j.current_state FROM j""",
)
"""Only a stale attempt's write is logged as refused, never a stranger's or a mistaken call (11).

What it brought is kept where somebody else had ended the attempt (12, 27): not once the job is erased. `if_kept`:
log it only then; an attempt that is told how it ended is refused nothing else.
"""
