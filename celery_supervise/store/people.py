"""Statements of people: answer, pause, resume, cancel, extend. Losers find no row and are told why by a read."""

from __future__ import annotations

from ..lifecycle import Event, verdicts
from .notices import notice, of_question
from .sql import (
    RETURNING,
    Plan,
    Statement,
    close_question,
    consume,
    judge_and_move,
    judged,
    log,
    one_job,
    publish,
    stamp,
)

GENERATION = "(CAST(:expected_generation AS integer) IS NULL OR t.generation = CAST(:expected_generation AS integer))"

ALLOWED = """(cardinality(questions.assignees) = 0 OR questions.assignees && CAST(:names AS text[]))
           AND (questions.self_approval OR v.owner_id IS NULL OR v.owner_id <> ALL(CAST(:selves AS text[])))"""
"""Who may answer, by the question's row as it is once it is locked: it may have been given to others meanwhile."""

LOCK = Statement(
    "lock",
    one_job() + " SELECT t.id AS job_id FROM t",
)
"""Takes the job's lock, so that the next statement of the transaction has a newer snapshot (protocol 6)."""

OF_QUESTION = f"t.question_id = CAST(:question_id AS uuid) AND {GENERATION}"
"""Where somebody acts on the job's open question, as they have seen it."""


def late_or(otherwise: str) -> str:
    """The verdict of who acts on an open question: one whose time is over, or its job's, ends by being touched."""
    return f"CASE WHEN t.expires_at <= t.at OR t.wait_until <= t.at THEN 'expire' {otherwise} END"


# --- answer ----------------------------------------------------------------------------------------------


def decided(kind: str) -> str:
    """The CTE that decides a question of this kind by the UPDATE of its own row, rechecked after any wait (6)."""
    return f"""
,w AS (
    UPDATE {{s}}.questions AS questions
    SET status = CASE v.verdict WHEN 'answer' THEN 'answered' WHEN 'expire' THEN 'expired' ELSE questions.status END,
        answer = CASE v.verdict WHEN 'answer' THEN CAST(:data AS bytea) END,
        answer_encoding = CASE v.verdict WHEN 'answer' THEN CAST(:encoding AS text) END,
        answer_key_id = CASE v.verdict WHEN 'answer' THEN CAST(:key_id AS text) END,
        answered_by = CASE v.verdict WHEN 'answer' THEN CAST(:actor AS text) END,
        answered_at = CASE v.verdict WHEN 'answer' THEN v.at END,
        closed_at = CASE v.verdict WHEN 'expire' THEN v.at END
    FROM v
    WHERE questions.id = v.question_id AND questions.status = 'pending'
      AND (v.verdict = 'expire' OR (
           (CAST(:seen AS text) IS NULL OR questions.digest = CAST(:seen AS text))
           AND {kind}
           AND {ALLOWED}))
    RETURNING questions.job_id, questions.question_key, questions.assignees, questions.expires_at AS until
)"""


_answer = Plan(
    events=(Event.EXPIRE, Event.ANSWER),
    verdict=late_or("ELSE 'answer'"),
    where=OF_QUESTION,
    joins=decided("questions.approvals = 1"),
    reason={Event.ANSWER: "'answered:' || w.question_key"},
    question="CAST(NULL AS uuid)",
    wait="CAST(NULL AS timestamptz)",
    settle="gen_random_uuid()",
    data="jsonb_build_object('question', CAST(:question_id AS text), 'digest', CAST(:answer_digest AS text),"
    " 'size', octet_length(CAST(:data AS bytea)))",
)

TOO_LATE = notice(
    "'expired'",
    when="p.verdict = 'expire'",
    key="w.question_key",
    assignees="w.assignees",
    deadline="w.until",
    beside=" JOIN w ON w.job_id = j.id",
)
"""A question whose time was found to be over by whoever touched it: `w` has its columns."""

ANSWER = Statement("answer", judge_and_move(_answer) + publish() + TOO_LATE + log(_answer) + RETURNING)

# --- pause and resume ------------------------------------------------------------------------------------

_request_pause = Plan(
    events=(Event.REQUEST_PAUSE,),
    verdict="'request_pause'",
    where="t.pause_requested_at IS NULL"
    " AND NOT (t.current_state = 'parked' AND t.ticket_id IS NULL AND t.question_id IS NULL)"
    f" AND {GENERATION}",
    sets={"pause_requested_at": "p.at"},
)

REQUEST_PAUSE = Statement("request_pause", judge_and_move(_request_pause) + log(_request_pause) + RETURNING)

_resume = Plan(
    events=(Event.RESUME, Event.WITHDRAW_PAUSE),
    # parked and nothing out: goes on; else a pause that was asked for is taken back, and nothing more (14, 13)
    verdict="CASE WHEN t.current_state = 'parked' AND t.ticket_id IS NULL AND t.question_id IS NULL THEN 'resume'"
    " WHEN t.pause_requested_at IS NOT NULL THEN 'withdraw_pause' END",
    where=GENERATION,
    reason={Event.RESUME: "'resume_requested:' || coalesce(v.watchdog_stop_reason, '')"},
    # a person's word starts the grace of code that cannot run it anew
    sets={
        "pause_requested_at": "NULL",
        "incompatible_since": "CASE WHEN p.verdict = 'resume' THEN NULL ELSE p.incompatible_since END",
    },
)

RESUME = Statement("resume", judge_and_move(_resume) + publish() + log(_resume) + RETURNING)

# --- cancel ----------------------------------------------------------------------------------------------

_cancel = Plan(
    events=(Event.REQUEST_CANCEL,),
    verdict="'request_cancel'",
    # a cancel that is already asked for can still be made one that ends the process
    where="(t.cancel_requested_at IS NULL OR (t.terminate_after IS NULL AND CAST(:grace AS interval) IS NOT NULL))"
    f" AND {GENERATION}",
    settle="gen_random_uuid()",
    data="jsonb_strip_nulls(jsonb_build_object('why', CAST(:why AS text),"
    f" 'terminate_after', {stamp('j.terminate_after')}))",
    sets={
        "cancel_requested_at": "coalesce(p.cancel_requested_at, p.at)",
        "terminate_after": "CASE WHEN p.to_state = 'running' THEN p.at + CAST(:grace AS interval) END",
    },
)

REQUEST_CANCEL = Statement(
    "request_cancel",
    judge_and_move(_cancel)
    + close_question()
    + of_question("'withdrawn'", when="p.question_id IS NOT NULL AND j.question_id IS NULL")
    + consume()
    + log(_cancel)
    + RETURNING,
)
"""Run after ``LOCK``: it closes a question that may have been asked while the lock was waited for."""

# --- a report from Celery's parent side, by the message's own ticket (protocol 22) -----------------------

_fail_waiting = Plan(
    events=verdicts(Event.FAIL),
    verdict=judged(Event.FAIL),
    # a migration that is stopped by a time limit has failed, its job has not: it is left to others already (28)
    where="t.ticket_id = CAST(:ticket_id AS uuid)"
    " AND (t.incompatible_since IS NULL OR CAST(:reason AS text) <> 'time_limit')",
    reason={Event.FAIL: "CAST(:reason AS text)"},
    settle="CAST(:settle_id AS uuid)",
    data="jsonb_strip_nulls(jsonb_build_object('error', CAST(:error_type AS text)))",
)

FAIL_WAITING = Statement(
    "fail_waiting",
    judge_and_move(_fail_waiting)
    + """,
y AS (
    INSERT INTO {s}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, CASE p.verdict WHEN 'fail' THEN 'error' ELSE 'rejected' END, CAST(:settle_id AS uuid),
           CAST(:data AS bytea), :encoding, :key_id
    FROM j, p WHERE p.id = j.id AND CAST(:data AS bytea) IS NOT NULL
)"""
    + consume()
    + log(_fail_waiting)
    + RETURNING,
)
