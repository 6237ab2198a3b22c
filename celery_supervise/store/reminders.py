"""Statements that remind of a question before its time is over: once for each end, under the job's lock."""

from __future__ import annotations

from .notices import notice
from .sql import Statement, many_jobs, stamp

_DUE = """questions.status = 'pending' AND questions.reminded_at IS NULL AND questions.remind_at <= t.at"""
_OPEN = "{row}.wait_until > {row}.at AND ({row}.expires_at IS NULL OR {row}.expires_at > {row}.at)"

LOCK_REMINDED = Statement(
    "lock_reminded",
    f"""
WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),
t AS MATERIALIZED (SELECT clock_timestamp() AS at),
due AS MATERIALIZED (
    SELECT jobs.id FROM {{s}}.questions AS questions JOIN {{s}}.jobs AS jobs ON jobs.id = questions.job_id, t
    WHERE {_DUE} AND jobs.namespace = :namespace AND jobs.question_id = questions.id AND jobs.wait_until > t.at
      AND (jobs.expires_at IS NULL OR jobs.expires_at > t.at)
      AND (jobs.sweep_after IS NULL OR jobs.sweep_after <= t.at)
      AND (CAST(:job_ids AS text[]) IS NULL OR jobs.id = ANY(:job_ids))
    ORDER BY questions.remind_at LIMIT 4 * :batch
)
SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs JOIN due ON jobs.id = due.id, s
WHERE jobs.namespace = :namespace AND jobs.question_id IS NOT NULL
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)

REMIND = Statement(
    "remind",
    many_jobs()
    + f""",
u AS (
    UPDATE {{s}}.questions AS questions SET reminded_at = t.at
    FROM t WHERE questions.id = t.question_id AND {_DUE} AND {_OPEN.format(row="t")}
    RETURNING questions.job_id, questions.id, questions.question_key, questions.assignees, questions.expires_at
),
j AS (
    UPDATE {{s}}.jobs AS jobs SET log_seq = t.log_seq + 1
    FROM t, u WHERE jobs.id = t.id AND u.job_id = t.id
    RETURNING {{moved}}
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, 'reminded', :actor, t.at,
           jsonb_build_object('question', u.id, 'key', u.question_key, 'until', {stamp("u.expires_at")})
    FROM j JOIN t ON t.id = j.id JOIN u ON u.job_id = j.id
)"""
    + notice(
        "'reminder'",
        when="true",
        key="u.question_key",
        assignees="u.assignees",
        deadline="u.expires_at",
        question="u.id",
        beside=" JOIN u ON u.job_id = j.id",
        at="t.at",
        row="j, t",
    )
    + """
SELECT j.id AS job_id, j.current_state, j.watchdog_stop_reason, j.generation, j.ticket_id, j.question_id FROM j""",
)
"""Logged whether or not anybody is to be told. Changes nothing that a client would see as a mutation."""
