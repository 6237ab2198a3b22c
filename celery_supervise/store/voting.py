"""The statement of a vote on a question that several people decide. Counts nothing: the service has compared values."""

from __future__ import annotations

from ..lifecycle import Event
from .people import OF_QUESTION, TOO_LATE, decided, late_or
from .sql import RETURNING, Plan, Statement, judge_and_move, log, publish

_vote = Plan(
    events=(Event.EXPIRE, Event.VOTE, Event.ANSWER),
    verdict=late_or("WHEN CAST(:decides AS boolean) THEN 'answer' ELSE 'vote'"),
    # The generation is that of the votes which were counted: each vote, and whatever takes votes away, moves it.
    where=OF_QUESTION,
    joins=decided("questions.approvals > 1"),
    reason={Event.ANSWER: "'answered:' || w.question_key"},
    question="CASE WHEN p.verdict = 'vote' THEN p.question_id END",
    wait="CASE WHEN p.verdict = 'vote' THEN p.wait_until END",
    settle="gen_random_uuid()",
    data="jsonb_build_object('question', CAST(:question_id AS text), 'digest', CAST(:answer_digest AS text),"
    " 'size', octet_length(CAST(:data AS bytea)), 'needed', CAST(:needed AS integer))",
)

VOTE = Statement(
    "vote",
    judge_and_move(_vote)
    + """,
b AS (
    INSERT INTO {s}.votes (question_id, actor, value, encoding, key_id, voted_at)
    SELECT p.question_id, CAST(:voter AS text), CAST(:data AS bytea), CAST(:encoding AS text), CAST(:key_id AS text),
           p.at
    FROM j, p WHERE p.id = j.id AND p.verdict <> 'expire'
    ON CONFLICT (question_id, actor) DO UPDATE
    SET value = excluded.value, encoding = excluded.encoding, key_id = excluded.key_id, voted_at = excluded.voted_at
)"""
    + publish()
    + TOO_LATE
    + log(_vote)
    + RETURNING,
)
"""Run after ``LOCK``. One vote a person: a new one replaces the old one."""
