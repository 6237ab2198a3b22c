"""Celery is told of every end, once: the finisher first, then whoever wins the settle id; bounded, with backoff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

import pytest

from celery_supervise import queries
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import Settlement
from celery_supervise.relay import Relay, Told, mark_settled
from celery_supervise.store.leases import RENEW_SETTLING
from celery_supervise.store.publishing import CLAIM_SETTLING, TAKE_SETTLING
from tests.postgres.looking import NO_TIME, backdate, execute, row, rows, unchanged, watching
from tests.postgres.shop import Broker, Shop, stored

ANN = "user:ann"


def relay(shop: Shop) -> Relay:
    """The relay of this shop."""
    return Relay(shop.door, shop.broker, settling=NO_TIME)


def settled(shop: Shop, told: Mapping[str, UUID | None], **by: Any) -> list[str]:
    """Mark jobs as told, by settle id or (None) by the incarnation of the attempt that ended them."""
    return mark_settled(shop.door, [Told(job_id, settle_id) for job_id, settle_id in told.items()], **by)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_an_end_is_told_once(shop: Shop, state: State) -> None:
    """When the finisher's time is over the relay tells Celery what the row holds, and notes that it has."""
    job = shop.ended(state)
    assert relay(shop).run_once().settled == 0, "the finisher's own time is not over"
    backdate(shop, job.id, "settle_due_at")
    with watching(shop, job.id) as seen:
        assert relay(shop).run_once().settled == 1
    assert (seen.generation, seen.events) == (0, ["settled"])
    (told,) = shop.broker.told
    assert (told.job.id, told.job.state, told.envelope) == (job.id, state, stored())
    expected = {State.COMPLETED: stored('"done"'), State.FAILED: stored('"no"')}.get(state)
    assert told.outcome == expected
    assert shop.job(job.id).settled_at == seen.entries[0].at
    assert rows(shop, "outbox", job.id) == []
    assert relay(shop).run_once().settled == 0


def test_an_end_that_cannot_be_told_is_tried_again_later(shop: Shop) -> None:
    """A result backend that is away: tried again after longer and longer times, up to a bound."""
    job = shop.ended(State.FAILED)
    shop.broker.down = True
    waits = []
    for _ in range(9):
        backdate(shop, job.id, "settle_due_at")
        assert relay(shop).run_once().settled == 0
        found = execute(shop, "SELECT settle_due_at - clock_timestamp() AS wait FROM supervise.jobs")[0]
        waits.append(round(found["wait"].total_seconds() / shop.door.lease.total_seconds()))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    shop.broker.down = False
    backdate(shop, job.id, "settle_due_at")
    assert relay(shop).run_once().settled == 1


def test_an_end_that_nobody_can_tell_is_left_to_people(shop: Shop) -> None:
    """After so many tries it is no longer tried: `doctor` shows it, and nothing of it is lost."""
    job = shop.ended(State.FAILED)
    execute(shop, "UPDATE supervise.jobs SET settle_tries = 100")
    backdate(shop, job.id, "settle_due_at")
    with unchanged(shop, job.id):
        assert relay(shop).run_once().settled == 0


def test_a_teller_wins_by_the_settle_id(shop: Shop) -> None:
    """Taking gives a new id: whoever held the old one can no longer mark the job as told."""
    job = shop.ended(State.COMPLETED)
    backdate(shop, job.id, "settle_due_at")
    (taken,) = shop.door.all(TAKE_SETTLING, batch=10)
    assert taken["settle_id"] != job.settle_id
    assert list(shop.door.all(TAKE_SETTLING, batch=10)) == []
    with unchanged(shop, job.id):
        assert settled(shop, {job.id: job.settle_id}, actor="worker") == []
        assert settled(shop, {job.id: None}, actor="w", incarnation=shop.claimer.incarnation) == []
    assert settled(shop, {job.id: taken["settle_id"]}, actor="relay") == [job.id]
    with unchanged(shop, job.id):
        assert settled(shop, {job.id: taken["settle_id"]}, actor="relay") == []


def test_a_worker_that_gets_a_settle_message_takes_over_once(shop: Shop) -> None:
    """The message's id is used once: a second copy of it finds another."""
    job = shop.ended(State.COMPLETED)
    mine = uuid4()
    taken = shop.door.one(CLAIM_SETTLING, job_id=job.id, settle_id=job.settle_id, new_settle_id=mine)
    assert taken is not None
    assert shop.door.one(CLAIM_SETTLING, job_id=job.id, settle_id=job.settle_id, new_settle_id=uuid4()) is None
    assert settled(shop, {job.id: mine}, actor="worker") == [job.id]


def test_a_parent_marks_what_its_own_attempts_ended(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """By incarnation: only the jobs that an attempt of this very process ended."""
    mine, cancelled = shop.ended(State.COMPLETED), shop.pending()
    shop.supervisor.cancel(cancelled.id, actor=ANN)
    other = open_shop()
    foreign = other.ended(State.FAILED)
    told = {mine.id: None, cancelled.id: None, foreign.id: None}
    assert settled(shop, told, actor="worker", incarnation=shop.claimer.incarnation) == [mine.id]
    assert settled(shop, told, actor="worker", incarnation=uuid4()) == []
    assert settled(shop, {}, actor="worker") == []


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("failed", [True, False])
def test_an_end_told_as_another_is_not_settled(shop: Shop, state: State, failed: bool) -> None:  # noqa: FBT001
    """A child that could not store its result tells its parent of a failure: a completed job is still to be told."""
    job = shop.ended(state)
    told = [Told(job.id, job.settle_id, failed=failed)]
    is_so = failed is (state is not State.COMPLETED)
    assert mark_settled(shop.door, told, actor="worker") == ([job.id] if is_so else [])


def test_a_running_job_is_not_told(shop: Shop) -> None:
    """Nothing that has not ended can be marked, by whatever id."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with unchanged(shop, job_id):
        for settle_id in (holding.lease.token, None):
            told = {job_id: settle_id}
            assert settled(shop, told, actor="w", incarnation=shop.claimer.incarnation) == []


def test_the_finishers_parent_keeps_other_tellers_away(shop: Shop) -> None:
    """While its request is active its time is renewed; of what others ended, or what is told, nothing is."""
    job = shop.ended(State.COMPLETED)
    backdate(shop, job.id, "settle_due_at")
    renew = {"job_ids": [job.id]}
    assert list(shop.door.all(RENEW_SETTLING, incarnation=uuid4(), **renew)) == []
    assert len(shop.door.all(RENEW_SETTLING, incarnation=shop.claimer.incarnation, **renew)) == 1
    assert relay(shop).run_once().settled == 0
    settled(shop, {job.id: job.settle_id}, actor="worker")
    assert list(shop.door.all(RENEW_SETTLING, incarnation=shop.claimer.incarnation, **renew)) == []


def test_an_end_is_told_by_one_namespace(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Another namespace's relay tells nothing of ours, nor can it mark it."""
    job = shop.ended(State.COMPLETED)
    backdate(shop, job.id, "settle_due_at")
    second = open_shop(namespace="second")
    with unchanged(shop, job.id):
        assert relay(second).run_once().settled == 0
        assert settled(second, {job.id: job.settle_id}, actor="w") == []


def test_an_end_told_by_a_message_is_not_yet_told(shop: Shop) -> None:
    """Where a worker was asked to tell, the job is settled when that worker has, not before."""

    class Asking(Broker):
        def tell(self, settlement: Settlement) -> bool:
            super().tell(settlement)
            return False

    shop.broker = Asking()
    job = shop.ended(State.COMPLETED)
    backdate(shop, job.id, "settle_due_at")
    assert relay(shop).run_once().settled == 0
    assert len(shop.broker.told) == 1
    assert row(shop, job.id)["settled_at"] is None
    assert queries.job(shop.door, job.id) is not None
