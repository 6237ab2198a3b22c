"""Two operations on one job, in both orders: the second is proven to have waited for the first, under every plan.

Each has taken its snapshot before the other changed anything: what it decides from anything but the locked row is
old, and every plan that Postgres may choose must read the locked row (protocol 6, 7).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.sql import text

from celery_supervise import queries
from celery_supervise.errors import Conflict, LeaseLost, QuestionClosed
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, Moved, NodeKind
from celery_supervise.store.leases import LOSE
from celery_supervise.store.people import ANSWER
from tests.postgres import racing
from tests.postgres.races import Call, halted, in_order, pid_of, row_held, waiter
from tests.postgres.shop import Shop, failure, new_question, retry, stored
from tests.tools import wait_for

planned, engine, shop = racing.planned, racing.engine, racing.shop
LEAD_TIMES = tuple(timedelta(seconds=seconds) for seconds in (0.2, 1, 5))


def lose(shop: Shop, held: Holding) -> Callable[[], Any]:
    """What a worker's main process does when it saw the process of `held` die."""
    return lambda: shop.door.one(
        LOSE,
        job_id=held.lease.job_id,
        token=held.lease.token,
        ticket_id=uuid4(),
        cause="exit code -9",
        actor="worker:test",
        settle_after=timedelta(0),
    )


def cancel(shop: Shop, job_id: str) -> Callable[[], Moved]:
    """A person's cancel."""
    return lambda: shop.supervisor.cancel(job_id, actor="user:ann")


def is_final(outcome: object, state: State) -> bool:
    """Whether the caller was told that the job had already ended so."""
    return isinstance(outcome, Conflict) and outcome.code == "already_final" and outcome.state == state


# --- cancel ----------------------------------------------------------------------------------------------


def test_complete_behind_a_cancel_is_cancelled(shop: Shop) -> None:
    """A cancel request that committed first makes the finish end as cancelled, and keeps its result apart."""
    held = shop.running()
    job_id = held.lease.job_id
    cancelled, completed = in_order(shop.engine, job_id, cancel(shop, job_id), lambda: held.complete(stored('"done"')))
    assert (cancelled.state, completed.state) == (State.RUNNING, State.CANCELLED)
    assert queries.payload(shop.door, job_id, "result") is None
    assert queries.payload(shop.door, job_id, "rejected") == stored('"done"')
    assert shop.events(job_id) == ["submitted", "claimed", "cancel_requested", "cancelled"]


def test_cancel_behind_a_complete_is_told_so(shop: Shop) -> None:
    """A finish that committed first makes the cancel a refusal that changes nothing."""
    held = shop.running()
    job_id = held.lease.job_id
    completed, cancelled = in_order(shop.engine, job_id, lambda: held.complete(stored('"done"')), cancel(shop, job_id))
    assert completed.state is State.COMPLETED
    assert is_final(cancelled, State.COMPLETED)
    assert shop.events(job_id) == ["submitted", "claimed", "completed"]
    assert shop.job(job_id).generation == completed.generation


def test_cancel_behind_an_ask_closes_the_question(shop: Shop) -> None:
    """A cancel that waited for the ask sees the question asked meanwhile, and closes it."""
    held, question = shop.running(), new_question()
    job_id = held.lease.job_id
    asked, cancelled = in_order(
        shop.engine, job_id, lambda: held.ask(question, ttl=timedelta(hours=1)), cancel(shop, job_id)
    )
    assert (asked.state, cancelled.state) == (State.PARKED, State.CANCELLED)
    assert shop.supervisor.question(question.id).status == "closed"
    assert shop.supervisor.questions() == []


def test_ask_behind_a_cancel_asks_nothing(shop: Shop) -> None:
    """An ask that waited for a cancel request ends the job and leaves no question."""
    held = shop.running()
    job_id = held.lease.job_id
    _, asked = in_order(
        shop.engine, job_id, cancel(shop, job_id), lambda: held.ask(new_question(), ttl=timedelta(hours=1))
    )
    assert (asked.state, asked.question_id) == (State.CANCELLED, None)
    assert shop.supervisor.questions(job_id=job_id) == []


def test_fail_behind_a_cancel_is_cancelled(shop: Shop) -> None:
    """An error that comes after a cancel request does not decide the outcome, but is kept."""
    held = shop.running()
    job_id = held.lease.job_id
    _, failed = in_order(shop.engine, job_id, cancel(shop, job_id), lambda: held.fail(failure()))
    assert failed.state is State.CANCELLED
    assert shop.supervisor.attempts(job_id)[0].cause == "shop.Broken: no"


def test_cancel_behind_a_fail_is_told_so(shop: Shop) -> None:
    """A failure that committed first makes the cancel a refusal."""
    held = shop.running()
    job_id = held.lease.job_id
    failed, cancelled = in_order(shop.engine, job_id, lambda: held.fail(failure()), cancel(shop, job_id))
    assert failed.state is State.FAILED
    assert is_final(cancelled, State.FAILED)


def test_s40_cancel_behind_a_claim_is_requested(shop: Shop) -> None:
    """A cancel that saw the job pending and waited for its claim is recorded, and ends the job."""
    job_id = shop.pending().id
    lease, cancelled = in_order(shop.engine, job_id, lambda: shop.claim(job_id), cancel(shop, job_id))
    assert isinstance(lease, Lease)
    assert cancelled.state is State.RUNNING
    assert shop.supervisor.holding(lease, worker="w").complete(None).state is State.CANCELLED


def test_s40_claim_behind_a_cancel_does_not_run(shop: Shop) -> None:
    """A claim that waited for a cancel finds no ticket."""
    job = shop.pending()
    cancelled, claimed = in_order(
        shop.engine,
        job.id,
        cancel(shop, job.id),
        lambda: shop.supervisor.claim(job.id, job.ticket_id or uuid4(), shop.claimer),
    )
    assert cancelled.state is State.CANCELLED
    assert claimed is None
    assert shop.events(job.id) == ["submitted", "cancelled"]


def test_cancel_behind_an_answer_takes_the_ticket_back(shop: Shop) -> None:
    """A cancel that waited for an answer voids the ticket that the answer issued; the answer stays."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    answered, cancelled = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.answer(question.id, True, actor="user:bob"),
        cancel(shop, job_id),
    )
    assert (answered.state, cancelled.state) == (State.PARKED, State.CANCELLED)
    assert shop.supervisor.question(question.id).status == "answered"
    assert shop.supervisor.claim(job_id, answered.ticket_id, shop.claimer) is None


def test_answer_behind_a_cancel_is_told_so(shop: Shop) -> None:
    """An answer that waited for a cancel is refused, and is not stored."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    _, answered = in_order(
        shop.engine,
        job_id,
        cancel(shop, job_id),
        lambda: shop.supervisor.answer(question.id, True, actor="user:bob"),
    )
    assert isinstance(answered, QuestionClosed)
    assert (answered.code, answered.job_state) == ("already_final", State.CANCELLED)
    assert shop.supervisor.question(question.id).answer is None


def test_cancel_behind_a_retry_takes_the_ticket_back(shop: Shop) -> None:
    """A cancel that waited for a retry ends the job that is pending by then."""
    held = shop.running()
    job_id = held.lease.job_id
    retried, cancelled = in_order(
        shop.engine, job_id, lambda: held.retry(retry(timedelta(hours=1)), failure()), cancel(shop, job_id)
    )
    assert (retried.state, cancelled.state) == (State.PENDING, State.CANCELLED)


def test_s39_retry_behind_a_cancel_is_cancelled(shop: Shop) -> None:
    """A retry that waited for a cancel request schedules nothing."""
    held = shop.running()
    job_id = held.lease.job_id
    _, retried = in_order(shop.engine, job_id, cancel(shop, job_id), lambda: held.retry(retry(), failure()))
    assert (retried.state, retried.ticket_id) == (State.CANCELLED, None)
    assert "retry_scheduled" not in shop.events(job_id)


def test_cancel_behind_a_hand_over_takes_the_ticket_back(shop: Shop) -> None:
    """A cancel that waited for a hand-over ends the job before another worker gets it."""
    held = shop.running()
    job_id = held.lease.job_id
    handed, cancelled = in_order(shop.engine, job_id, held.hand_over, cancel(shop, job_id))
    assert (handed.state, cancelled.state) == (State.PENDING, State.CANCELLED)
    assert shop.supervisor.claim(job_id, handed.ticket_id, shop.claimer) is None


def test_hand_over_behind_a_cancel_is_cancelled(shop: Shop) -> None:
    """A hand-over that waited for a cancel request ends the job."""
    held = shop.running()
    job_id = held.lease.job_id
    _, handed = in_order(shop.engine, job_id, cancel(shop, job_id), held.hand_over)
    assert (handed.state, handed.ticket_id) == (State.CANCELLED, None)


def test_the_second_cancel_changes_nothing(shop: Shop) -> None:
    """Of two cancels of a running job one is recorded; the other is told that it is."""
    held = shop.running()
    job_id = held.lease.job_id
    first, second = in_order(shop.engine, job_id, cancel(shop, job_id), cancel(shop, job_id))
    assert (first.changed, second.changed) == (True, False)
    assert first.generation == second.generation


# --- pause and resume ------------------------------------------------------------------------------------


def test_complete_behind_a_pause_completes(shop: Shop) -> None:
    """A pause request does not stop a body that has nothing more to do."""
    held = shop.running()
    job_id = held.lease.job_id
    paused, completed = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
        lambda: held.complete(stored("1")),
    )
    assert (paused.pause_requested, completed.state) == (True, State.COMPLETED)


def test_pause_behind_a_complete_is_told_so(shop: Shop) -> None:
    """A pause that waited for the finish is refused."""
    held = shop.running()
    job_id = held.lease.job_id
    _, paused = in_order(
        shop.engine,
        job_id,
        lambda: held.complete(stored("1")),
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
    )
    assert is_final(paused, State.COMPLETED)


def test_checkpoint_behind_a_pause_is_saved_and_parks(shop: Shop) -> None:
    """A checkpoint that waited for a pause request is saved, and leaves the job parked."""
    held = shop.running()
    job_id = held.lease.job_id
    _, saved = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
        lambda: held.checkpoint("load", NodeKind.STEP, stored("1")),
    )
    assert (saved.state, saved.stop_reason) == (State.PARKED, "user_paused")
    assert list(queries.nodes(shop.door, job_id, held.lease.run_id)) == ["load"]


def test_pause_behind_a_checkpoint_waits_for_the_next(shop: Shop) -> None:
    """A pause that waited for a checkpoint is only a request."""
    held = shop.running()
    job_id = held.lease.job_id
    saved, paused = in_order(
        shop.engine,
        job_id,
        lambda: held.checkpoint("load", NodeKind.STEP, stored("1")),
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
    )
    assert (saved.state, paused.state, paused.pause_requested) == (State.RUNNING, State.RUNNING, True)


def test_ask_behind_a_pause_parks_without_asking(shop: Shop) -> None:
    """An ask that waited for a pause request parks; the question comes after the resume."""
    held = shop.running()
    job_id = held.lease.job_id
    _, asked = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
        lambda: held.ask(new_question(), ttl=timedelta(hours=1)),
    )
    assert (asked.stop_reason, asked.question_id) == ("user_paused", None)
    assert shop.supervisor.questions(job_id=job_id) == []


def test_pause_behind_an_ask_is_a_request(shop: Shop) -> None:
    """A pause that waited for an ask is kept until the answer's claim, which it parks."""
    held, question = shop.running(), new_question()
    job_id = held.lease.job_id
    _, paused = in_order(
        shop.engine,
        job_id,
        lambda: held.ask(question, ttl=timedelta(hours=1)),
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
    )
    assert (paused.state, paused.pause_requested) == (State.PARKED, True)
    shop.supervisor.answer(question.id, True, actor="user:ann")
    claimed = shop.claim(job_id)
    assert isinstance(claimed, Moved)
    assert (claimed.state, claimed.stop_reason) == (State.PARKED, "user_paused")


def test_claim_behind_a_pause_parks(shop: Shop) -> None:
    """A claim that waited for a pause request uses its ticket up, and runs nothing."""
    job = shop.pending()
    _, claimed = in_order(
        shop.engine,
        job.id,
        lambda: shop.supervisor.pause(job.id, actor="user:ann"),
        lambda: shop.supervisor.claim(job.id, job.ticket_id or uuid4(), shop.claimer),
    )
    assert (claimed.state, claimed.stop_reason) == (State.PARKED, "user_paused")
    assert shop.supervisor.attempts(job.id) == []


def test_one_resume_wins(shop: Shop) -> None:
    """Of two people who resume a job one issues the ticket, the other is told that it was already resumed."""
    job = shop.paused()
    first, second = in_order(
        shop.engine,
        job.id,
        lambda: shop.supervisor.resume(job.id, actor="user:ann"),
        lambda: shop.supervisor.resume(job.id, actor="user:bob"),
    )
    assert first.ticket_id == shop.job(job.id).ticket_id
    assert isinstance(second, Conflict)
    assert second.code == "already_resumed"
    assert shop.events(job.id).count("resumed") == 1


def test_resume_behind_a_pause_withdraws_it(shop: Shop) -> None:
    """A resume that waited for a pause request of a running job takes the request back."""
    held = shop.running()
    job_id = held.lease.job_id
    _, resumed = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.pause(job_id, actor="user:ann"),
        lambda: shop.supervisor.resume(job_id, actor="user:ann"),
    )
    assert (resumed.state, resumed.pause_requested) == (State.RUNNING, False)
    assert shop.events(job_id)[-2:] == ["pause_requested", "pause_withdrawn"]


def test_cancel_behind_a_resume_takes_the_ticket_back(shop: Shop) -> None:
    """A cancel that waited for a resume leaves no ticket out."""
    job = shop.paused()
    resumed, cancelled = in_order(
        shop.engine, job.id, lambda: shop.supervisor.resume(job.id, actor="user:bob"), cancel(shop, job.id)
    )
    assert cancelled.state is State.CANCELLED
    assert shop.supervisor.claim(job.id, resumed.ticket_id, shop.claimer) is None


def test_resume_behind_a_cancel_is_told_so(shop: Shop) -> None:
    """A resume that waited for a cancel is refused."""
    job = shop.paused()
    _, resumed = in_order(
        shop.engine, job.id, cancel(shop, job.id), lambda: shop.supervisor.resume(job.id, actor="user:bob")
    )
    assert is_final(resumed, State.CANCELLED)


# --- answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second_actor", ["user:ann", "user:bob"])
def test_the_first_answer_wins(shop: Shop, second_actor: str) -> None:
    """A second answer is refused and told who gave the first, though it says the same, and from the same person."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    first, second = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.answer(question.id, True, actor="user:ann"),
        lambda: shop.supervisor.answer(question.id, True, actor=second_actor),
    )
    assert isinstance(first, Moved)
    assert isinstance(second, QuestionClosed)
    assert (second.code, second.answered_by) == ("already_answered", "user:ann")
    assert shop.events(job_id).count("answered") == 1


def test_a_worker_behind_an_answer_gets_it(shop: Shop) -> None:
    """The ticket of an answer is claimed by one of two deliveries, and the answer is there."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    answered = shop.supervisor.answer(question.id, False, actor="user:ann")
    deliver = partial(shop.supervisor.claim, job_id, answered.ticket_id or uuid4(), shop.claimer)
    first, second = in_order(shop.engine, job_id, deliver, deliver)
    assert isinstance(first, Lease)
    assert second is None
    assert queries.answers(shop.door, job_id, first.run_id)["approve"].value == stored("false")


def test_s09_an_answer_does_not_go_to_the_next_question(shop: Shop) -> None:
    """An answer that comes after another one was accepted, and the body has asked anew, does not answer that."""
    question, following = shop.asked(), new_question("second")
    job_id = shop.job_of(question).id
    with halted(shop.engine, ANSWER) as halt:
        late = Call(lambda: shop.supervisor.answer(question.id, False, actor="user:late"))
        halt.reached(late)
        shop.supervisor.answer(question.id, True, actor="user:ann")
        shop.hold(job_id).ask(following, ttl=timedelta(hours=1))
    assert isinstance(late.outcome(), QuestionClosed)
    assert late.outcome().code == "already_answered"
    assert shop.supervisor.question(following.id).status == "pending"


# --- time that passes while somebody waits ---------------------------------------------------------------


def over(shop: Shop, column: str, job_id: str) -> bool:
    """Whether that time of the job is over, on the database's clock."""
    query = text(f"SELECT {column} < clock_timestamp() FROM supervise.jobs WHERE id = :job_id")
    with shop.engine.connect() as connection:
        return bool(connection.execute(query, {"job_id": job_id}).scalar())


Begun = tuple[str, Callable[[], Any]]


def waiting_past(shop: Shop, column: str, begin: Callable[[timedelta], Begun | None]) -> tuple[str, Any]:
    """A job and the outcome of a call on it that began before that time of it, and got its row after that.

    `begin` makes the job, with so much time, and the call; a slow machine gets more time.
    """
    for time in LEAD_TIMES:
        begun = begin(time)
        if begun is None:
            continue
        job_id, work = begun
        with row_held(shop.engine, "jobs", "id", job_id) as gate:
            call = Call(work)
            waiter(shop.engine, gate)
            in_time = not over(shop, column, job_id)
            wait_for(lambda job_id=job_id: over(shop, column, job_id))  # type: ignore[misc] # bound
        if in_time:
            return job_id, call.outcome()
    raise AssertionError("this machine is too slow")


def test_s07_an_answer_that_waited_past_the_deadline_is_late(shop: Shop) -> None:
    """An answer is judged when it gets the row, not when it was sent: the job expires by it, unswept."""

    def begin(time: timedelta) -> Begun:
        question = shop.asked(ttl=time)
        return shop.job_of(question).id, lambda: shop.supervisor.answer(question.id, True, actor="user:ann")

    job_id, answered = waiting_past(shop, "wait_until", begin)
    assert isinstance(answered, QuestionClosed)
    assert answered.code == "expired"
    job, (question,) = shop.job(job_id), shop.supervisor.questions(job_id=job_id)
    assert (job.state, job.stop_reason) == (State.EXPIRED, "expired:awaiting_user_answer:approve")
    assert (question.status, question.answer) == ("expired", None)


def test_a_claim_that_waited_past_the_deadline_expires_the_job(shop: Shop) -> None:
    """With the sweep stopped, the claim itself ends a job whose deadline is over."""

    def begin(time: timedelta) -> Begun:
        job = shop.pending(deadline=time)
        return job.id, lambda: shop.supervisor.claim(job.id, job.ticket_id or uuid4(), shop.claimer)

    job_id, claimed = waiting_past(shop, "expires_at", begin)
    assert (claimed.state, claimed.stop_reason) == (State.EXPIRED, "expired:deadline")
    assert shop.supervisor.attempts(job_id) == []


def test_a_complete_that_waited_past_the_deadline_is_late(shop: Shop) -> None:
    """A result that gets the row too late is kept as a rejected one."""

    def begin(time: timedelta) -> Begun | None:
        lease = shop.claim(shop.pending(deadline=time).id)
        if not isinstance(lease, Lease):
            return None
        held = shop.supervisor.holding(lease, worker="w")
        return lease.job_id, lambda: held.complete(stored('"late"'))

    job_id, completed = waiting_past(shop, "expires_at", begin)
    assert completed.state is State.EXPIRED
    assert queries.payload(shop.door, job_id, "result") is None
    assert queries.payload(shop.door, job_id, "rejected") == stored('"late"')


def test_a_checkpoint_that_waited_past_the_deadline_is_saved(shop: Shop) -> None:
    """A checkpoint that gets the row too late is saved in the statement that expires the job."""

    def begin(time: timedelta) -> Begun:
        held = shop.running(max_active=time)
        return held.lease.job_id, lambda: held.checkpoint("load", NodeKind.STEP, stored("1"))

    job_id, saved = waiting_past(shop, "active_until", begin)
    assert (saved.state, saved.stop_reason) == (State.EXPIRED, "expired:max_active")
    assert list(queries.nodes(shop.door, job_id, shop.job(job_id).run_id)) == ["load"]


# --- claims and the loss of an attempt -------------------------------------------------------------------


def test_a_claim_behind_the_same_ticket_does_not_run(shop: Shop) -> None:
    """Of two deliveries of one message the second finds its ticket used."""
    job = shop.pending()
    deliver = partial(shop.supervisor.claim, job.id, job.ticket_id or uuid4(), shop.claimer)
    first, second = in_order(shop.engine, job.id, deliver, deliver)
    assert isinstance(first, Lease)
    assert second is None
    assert len(shop.supervisor.attempts(job.id)) == 1


def test_a_late_old_ticket_does_not_take_the_new_one(shop: Shop) -> None:
    """A duplicate that waited while the job was claimed, asked and answered does not use the answer's ticket."""
    job, question = shop.pending(), new_question()
    old = job.ticket_id or uuid4()
    with shop.engine.connect() as connection, connection.begin():
        other = racing.unseen(shop, connection)
        other.hold(job.id).ask(question, ttl=timedelta(hours=1))
        new = other.supervisor.answer(question.id, True, actor="user:ann").ticket_id
        late = Call(lambda: shop.supervisor.claim(job.id, old, shop.claimer))
        assert waiter(shop.engine, pid_of(connection))
    assert late.outcome() is None
    assert shop.job(job.id).ticket_id == new
    assert isinstance(shop.claim(job.id), Lease)


def test_complete_behind_a_loss_is_refused(shop: Shop) -> None:
    """An attempt that was given up is fenced: its result is not published, and the refusal is logged."""
    held = shop.running()
    job_id = held.lease.job_id
    lost, completed = in_order(shop.engine, job_id, lose(shop, held), lambda: held.complete(stored("1")))
    assert lost["current_state"] == State.PENDING
    assert isinstance(completed, LeaseLost)
    assert shop.events(job_id)[-2:] == ["lease_lost", "refused"]
    assert queries.payload(shop.door, job_id, "result") is None


def test_s05_complete_behind_a_change_of_hands_is_refused(shop: Shop) -> None:
    """An attempt that waits while its job is lost and claimed by another writes nothing over that one's work."""
    held = shop.running()
    job_id = held.lease.job_id
    with shop.engine.connect() as connection, connection.begin():
        other = racing.unseen(shop, connection)
        lose(other, held)()
        lease = other.claim(job_id)
        late = Call(lambda: held.complete(stored('"late"')))
        waiter(shop.engine, pid_of(connection))
    assert isinstance(late.outcome(), LeaseLost)
    assert isinstance(lease, Lease)
    assert shop.job(job_id).current_token == lease.token
    assert shop.supervisor.holding(lease, worker="w").complete(stored('"right"')).state is State.COMPLETED
    assert queries.payload(shop.door, job_id, "result") == stored('"right"')
    assert shop.events(job_id)[-4:] == ["lease_lost", "claimed", "refused", "completed"]


def test_a_loss_behind_a_complete_changes_nothing(shop: Shop) -> None:
    """A parent that reports a death too late takes nothing from a job that completed."""
    held = shop.running()
    job_id = held.lease.job_id
    completed, lost = in_order(shop.engine, job_id, lambda: held.complete(stored("1")), lose(shop, held))
    assert completed.state is State.COMPLETED
    assert lost is None
    assert shop.job(job_id).lost_count == 0


def test_ask_behind_a_loss_asks_nothing(shop: Shop) -> None:
    """An ask of an attempt that was given up leaves no question."""
    held = shop.running()
    job_id = held.lease.job_id
    _, asked = in_order(shop.engine, job_id, lose(shop, held), lambda: held.ask(new_question(), ttl=timedelta(hours=1)))
    assert isinstance(asked, LeaseLost)
    assert shop.supervisor.questions(job_id=job_id) == []


def test_a_loss_behind_an_ask_changes_nothing(shop: Shop) -> None:
    """A death after the ask committed leaves the job parked on its question."""
    held, question = shop.running(), new_question()
    job_id = held.lease.job_id
    _, lost = in_order(shop.engine, job_id, lambda: held.ask(question, ttl=timedelta(hours=1)), lose(shop, held))
    assert lost is None
    assert shop.job(job_id).question_id == question.id


def test_checkpoint_behind_a_loss_saves_nothing(shop: Shop) -> None:
    """A checkpoint of an attempt that was given up is refused, and does not overwrite what is decided."""
    held = shop.running()
    job_id = held.lease.job_id
    _, saved = in_order(
        shop.engine, job_id, lose(shop, held), lambda: held.checkpoint("load", NodeKind.STEP, stored("1"))
    )
    assert isinstance(saved, LeaseLost)
    assert queries.nodes(shop.door, job_id, held.lease.run_id) == {}


def test_progress_behind_a_complete_is_refused(shop: Shop) -> None:
    """Progress that waited for the end of its own attempt shows nothing any more."""
    held = shop.running()
    job_id = held.lease.job_id
    _, shown = in_order(shop.engine, job_id, lambda: held.complete(stored("1")), lambda: held.progress(1, 2, "half"))
    assert isinstance(shown, LeaseLost)
    assert shop.job(job_id).progress_message is None


def test_the_second_loss_changes_nothing(shop: Shop) -> None:
    """A death that is reported twice is counted once."""
    held = shop.running()
    job_id = held.lease.job_id
    first, second = in_order(shop.engine, job_id, lose(shop, held), lose(shop, held))
    assert first["current_state"] == State.PENDING
    assert second is None
    assert shop.job(job_id).lost_count == 1
