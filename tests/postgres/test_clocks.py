"""Three clocks, told apart: the deadline, the running time, a question's time; and Celery's limits beside them.

Time passes here by moving all times of the job back together: nobody waits, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.body import Body
from celery_supervise.errors import AttemptEnded, ControlFlow
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Failure
from tests.postgres.looking import execute, row, unchanged, watching
from tests.postgres.shop import Shop, failure, new_question
from tests.postgres.test_journal import journal

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TIMES = ("created_at", "started_at", "expires_at", "wait_until", "active_until", "ticket_due_at", "stage_at")


def passes(shop: Shop, job_id: str, time: timedelta) -> None:
    """Let so much time pass for the job, in the state in which it is."""
    moved = ", ".join(f"{column} = {column} - CAST(:time AS interval)" for column in TIMES)
    execute(shop, f"UPDATE supervise.jobs SET {moved} WHERE id = :id", id=job_id, time=time)


def asked(shop: Shop, **clocks: Any) -> str:
    """A job that waits for an answer, for a day."""
    return shop.job_of(shop.asked(ttl=DAY, **clocks)).id


def paused(shop: Shop, **clocks: Any) -> str:
    """A job that somebody paused."""
    return shop.paused(**clocks).id


@pytest.mark.parametrize("park", [asked, paused])
def test_parked_time_is_not_running_time(shop: Shop, park: Callable[..., str]) -> None:
    """A job that may run for an hour stands still for ten: nothing of the hour is used, and all of it is left."""
    job_id = park(shop, max_active=HOUR)
    left = row(shop, job_id)["active_left"]
    passes(shop, job_id, 10 * HOUR)
    with unchanged(shop, job_id):
        assert shop.expire().moved == []
    assert HOUR - left < timedelta(minutes=1)
    assert row(shop, job_id)["active_left"] == left


@pytest.mark.parametrize(("park", "prior"), [(asked, "awaiting_user_answer:approve"), (paused, "user_paused")])
def test_parked_time_counts_against_the_deadline(shop: Shop, park: Callable[..., str], prior: str) -> None:
    """A job that has two hours in all and stands still for three is over, and says what it waited for."""
    job_id = park(shop, deadline=2 * HOUR, max_active=DAY)
    passes(shop, job_id, HOUR)
    assert shop.expire().moved == []
    passes(shop, job_id, 2 * HOUR)
    (moved,) = shop.expire().moved
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, f"expired:{prior}")


def test_parked_time_counts_against_the_questions_time(shop: Shop) -> None:
    """A question that may stay open for a day is over after that, whatever else the job may do."""
    job_id = asked(shop, deadline=10 * DAY, max_active=HOUR)
    passes(shop, job_id, DAY - HOUR)
    assert shop.expire().moved == []
    passes(shop, job_id, HOUR)
    (moved,) = shop.expire().moved
    assert moved.stop_reason == "expired:awaiting_user_answer:approve"


def test_a_wait_for_a_worker_is_not_running_time(shop: Shop) -> None:
    """Nor does the time between the answer and the next claim count, nor that before the first."""
    job = shop.pending(max_active=HOUR)
    passes(shop, job.id, 10 * HOUR)
    assert shop.expire().moved == []
    holding, question = shop.hold(job.id), new_question()
    holding.ask(question, ttl=DAY)
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    passes(shop, job.id, 10 * HOUR)
    assert shop.expire().moved == []
    assert shop.hold(job.id).complete(None).state is State.COMPLETED


def test_running_time_adds_up(shop: Shop) -> None:
    """Twice forty minutes, with a night between them, are more than an hour."""
    question = new_question()
    holding = shop.running(max_active=HOUR)
    job_id = holding.lease.job_id
    passes(shop, job_id, timedelta(minutes=40))
    holding.ask(question, ttl=DAY)
    passes(shop, job_id, 10 * HOUR)
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    again = shop.hold(job_id)
    passes(shop, job_id, timedelta(minutes=19))
    assert shop.expire().moved == []
    passes(shop, job_id, timedelta(minutes=2))
    assert again.complete(None).stop_reason == "expired:max_active"


CALLS: dict[str, Callable[[Body], object]] = {
    "step": lambda body: body.step("next", str),
    "checkpoint": lambda body: body.checkpoint("next"),
    "ask": lambda body: body.ask("approve", "Pay?", choices=["yes"]),
    "each": lambda body: list(body.each("pay", [1, 2], key=int)),
}


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "untouched"])
@pytest.mark.parametrize("clock", ["deadline", "max_active"])
@pytest.mark.parametrize("call", CALLS)
def test_s43_a_running_body_learns_it_at_its_next_supervised_call(
    shop: Shop, call: str, clock: str, *, swept: bool
) -> None:
    """Whether the sweep came first or not; and whoever swallows it meets it again at the call after that."""
    holding = shop.running(**{clock: HOUR})
    body = Body(journal(shop, holding), job_id=holding.lease.job_id)
    passes(shop, holding.lease.job_id, 2 * HOUR)
    if swept:
        shop.expire()
    for _ in range(2):
        with pytest.raises(ControlFlow) as ended:
            CALLS[call](body)
    assert isinstance(ended.value, AttemptEnded)
    assert ended.value.state == State.EXPIRED
    assert shop.job(holding.lease.job_id).stop_reason == f"expired:{clock}"


def test_celerys_limits_are_told_apart_in_the_log(shop: Shop) -> None:
    """A hard limit is a failure with its own reason, a soft one the body's own error, a clock of ours an expiry."""
    hard, soft, ours = (shop.running(max_active=HOUR) for _ in range(3))
    passes(shop, ours.lease.job_id, 2 * HOUR)
    ends: list[tuple[Holding, Callable[[], object]]] = [
        (hard, lambda: hard.fail(failure(), reason="time_limit")),
        (soft, lambda: soft.fail(Failure("celery.exceptions.SoftTimeLimitExceeded", "1"))),
        (ours, lambda: ours.complete(None)),
    ]
    said = []
    for holding, end in ends:
        with watching(shop, holding.lease.job_id) as seen:
            end()
        (entry,) = seen.entries
        said.append((entry.event, entry.data.get("reason"), entry.data.get("error")))
    assert said == [
        ("failed", "time_limit", "shop.Broken"),
        ("failed", None, "celery.exceptions.SoftTimeLimitExceeded"),
        ("expired", "expired:max_active", None),
    ]
