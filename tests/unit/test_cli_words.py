"""What a job's row means, in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar
from uuid import UUID

import pytest

from celery_supervise.lifecycle import State
from celery_supervise.model import Attempt, Job, Moved
from celery_supervise.reasons import reason
from celery_supervise.words import answered, cancelled, event, outcome, paused, resumed, why

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SOON = NOON + timedelta(minutes=4)
NIL = UUID(int=0)

Row = TypeVar("Row", Job, Attempt)


def row_of(kind: type[Row], **given: Any) -> Row:
    """A row of which only what is `given` counts."""
    return kind(**{**dict.fromkeys(kind.__dataclass_fields__), **given})


JOB = row_of(Job, id="j", state=State.PENDING, attempts=0, ticket_id=NIL, starts_at=NOON)
ATTEMPT = row_of(Attempt, job_id="j", number=1, worker="w@h", pid=7)
INSIDE_WORDS = ("ticket", "token", "settle", "reap", "outbox", "envelope")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "waits for a worker to start it"),
        ({"attempts": 1}, "waits for a worker to start it again"),
        ({"starts_at": SOON}, "starts at 2026-11-30 12:04:00Z (in 4 min)"),
        ({"starts_at": SOON, "attempts": 1}, "starts again at 2026-11-30 12:04:00Z (in 4 min)"),
        ({"pause_requested_at": NOON}, "waits for a worker to start it; it will not start until resumed"),
        ({"state": State.RUNNING}, ""),
        ({"state": State.RUNNING, "pause_requested_at": NOON}, "pausing after the current step"),
        (
            {"state": State.RUNNING, "pause_requested_at": NOON, "cancel_requested_at": NOON},
            "cancelling: its worker stops at its next step",
        ),
        ({"state": State.PARKED, "ticket_id": None, "stop_reason": "user_paused"}, "paused"),
        (
            {"state": State.PARKED, "ticket_id": None, "stop_reason": "awaiting_user_answer:approve"},
            "waits for an answer to approve",
        ),
        ({"state": State.PARKED, "stop_reason": "answered:approve"}, "approve is answered, waits for a worker"),
        (
            {"state": State.PARKED, "stop_reason": "resume_requested:user_paused"},
            "told to go on (paused), waits for a worker",
        ),
        ({"state": State.PARKED, "ticket_id": None}, "for no reason, which must not be: run doctor"),
        ({"state": State.EXPIRED, "stop_reason": "expired:deadline"}, "its time was over (its deadline)"),
        (
            {"state": State.EXPIRED, "stop_reason": "expired:awaiting_user_answer:approve"},
            "its time was over (waits for an answer to approve)",
        ),
        ({"state": State.COMPLETED}, ""),
    ],
)
def test_why_a_job_is_where_it_is(row: dict[str, Any], words: str) -> None:
    """Each state says what the job waits for, and what will move it."""
    assert why(replace(JOB, **row), NOON) == words


@pytest.mark.parametrize(
    ("stop_reason", "words"),
    [
        (None, ""),
        ("incompatible_version:1->2", "no worker can run its version (1->2)"),
        ("unknown_task:shop.pay", "no worker knows the task shop.pay"),
        ("resume_requested:", "told to go on"),
        ("something of the shop's", "something of the shop's"),
        ("odd:thing", "odd:thing"),
    ],
)
def test_a_stop_reason_in_words(stop_reason: str | None, words: str) -> None:
    """A reason of ours is told in words, one that is not known as it is."""
    assert reason(stop_reason) == words


def moved(state: State, **changes: Any) -> Moved:
    """What a request returned."""
    return replace(Moved("j", state, None, 3), **changes)


def test_what_a_pause_does() -> None:
    """A pause is told as the request that it is."""
    assert paused(moved(State.RUNNING, pause_requested=True)) == "pausing after the current step"
    assert paused(moved(State.RUNNING, pause_requested=True, changed=False)).startswith("already pausing")
    assert paused(moved(State.PENDING, pause_requested=True)) == "it will not start until resumed"
    assert paused(moved(State.PARKED, pause_requested=True, changed=False)).startswith("already asked for")
    assert paused(moved(State.PARKED, changed=False)) == "already paused"


def test_what_the_other_requests_do() -> None:
    """Resume, cancel and answer say what happens now, and what only will."""
    assert resumed(moved(State.PARKED, stop_reason="resume_requested:user_paused")).startswith("goes on as soon")
    assert resumed(moved(State.RUNNING)) == "the pause is taken back"
    assert cancelled(moved(State.CANCELLED)) == "cancelled"
    assert cancelled(moved(State.RUNNING)).startswith("cancelling")
    assert cancelled(moved(State.RUNNING, changed=False)).startswith("already cancelling")
    assert answered(moved(State.PARKED)).startswith("the job goes on")
    assert answered(moved(State.PARKED, pause_requested=True)) == "it will not start until resumed"


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({}, "running"),
        ({"outcome": "lost", "cause": "its lease ended"}, "worker lost: its lease ended"),
        ({"outcome": "handed_over"}, "handed over, since its worker was stopping"),
        ({"outcome": "failed", "cause": "ValueError: no"}, "failed: ValueError: no"),
    ],
)
def test_how_an_attempt_ended(ended: dict[str, Any], words: str) -> None:
    """An attempt's end is told with its cause."""
    assert outcome(replace(ATTEMPT, **ended)) == words


def test_events_are_told_without_words_of_the_code() -> None:
    """The log of a person has no word that only the code knows."""
    assert [event("lease_lost"), event("settled"), event("retry_scheduled")] == [
        "worker lost",
        "told to Celery",
        "retry scheduled",
    ]
    assert not any(word in event(name) for name in ("lease_lost", "settled") for word in INSIDE_WORDS)
