"""Leases: who renews them, who may end them, and what a lost attempt leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from celery_supervise import queries
from celery_supervise.errors import LeaseLost
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.store.leases import LOCK_LAPSED, LOSE, REAP, ask_hand_over
from tests.postgres.looking import NO_TIME, backdate, execute, lapse, row, rows, unchanged, watching
from tests.postgres.shop import SWEEPING, Shop, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def lease_until(shop: Shop, job_id: str) -> object:
    """The lease of the newest attempt."""
    return shop.supervisor.attempts(job_id)[-1].lease_until


# --- heartbeat -------------------------------------------------------------------------------------------


def test_a_heartbeat_renews_what_this_worker_runs(shop: Shop) -> None:
    """One statement for all its attempts; generation and log are as they were."""
    one, two = shop.running(), shop.running()
    before = [lease_until(shop, holding.lease.job_id) for holding in (one, two)]
    with watching(shop, one.lease.job_id) as seen:
        renewed = shop.beat(one, two)
    assert set(renewed) == {one.lease.job_id, two.lease.job_id}
    assert (seen.generation, seen.events) == (0, [])
    for holding, earlier in zip((one, two), before, strict=True):
        (attempt,) = shop.supervisor.attempts(holding.lease.job_id)
        assert attempt.lease_until > earlier  # type: ignore[operator]  # both are times
        assert attempt.lease_until - attempt.heartbeat_at == shop.door.lease


def test_a_heartbeat_is_of_one_incarnation(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Names never identify a worker: one of the same name that was started anew renews nothing of the old one."""
    holding = shop.running()
    reborn = open_shop()
    reborn.claimer = replace(shop.claimer, incarnation=uuid4())
    with unchanged(shop, holding.lease.job_id):
        assert reborn.beat(holding) == []


def test_a_heartbeat_names_its_jobs(shop: Shop) -> None:
    """An attempt whose child is gone is not kept alive by its parent's other ones."""
    one, two = shop.running(), shop.running()
    with unchanged(shop, two.lease.job_id):
        assert shop.beat(one) == [one.lease.job_id]


def test_a_heartbeat_does_not_renew_what_has_ended(shop: Shop) -> None:
    """A lease that was taken stays taken; what ended can be asked for by the jobs that were not renewed."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.reap_now(job_id)
    with unchanged(shop, job_id):
        assert shop.beat(holding) == []
    (found,) = shop.supervisor.attempts(job_id)
    assert (found.job_id, found.incarnation, found.outcome) == (job_id, shop.claimer.incarnation, "lost")
    assert found.ended_at is not None


def test_a_lease_that_ended_can_be_renewed_until_it_is_reaped(shop: Shop) -> None:
    """Late is not lost: nobody took it, so the worker that comes back keeps it."""
    holding = shop.running()
    lapse(shop, holding.lease.job_id)
    assert shop.beat(holding) == [holding.lease.job_id]
    assert list(shop.reap().moved) == []
    assert holding.complete(None).state is State.COMPLETED


def test_s73_only_the_lease_counts_not_the_age(shop: Shop) -> None:
    """A job that has run for ten leases, with good heartbeats, is not taken from its worker."""
    holding = shop.running()
    job_id = holding.lease.job_id
    execute(
        shop,
        "UPDATE supervise.jobs SET started_at = started_at - 10 * CAST(:lease AS interval),"
        " created_at = created_at - interval '1 day' WHERE id = :id",
        lease=shop.door.lease,
        id=job_id,
    )
    execute(
        shop,
        "UPDATE supervise.attempts SET started_at = started_at - 10 * CAST(:lease AS interval) WHERE job_id = :id",
        lease=shop.door.lease,
        id=job_id,
    )
    shop.beat(holding)
    with unchanged(shop, job_id):
        assert list(shop.reap().moved) == []


# --- hand-over flag --------------------------------------------------------------------------------------


def test_a_leaving_worker_flags_all_it_runs(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Its attempts, all of them, once; those of other workers not."""
    one, two = shop.running(), shop.running()
    other = open_shop()
    foreign = other.running()
    flagged = ask_hand_over(shop.door, shop.claimer.incarnation)
    assert set(flagged) == {one.lease.job_id, two.lease.job_id}
    assert ask_hand_over(shop.door, shop.claimer.incarnation) == []
    assert foreign.checkpoint("x", NodeKind.STEP, None).hand_over is False
    assert one.checkpoint("x", NodeKind.STEP, None).hand_over is True


# --- lose ------------------------------------------------------------------------------------------------


def test_a_dead_process_is_told_at_once(shop: Shop) -> None:
    """The parent saw its child die: pending again with a ticket, without waiting for the lease."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = shop.lose(holding, "exit code -9")
    assert moved is not None
    assert (moved.state, moved.ticket_id) == (State.PENDING, shop.job(job_id).ticket_id)
    assert (seen.generation, seen.events) == (1, ["lease_lost"])
    assert seen.entries[0].data["why"] == "exit code -9"
    (attempt,) = shop.supervisor.attempts(job_id)
    assert (attempt.outcome, attempt.cause, attempt.ended_at) == ("lost", "exit code -9", seen.entries[0].at)
    assert (shop.job(job_id).lost_count, shop.job(job_id).current_token) == (1, None)
    assert shop.hold(job_id).lease.lost_count == 1


def test_a_loss_is_counted_once(shop: Shop) -> None:
    """The same death reported again, or by the sweep, too, moves nothing."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.lose(holding)
    with unchanged(shop, job_id):
        assert shop.lose(holding) is None
    current = shop.hold(job_id)
    with unchanged(shop, job_id):
        assert shop.lose(holding) is None
    assert current.complete(None).state is State.COMPLETED


def test_a_loss_of_another_namespace_moves_nothing(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Even with the token."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id):
        assert open_shop(namespace="second").lose(holding) is None


def test_a_loss_keeps_what_was_saved(shop: Shop) -> None:
    """The next attempt goes on at the last checkpoint, in the same run, with the running time that is left."""
    holding = shop.running(max_active=HOUR)
    job_id = holding.lease.job_id
    holding.checkpoint("half", NodeKind.STEP, stored("1"))
    shop.lose(holding)
    assert row(shop, job_id)["active_left"] < HOUR
    again = shop.hold(job_id)
    assert (again.lease.run_id, again.lease.resumed) == (holding.lease.run_id, True)
    assert list(queries.nodes(shop.door, job_id, again.lease.run_id)) == ["half"]


@pytest.mark.parametrize("how", ["lose", "reap_now"])
def test_s16_a_job_that_kills_its_workers_is_given_up(shop: Shop, how: str) -> None:
    """Lost attempts are counted in the row: after the third the job has failed, and the log tells each one."""
    job = shop.pending(lost_limit=3)
    for _ in range(3):
        holding = shop.hold(job.id)
        if how == "lose":
            shop.lose(holding)
        else:
            shop.reap_now(job.id)
    now = shop.job(job.id)
    assert (now.state, now.stop_reason, now.lost_count, now.ticket_id) == (State.FAILED, "worker_lost", 3, None)
    events = shop.events(job.id)
    assert [events.count(event) for event in ("claimed", "lease_lost", "failed")] == [3, 3, 1]
    assert events[-2:] == ["lease_lost", "failed"]
    assert [attempt.outcome for attempt in shop.supervisor.attempts(job.id)] == ["lost"] * 3
    assert row(shop, job.id)["settle_due_at"] == now.finished_at


def test_a_limit_of_one(shop: Shop) -> None:
    """Where one loss is too much the first one ends the job, with one bump of the generation."""
    holding = shop.running(lost_limit=1)
    with watching(shop, holding.lease.job_id) as seen:
        moved = shop.lose(holding)
    assert moved is not None
    assert (moved.state, moved.stop_reason) == (State.FAILED, "worker_lost")
    assert (seen.generation, seen.events) == (1, ["lease_lost", "failed"])


def test_s84_what_is_no_loss_is_not_counted(shop: Shop) -> None:
    """Asks, pauses and hand-overs use up none of the attempts that may be lost."""
    holding = shop.running(lost_limit=2)
    job_id = holding.lease.job_id
    for _ in range(3):
        holding.hand_over()
        holding = shop.hold(job_id)
        shop.supervisor.pause(job_id, actor=ANN)
        holding.checkpoint("x", NodeKind.STEP, None)
        shop.supervisor.resume(job_id, actor=ANN)
        holding = shop.hold(job_id)
    assert shop.job(job_id).lost_count == 0
    shop.lose(holding)
    assert shop.job(job_id).state is State.PENDING


@pytest.mark.parametrize(
    ("column", "reason"), [("expires_at", "expired:deadline"), ("active_until", "expired:max_active")]
)
def test_a_loss_after_the_time_expires(shop: Shop, column: str, reason: str) -> None:
    """No attempt is made of a job whose time is over: judged like everything else."""
    holding = shop.running(deadline=HOUR, max_active=HOUR, lost_limit=1)
    job_id = holding.lease.job_id
    backdate(shop, job_id, column)
    with watching(shop, job_id) as seen:
        moved = shop.lose(holding)
    assert moved is not None
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, reason)
    assert (seen.generation, seen.events) == (1, ["lease_lost", "expired"])


# --- reap ------------------------------------------------------------------------------------------------


def test_a_lapsed_lease_is_reaped(shop: Shop) -> None:
    """The sweep takes the job from an attempt that nobody renewed; its relay sends the new ticket at once."""
    holding = shop.running()
    job_id = holding.lease.job_id
    lapse(shop, job_id)
    with watching(shop, job_id) as seen:
        (moved,) = shop.reap().moved
    assert (moved.job_id, moved.state) == (job_id, State.PENDING)
    assert (seen.generation, seen.events) == (1, ["lease_lost"])
    assert (seen.entries[0].actor, seen.entries[0].data["why"]) == ("sweep", "its lease ended")
    copy = next(one for one in rows(shop, "outbox", job_id) if one["id"] == shop.job(job_id).ticket_id)
    assert copy["publish_until"] <= seen.entries[0].at
    with pytest.raises(LeaseLost):
        holding.complete(None)


def test_a_live_lease_is_not_reaped(shop: Shop) -> None:
    """A sweep that comes while the lease lasts takes nothing."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id):
        assert list(shop.reap().moved) == []


def test_the_decision_is_on_the_attempts_row(shop: Shop) -> None:
    """A lease that was renewed between the sweep's look and its lock is left alone."""
    holding = shop.running()
    job_id = holding.lease.job_id
    lapse(shop, job_id)
    with shop.door.batch() as run:
        assert [found["job_id"] for found in run(LOCK_LAPSED, job_ids=None, batch=10, **SWEEPING)] == [job_id]
        shop.beat(holding)
        with unchanged(shop, job_id):
            given = {"job_ids": [job_id], "actor": "sweep", "cause": "its lease ended"}
            assert list(run(REAP, **given, settle_after=NO_TIME, publish_hold=NO_TIME)) == []
    assert holding.complete(None).state is State.COMPLETED


def test_a_sweep_is_of_one_namespace(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Another namespace's lapsed leases are not ours to end, and however many there are, they hide none of ours."""
    second = open_shop(namespace="second")
    foreign = [second.running().lease.job_id for _ in range(10)]
    holding = shop.running()
    for job_id in (*foreign, holding.lease.job_id):
        lapse(shop, job_id)
    with shop.door.batch() as run:
        # a batch of two looks at eight candidates
        found = run(LOCK_LAPSED, job_ids=None, batch=2, **SWEEPING)
    assert [one["job_id"] for one in found] == [holding.lease.job_id]
    assert [moved.job_id for moved in shop.reap().moved] == [holding.lease.job_id]
    assert second.job(foreign[0]).state is State.RUNNING


def test_lose_and_reap_give_one_ticket_each(shop: Shop) -> None:
    """A reaped batch gives every job a ticket of its own, published as its own."""
    holdings = [shop.running() for _ in range(5)]
    for holding in holdings:
        lapse(shop, holding.lease.job_id)
    assert len(shop.reap().moved) == 5
    tickets = {shop.job(holding.lease.job_id).ticket_id for holding in holdings}
    assert len(tickets) == 5
    assert None not in tickets


def test_an_attempt_that_ended_is_final(shop: Shop) -> None:
    """Whatever comes later does not change how an attempt ended."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.hand_over()
    before = rows(shop, "attempts", job_id)
    shop.lose(holding)
    shop.beat(holding)
    ask_hand_over(shop.door, shop.claimer.incarnation)
    assert rows(shop, "attempts", job_id) == before
    lose_again = shop.door.one(
        LOSE, job_id=job_id, token=holding.lease.token, ticket_id=uuid4(), settle_after=NO_TIME, actor="x", cause="x"
    )
    assert lose_again is None
