"""The claim: a ticket is used once, judged first; the attempt and its lease begin with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from celery_supervise import queries
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, Moved, NodeKind
from tests.postgres.looking import NO_TIME, backdate, execute, last_entry, row, rows, unchanged, watching
from tests.postgres.shop import LEASE, Shop, retry, stored

HOUR = timedelta(hours=1)


def test_a_claim_makes_the_job_run(shop: Shop) -> None:
    """The ticket is gone, an attempt with a token and a lease is there, the generation has moved by one."""
    job = shop.pending(owner_id="ann", deadline=HOUR, stored_bytes=5)
    with watching(shop, job.id) as seen:
        lease = shop.claim(job.id)
    assert isinstance(lease, Lease)
    assert (lease.job_id, lease.task, lease.run_id, lease.owner_id) == (job.id, job.task, job.run_id, "ann")
    assert (lease.number, lease.generation, lease.deadline, lease.stored_bytes) == (1, 2, job.deadline, 5)
    assert (lease.resumed, lease.lost_count) == (False, 0)
    assert (seen.generation, seen.events) == (1, ["claimed"])
    now = shop.job(job.id)
    assert (now.state, now.current_token, now.ticket_id) == (State.RUNNING, lease.token, None)
    (attempt,) = shop.supervisor.attempts(job.id)
    assert (attempt.token, attempt.number, attempt.lease_until) == (lease.token, 1, lease.lease_until)
    assert attempt.lease_until - attempt.started_at == LEASE
    assert (attempt.worker, attempt.pid) == (shop.claimer.worker, shop.claimer.pid)
    assert attempt.incarnation == shop.claimer.incarnation
    assert attempt.ticket_id == job.ticket_id


def test_the_copy_of_a_used_ticket_is_done(shop: Shop) -> None:
    """The outbox row of a claimed ticket is not published again."""
    job = shop.pending()
    shop.hold(job.id)
    (copy,) = rows(shop, "outbox", job.id)
    assert copy["done_at"] is not None


def test_a_ticket_is_used_once(shop: Shop) -> None:
    """A second delivery of the same message is no claim, and changes nothing, whatever the job does now."""
    job = shop.pending()
    assert job.ticket_id is not None
    holding = shop.hold(job.id)
    with unchanged(shop, job.id):
        assert shop.supervisor.claim(job.id, job.ticket_id, shop.claimer) is None
    holding.complete(None)
    with unchanged(shop, job.id):
        assert shop.supervisor.claim(job.id, job.ticket_id, shop.claimer) is None


def test_an_old_ticket_does_not_use_the_new_one(shop: Shop) -> None:
    """A late message of an earlier ticket finds the job pending again and is no claim."""
    job = shop.pending()
    assert job.ticket_id is not None
    shop.hold(job.id).hand_over()
    with unchanged(shop, job.id):
        assert shop.supervisor.claim(job.id, job.ticket_id, shop.claimer) is None
    assert shop.hold(job.id).lease.number == 2


def test_a_message_without_a_row_creates_nothing(shop: Shop) -> None:
    """With our header and no row (rolled back, pruned, restored): no claim, no row."""
    assert shop.supervisor.claim("nobody", uuid4(), shop.claimer) is None
    assert execute(shop, "SELECT count(*) AS n FROM supervise.jobs") == [{"n": 0}]


def test_a_job_of_another_namespace_is_not_there(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """A worker of another namespace cannot claim it, even with its ticket."""
    job = shop.pending()
    assert job.ticket_id is not None
    second = open_shop(namespace="second")
    with unchanged(shop, job.id):
        assert second.supervisor.claim(job.id, job.ticket_id, second.claimer) is None


def test_a_ticket_that_is_not_due_is_no_claim(shop: Shop) -> None:
    """A message that comes before its time gives no right to run."""
    job = shop.pending(due=HOUR)
    with unchanged(shop, job.id):
        assert shop.claim(job.id) is None


def test_a_ticket_that_is_released_too_early_is_no_claim(shop: Shop) -> None:
    """Released is not enough, either: the claim itself looks at the clock."""
    job = shop.pending()
    backdate(shop, job.id, "ticket_due_at", -HOUR)
    with unchanged(shop, job.id):
        assert shop.claim(job.id) is None


def test_a_ticket_that_is_not_released_is_no_claim(shop: Shop) -> None:
    """Due is not enough: nothing starts beyond what was released."""
    job = shop.pending(due=HOUR)
    backdate(shop, job.id, "ticket_due_at")
    with unchanged(shop, job.id):
        assert shop.claim(job.id) is None


@pytest.mark.parametrize(("versions", "claims"), [((1,), False), ((2,), True), ((1, 3), False), ((1, 2), True)])
def test_code_claims_what_it_can_resume(shop: Shop, versions: tuple[int, ...], claims: bool) -> None:  # noqa: FBT001
    """A claim by code of another version leaves ticket and state alone."""
    job = shop.pending(task_version=2)
    assert job.ticket_id is not None
    claimer = replace(shop.claimer, versions=versions)
    claimed = shop.supervisor.claim(job.id, job.ticket_id, claimer)
    assert isinstance(claimed, Lease) is claims
    assert (shop.job(job.id).ticket_id == job.ticket_id) is not claims


def test_the_second_attempt_is_told_that_it_goes_on(shop: Shop) -> None:
    """After a hand-over, a retry or a park the claim says `resumed`, and where the job stood."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.checkpoint("half", NodeKind.CHECKPOINT, None)
    holding.hand_over()
    again = shop.hold(job_id)
    assert again.lease.resumed
    assert shop.supervisor.attempts(job_id)[1].checkpoint_ref == "half"
    again.retry(retry(), None)
    assert shop.hold(job_id).lease.resumed


# --- judged first ----------------------------------------------------------------------------------------


def expired_at_claim(shop: Shop, job_id: str) -> str | None:
    """Deliver the ticket of a job whose time is over; the stop reason it ends with."""
    with watching(shop, job_id) as seen:
        moved = shop.claim(job_id)
    assert isinstance(moved, Moved)
    assert (moved.state, seen.generation, seen.events) == (State.EXPIRED, 1, ["expired"])
    assert shop.job(job_id).ticket_id is None
    return shop.job(job_id).stop_reason


def test_a_claim_after_the_deadline_expires_the_job(shop: Shop) -> None:
    """Whoever touches it first ends it: no attempt begins, and the reason names the deadline."""
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    assert expired_at_claim(shop, job.id) == "expired:deadline"
    assert shop.supervisor.attempts(job.id) == []
    assert rows(shop, "outbox", job.id)[0]["done_at"] is not None


def test_a_claim_after_start_by_expires_the_job(shop: Shop) -> None:
    """Celery's `expires=` is judged on the database's clock: a job that starts too late does not start."""
    job = shop.pending(start_by=HOUR)
    backdate(shop, job.id, "start_by")
    assert expired_at_claim(shop, job.id) == "expired:start_by"


def test_start_by_is_of_the_first_start_only(shop: Shop) -> None:
    """A job that has started in time may be claimed again after it."""
    job = shop.pending(start_by=HOUR)
    shop.hold(job.id).hand_over()
    backdate(shop, job.id, "start_by")
    assert isinstance(shop.claim(job.id), Lease)


def test_a_claim_with_no_running_time_left_expires_the_job(shop: Shop) -> None:
    """What `max_active` allowed is used up: the next claim ends the job, and says so."""
    job = shop.pending(max_active=HOUR)
    shop.hold(job.id).hand_over()
    execute(shop, "UPDATE supervise.jobs SET active_left = '0' WHERE id = :id", id=job.id)
    assert expired_at_claim(shop, job.id) == "expired:max_active"


def test_the_deadline_is_named_before_the_others(shop: Shop) -> None:
    """Where several times are over the reason is the deadline."""
    job = shop.pending(deadline=HOUR, start_by=HOUR)
    backdate(shop, job.id, "start_by")
    backdate(shop, job.id, "expires_at")
    assert expired_at_claim(shop, job.id) == "expired:deadline"


def test_a_claim_of_a_paused_job_parks_it(shop: Shop) -> None:
    """The ticket is used up, no attempt begins, and the request is granted."""
    job = shop.pending()
    shop.supervisor.pause(job.id, actor="user:ann")
    with watching(shop, job.id) as seen:
        moved = shop.claim(job.id)
    assert isinstance(moved, Moved)
    assert (moved.state, moved.stop_reason) == (State.PARKED, "user_paused")
    assert (seen.generation, seen.events) == (1, ["parked"])
    now = shop.job(job.id)
    assert (now.ticket_id, now.pause_requested_at, now.attempts) == (None, None, 0)
    assert shop.supervisor.attempts(job.id) == []


def test_time_goes_before_a_pause(shop: Shop) -> None:
    """A paused job whose deadline is over expires: it is not parked first."""
    job = shop.pending(deadline=HOUR)
    shop.supervisor.pause(job.id, actor="user:ann")
    backdate(shop, job.id, "expires_at")
    assert expired_at_claim(shop, job.id) == "expired:deadline"


def test_a_parked_job_that_was_answered_expires_with_its_reason(shop: Shop) -> None:
    """Why it stood still stays readable: the time ran out after the answer, before a worker came."""
    question = shop.asked(deadline=HOUR)
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    backdate(shop, job_id, "expires_at")
    assert expired_at_claim(shop, job_id) == "expired:answered:approve"


def test_a_job_that_ends_at_its_claim_can_be_told_at_once(shop: Shop) -> None:
    """No attempt will tell Celery of it: its settling is due now, under a new settle id."""
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    moved = shop.claim(job.id)
    assert isinstance(moved, Moved)
    assert moved.settle_id == shop.job(job.id).settle_id is not None
    assert row(shop, job.id)["settle_due_at"] == shop.job(job.id).finished_at


# --- running time ----------------------------------------------------------------------------------------


def test_running_time_counts_only_while_it_runs(shop: Shop) -> None:
    """`max_active` is left over a park: it is set at the claim, and what was used is taken off at the park."""
    question = shop.asked(max_active=HOUR)
    job_id = shop.job_of(question).id
    (attempt,) = shop.supervisor.attempts(job_id)
    assert attempt.ended_at is not None
    parked = row(shop, job_id)
    assert parked["active_until"] is None
    assert parked["active_left"] == HOUR - (attempt.ended_at - attempt.started_at)
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    shop.hold(job_id)
    again = shop.supervisor.attempts(job_id)[1]
    assert row(shop, job_id)["active_until"] == again.started_at + parked["active_left"]
    assert row(shop, job_id)["active_left"] == parked["active_left"]


def test_running_time_that_is_used_up_is_never_negative(shop: Shop) -> None:
    """An attempt that ran over its time leaves nothing, not a debt."""
    holding = shop.running(max_active=HOUR)
    backdate(shop, holding.lease.job_id, "active_until")
    moved = holding.hand_over()
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, "expired:max_active")
    assert row(shop, holding.lease.job_id)["active_left"] == NO_TIME


def test_a_job_without_a_limit_has_none(shop: Shop) -> None:
    """Without `max_active` there is nothing to count."""
    holding = shop.running()
    assert row(shop, holding.lease.job_id)["active_until"] is None
    holding.hand_over()
    assert row(shop, holding.lease.job_id)["active_left"] is None


def test_s46_every_time_is_the_databases(shop: Shop) -> None:
    """Each moment of a claim is one reading of the database's clock: row, attempt and log agree."""
    holding = shop.running()
    job_id = holding.lease.job_id
    (attempt,) = shop.supervisor.attempts(job_id)
    job = shop.job(job_id)
    assert job.started_at == attempt.started_at == attempt.heartbeat_at == last_entry(shop, job_id).at
    assert row(shop, job_id)["stage_at"] == attempt.started_at


def test_s50_nothing_of_an_unfinished_job_is_pruned(shop: Shop) -> None:
    """40 days old and parked: prune takes nothing of it, and on day 41 the answer resumes it."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    paused = shop.paused()
    age = {"by": timedelta(days=40), "ids": [job_id, paused.id]}
    execute(
        shop, "UPDATE supervise.jobs SET created_at = created_at - CAST(:by AS interval) WHERE id = ANY(:ids)", **age
    )
    for one in (job_id, paused.id):
        with unchanged(shop, one):
            assert execute(shop, "SELECT supervise.prune_jobs(ARRAY[:id]) AS gone", id=one) == [{"gone": []}]
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    holding = shop.hold(job_id)
    assert queries.answers(shop.door, job_id, holding.lease.run_id)["approve"].value == stored("true")
    holding.complete(None)
    assert shop.job(job_id).state is State.COMPLETED
