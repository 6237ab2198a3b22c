"""Cancel: at once where nothing runs, else from its commit on no other end is possible; an end stays an end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise import queries
from celery_supervise.errors import Conflict, InvalidInput
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import Moved, NodeKind
from tests.postgres.looking import last_entry, row, rows, unchanged, watching
from tests.postgres.shop import Shop, failure, new_question, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def test_a_waiting_job_is_cancelled_at_once(shop: Shop) -> None:
    """Nobody runs it: one commit ends it, and its ticket with it."""
    job = shop.pending()
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.cancel(job.id, actor=ANN, why="ordered twice")
    assert moved.state is State.CANCELLED
    assert (seen.generation, seen.events) == (1, ["cancelled"])
    assert (seen.entries[0].actor, seen.entries[0].data["why"]) == (ANN, "ordered twice")
    now = row(shop, job.id)
    assert (now["ticket_id"], now["finished_at"], now["settle_due_at"]) == (
        None,
        seen.entries[0].at,
        seen.entries[0].at,
    )
    assert moved.settle_id == shop.job(job.id).settle_id is not None
    assert rows(shop, "outbox", job.id)[0]["done_at"] is not None


def test_s37_a_cancelled_job_is_not_started_by_its_message(shop: Shop) -> None:
    """Cancelled while no worker was there: its message, found later, is no claim, again and again."""
    jobs = [shop.pending() for _ in range(5)]
    for job in jobs:
        assert shop.supervisor.cancel(job.id, actor=ANN).state is State.CANCELLED
    for message in [*shop.broker.messages, *shop.broker.messages]:
        with unchanged(shop, message.job_id):
            assert shop.supervisor.claim(message.job_id, message.id, shop.claimer) is None
    for job in jobs:
        assert shop.events(job.id) == ["submitted", "cancelled"]


@pytest.mark.parametrize("parked", ["asked", "answered", "paused"])
def test_a_parked_job_is_cancelled_at_once(shop: Shop, parked: str) -> None:
    """Whatever it waits for: a person, a worker, a resume."""
    question = shop.asked()
    job_id = shop.job_of(question).id if parked != "paused" else shop.paused().id
    if parked == "answered":
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert shop.supervisor.cancel(job_id, actor=ANN).state is State.CANCELLED
    job = shop.job(job_id)
    assert (job.ticket_id, job.question_id, job.wait_until) == (None, None, None)


def test_a_running_job_is_asked_to_stop(shop: Shop) -> None:
    """The request is a flag: the state stays running, the attempt lives until its next call."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.cancel(job_id, actor=ANN)
    assert (moved.state, moved.changed) == (State.RUNNING, True)
    assert (seen.generation, seen.events) == (1, ["cancel_requested"])
    assert shop.job(job_id).cancel_requested_at == seen.entries[0].at
    assert shop.beat(holding) == [job_id]


def test_a_cancel_asked_for_twice_is_one(shop: Shop) -> None:
    """The second request changes nothing, and says so."""
    job_id = shop.running().lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    with unchanged(shop, job_id):
        assert not shop.supervisor.cancel(job_id, actor="user:bob").changed


CALLS: dict[str, Callable[[Holding], Moved]] = {
    "checkpoint": lambda h: h.checkpoint("x", NodeKind.STEP, None),
    "ask": lambda h: h.ask(new_question(), ttl=HOUR),
    "complete": lambda h: h.complete(stored('"done"')),
    "fail": lambda h: h.fail(failure()),
    "retry": lambda h: h.retry(retry(), failure()),
    "hand_over": lambda h: h.hand_over(),
    "judge": lambda h: h.judge(),
}


@pytest.mark.parametrize("call", CALLS)
def test_s10_after_a_cancel_no_other_end_is_possible(shop: Shop, call: str) -> None:
    """Whatever the body does next, the job ends cancelled: the request was committed first."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    with watching(shop, job_id) as seen:
        moved = CALLS[call](holding)
    assert (moved.state, moved.settle_id) == (State.CANCELLED, holding.lease.token)
    assert seen.generation == 1
    assert seen.events[-1] == "cancelled"
    assert shop.supervisor.attempts(job_id)[0].outcome == "cancelled"
    assert row(shop, job_id)["ticket_id"] is None


def test_s10_a_result_after_a_cancel_is_kept_as_rejected(shop: Shop) -> None:
    """The work that was done is noted and kept, and is never shown as the job's result."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    holding.complete(stored('"done"'))
    assert queries.payload(shop.door, job_id, "result") is None
    assert queries.payload(shop.door, job_id, "rejected") == stored('"done"')
    assert last_entry(shop, job_id).data["rejected_result"] == 6
    with pytest.raises(Conflict) as refused:
        shop.supervisor.result(job_id)
    assert (refused.value.code, refused.value.state) == ("not_completed", State.CANCELLED)


def test_s39_a_late_error_after_a_cancel_starts_no_retry(shop: Shop) -> None:
    """The body turns the cancel into an error and Celery would retry: cancelled it is, the error is a detail."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    moved = holding.retry(retry(HOUR), failure("boom"))
    assert (moved.state, moved.ticket_id) == (State.CANCELLED, None)
    assert "retry_scheduled" not in shop.events(job_id)
    entry = last_entry(shop, job_id)
    assert (entry.event, entry.data["error"]) == ("cancelled", "shop.Broken")
    assert None not in entry.data.values()
    assert shop.supervisor.attempts(job_id)[0].cause == "shop.Broken: boom"


def test_a_cancelled_job_whose_worker_dies_is_cancelled(shop: Shop) -> None:
    """No new attempt is made of a job that is to be cancelled: the loss ends it."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    with watching(shop, job_id) as seen:
        moved = shop.lose(holding)
    assert moved is not None
    assert moved.state is State.CANCELLED
    assert (seen.generation, seen.events) == (1, ["lease_lost", "cancelled"])


# --- an end stays an end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("call", ["cancel", "pause", "resume"])
def test_s42_a_job_that_has_ended_says_so(shop: Shop, state: State, call: str) -> None:
    """cancel, pause, resume of an ended job: a conflict with the state, nothing changes, not even the log."""
    job = shop.ended(state)
    with unchanged(shop, job.id), pytest.raises(Conflict) as refused:
        getattr(shop.supervisor, call)(job.id, actor=ANN)
    assert (refused.value.code, refused.value.state, refused.value.actual) == ("already_final", state, job.generation)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_s42_an_ended_job_is_not_claimed_reaped_or_expired(shop: Shop, state: State) -> None:
    """No message, no sweep moves it again."""
    job = shop.ended(state)
    with unchanged(shop, job.id):
        assert shop.claim(job.id) is None
        assert list(shop.reap().moved) == list(shop.expire().moved) == []


@pytest.mark.parametrize("why", ["a\0b", "x" * 3000, 7])
def test_a_reason_is_a_text(shop: Shop, why: Any) -> None:
    """The words of a cancel go into the log: what cannot be kept there is refused before anything moves."""
    job = shop.pending()
    with unchanged(shop, job.id), pytest.raises(InvalidInput) as refused:
        shop.supervisor.cancel(job.id, actor=ANN, why=why)
    assert refused.value.field == "why"
