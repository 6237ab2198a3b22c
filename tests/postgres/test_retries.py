"""How long a job is tried again: the time that retries take, the deadline; what is kept when it is used up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy.engine import Engine

from celery_supervise import queries
from celery_supervise.holding import Holding, Retry
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NodeKind
from tests.postgres.looking import row, unchanged, watching
from tests.postgres.shop import Shop, failure, new_question, replacement, retry, stored

ANN = "user:ann"
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SPENT = stored('"spent"')


def within(limit: timedelta, due: timedelta | None = None) -> Retry:
    """A retry that is given so much time."""
    return replace(retry(due), retry_for=limit, spent=SPENT)


def earlier(owner: Engine, job_id: str, hours: str) -> None:
    """What the job's attempts did was so many hours earlier: an SQL expression of their `number`."""
    by = f"({hours}) * interval '1 h'"
    trigger = "TRIGGER attempts_ended_is_final"
    with owner.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE supervise.attempts DISABLE {trigger}")
        connection.exec_driver_sql(
            f"UPDATE supervise.attempts SET started_at = started_at - {by}, ended_at = ended_at - {by}"
            f" WHERE job_id = '{job_id}'"
        )
        connection.exec_driver_sql(f"ALTER TABLE supervise.attempts ENABLE ALWAYS {trigger}")


def assert_spent(shop: Shop, holding: Holding, moved: Moved, why: str) -> None:
    """The job has failed, with all that is known of it."""
    job_id = holding.lease.job_id
    assert (moved.state, moved.stop_reason, moved.ticket_id) == (State.FAILED, f"retries_exhausted:{why}", None)
    assert moved.settle_id == holding.lease.token
    assert queries.payload(shop.door, job_id, "error") == SPENT
    assert queries.payload(shop.door, job_id, "envelope") == stored()
    attempt = shop.supervisor.attempts(job_id)[-1]
    assert (attempt.outcome, attempt.cause, attempt.traceback) == ("failed", "shop.Broken: no", "Traceback …")


def test_a_retry_beyond_the_deadline_is_a_failure(shop: Shop) -> None:
    """Nobody waits for a deadline that the retry cannot meet: the job fails now, with its error."""
    holding = shop.running(deadline=HOUR)
    with watching(shop, holding.lease.job_id) as seen:
        moved = holding.retry(within(HOUR * 9, 2 * HOUR), failure())
    assert_spent(shop, holding, moved, "deadline")
    assert (seen.generation, seen.events) == (1, ["failed"])


def test_a_retry_before_the_deadline_is_one(shop: Shop) -> None:
    """There is still time."""
    holding = shop.running(deadline=HOUR)
    assert holding.retry(within(HOUR * 9, MINUTE), failure()).state is State.PENDING


def test_the_first_error_begins_the_time(shop: Shop, database_owner: Engine) -> None:
    """However long the job ran before: the delay of the first retry is all that counts then."""
    holding = shop.running()
    earlier(database_owner, holding.lease.job_id, "5")
    assert holding.retry(within(HOUR, MINUTE), failure()).state is State.PENDING
    other = shop.running()
    assert_spent(shop, other, other.retry(within(HOUR, 2 * HOUR), failure()), "retry_for")


@pytest.mark.parametrize(("hours", "left"), [("number = 1", False), ("number", False), ("0", True)])
def test_running_and_delays_since_then_count(shop: Shop, database_owner: Engine, *, hours: str, left: bool) -> None:
    """After an hour of delay, or of running, there is no time for a third try."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.retry(within(HOUR), failure())
    again = shop.hold(job_id)
    earlier(database_owner, job_id, hours.replace("number = 1", "(number = 1)::integer"))
    moved = again.retry(within(HOUR), failure())
    assert (moved.stop_reason or "") == ("" if left else "retries_exhausted:retry_for")
    assert moved.state is (State.PENDING if left else State.FAILED)


@pytest.mark.parametrize("delayed", [False, True])
def test_s84_waiting_uses_up_no_time(shop: Shop, database_owner: Engine, *, delayed: bool) -> None:
    """Parked, handed over and paused for hours between two errors: nothing of it counts; a delay of an hour does."""
    holding, question = shop.running(), new_question()
    job_id = holding.lease.job_id
    holding.retry(within(HOUR), failure())
    shop.hold(job_id).ask(question, ttl=HOUR)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    shop.hold(job_id).hand_over()
    holding = shop.hold(job_id)
    shop.supervisor.pause(job_id, actor=ANN)
    holding.checkpoint("here", NodeKind.STEP, None)
    shop.supervisor.resume(job_id, actor=ANN)
    holding = shop.hold(job_id)
    assert [one.outcome for one in shop.supervisor.attempts(job_id)][1:4] == ["parked", "handed_over", "parked"]
    earlier(database_owner, job_id, "5 - greatest(number, 2)" + (" + (number = 1)::integer" if delayed else ""))
    moved = holding.retry(within(HOUR, MINUTE), failure())
    assert moved.state is (State.FAILED if delayed else State.PENDING)


def test_a_replacement_has_time_of_its_own(shop: Shop, database_owner: Engine) -> None:
    """What the tasks before it used up between their errors is not its own: its time begins with its first error."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.retry(within(HOUR), failure())
    shop.hold(job_id).replace(replacement())
    again = shop.hold(job_id)
    earlier(database_owner, job_id, "5 - number")
    assert again.retry(within(HOUR), failure()).state is State.PENDING


def test_a_replacement_has_tries_of_its_own(shop: Shop) -> None:
    """Attempts that were lost count against the task that lost them."""
    holding = shop.running(lost_limit=2)
    job_id = holding.lease.job_id
    shop.lose(holding)
    again = shop.hold(job_id)
    assert again.lease.lost_count == 1
    again.replace(replacement(lost_limit=2))
    other = shop.hold(job_id)
    assert other.lease.lost_count == 0
    moved = shop.lose(other)
    assert moved is not None
    assert moved.state is State.PENDING


def test_without_a_limit_it_is_tried_for_ever(shop: Shop) -> None:
    """Neither `retry_for` nor a deadline: Celery's own `max_retries` is all there is."""
    holding = shop.running()
    assert holding.retry(retry(1000 * HOUR), failure()).state is State.PENDING


def test_a_repeated_retry_is_told_that_it_failed(shop: Shop) -> None:
    """Its reply was lost: the same call again changes nothing."""
    holding = shop.running(deadline=HOUR)
    holding.retry(within(HOUR, 2 * HOUR), failure())
    with unchanged(shop, holding.lease.job_id):
        again = holding.retry(within(HOUR, 2 * HOUR), failure())
    assert (again.state, again.changed, again.settle_id) == (State.FAILED, False, holding.lease.token)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_cancel_comes_before_the_budget(shop: Shop, *, cancelled: bool) -> None:
    """One order of judgement: cancelled, expired, then whether there is time."""
    holding = shop.running(deadline=HOUR)
    if cancelled:
        shop.supervisor.cancel(holding.lease.job_id, actor=ANN)
    moved = holding.retry(within(HOUR, 2 * HOUR), failure())
    assert moved.state is (State.CANCELLED if cancelled else State.FAILED)
    assert row(shop, holding.lease.job_id)["ticket_id"] is None
