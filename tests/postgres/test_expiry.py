"""Expiry: what time ends, on the database's clock, with a reason that says what was over. Nothing ever proceeds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_supervise.errors import LeaseLost
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.store.time import LOCK_OVER
from tests.postgres.looking import backdate, row, rows, unchanged, wait_until, watching
from tests.postgres.shop import Shop, new_question, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def pending(shop: Shop) -> str:
    """A job that waits for a worker."""
    return shop.pending(deadline=HOUR, start_by=HOUR).id


def running(shop: Shop) -> str:
    """A job that runs."""
    return shop.running(deadline=HOUR, max_active=HOUR).lease.job_id


def asked(shop: Shop) -> str:
    """A job that waits for an answer."""
    return shop.job_of(shop.asked(deadline=HOUR)).id


def answered(shop: Shop) -> str:
    """A job that was answered and waits for a worker."""
    question = shop.asked(deadline=HOUR)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    return shop.job_of(question).id


def paused(shop: Shop) -> str:
    """A job that somebody paused."""
    return shop.paused(deadline=HOUR).id


@pytest.mark.parametrize(
    ("make", "column", "reason"),
    [
        (pending, "expires_at", "expired:deadline"),
        (pending, "start_by", "expired:start_by"),
        (running, "expires_at", "expired:deadline"),
        (running, "active_until", "expired:max_active"),
        (asked, "expires_at", "expired:awaiting_user_answer:approve"),
        (asked, "wait_until", "expired:awaiting_user_answer:approve"),
        (answered, "expires_at", "expired:answered:approve"),
        (paused, "expires_at", "expired:user_paused"),
    ],
)
def test_time_ends_what_nobody_touched(shop: Shop, make: Callable[[Shop], str], column: str, reason: str) -> None:
    """The sweep ends it in one commit, by the clock; its reason keeps what it was waiting for."""
    job_id = make(shop)
    with unchanged(shop, job_id):
        assert list(shop.expire().moved) == []
    backdate(shop, job_id, column)
    with watching(shop, job_id) as seen:
        (moved,) = shop.expire().moved
    assert (moved.job_id, moved.state, moved.stop_reason) == (job_id, State.EXPIRED, reason)
    assert (seen.generation, seen.events, seen.entries[0].actor) == (1, ["expired"], "sweep")
    assert (seen.entries[0].data["who"], seen.entries[0].data["reason"]) == ("clock", reason)
    job = row(shop, job_id)
    assert job["finished_at"] == job["settle_due_at"] == seen.entries[0].at
    assert (job["ticket_id"], job["current_token"], job["question_id"], job["active_until"]) == (None, None, None, None)
    with unchanged(shop, job_id):
        assert list(shop.expire().moved) == []


def test_a_running_body_learns_it_at_its_next_call(shop: Shop) -> None:
    """The attempt ended with the job; what it still writes is refused, its end is told as the job's."""
    holding = shop.running(deadline=HOUR)
    job_id = holding.lease.job_id
    backdate(shop, job_id, "expires_at")
    shop.expire()
    (attempt,) = shop.supervisor.attempts(job_id)
    assert (attempt.outcome, attempt.ended_at) == ("expired", shop.job(job_id).finished_at)
    assert holding.checkpoint("x", NodeKind.STEP, stored("1")).state is State.EXPIRED
    assert rows(shop, "checkpoints", job_id) == []
    with pytest.raises(LeaseLost):
        holding.progress(1, 2, None)


def test_a_cancel_request_goes_before_time(shop: Shop) -> None:
    """A running job that is to be cancelled, whose time is over, too, is cancelled by the sweep."""
    holding = shop.running(deadline=HOUR)
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    backdate(shop, job_id, "expires_at")
    (moved,) = shop.expire().moved
    assert moved.state is State.CANCELLED
    assert shop.supervisor.attempts(job_id)[0].outcome == "cancelled"


def test_the_question_of_an_expired_job_is_closed_as_what_it_was(shop: Shop) -> None:
    """Its own time over: expired. The job's deadline over: closed."""
    own, jobs = shop.asked(), shop.asked(deadline=HOUR)
    backdate(shop, shop.job_of(own).id, "wait_until")
    backdate(shop, shop.job_of(jobs).id, "expires_at")
    assert len(shop.expire().moved) == 2
    assert shop.supervisor.question(own.id).status == "expired"
    assert shop.supervisor.question(jobs.id).status == "closed"
    assert shop.supervisor.questions() == []


def test_s08_waiting_is_not_running_time(shop: Shop) -> None:
    """A job that waits for a person uses no running time: long after, it is parked still, and has what was left."""
    question = shop.asked(max_active=timedelta(seconds=3))
    job_id = shop.job_of(question).id
    backdate(shop, job_id, "started_at", HOUR)
    with unchanged(shop, job_id):
        assert list(shop.expire().moved) == list(shop.reap().moved) == []
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert shop.hold(job_id).complete(None).state is State.COMPLETED
    assert "lease_lost" not in shop.events(job_id)


def test_s08_a_pause_is_not_running_time(shop: Shop) -> None:
    """Paused by a person for long: parked still, without a lease, no try is used up, and what was left is left."""
    job = shop.paused(max_active=timedelta(seconds=30))
    backdate(shop, job.id, "started_at", HOUR)
    with unchanged(shop, job.id):
        assert list(shop.expire().moved) == list(shop.reap().moved) == []
    shop.supervisor.resume(job.id, actor=ANN)
    assert shop.hold(job.id).complete(None).state is State.COMPLETED
    assert not {"lease_lost", "retry_scheduled", "expired"} & set(shop.events(job.id))


def test_s29_silence_is_no_answer(shop: Shop) -> None:
    """Whatever a question asks, its end by time stores no value and lets nothing proceed."""
    for schema in ({"type": "boolean", "default": True}, {"enum": ["yes"]}, {}):
        question = shop.asked(question=new_question(schema=schema), ttl=timedelta(microseconds=1))
        job_id = shop.job_of(question).id
        shop.expire()
        found = shop.supervisor.question(question.id)
        assert (found.status, found.answer, shop.job(job_id).state) == ("expired", None, State.EXPIRED)
        assert shop.claim(job_id) is None


def test_s07_the_clock_that_asked_decides(shop: Shop) -> None:
    """A question has exactly the time it was given, from the moment it was stored, on the database's clock."""
    question = shop.asked(ttl=timedelta(hours=24))
    found = shop.supervisor.question(question.id)
    assert found.expires_at - found.asked_at == timedelta(hours=24)
    assert found.expires_at == shop.job_of(question).wait_until


def test_other_namespaces_hide_nothing(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """However many jobs of another namespace are over, which nobody there ends, ours are found and theirs left."""
    second = open_shop(namespace="second")
    foreign = [second.pending(deadline=HOUR).id for _ in range(10)]
    job = shop.pending(deadline=HOUR)
    for job_id in (*foreign, job.id):
        backdate(shop, job_id, "expires_at", HOUR if job_id != job.id else timedelta(seconds=1))
    with shop.door.batch() as run:
        # a batch of two looks at eight candidates
        found = run(LOCK_OVER, job_ids=None, batch=2)
    assert [one["job_id"] for one in found] == [job.id]
    assert [moved.job_id for moved in shop.expire().moved] == [job.id]
    assert second.job(foreign[0]).state is State.PENDING


def test_a_job_that_ended_in_time_is_not_expired(shop: Shop) -> None:
    """An end before the deadline stands when the deadline comes."""
    job = shop.pending(deadline=timedelta(seconds=2))
    holding = shop.hold(job.id)
    assert job.deadline is not None
    assert holding.complete(None).state is State.COMPLETED
    wait_until(shop, job.deadline)
    with unchanged(shop, job.id):
        assert list(shop.expire().moved) == []
