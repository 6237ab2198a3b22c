"""Holds: nothing of a held task or owner starts, whichever way it would; what runs goes on; a release lets all go."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import Conflict, InvalidInput
from celery_supervise.holds import hold_back
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, NodeKind
from celery_supervise.relay import Relay
from tests.postgres.looking import NO_TIME, backdate, execute, row, rows, watching
from tests.postgres.races import Call, row_held, waiter
from tests.postgres.shop import Shop, failure, new_job, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
HELD: dict[str, Any] = {"task": "shop.task", "reason": "the bank is down", "actor": ANN}


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """The relay may send at once what a call left to it."""
    return open_shop(publish_hold=NO_TIME)


def relay(shop: Shop) -> list[str]:
    """One pass of the relay: the jobs whose messages it sent."""
    shop.broker.flush()
    Relay(shop.door, shop.broker, settling=NO_TIME).publish_once()
    return [message.job_id for message in shop.broker.messages]


def starts(shop: Shop, job_id: str) -> bool:
    """Whether a worker that has the job's message can run it."""
    return isinstance(shop.claim(job_id), Lease)


# --- what waits ------------------------------------------------------------------------------------------


def test_what_waits_does_not_start(shop: Shop) -> None:
    """A message that is out already finds that it gives no right; nothing that a client sees has changed."""
    job = shop.pending()
    with watching(shop, job.id) as seen:
        shop.supervisor.hold(**HELD)
    assert (seen.generation, seen.events) == (0, [])
    assert not starts(shop, job.id)
    assert relay(shop) == []
    assert shop.job(job.id).state is State.PENDING


def test_a_release_lets_all_go(shop: Shop) -> None:
    """The relay sends what waited, oldest first, and it starts."""
    jobs = [shop.pending().id for _ in range(3)]
    shop.supervisor.hold(**HELD)
    jobs.append(shop.pending().id)
    released = shop.supervisor.release(task="shop.task", actor=ANN)
    assert released is not None
    assert released.reason == "the bank is down"
    assert relay(shop) == jobs
    assert all(starts(shop, job_id) for job_id in jobs)


def test_calls_are_accepted(shop: Shop) -> None:
    """A submit is as durable as ever, sends nothing, and says so by nothing but its waiting."""
    shop.supervisor.hold(**HELD)
    made = shop.supervisor.submit(job := new_job())
    assert (made.created, made.state) == (True, State.PENDING)
    assert (shop.broker.messages, relay(shop), starts(shop, job.id)) == ([], [], False)


def test_only_what_is_held(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Other tasks, other owners, jobs without an owner and other apps start as ever."""
    shop.supervisor.hold(task="shop.other", reason="r", actor=ANN)
    shop.supervisor.hold(owner="acme", reason="r", actor=ANN)
    second = open_shop(namespace="second", publish_hold=NO_TIME)
    free = [shop.pending().id, shop.pending(owner_id="bob").id]
    held = [shop.pending(task="shop.other").id, shop.pending(owner_id="acme").id]
    foreign = second.pending(owner_id="acme").id
    assert [starts(shop, job_id) for job_id in free] == [True, True]
    assert [starts(shop, job_id) for job_id in held] == [False, False]
    assert starts(second, foreign)


def test_two_holds_on_one_job(shop: Shop) -> None:
    """It starts only when both are released."""
    shop.supervisor.hold(**HELD)
    shop.supervisor.hold(owner="acme", reason="unpaid", actor=ANN)
    job = shop.pending(owner_id="acme")
    shop.supervisor.release(task="shop.task", actor=ANN)
    assert (relay(shop), starts(shop, job.id)) == ([], False)
    shop.supervisor.release(owner="acme", actor=ANN)
    assert (relay(shop), starts(shop, job.id)) == ([job.id], True)


# --- every way to a start --------------------------------------------------------------------------------


def answered(shop: Shop) -> str:
    """It asked before; now it is answered."""
    question = shop.asked()
    shop.supervisor.hold(**HELD)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    return shop.job_of(question).id


def resumed(shop: Shop) -> str:
    """It was paused before; now it is told to go on."""
    job = shop.paused()
    shop.supervisor.hold(**HELD)
    shop.supervisor.resume(job.id, actor=ANN)
    return job.id


def retried(shop: Shop) -> str:
    """It runs, and is to be tried again."""
    holding = shop.running()
    shop.supervisor.hold(**HELD)
    holding.retry(retry(), failure())
    return holding.lease.job_id


def handed_over(shop: Shop) -> str:
    """It runs, and leaves its worker."""
    holding = shop.running()
    shop.supervisor.hold(**HELD)
    holding.hand_over()
    return holding.lease.job_id


def lost(shop: Shop) -> str:
    """It runs, and its worker dies."""
    holding = shop.running()
    shop.supervisor.hold(**HELD)
    shop.lose(holding)
    return holding.lease.job_id


def reaped(shop: Shop) -> str:
    """It runs, and its lease ends."""
    holding = shop.running()
    shop.supervisor.hold(**HELD)
    shop.reap_now(holding.lease.job_id)
    return holding.lease.job_id


def rerun(shop: Shop) -> str:
    """It ended, and is run again."""
    job = shop.ended(State.CANCELLED)
    shop.supervisor.hold(**HELD)
    return shop.supervisor.rerun(job.id, actor=ANN).job_id


def due_later(shop: Shop) -> str:
    """Its time comes while it is held."""
    job = shop.pending(due=HOUR)
    shop.supervisor.hold(**HELD)
    backdate(shop, job.id, "ticket_due_at")
    execute(shop, "UPDATE supervise.outbox SET due_at = due_at - interval '2 hours' WHERE job_id = :id", id=job.id)
    return job.id


def received(shop: Shop) -> str:
    """A worker got a message that made it."""
    shop.supervisor.hold(**HELD)
    shop.supervisor.submit(job := new_job(), received=True)
    return job.id


def joined(shop: Shop) -> str:
    """It was submitted in the caller's own transaction."""
    shop.supervisor.hold(**HELD)
    with shop.engine.begin() as connection:
        shop.supervisor.submit(job := new_job(), session=connection)
    return job.id


WAYS = (answered, resumed, retried, handed_over, lost, reaped, rerun, due_later, received, joined)


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_to_a_start(shop: Shop, way: Callable[[Shop], str]) -> None:
    """Nothing is sent, no claim succeeds; after the release it is sent, and starts."""
    job_id = way(shop)
    assert row(shop, job_id)["ticket_released_at"] is None
    assert (relay(shop), starts(shop, job_id)) == ([], False)
    shop.supervisor.release(task="shop.task", actor=ANN)
    assert (relay(shop), starts(shop, job_id)) == ([job_id], True)


# --- what goes on ----------------------------------------------------------------------------------------


def test_what_runs_goes_on(shop: Shop) -> None:
    """A hold stops nobody: checkpoints, questions and results of running jobs are taken."""
    works, asks = shop.running(), shop.running()
    shop.supervisor.hold(**HELD)
    assert works.checkpoint("load", NodeKind.STEP, stored("1")).state is State.RUNNING
    assert works.complete(stored("1")).state is State.COMPLETED
    assert shop.beat(asks) == [asks.lease.job_id]


def test_people_and_time_go_on(shop: Shop) -> None:
    """Held jobs are cancelled, paused, and expire as any other."""
    cancelled, paused, late = shop.pending().id, shop.pending().id, shop.pending(deadline=HOUR).id
    shop.supervisor.hold(**HELD)
    assert shop.supervisor.cancel(cancelled, actor=ANN).state is State.CANCELLED
    assert shop.supervisor.pause(paused, actor=ANN).pause_requested
    backdate(shop, late, "expires_at")
    shop.expire()
    assert shop.job(late).state is State.EXPIRED


def test_a_kick_does_not_go_round_it(shop: Shop) -> None:
    """And the refusal, and `why`, name the hold, who made it, and how it is released."""
    job = shop.pending()
    shop.supervisor.hold(**HELD)
    with pytest.raises(Conflict, match=r"nothing to send: it does not start while its task shop\.task is held"):
        shop.supervisor.kick(job.id, actor=ANN)
    why = shop.supervisor.why(job.id)
    assert "by user:ann (the bank is down)" in why.sentence
    assert why.command == ("supervise", "release", "--task=shop.task")


def test_held_jobs_are_not_runnable(shop: Shop) -> None:
    """`stats` counts what a worker could take: not these."""
    shop.pending()
    assert [one.runnable for one in shop.supervisor.stats().runnable] == [1]
    shop.supervisor.hold(**HELD)
    assert shop.supervisor.stats().runnable == []


# --- races -----------------------------------------------------------------------------------------------


def test_what_began_before_the_hold_is_taken_back(shop: Shop) -> None:
    """A resume that waited for its row while the hold was made does not see it: the relay's next pass does."""
    job = shop.paused()
    with row_held(shop.engine, "jobs", "id", job.id) as gate:
        call = Call(lambda: shop.supervisor.resume(job.id, actor=ANN))
        waiter(shop.engine, gate)
        shop.supervisor.hold(**HELD)
    call.outcome()
    assert row(shop, job.id)["ticket_released_at"] is not None
    assert relay(shop) == []
    assert not starts(shop, job.id)


def test_a_hold_waits_for_nobody(shop: Shop) -> None:
    """A job that somebody holds locked is left for the relay's next pass; the others are held at once."""
    locked, free = shop.pending().id, shop.pending().id
    with row_held(shop.engine, "jobs", "id", locked):
        shop.supervisor.hold(**HELD)
        assert not starts(shop, free)
    assert relay(shop) == []
    assert not starts(shop, locked)


def test_a_message_that_is_being_sent_runs_nothing(shop: Shop) -> None:
    """The relay has taken it, the hold comes, the message goes out: it gives no right; the release sends another."""
    job = shop.pending()
    ticket = shop.job(job.id).ticket_id
    assert ticket is not None
    shop.supervisor.hold(**HELD)
    assert shop.supervisor.claim(job.id, ticket, shop.claimer) is None
    shop.supervisor.release(task="shop.task", actor=ANN)
    relay(shop)
    assert isinstance(shop.supervisor.claim(job.id, ticket, shop.claimer), Lease)


def test_many_in_batches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that wait are taken back, however many; a second pass finds nothing."""
    monkeypatch.setattr("celery_supervise.holds.BATCH", 2)
    jobs = [shop.pending().id for _ in range(5)]
    shop.supervisor.hold(**HELD)
    assert not any(starts(shop, job_id) for job_id in jobs)
    assert hold_back(shop.door) == 0
    assert all(copy["done_at"] is not None for job_id in jobs for copy in rows(shop, "outbox", job_id))


# --- the list --------------------------------------------------------------------------------------------


def test_what_is_held_is_listed(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """The oldest first, each with its reason, actor and time; held again, the reason is the newer one."""
    shop.supervisor.hold(**HELD)
    shop.supervisor.hold(owner="acme", reason="unpaid", actor="user:bob")
    again = shop.supervisor.hold(**{**HELD, "reason": "still down", "actor": "user:cyd"})
    found = shop.supervisor.holds()
    assert [(one.kind, one.name, one.reason, one.actor) for one in found] == [
        ("task", "shop.task", "still down", "user:cyd"),
        ("owner", "acme", "unpaid", "user:bob"),
    ]
    assert found[0] == again
    assert found[0].held_at < found[1].held_at
    assert open_shop(namespace="second").supervisor.holds() == []


def test_a_release_of_what_is_not_held(shop: Shop) -> None:
    """Is told as such."""
    assert shop.supervisor.release(task="shop.task", actor=ANN) is None
    shop.supervisor.hold(**HELD)
    assert shop.supervisor.release(owner="shop.task", actor=ANN) is None
    assert len(shop.supervisor.holds()) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"task": None},
        {"owner": "acme"},
        {"task": ""},
        {"task": "a\0b"},
        {"reason": " "},
        {"reason": "a\0b"},
        {"actor": ""},
    ],
)
def test_a_hold_that_says_too_little_is_refused(shop: Shop, given: dict[str, Any]) -> None:
    """Task or owner, a reason and an actor: before anything is held."""
    with pytest.raises(InvalidInput):
        shop.supervisor.hold(**{**HELD, **given})
    assert shop.supervisor.holds() == []
