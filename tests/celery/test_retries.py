"""Retries with a worker: their budget, what counts, and what is told when it is used up."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.exceptions import MaxRetriesExceededError

from celery_supervise import Options, State, SupervisedTask
from celery_supervise.errors import ConfigError
from celery_supervise.holding import moved
from celery_supervise.store.leases import LOSE, ask_hand_over
from celery_supervise.submitting import due_time
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("retries", set_as_current=False)
seen: list[Any] = []
gate: list[str] = []


class Broken(Exception):
    """What the tasks raise."""


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()
    gate.clear()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@task(autoretry_for=(Broken,), max_retries=None, retry_backoff=True, retry_backoff_max=3600, retry_jitter=False)
def backs_off(_self: Any) -> None:
    raise Broken("not yet")


def test_s83_the_backoff_of_the_ten_thousandth_retry(shop: Site) -> None:
    """The delay is the cap, at a finite time, in the row."""
    result = backs_off.apply_async(retries=10_000)
    wait_for(lambda: shop.count(result, "retry_scheduled") == 1)
    (entry,) = [one for one in shop.entries(result) if one.event == "retry_scheduled"]
    assert datetime.fromisoformat(entry.data["due"]) - entry.at == timedelta(seconds=3600)
    shop.supervise.cancel(result.id, actor="user:ann")


@pytest.mark.parametrize("countdown", [2**10_000, float("inf"), 1e300])
def test_s83_a_countdown_that_no_time_can_hold(shop: Site, countdown: float) -> None:
    """Cut to what a time can hold; nothing is raised, the job does not disappear."""
    due = due_time(app, countdown, None)
    assert isinstance(due, timedelta)
    assert timedelta(days=300_000) < due < timedelta.max
    result = by_itself.delay(str(2**10_000) if countdown == 2**10_000 else str(countdown))
    wait_for(lambda: shop.count(result, "retry_scheduled") == 1)
    assert shop.job(result).state is State.PENDING
    shop.supervise.cancel(result.id, actor="user:ann")


@task(max_retries=None)
def by_itself(self: Any, countdown: str) -> None:
    raise self.retry(countdown=int(countdown) if countdown.isdigit() else float(countdown))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("retry_backoff", -1),
        ("retry_backoff_max", -5),
        ("retry_backoff", float("inf")),
        ("retry_backoff", float("nan")),
        ("max_retries", -1),
        ("default_retry_delay", "soon"),
    ],
)
def test_s83_a_number_that_no_retry_can_be_made_of(option: str, value: Any) -> None:
    """Refused where the task is declared."""
    other = Celery("other", set_as_current=False)
    with pytest.raises(ConfigError, match=option):
        other.task(base=SupervisedTask, name="t", shared=False, lazy=False, **{option: value})(nothing)


def nothing() -> None:
    """A body."""


@task(max_retries=2, default_retry_delay=0)
def waits_often(self: Any) -> list[int]:
    """Asks, is paused and handed over; then has two errors."""
    for number in range(10):
        self.ask(f"q{number}", "Well?", choices=["yes"])
    for number in range(3):
        gate.append(f"at {number}")
        wait_for(lambda: f"go {number}" in gate)  # noqa: B023  # used at once
        self.checkpoint(f"c{number}")
    seen.append(self.request.retries)
    if self.request.retries < 2:
        raise self.retry(exc=Broken("not yet"))
    return list(seen)


def test_s84_waiting_uses_up_no_attempts(shop: Site) -> None:
    """Ten questions, a pause, two hand-overs, then two errors: the third try succeeds."""
    result = waits_often.delay()
    for _ in range(10):
        shop.answer(result, "yes")
    for number in range(3):
        wait_for(lambda: f"at {number}" in gate)  # noqa: B023  # used at once
        if number == 0:
            shop.supervise.pause(result.id, actor="user:ann")
        else:
            ask_hand_over(shop.runtime.door, shop.runtime.incarnation)
        gate.append(f"go {number}")
        if number == 0:
            shop.wait(result, State.PARKED)
            shop.supervise.resume(result.id, actor="user:ann")
    assert result.get(timeout=60) == [0, 1, 2]
    assert (shop.count(result, "handed_over"), shop.count(result, "retry_scheduled")) == (2, 2)


@task(supervise=Options(retry_for=timedelta(seconds=30)), max_retries=None)
def has_half_a_minute(self: Any, how: str) -> None:
    if how == "bare":
        raise self.retry(countdown=3600)
    if how == "throw=False":
        self.retry(countdown=3600, throw=False)
        return
    try:
        breaks()
    except Broken as error:
        raise self.retry(countdown=3600, exc=error) from error


def breaks() -> None:
    raise Broken("for good")


@pytest.mark.parametrize(
    ("how", "error"), [("exc", Broken), ("bare", MaxRetriesExceededError), ("throw=False", MaxRetriesExceededError)]
)
def test_the_time_for_retries_is_used_up(shop: Site, how: str, error: type[Exception]) -> None:
    """Failed, with the error of the body, or Celery's own; the diagnosis is kept."""
    result = has_half_a_minute.delay(how)
    with pytest.raises(error):
        result.get(timeout=20)
    job = shop.wait(result, State.FAILED)
    shop.settled(result)
    assert (job.stop_reason, job.attempts, shop.count(result, "retry_scheduled")) == (
        "retries_exhausted:retry_for",
        1,
        0,
    )
    (attempt,) = shop.supervise.attempts(result.id)
    assert ("Broken: for good" in (attempt.cause or "")) is (how == "exc")
    assert ("for good" in (attempt.traceback or "")) is (how == "exc")


def test_a_retry_that_would_miss_the_deadline(shop: Site) -> None:
    """The job fails at once, with its own error."""
    result = patient.apply_async(supervise={"deadline": timedelta(minutes=5)})
    with pytest.raises(Broken):
        result.get(timeout=20)
    assert shop.wait(result, State.FAILED).stop_reason == "retries_exhausted:deadline"


@task(autoretry_for=(Broken,), default_retry_delay=3600, max_retries=5)
def patient(_self: Any) -> None:
    raise Broken("later")


@task(max_retries=2, default_retry_delay=0)
def after_losses(self: Any) -> None:
    """Says how many tries are used up, and fails."""
    seen.append(self.request.retries)
    if len(seen) == 1:
        gate.append("here")
        wait_for(lambda: "lost" in gate)
    raise self.retry(exc=Broken("again"))


def test_a_lost_attempt_is_a_try(shop: Site) -> None:
    """Counted from the next claim on, once: with two retries and a loss there are three attempts in all."""
    result = after_losses.delay()
    wait_for(lambda: "here" in gate)
    job = shop.job(result)
    row = shop.runtime.door.one(
        LOSE,
        job_id=job.id,
        token=job.current_token,
        ticket_id=uuid4(),
        settle_after=timedelta(0),
        actor="test",
        cause="its process died",
    )
    assert row is not None
    assert moved(row).state is State.PENDING
    gate.append("lost")
    with pytest.raises(Broken):
        result.get(timeout=30)
    assert seen == [0, 0, 1]
    assert shop.job(result).stop_reason == "retries_exhausted:attempts"
    assert [one.outcome for one in shop.supervise.attempts(result.id)] == ["lost", "retried", "failed"]
