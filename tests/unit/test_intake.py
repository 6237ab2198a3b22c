"""What the service refuses before anything is written. No database."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from celery_supervise.errors import InvalidInput, TooLarge
from celery_supervise.intake import check_actor, check_job, check_why, is_name
from celery_supervise.model import NewJob, Stored

NAMES = ["id", "task", "queue", "owner_id", "idempotency_key", "input_version"]
TIMES = ["deadline", "due", "start_by"]
JOB = NewJob(
    id="job-1",
    task="shop.task",
    queue="celery",
    envelope=Stored(b"{}", "json"),
    input_digest="input",
    ticket_id=uuid4(),
    run_id=uuid4(),
)


def refusal(**changes: Any) -> InvalidInput:
    """The error that a job with this change is refused with."""
    with pytest.raises(InvalidInput) as refused:
        check_job(replace(JOB, **changes))
    return refused.value


def test_an_ordinary_job_is_accepted() -> None:
    """What the refusals below change is accepted as it is, and with everything given."""
    check_job(JOB)
    names: dict[str, Any] = dict.fromkeys(["owner_id", "idempotency_key", "input_version"], "é" * 127 + "x")
    check_job(replace(JOB, **names, priority=9, max_active=timedelta(seconds=1), stall_after=timedelta(days=1)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["", "  ", "a\0b", "\ud800", 7, b"x"])
def test_s69_a_name_that_is_none(name: str, value: object) -> None:
    """Empty, blank, with NUL, not UTF-8, not a text: refused, naming the field."""
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("name", ["id", "task", "queue"])
def test_a_name_that_every_job_has(name: str) -> None:
    """A job without an id, a task or a queue is none."""
    assert refusal(**{name: None}).field == name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["x", "\U0001f600", "r4nd0m"])
def test_s69_a_name_too_long_for_an_index(name: str, text: str) -> None:
    """Longer than 255 bytes, counted in bytes, is refused with size and limit."""
    value = text * 256
    refused = refusal(**{name: value})
    assert isinstance(refused, TooLarge)
    assert (refused.field, refused.size, refused.limit) == (name, len(value.encode()), 255)


@pytest.mark.parametrize("name", TIMES)
def test_s44_a_naive_time_is_refused(name: str) -> None:
    """A datetime without a zone means another instant on each host: refused, naming the field."""
    assert refusal(**{name: datetime(2031, 1, 1)}).field == name  # noqa: DTZ001  # that is the point


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", ["2026-03-29T02:30:00", "infinity", 1893456000, True])
def test_s44_a_text_or_a_number_is_no_time(name: str, value: object) -> None:
    """What would have to be guessed is refused: a text, "infinity", an epoch number."""
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=-1)])
def test_s44_a_deadline_now_or_before(span: timedelta) -> None:
    """A deadline that is no time away is refused; an absolute one is the database's to judge."""
    assert refusal(deadline=span).field == "deadline"


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize(
    "value",
    [
        timedelta.max,
        timedelta(days=365_001),
        datetime.max.replace(tzinfo=timezone.utc),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-8))),
    ],
)
def test_s44_a_time_beyond_every_calendar(name: str, value: object) -> None:
    """A time that no datetime can hold in some zone is refused: the row could never be read again."""
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("name", ["due", "start_by"])
@pytest.mark.parametrize("value", [datetime.min.replace(tzinfo=timezone(timedelta(hours=8))), timedelta(days=-1)])
def test_a_time_long_ago_is_a_time(name: str, value: object) -> None:
    """Only a deadline must lie ahead: what was due long ago is due."""
    check_job(replace(JOB, **{name: value}))  # type: ignore[arg-type]  # both are times


@pytest.mark.parametrize("name", ["max_active", "stall_after"])
@pytest.mark.parametrize("value", [timedelta(0), timedelta(seconds=-1), 5, timedelta.max])
def test_a_duration_is_more_than_nothing(name: str, value: object) -> None:
    """No running time at all, a negative one, a bare number: refused, naming the field."""
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("value", [0, -1, 2**31, True, 2.0, None])
@pytest.mark.parametrize("name", ["lost_limit", "task_version"])
def test_a_count_is_at_least_one(name: str, value: object) -> None:
    """What is counted from 1 is a whole number from 1, and fits its column."""
    assert refusal(**{name: value}).field == name


@pytest.mark.parametrize("value", [2**15, -(2**15) - 1, "high"])
def test_a_priority_fits_its_column(value: object) -> None:
    """A broker's priority is a small number."""
    assert refusal(priority=value).field == "priority"


@pytest.mark.parametrize("actor", ["", " ", "a\0b", "x" * 256, None])
def test_an_actor_is_a_name(actor: object) -> None:
    """Who acts stands in the log for ever."""
    with pytest.raises(InvalidInput) as refused:
        check_actor(actor)
    assert refused.value.field == "actor"


@pytest.mark.parametrize("why", ["a\0b", "\ud800", "x" * 2001, 7])
def test_a_reason_is_a_text(why: object) -> None:
    """The words given with a cancel go into the log: bounded, and what Postgres can keep."""
    with pytest.raises(InvalidInput) as refused:
        check_why(why)
    assert refused.value.field == "why"


def test_a_reason_may_be_left_out_or_empty() -> None:
    """Nobody has to say why."""
    assert (check_why(None), check_why(""), check_why("no longer needed")) == (None, "", "no longer needed")


@pytest.mark.parametrize(("text", "known"), [("job-1", True), ("", False), ("a\0b", False), ("x" * 256, False)])
def test_what_cannot_be_a_name_is_nobodys(text: str, known: bool) -> None:  # noqa: FBT001  # parametrised
    """An id that no job can have is not looked up: it is simply not there."""
    assert is_name(text) is known
