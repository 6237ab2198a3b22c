"""Why an operation was refused: one code for each situation, the most telling first, with what to do. No database."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise import refusals
from celery_supervise.errors import Conflict, NotAllowed, QuestionClosed
from celery_supervise.lifecycle import OPEN, TERMINAL, State
from celery_supervise.model import Job, Question
from celery_supervise.recipients import Answerer

AT = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
CODES = {
    "stale_generation",
    "already_final",
    "already_answered",
    "question_closed",
    "question_open",
    "question_changed",
    "expired",
    "not_parked",
    "already_resumed",
    "busy",
}
"""The closed list that `Conflict` documents: clients switch on it."""

ELSEWHERE = {
    "not_completed",
    "not_final",
    "already_rerun",
    "erased",
    "not_ended",
    "not_told",
    "nothing_to_send",
}
"""Codes of operations that have their tests elsewhere."""

NOTHING: dict[str, Any] = dict.fromkeys(Job.__dataclass_fields__)
JOB = Job(**{**NOTHING, "id": "job-1", "state": State.PARKED, "generation": 7})
OPEN_QUESTION: dict[str, Any] = {
    **dict.fromkeys(Question.__dataclass_fields__),
    "id": uuid4(),
    "status": "pending",
    "digest": "shown",
    "to": (),
    "self_approval": False,
    "generation": 7,
    "job_state": State.PARKED,
}
QUESTION = Question(**OPEN_QUESTION)
ANSWERING: dict[str, Any] = {"seen": None, "expected": None, "late": False}


def job(**changes: Any) -> Job:
    """A parked job of generation 7 that waits for nothing, changed."""
    return replace(JOB, **changes)


def refused(question: dict[str, Any], **options: Any) -> Conflict:
    """The refusal of an answer to a question that is open but for these changes."""
    error = refusals.cannot_answer(replace(QUESTION, **question), Answerer("user:bob"), **{**ANSWERING, **options})
    assert isinstance(error, Conflict)
    return error


# --- resume ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"state": State.PENDING}, "not_parked", "pending"),
        ({"state": State.RUNNING}, "not_parked", "running"),
        ({"question_id": uuid4()}, "question_open", "answer its question"),
        ({"ticket_id": uuid4()}, "already_resumed", "waits for a worker"),
        ({"state": State.COMPLETED}, "already_final", "completed"),
        ({"state": State.EXPIRED}, "already_final", "expired"),
        ({}, "busy", "try again"),
    ],
)
def test_why_nothing_was_resumed(changes: dict[str, Any], code: str, words: str) -> None:
    """Each situation has its code, and words that say what to do."""
    error = refusals.cannot_resume(job(**changes), None)
    assert isinstance(error, Conflict)
    assert (error.code, error.state) == (code, changes.get("state", State.PARKED))
    assert words in str(error)


@pytest.mark.parametrize("changes", [{}, {"state": State.COMPLETED}, {"question_id": uuid4()}])
def test_an_old_page_is_told_first(changes: dict[str, Any]) -> None:
    """Who looks at an old page is told so, whatever else is the matter, with both numbers."""
    error = refusals.cannot_resume(job(**changes), 6)
    assert isinstance(error, Conflict)
    assert (error.code, error.expected, error.actual) == ("stale_generation", 6, 7)
    assert "look again" in str(error)


@pytest.mark.parametrize("expected", [None, 7])
def test_the_right_generation_is_no_conflict(expected: int | None) -> None:
    """Nothing named, or the current one."""
    assert refusals.stale_generation(JOB, expected) is None


@pytest.mark.parametrize("state", sorted(State))
def test_the_end_is_final(state: State) -> None:
    """An ended job, and only an ended one, is told as such, with its state."""
    error = refusals.already_final(job(state=state))
    if state in OPEN:
        assert error is None
    else:
        assert error is not None
        assert (error.code, error.state, error.actual) == ("already_final", state, 7)


# --- answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "options", "code"),
    [
        ({"status": "answered", "answered_by": "ann", "answered_at": AT}, {}, "already_answered"),
        ({"status": "superseded", "answered_by": "ann", "answered_at": AT}, {}, "already_answered"),
        ({"status": "expired", "job_state": State.EXPIRED}, {}, "expired"),
        ({"job_state": State.EXPIRED}, {"late": True}, "expired"),
        ({"status": "closed", "job_state": State.CANCELLED}, {}, "already_final"),
        ({"status": "withdrawn"}, {}, "question_closed"),
        ({}, {"expected": 6}, "stale_generation"),
        ({}, {"seen": "other"}, "question_changed"),
        ({}, {"seen": "other", "expected": 6}, "stale_generation"),
        ({}, {"seen": "shown", "expected": 7}, "busy"),
    ],
)
def test_why_an_answer_was_refused(question: dict[str, Any], options: dict[str, Any], code: str) -> None:
    """Each situation has its code; what nothing explains is another operation's lock: try again."""
    assert refused(question, **options).code == code


@pytest.mark.parametrize(
    ("question", "late", "error"),
    [
        ({}, False, NotAllowed),
        ({"generation": 8, "digest": "other"}, False, NotAllowed),
        ({"status": "answered"}, False, QuestionClosed),
        ({}, True, QuestionClosed),
    ],
)
def test_who_may_not_answer_is_told_that_unless_it_is_over(
    question: dict[str, Any],
    late: bool,  # noqa: FBT001  # a parameter of the test
    error: type[Exception],
) -> None:
    """That the question is for others goes before what else is the matter with the answer, not before its end."""
    others = replace(QUESTION, to=("ann",), **question)
    told = refusals.cannot_answer(others, Answerer("user:bob"), seen="shown", expected=7, late=late)
    assert isinstance(told, error)


def test_who_was_first_is_told() -> None:
    """The loser sees who answered, and when, and what the job is now."""
    error = refused({"status": "answered", "answered_by": "ann", "answered_at": AT, "job_state": State.RUNNING})
    assert isinstance(error, QuestionClosed)
    assert (error.answered_by, error.answered_at) == ("ann", AT)
    assert (error.job_state, error.state, error.actual) == (State.RUNNING, State.RUNNING, 7)
    assert "ann" in str(error)


statuses = st.sampled_from(["pending", "answered", "superseded", "expired", "closed", "withdrawn"])


@given(
    status=statuses,
    state=st.sampled_from(sorted(State)),
    seen=st.sampled_from([None, "shown", "other"]),
    expected=st.sampled_from([None, 6, 7]),
    late=st.booleans(),
)
def test_every_refusal_has_a_code_of_the_list(
    status: str,
    state: State,
    seen: str | None,
    expected: int | None,
    late: bool,  # noqa: FBT001  # drawn
) -> None:
    """Whatever was read, the refusal is a conflict with a documented code: no client meets an unknown one."""
    error = refused({"status": status, "job_state": state}, seen=seen, expected=expected, late=late)
    assert error.code in CODES
    assert str(error)
    if state in TERMINAL:
        assert error.code not in ("busy", "stale_generation", "question_changed")


@given(
    state=st.sampled_from(sorted(State)),
    question_id=st.none() | st.uuids(),
    ticket_id=st.none() | st.uuids(),
    expected=st.sampled_from([None, 6, 7]),
)
def test_every_refused_resume_has_a_code_of_the_list(
    state: State, question_id: Any, ticket_id: Any, expected: int | None
) -> None:
    """As for answers."""
    error = refusals.cannot_resume(job(state=state, question_id=question_id, ticket_id=ticket_id), expected)
    assert isinstance(error, Conflict)
    assert error.code in CODES


def test_busy_without_a_job() -> None:
    """Where the row was not even read, nothing is said of its state."""
    error = refusals.busy(None)
    assert (error.code, error.state) == ("busy", None)


RERUN = {"not_final", "already_rerun", "erased"}  # of `rerunning`; tested with it, on a database


def test_the_documented_codes_are_these() -> None:
    """The list in `Conflict`'s docstring is the one that is tested here."""
    assert Conflict.__doc__ is not None
    documented = {word.strip("`.,\n") for word in Conflict.__doc__.split() if word.startswith("``")}
    assert documented - {"code"} == CODES | ELSEWHERE
