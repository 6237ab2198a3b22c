"""Holds, and code of other versions, against what else happens to a job: in both orders, under every plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from celery_supervise import queries, versions
from celery_supervise.errors import Conflict
from celery_supervise.lifecycle import State
from celery_supervise.migrating import Memories, OldJob, claim_migrated
from celery_supervise.model import Job, Lease, Moved
from celery_supervise.options import Options
from celery_supervise.relay import Relay
from celery_supervise.remembered import Remembered
from celery_supervise.store.versions import REISSUE, SHELVE
from celery_supervise.sweeps import SHELVING, Pass, Sweeper
from tests.postgres import racing
from tests.postgres.looking import backdate, out_again
from tests.postgres.races import Call, halted, in_order, pid_of, waiter
from tests.postgres.shop import NO_TIME, Shop, new_job

ANN = "user:ann"
MINUTE = timedelta(minutes=1)
KNOWN = {"shop.task": Options(version=2)}

planned, engine, shop = racing.planned, racing.engine, racing.shop


@contextmanager
def unseen(shop: Shop) -> Iterator[tuple[Shop, int]]:
    """The shop in a transaction that is open until the end of the block, and its session."""
    with shop.engine.connect() as connection, connection.begin():
        yield racing.unseen(shop, connection), pid_of(connection)


def delivery(shop: Shop, job: Job, *, version: int = 1) -> Callable[[], Lease | Moved | None]:
    """The job's message, to a worker with code of that version."""
    claimer = replace(shop.claimer, versions=(version,))
    return lambda: shop.supervisor.claim(job.id, job.ticket_id or uuid4(), claimer)


def hold(shop: Shop) -> None:
    """Somebody holds the task."""
    shop.supervisor.hold(task="shop.task", reason="for now", actor=ANN)


def relay(shop: Shop) -> None:
    """The relay's next pass."""
    Relay(shop.door, shop.broker, settling=NO_TIME).publish_once()


def shelve(shop: Shop) -> list[str]:
    """One pass of the sweep that parks what nobody can run."""
    return [change.job_id for change in Sweeper(shop.door, period=MINUTE)._run(Pass(SHELVING), mass=False).moved]


def take_up(shop: Shop) -> list[str]:
    """One look of a worker for what it can run again."""
    return [change.job_id for change in versions.take_up(shop.door, KNOWN)]


def left(shop: Shop) -> Job:
    """A job of version 2 that a worker of version 1 left, longer ago than the grace."""
    job = shop.pending(task_version=2)
    assert job.ticket_id is not None
    assert versions.leave(shop.door, job.id, job.ticket_id, versions=(1,), version=1)
    backdate(shop, job.id, "incompatible_since", by=timedelta(days=1))
    out_again(shop, job.id)
    return job


def shelved(shop: Shop) -> Job:
    """The same, parked for it."""
    job = left(shop)
    assert shelve(shop) == [job.id]
    return shop.job(job.id)


# --- holds -----------------------------------------------------------------------------------------------


def test_a_claim_behind_a_hold_does_not_run(shop: Shop) -> None:
    """It waited while its ticket was taken back, and finds that it may not be used."""
    job = shop.pending()
    with unseen(shop) as (other, session):
        hold(other)
        claim = Call(delivery(shop, job))
        waiter(shop.engine, session)
    assert claim.outcome() is None
    assert shop.job(job.id).state is State.PENDING


def test_a_hold_behind_a_claim_leaves_it(shop: Shop) -> None:
    """What has begun goes on; the hold waits for nobody."""
    job = shop.pending()
    with unseen(shop) as (other, _):
        assert isinstance(delivery(other, job)(), Lease)
        hold(shop)
    assert shop.job(job.id).state is State.RUNNING


@pytest.mark.parametrize("hold_first", [True, False])
def test_what_is_submitted_as_the_hold_is_made_does_not_start(shop: Shop, *, hold_first: bool) -> None:
    """Neither saw the other: the relay's next pass takes back what was let out."""
    job = new_job()
    steps: list[Callable[[Shop], object]] = [hold, lambda through: through.supervisor.submit(job)]
    first, second = steps if hold_first else steps[::-1]
    with unseen(shop) as (other, _):
        first(other)
        second(shop)
    relay(shop)
    assert delivery(shop, shop.job(job.id))() is None


@pytest.mark.parametrize("hold_first", [True, False])
def test_what_the_relay_lets_out_as_the_hold_is_made_does_not_start(shop: Shop, *, hold_first: bool) -> None:
    """Likewise; and once it is released, it starts."""
    hold(shop)
    job = shop.pending()
    shop.supervisor.release(task="shop.task", actor=ANN)
    first, second = (hold, relay) if hold_first else (relay, hold)
    with unseen(shop) as (other, _):
        first(other)
        second(shop)
    relay(shop)
    assert delivery(shop, job)() is None
    shop.supervisor.release(task="shop.task", actor=ANN)
    relay(shop)
    assert isinstance(delivery(shop, job)(), Lease)


# --- shelving --------------------------------------------------------------------------------------------


def test_a_claim_behind_the_shelving_does_not_run(shop: Shop) -> None:
    """A worker that could have run the job comes a moment too late, and lets it go on by itself."""
    job = left(shop)
    with halted(shop.engine, SHELVE) as halt:
        sweep = Call(lambda: shelve(shop))
        session = halt.reached(sweep)
        claim = Call(delivery(shop, job, version=2))
        waiter(shop.engine, session)
    assert (sweep.outcome(), claim.outcome()) == ([job.id], None)
    assert take_up(shop) == [job.id]
    assert isinstance(delivery(shop, shop.job(job.id), version=2)(), Lease)


def test_shelving_leaves_what_is_being_claimed(shop: Shop) -> None:
    """The sweep does not wait, and finds nothing then."""
    job = left(shop)
    with unseen(shop) as (other, _):
        assert isinstance(delivery(other, job, version=2)(), Lease)
        assert shelve(shop) == []
    assert shelve(shop) == []
    assert shop.job(job.id).state is State.RUNNING


# --- taking up -------------------------------------------------------------------------------------------


def test_of_two_workers_one_takes_it_up(shop: Shop) -> None:
    """The other skips what is being taken up: one ticket."""
    job = shelved(shop)
    with halted(shop.engine, REISSUE) as halt:
        first = Call(lambda: take_up(shop))
        halt.reached(first)
        assert take_up(shop) == []
    assert (first.outcome(), take_up(shop)) == ([job.id], [])
    assert shop.events(job.id) == ["submitted", "parked", "resumed"]


def behind_a_take_up(shop: Shop, call: Callable[[Job], object]) -> tuple[Job, Any]:
    """A job that is taken up, and the outcome of a call on it that waited for that."""
    job = shelved(shop)
    with halted(shop.engine, REISSUE) as halt:
        first = Call(lambda: take_up(shop))
        session = halt.reached(first)
        second = Call(lambda: call(job))
        waiter(shop.engine, session)
    assert first.outcome() == [job.id]
    return job, second.outcome()


def test_a_cancel_behind_a_take_up_takes_the_ticket_back(shop: Shop) -> None:
    """It waited, and ends the job before anybody runs it."""
    job, cancelled = behind_a_take_up(shop, lambda job: shop.supervisor.cancel(job.id, actor=ANN))
    assert (cancelled.state, shop.job(job.id).ticket_id) == (State.CANCELLED, None)


def test_a_take_up_leaves_what_is_being_cancelled(shop: Shop) -> None:
    """It does not wait, and finds nothing then."""
    job = shelved(shop)
    with unseen(shop) as (other, _):
        other.supervisor.cancel(job.id, actor=ANN)
        assert take_up(shop) == []
    assert take_up(shop) == []
    assert shop.events(job.id) == ["submitted", "parked", "cancelled"]


def test_a_resume_behind_a_take_up_is_told_so(shop: Shop) -> None:
    """A person who resumes what a worker has just taken up is told that it goes on already: one ticket."""
    _, resumed = behind_a_take_up(shop, lambda job: shop.supervisor.resume(job.id, actor=ANN))
    assert isinstance(resumed, Conflict)
    assert resumed.code == "already_resumed"


# --- migrations ------------------------------------------------------------------------------------------


def taking_over(shop: Shop, job: Job) -> Callable[[], Lease | Moved | None]:
    """The job's message, to a worker with newer code, whose migration has run."""

    def write(memory: Remembered) -> None:
        memory.write("new", 1)

    old = OldJob(job.id, job.task_version, job.run_id, job.node)
    changed = Memories(shop.door).migrated(old, write)
    return lambda: claim_migrated(shop.door, old, job.ticket_id or uuid4(), shop.claimer, version=2, changed=changed)


@pytest.mark.parametrize("migration_first", [True, False])
def test_old_and_new_code_claim_one_job(shop: Shop, *, migration_first: bool) -> None:
    """The first has it, as a job of its own version; the other finds its ticket used."""
    job = shop.pending()
    calls = [taking_over(shop, job), delivery(shop, job)]
    first, second = in_order(shop.engine, job.id, *(calls if migration_first else calls[::-1]))
    assert isinstance(first, Lease)
    assert second is None
    saved = list(queries.nodes(shop.door, job.id, job.run_id))
    assert (shop.job(job.id).task_version, saved) == ((2, ["new"]) if migration_first else (1, []))


def test_a_cancel_behind_a_migration_is_requested(shop: Shop) -> None:
    """The job runs, as one of the new version; its next supervised call ends it."""
    job = shop.pending()
    lease, cancelled = in_order(
        shop.engine, job.id, taking_over(shop, job), lambda: shop.supervisor.cancel(job.id, actor=ANN)
    )
    assert isinstance(lease, Lease)
    assert (cancelled.state, shop.job(job.id).task_version) == (State.RUNNING, 2)


def test_a_migration_behind_a_cancel_changes_nothing(shop: Shop) -> None:
    """There is no ticket any more."""
    job = shop.pending()
    _, lease = in_order(shop.engine, job.id, lambda: shop.supervisor.cancel(job.id, actor=ANN), taking_over(shop, job))
    assert lease is None
    assert shop.job(job.id).task_version == 1
