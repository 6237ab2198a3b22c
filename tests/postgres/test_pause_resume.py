"""Pause and resume: a pause is a request, a resume goes on or takes the request back, one caller wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_supervise.errors import Conflict, JobNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NodeKind
from tests.postgres.looking import execute, row, unchanged, watching
from tests.postgres.shop import Shop, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def conflict(call: Callable[[], object]) -> Conflict:
    """The refusal of a call."""
    with pytest.raises(Conflict) as refused:
        call()
    return refused.value


# --- pause -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PENDING, State.RUNNING, State.PARKED])
def test_a_pause_is_a_flag(shop: Shop, state: State) -> None:
    """The request is recorded, the state is what it was, and says honestly that it is."""
    job_id = {
        State.PENDING: lambda: shop.pending().id,
        State.RUNNING: lambda: shop.running().lease.job_id,
        State.PARKED: lambda: shop.job_of(shop.asked()).id,
    }[state]()
    before = shop.job(job_id)
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.pause(job_id, actor=ANN)
    assert (moved.state, moved.pause_requested, moved.changed) == (state, True, True)
    assert (seen.generation, seen.events, seen.entries[0].actor) == (1, ["pause_requested"], ANN)
    job = shop.job(job_id)
    assert (job.state, job.stop_reason, job.ticket_id, job.question_id) == (
        state,
        before.stop_reason,
        before.ticket_id,
        before.question_id,
    )
    assert job.pause_requested_at == seen.entries[0].at


def test_a_pause_asked_for_twice_is_one(shop: Shop) -> None:
    """The second request changes nothing, and says so."""
    job_id = shop.running().lease.job_id
    shop.supervisor.pause(job_id, actor=ANN)
    with unchanged(shop, job_id):
        again = shop.supervisor.pause(job_id, actor="user:bob")
    assert (again.changed, again.pause_requested) == (False, True)


def test_a_paused_job_is_paused(shop: Shop) -> None:
    """A pause of a job that stands paused already changes nothing: resume must not need two calls."""
    job = shop.paused()
    with unchanged(shop, job.id):
        again = shop.supervisor.pause(job.id, actor=ANN)
    assert (again.changed, again.state, again.stop_reason) == (False, State.PARKED, "user_paused")


def test_s36_a_job_without_checkpoints_outruns_its_pause(shop: Shop) -> None:
    """The request stays visible; the finish wins, and both are in the log in their true order."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor=ANN)
    assert holding.complete(None).state is State.COMPLETED
    assert shop.events(job_id)[-2:] == ["pause_requested", "completed"]


@pytest.mark.parametrize("leave", ["retry", "hand_over", "lose"])
def test_a_pause_outlives_the_attempt(shop: Shop, leave: str) -> None:
    """A job that goes back to pending takes its pause along: the next claim parks it."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor=ANN)
    ways: dict[str, Callable[[], object]] = {
        "retry": lambda: holding.retry(retry(), None),
        "hand_over": holding.hand_over,
        "lose": lambda: shop.lose(holding),
    }
    ways[leave]()
    assert shop.job(job_id).pause_requested_at is not None
    moved = shop.claim(job_id)
    assert isinstance(moved, Moved)
    assert (moved.state, moved.stop_reason) == (State.PARKED, "user_paused")


def test_an_answer_to_a_paused_question_does_not_start_it(shop: Shop) -> None:
    """Answered while a pause is asked for: the answer is taken, the claim parks the job, resume starts it."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.pause(job_id, actor=ANN)
    moved = shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert (moved.stop_reason, moved.pause_requested) == ("answered:approve", True)
    parked = shop.claim(job_id)
    assert isinstance(parked, Moved)
    assert (parked.state, parked.stop_reason) == (State.PARKED, "user_paused")
    assert shop.supervisor.question(question.id).status == "answered"
    assert shop.supervisor.resume(job_id, actor=ANN).stop_reason == "resume_requested:user_paused"
    holding = shop.hold(job_id)
    assert shop.supervisor.answers(job_id)["approve"].value == stored("true")
    assert holding.complete(None).state is State.COMPLETED


# --- resume ----------------------------------------------------------------------------------------------


def test_resume_issues_the_ticket_and_the_claim_starts(shop: Shop) -> None:
    """A paused job is told to go on: parked still, with a ticket that is sent; the worker's claim runs it."""
    job = shop.paused()
    shop.broker.flush()
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.resume(job.id, actor=ANN)
    assert (moved.state, moved.stop_reason) == (State.PARKED, "resume_requested:user_paused")
    assert (seen.generation, seen.events) == (1, ["resumed"])
    assert [message.id for message in shop.broker.messages] == [shop.job(job.id).ticket_id]
    holding = shop.hold(job.id)
    assert (holding.lease.resumed, holding.lease.run_id) == (True, job.run_id)
    assert shop.job(job.id).stop_reason is None


def test_the_second_resume_has_lost(shop: Shop) -> None:
    """One caller wins; the other is told that it is done already, until the worker has come."""
    job = shop.paused()
    shop.supervisor.resume(job.id, actor=ANN)
    with unchanged(shop, job.id):
        refused = conflict(lambda: shop.supervisor.resume(job.id, actor="user:bob"))
    assert (refused.code, refused.state) == ("already_resumed", State.PARKED)


@pytest.mark.parametrize("code", ["not_parked", "question_open", "already_resumed"])
def test_a_resume_with_nothing_to_resume(shop: Shop, code: str) -> None:
    """Not parked, waiting for an answer, answered already: each is told apart, nothing changes."""
    question = shop.asked()
    answered = shop.asked()
    shop.supervisor.answer(answered.id, value=True, actor=ANN)
    job_id = {
        "not_parked": shop.pending().id,
        "question_open": shop.job_of(question).id,
        "already_resumed": shop.job_of(answered).id,
    }[code]
    with unchanged(shop, job_id):
        assert conflict(lambda: shop.supervisor.resume(job_id, actor=ANN)).code == code


def test_a_running_job_cannot_be_resumed(shop: Shop) -> None:
    """Resume is not a start button."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id):
        refused = conflict(lambda: shop.supervisor.resume(holding.lease.job_id, actor=ANN))
    assert (refused.code, refused.state) == ("not_parked", State.RUNNING)


# --- taking a pause back ---------------------------------------------------------------------------------


def pending(shop: Shop) -> str:
    """A job that waits for a worker."""
    return shop.pending().id


def running(shop: Shop) -> str:
    """A job that runs."""
    return shop.running().lease.job_id


def asked(shop: Shop) -> str:
    """A job that waits for an answer."""
    return shop.job_of(shop.asked()).id


def answered(shop: Shop) -> str:
    """A job that was answered and waits for a worker."""
    question = shop.asked()
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    return shop.job_of(question).id


def resumed(shop: Shop) -> str:
    """A job that was told to go on and waits for a worker."""
    job = shop.paused()
    shop.supervisor.resume(job.id, actor=ANN)
    return job.id


@pytest.mark.parametrize("make", [pending, running, asked, answered, resumed])
def test_resume_takes_back_a_pause_that_was_only_asked_for(shop: Shop, make: Callable[[Shop], str]) -> None:
    """Not paused yet, or with an open question or a ticket out: the request is withdrawn, and nothing more."""
    job_id = make(shop)
    before = row(shop, job_id)
    shop.supervisor.pause(job_id, actor=ANN)
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.resume(job_id, actor="user:bob")
    assert (moved.pause_requested, moved.ticket_id) == (False, None)
    assert (seen.generation, seen.events) == (1, ["pause_withdrawn"])
    after = row(shop, job_id)
    assert {**before, "generation": after["generation"], "log_seq": after["log_seq"]} == after


def test_a_withdrawn_pause_is_not_obeyed(shop: Shop) -> None:
    """After the withdrawal the body runs on at its checkpoint as if nothing had been asked."""
    holding = shop.running()
    shop.supervisor.pause(holding.lease.job_id, actor=ANN)
    shop.supervisor.resume(holding.lease.job_id, actor=ANN)
    assert holding.checkpoint("x", NodeKind.STEP, None).state is State.RUNNING


def test_a_pause_granted_leaves_no_request_behind(shop: Shop) -> None:
    """Once parked, the request is used up: resume starts the job, and it is not paused again."""
    job = shop.paused()
    assert job.pause_requested_at is None
    shop.supervisor.resume(job.id, actor=ANN)
    holding = shop.hold(job.id)
    assert holding.checkpoint("x", NodeKind.STEP, None).state is State.RUNNING


# --- generation and ownership ----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["pause", "resume", "cancel"])
def test_an_old_generation_is_refused(shop: Shop, call: str) -> None:
    """A client with an old page is told both numbers, and nothing changes; with the right one it is done."""
    job = shop.paused() if call == "resume" else shop.pending()
    if call != "resume":
        shop.supervisor.pause(job.id, actor=ANN)
        shop.supervisor.resume(job.id, actor=ANN)
    current = shop.job(job.id).generation
    operation = getattr(shop.supervisor, call)
    with unchanged(shop, job.id):
        refused = conflict(lambda: operation(job.id, actor=ANN, expected_generation=current - 1))
    assert (refused.code, refused.expected, refused.actual) == ("stale_generation", current - 1, current)
    assert operation(job.id, actor=ANN, expected_generation=current).generation == current + 1


@pytest.mark.parametrize("call", ["pause", "resume", "cancel"])
def test_a_foreign_job_is_not_there(shop: Shop, open_shop: Callable[..., Shop], call: str) -> None:
    """Another owner's and another namespace's job are the same as none; the owner's own call works."""
    job = shop.paused(owner_id="ann") if call == "resume" else shop.pending(owner_id="ann")
    operation = getattr(shop.supervisor, call)
    elsewhere = getattr(open_shop(namespace="second").supervisor, call)
    attempts: list[Callable[[], object]] = [
        lambda: operation(job.id, actor=ANN, owner="bob", expected_generation=99),
        lambda: elsewhere(job.id, actor=ANN),
        lambda: operation("nobody's", actor=ANN, owner="bob"),
    ]
    errors = []
    with unchanged(shop, job.id):
        for attempt in attempts:
            with pytest.raises(JobNotFound) as refused:
                attempt()
            errors.append(str(refused.value).replace(job.id, "X").replace("nobody's", "X"))
    assert len({error.replace('"', "'") for error in errors}) == 1, "absent and foreign read the same"
    assert operation(job.id, actor=ANN, owner="ann").changed


def test_a_job_of_nobody_is_not_everybodys(shop: Shop) -> None:
    """A job without an owner is the operators': one who names an owner does not see it."""
    job = shop.pending()
    with pytest.raises(JobNotFound):
        shop.supervisor.job(job.id, owner="ann")
    assert shop.supervisor.job(job.id).owner_id is None


def test_the_reason_of_a_resume_keeps_the_prior_one(shop: Shop) -> None:
    """Whatever a parked job stood still for is readable while it waits for its worker."""
    job = shop.paused()
    execute(
        shop,
        "UPDATE supervise.jobs SET watchdog_stop_reason = 'incompatible_version:1->2' WHERE id = :id",
        id=job.id,
    )
    moved = shop.supervisor.resume(job.id, actor=ANN)
    assert moved.stop_reason == "resume_requested:incompatible_version:1->2"
