"""Statements of people on an open question: give it to others, take it back. No values pass here."""

from __future__ import annotations

from ..lifecycle import Event
from .notices import notice
from .people import OF_QUESTION, late_or
from .sql import RETURNING, Plan, Statement, judge_and_move, log, publish

# --- reassign --------------------------------------------------------------------------------------------

_reassign = Plan(
    events=(Event.EXPIRE, Event.REASSIGN),
    verdict=late_or("ELSE 'reassign'"),
    where=OF_QUESTION,
    joins="""
,w AS (
    UPDATE {s}.questions AS questions
    SET status = CASE v.verdict WHEN 'expire' THEN 'expired' ELSE questions.status END,
        closed_at = CASE v.verdict WHEN 'expire' THEN v.at END,
        assignees = CASE v.verdict WHEN 'expire' THEN questions.assignees ELSE CAST(:to AS text[]) END
    FROM v
    WHERE questions.id = v.question_id AND questions.status = 'pending'
      AND (v.verdict = 'expire' OR questions.assignees = CAST(:before AS text[]))
    RETURNING questions.job_id, questions.question_key, questions.assignees, questions.expires_at AS until
)""",
    settle="gen_random_uuid()",
    data="jsonb_strip_nulls(jsonb_build_object('question', CAST(:question_id AS text), 'before',"
    " to_jsonb(CAST(:before AS text[])), 'to', to_jsonb(CAST(:to AS text[])), 'why', CAST(:why AS text)))",
)

_asked = notice(
    "CASE p.verdict WHEN 'reassign' THEN 'asked' ELSE 'expired' END",
    when="true",
    key="w.question_key",
    assignees="w.assignees",
    deadline="w.until",
    beside=" JOIN w ON w.job_id = j.id",
    # known to whoever gives it, who sends it at once
    identity="CAST(:notice_id AS uuid)",
    hold="p.at + CAST(:publish_hold AS interval)",
)

REASSIGN = Statement(
    "reassign",
    judge_and_move(_reassign)
    + """,
b AS (
    DELETE FROM {s}.votes AS votes USING j, p
    WHERE p.id = j.id AND p.verdict = 'reassign' AND votes.question_id = p.question_id
)"""
    + _asked
    + log(_reassign)
    + RETURNING,
)
"""Run after ``LOCK``: it takes away the votes, also one that was cast while the lock was waited for. All to whom it is
given now are asked, also those who were before: their votes are void."""

# --- withdraw --------------------------------------------------------------------------------------------

_withdraw = Plan(
    events=(Event.EXPIRE, Event.WITHDRAW),
    verdict=late_or("ELSE 'withdraw'"),
    where=OF_QUESTION,
    joins="""
,w AS (
    UPDATE {s}.questions AS questions
    SET status = CASE v.verdict WHEN 'expire' THEN 'expired' ELSE 'withdrawn' END, closed_at = v.at
    FROM v
    WHERE questions.id = v.question_id AND questions.status = 'pending'
    RETURNING questions.job_id, questions.question_key, questions.assignees, questions.expires_at AS until
)""",
    reason={Event.WITHDRAW: "'withdrawn:' || w.question_key"},
    question="CAST(NULL AS uuid)",
    wait="CAST(NULL AS timestamptz)",
    settle="gen_random_uuid()",
    data="jsonb_strip_nulls(jsonb_build_object('question', CAST(:question_id AS text), 'why', CAST(:why AS text)))",
)

_told = notice(
    "CASE p.verdict WHEN 'withdraw' THEN 'withdrawn' ELSE 'expired' END",
    when="true",
    key="w.question_key",
    assignees="w.assignees",
    deadline="w.until",
    beside=" JOIN w ON w.job_id = j.id",
)

WITHDRAW = Statement("withdraw", judge_and_move(_withdraw) + publish() + _told + log(_withdraw) + RETURNING)
