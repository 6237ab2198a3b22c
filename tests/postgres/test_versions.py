"""Jobs that the code at hand cannot run: left to other workers, parked after a grace, taken up again (protocol 28)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from celery_supervise import versions
from celery_supervise.lifecycle import State
from celery_supervise.migrating import Memories
from celery_supervise.model import Job, Lease
from celery_supervise.options import Options
from celery_supervise.relay import Relay
from celery_supervise.sweeps import SHELVING, Swept
from tests.postgres.looking import backdate, execute, now
from tests.postgres.shop import Shop

GRACE = timedelta(hours=1)
DAY = timedelta(days=1)


def left(shop: Shop, job: Job, *, by: Sequence[int] = (1,)) -> bool:
    """A worker with code of these versions has the job's message, and leaves it."""
    assert job.ticket_id is not None
    return versions.leave(shop.door, job.id, job.ticket_id, versions=by, version=max(by)) is not None


def code(version: int, *older: int) -> Options:
    """What a task says of its version, and of older ones that it can go on with."""
    return Options(version=version, compatible_with=older)


def shelved(shop: Shop) -> Swept:
    """One pass of the sweep."""
    return shop.sweep(SHELVING)


def parked_for_good(shop: Shop) -> Job:
    """A job of version 2 that a worker of version 1 left, too long ago."""
    job = shop.pending(task_version=2)
    assert left(shop, job)
    backdate(shop, job.id, "incompatible_since", by=DAY)
    assert [moved.job_id for moved in shelved(shop).moved] == [job.id]
    return shop.supervisor.job(job.id)


def test_left_as_it_is(shop: Shop) -> None:
    """Ticket, state and generation stay; the message goes round again, and code that can run the job takes it."""
    job = shop.pending(task_version=2)
    shop.broker.messages.clear()
    assert left(shop, job)
    now = shop.supervisor.job(job.id)
    assert (now.state, now.ticket_id, now.generation) == (State.PENDING, job.ticket_id, job.generation)
    Relay(shop.door, shop.broker, settling=GRACE).publish_once()
    assert shop.broker.messages == []  # not at once: that would be a busy loop
    backdate(shop, job.id, "ticket_due_at")
    Relay(shop.door, shop.broker, settling=GRACE).publish_once()
    (message,) = shop.broker.messages
    lease = shop.supervisor.claim(job.id, message.id, replace(shop.claimer, versions=(2,)))
    assert isinstance(lease, Lease)
    assert execute(shop, "SELECT incompatible_since FROM supervise.jobs WHERE id = :id", id=job.id) == [
        {"incompatible_since": None}
    ]


def test_each_round_comes_later(shop: Shop) -> None:
    """The message of a job that nobody can run costs less and less: it waits for as long as it has waited so far."""
    job = shop.pending(task_version=2)
    relay, waits = Relay(shop.door, shop.broker, settling=GRACE), []
    for waited in (0, 1, 16, 4000):
        execute(
            shop,
            "UPDATE supervise.jobs SET incompatible_since = incompatible_since - CAST(:by AS interval) WHERE id = :id",
            by=timedelta(seconds=waited),
            id=job.id,
        )
        assert left(shop, job)
        waits.append(round((shop.job(job.id).starts_at or now(shop)).timestamp() - now(shop).timestamp()))
        backdate(shop, job.id, "ticket_due_at")
        relay.publish_once()
    assert waits == [1, 1, 17, 64]


def test_what_nobody_can_run_takes_no_place(shop: Shop) -> None:
    """A queue that is full of jobs that its workers leave, and an owner who may run no more, get on with the others."""
    relay = Relay(shop.door, shop.broker, settling=GRACE, window=2, running=lambda _owner: 2)
    unknown = [shop.pending(task_version=2, owner_id="acme") for _ in range(2)]
    for job in unknown:
        assert left(shop, job)
    known = shop.pending(owner_id="acme")
    execute(shop, "UPDATE supervise.jobs SET ticket_released_at = NULL")
    execute(shop, "UPDATE supervise.outbox SET done_at = clock_timestamp()")
    assert relay.publish_once().released == 1
    assert isinstance(shop.claim(known.id), Lease)
    for job in unknown:
        backdate(shop, job.id, "ticket_due_at")
    assert relay.publish_once().released == 1  # beside the one that runs


@pytest.mark.parametrize("by", [(2,), (3, 2)])
def test_what_code_can_run_it_does_not_leave(shop: Shop, by: Sequence[int]) -> None:
    """A claim that found nothing for another reason is no question of versions."""
    assert not left(shop, shop.pending(task_version=2), by=by)


def test_a_duplicate_is_not_left(shop: Shop) -> None:
    """The message of a job that runs, or that was paused meanwhile, changes nothing."""
    job = shop.pending(task_version=2)
    assert job.ticket_id is not None
    assert isinstance(shop.supervisor.claim(job.id, job.ticket_id, replace(shop.claimer, versions=(2,))), Lease)
    assert not left(shop, job)


def test_parked_after_the_grace(shop: Shop) -> None:
    """Not before; then with both versions as the reason, whatever the reason was before."""
    job = shop.pending(task_version=2)
    assert left(shop, job)
    assert shelved(shop).moved == []
    parked = parked_for_good(shop)
    assert (parked.state, parked.stop_reason, parked.ticket_id) == (State.PARKED, "incompatible_version:2->1", None)
    assert shop.events(parked.id) == ["submitted", "parked"]
    assert shelved(shop).moved == []


def test_unknown_task(shop: Shop) -> None:
    """A job whose task nobody knows is parked with the task's name."""
    job = shop.pending()
    assert job.ticket_id is not None
    assert versions.leave_unknown(shop.door, job.id, job.ticket_id)
    backdate(shop, job.id, "incompatible_since", by=DAY)
    shelved(shop)
    assert shop.supervisor.job(job.id).stop_reason == "unknown_task:shop.task"


def test_an_answered_job_keeps_its_answer(shop: Shop) -> None:
    """Shelved between answer and claim, taken up again, it runs with what was answered."""
    question = shop.asked(task_version=1)
    shop.supervisor.answer(question.id, True, actor="user:ann")
    job = shop.job_of(question)
    execute(shop, "UPDATE supervise.jobs SET task_version = 2 WHERE id = :id", id=job.id)
    assert left(shop, job)
    backdate(shop, job.id, "incompatible_since", by=DAY)
    shelved(shop)
    (taken,) = versions.take_up(shop.door, {"shop.task": code(2)})
    assert taken.ticket_id is not None
    lease = shop.supervisor.claim(job.id, taken.ticket_id, replace(shop.claimer, versions=(2,)))
    assert isinstance(lease, Lease)
    assert list(shop.supervisor.answers(job.id)) == ["approve"]


def test_taken_up_by_code_that_can_run_it(shop: Shop) -> None:
    """And by no other: neither an older version nor another task."""
    job = parked_for_good(shop)
    assert versions.take_up(shop.door, {}) == []
    assert versions.take_up(shop.door, {"shop.task": code(3, 1), "shop.other": code(2)}) == []
    (taken,) = versions.take_up(shop.door, {"shop.other": code(1), "shop.task": code(2, 1)})
    now = shop.supervisor.job(job.id)
    assert (taken.job_id, now.ticket_id is not None) == (job.id, True)
    assert now.stop_reason == "resume_requested:incompatible_version:2->1"
    assert shop.events(job.id) == ["submitted", "parked", "resumed"]
    assert versions.take_up(shop.door, {"shop.task": code(2)}) == []


def test_a_person_may_resume_it(shop: Shop) -> None:
    """The grace starts anew: it is not parked again before workers had the time to prove that they can."""
    job = parked_for_good(shop)
    shop.supervisor.resume(job.id, actor="user:ann")
    assert left(shop, shop.supervisor.job(job.id))
    assert shelved(shop).moved == []


def test_a_cancelled_one_is_not_taken_up(shop: Shop) -> None:
    """Over is over."""
    job = parked_for_good(shop)
    shop.supervisor.cancel(job.id, actor="user:ann")
    assert versions.take_up(shop.door, {"shop.task": code(2)}) == []


def test_preflight(shop: Shop) -> None:
    """All unfinished jobs, grouped, with why the code at hand would strand them; what it can run is not told."""
    fine, old, gone, bare = (
        shop.pending(),
        shop.pending(task_version=3),
        shop.pending(task="shop.gone"),
        shop.paused(task="shop.bare"),
    )
    over = shop.pending(task="shop.over")
    shop.supervisor.cancel(over.id, actor="user:ann")
    found = {
        one.unfinished.ids: (one.unfinished.state, one.why)
        for one in versions.preflight(shop.door, {"shop.task": code(2, 1)}, ["shop.bare"], Memories(shop.door))
    }
    assert set(found) == {(old.id,), (gone.id,), (bare.id,)}
    assert found[old.id,] == (State.PENDING, "this code goes on with jobs of version 1, 2 only")
    assert found[gone.id,] == (State.PENDING, "there is no task of this name")
    assert found[bare.id,][0] is State.PARKED
    assert "not supervised any more" in found[bare.id,][1]
    assert fine.id not in {job_id for ids in found for job_id in ids}
