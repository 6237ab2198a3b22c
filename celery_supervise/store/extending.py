"""Statements that move a time before it is over: a job's deadline, a question's. Each runs after ``LOCK``."""

from __future__ import annotations

from ..lifecycle import Event
from .people import GENERATION
from .sql import RETURNING, Plan, Statement, judge_and_move, lasting, log, stamp

_OVER = "(t.expires_at <= t.at OR t.wait_until <= t.at OR t.active_until <= t.at)"
_NOT_YET = """NOT EXISTS (
    SELECT FROM {s}.log AS log WHERE log.job_id = t.id AND log.event = 'extended'
      AND log.data ->> 'operation' = CAST(:operation AS text))"""
"""A span is added once, also where the reply to its commit was lost and the call is made again (protocol 5)."""


_REMIND = f"v.target - {lasting('questions.expires_at', 'questions.remind_at')}"


def _target(column: str) -> str:
    """The time that is asked for: absolute, from now, or from the present one."""
    return f"coalesce(CAST(:to_at AS timestamptz), t.at + CAST(:to_in AS interval), t.{column} + CAST(:by AS interval))"


def _where(column: str, also: str = "true") -> str:
    target = _target(column)
    return (
        f"{also} AND {_OVER} IS NOT TRUE AND {target} > t.at AND {target} <= CAST(:latest AS timestamptz)"
        f" AND {target} IS DISTINCT FROM t.{column} AND {GENERATION} AND {_NOT_YET}"
    )


_deadline = Plan(
    events=(Event.EXTEND,),
    verdict="'extend'",
    reads=f", {_target('expires_at')} AS target",
    where=_where("expires_at"),
    data=f"jsonb_build_object('deadline', {stamp('p.target')}, 'was', {stamp('p.expires_at')},"
    " 'operation', CAST(:operation AS text))",
    sets={"expires_at": "p.target"},
)

EXTEND = Statement("extend", judge_and_move(_deadline) + log(_deadline) + RETURNING)

_question = Plan(
    events=(Event.EXTEND,),
    verdict="'extend'",
    reads=f", {_target('wait_until')} AS target",
    where=_where("wait_until", "t.question_id = CAST(:question_id AS uuid)"),
    # A reminder keeps its distance from the end; it is sent again before the new end, if that is still to come.
    joins=f"""
,w AS (
    UPDATE {{s}}.questions AS questions
    SET expires_at = v.target, remind_at = {_REMIND},
        reminded_at = CASE WHEN {_REMIND} <= v.at THEN questions.reminded_at END
    FROM v WHERE questions.id = v.question_id AND questions.status = 'pending'
    RETURNING questions.job_id
)""",
    wait="p.target",
    data=f"jsonb_build_object('question', CAST(:question_id AS text), 'until', {stamp('p.target')},"
    f" 'was', {stamp('p.wait_until')},"
    " 'operation', CAST(:operation AS text))",
)

EXTEND_QUESTION = Statement("extend_question", judge_and_move(_question) + log(_question) + RETURNING)

EXTENDED = Statement(
    "extended",
    """
SELECT job_id FROM {s}.log
WHERE job_id = :job_id AND event = 'extended' AND data ->> 'operation' = CAST(:operation AS text)""",
)
"""Whether this very call has extended: how an unknown commit is read back."""

CLOCKS = Statement(
    "clocks",
    """
SELECT clock_timestamp() AS at,
       coalesce(least(expires_at, wait_until, active_until) <= clock_timestamp(), false) AS over
FROM {s}.jobs WHERE id = :job_id""",
)
"""Now, and whether one of the job's times is over by then: why nothing was extended."""
