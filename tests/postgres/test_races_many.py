"""Many sessions at once on one job: what must happen once happens once, whoever is quickest."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID, uuid4

import pytest

from celery_supervise import versions
from celery_supervise.errors import Conflict, NotAllowed, QuestionClosed
from celery_supervise.lifecycle import State
from celery_supervise.migrating import Memories, OldJob, claim_migrated
from celery_supervise.model import Job, Lease, Moved, NewQuestion
from celery_supervise.options import Options
from celery_supervise.relay import Relay
from celery_supervise.sweeps import EXPIRY, REAPING, SHELVING, Pass, Sweeper
from tests.postgres.looking import backdate, out_again
from tests.postgres.races import Call, at_once
from tests.postgres.shop import NO_TIME, Shop, failure, new_job, new_question, retry, stored

HOUR = timedelta(hours=1)
EVERYDAY, LONG = 25, 300  # rounds
REFUSALS = (Conflict, NotAllowed)


@pytest.mark.parametrize("same", [False, True], ids=["different", "identical"])
def test_s03_of_fifty_answers_one_is_accepted(shop: Shop, *, same: bool) -> None:
    """Fifty people, or one who clicks fifty times: one answer counts, the others are told who gave it."""
    question = shop.asked(question=new_question(schema={"type": "integer"}))
    job = shop.job_of(question)

    def answer(number: int) -> Moved:
        value, actor = (7, "user:ann") if same else (number, f"user:{number}")
        return shop.supervisor.answer(question.id, value, actor=actor, expected_generation=job.generation)

    outcomes = at_once([partial(answer, number) for number in range(50)])
    refused = [outcome for outcome in outcomes if isinstance(outcome, QuestionClosed)]
    (winner,) = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Moved)]
    given = shop.supervisor.question(question.id)
    assert len(refused) == 49
    assert {outcome.code for outcome in refused} == {"already_answered"}
    assert {outcome.answered_by for outcome in refused} == {given.answered_by}
    assert given.answer == stored("7" if same else str(winner))
    assert shop.events(job.id).count("answered") == 1
    assert isinstance(shop.claim(job.id), Lease)


def test_of_thirty_deliveries_one_runs(shop: Shop) -> None:
    """A broker that delivers one message thirty times starts one attempt."""
    job = shop.pending()
    outcomes = at_once([lambda: shop.supervisor.claim(job.id, job.ticket_id or uuid4(), shop.claimer)] * 30)
    assert Counter(type(outcome) for outcome in outcomes) == {Lease: 1, type(None): 29}
    assert shop.events(job.id) == ["submitted", "claimed"]


def test_many_resumes_issue_one_ticket(shop: Shop) -> None:
    """Of twenty people who resume a job one is told that it goes on, and the others that it already does."""
    job = shop.paused()
    outcomes = at_once([lambda: shop.supervisor.resume(job.id, actor="user:ann")] * 20)
    told = Counter(outcome.code if isinstance(outcome, Conflict) else "resumed" for outcome in outcomes)
    assert told == {"resumed": 1, "already_resumed": 19}


# --- deliveries of old and new tickets -------------------------------------------------------------------


class Deliveries:
    """One job that is claimed, asks, is answered, and so on; every ticket it ever had is delivered again and again."""

    def __init__(self, shop: Shop, rounds: int) -> None:
        self.shop = shop
        self.rounds = rounds
        job = shop.pending()
        self.job_id = job.id
        self.tickets: list[UUID] = [job.ticket_id or uuid4()]
        self.claims: list[UUID] = []

    def worker(self, seed: int) -> None:
        """Deliver a recent ticket; who wins lets the job ask, and a person answers."""
        chance = random.Random(seed)
        while len(self.claims) < self.rounds:
            ticket = chance.choice(self.tickets[-3:])
            lease = self.shop.supervisor.claim(self.job_id, ticket, self.shop.claimer)
            if isinstance(lease, Lease):
                self.claims.append(ticket)
                self.cycle(lease, chance)

    def cycle(self, lease: Lease, chance: random.Random) -> None:
        """What the attempt does: asks, or fails and is tried again."""
        held = self.shop.supervisor.holding(lease, worker="w")
        if chance.random() < 0.3:
            ticket = held.retry(retry(), failure()).ticket_id
        else:
            question = new_question(f"q{lease.number}")
            held.ask(question, ttl=HOUR)
            ticket = self.shop.supervisor.answer(question.id, True, actor="user:ann").ticket_id
        assert ticket is not None
        self.tickets.append(ticket)


@pytest.mark.parametrize("rounds", [EVERYDAY, pytest.param(100, marks=pytest.mark.soak)])
def test_each_ticket_is_claimed_once(shop: Shop, rounds: int) -> None:
    """24 sessions that deliver every message many times: each claim uses a ticket of its own, and every one is used."""
    deliveries = Deliveries(shop, rounds)
    outcomes = at_once([partial(deliveries.worker, seed) for seed in range(24)])
    assert outcomes == [None] * 24
    assert len(deliveries.claims) == len(set(deliveries.claims))
    assert set(deliveries.tickets) - set(deliveries.claims) == set(deliveries.tickets[-1:])
    assert [attempt.outcome for attempt in shop.supervisor.attempts(deliveries.job_id)].count(None) == 0


# --- two at once, over and over --------------------------------------------------------------------------


Maker = Callable[[Shop], tuple[str, Callable[[], Any], Callable[[], Any]]]


def cancel_complete(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """S10: whoever commits first decides, and the cancel is told."""
    held = shop.running()
    job_id = held.lease.job_id
    return job_id, lambda: shop.supervisor.cancel(job_id, actor="a"), lambda: held.complete(stored("1"))


def cancel_ask(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """The question is closed, or was never asked."""
    held = shop.running()
    job_id = held.lease.job_id
    return job_id, lambda: shop.supervisor.cancel(job_id, actor="a"), lambda: held.ask(new_question(), ttl=HOUR)


def cancel_fail(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """As with complete."""
    held = shop.running()
    job_id = held.lease.job_id
    return job_id, lambda: shop.supervisor.cancel(job_id, actor="a"), lambda: held.fail(failure())


def cancel_claim(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """S40: cancelled before it ran, or while it runs."""
    job = shop.pending()
    ticket = job.ticket_id or uuid4()

    def run() -> Any:
        lease = shop.supervisor.claim(job.id, ticket, shop.claimer)
        return shop.supervisor.holding(lease, worker="w").complete(None) if isinstance(lease, Lease) else lease

    return job.id, lambda: shop.supervisor.cancel(job.id, actor="a"), run


def pause_complete(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """The finish wins."""
    held = shop.running()
    job_id = held.lease.job_id
    return job_id, lambda: shop.supervisor.pause(job_id, actor="a"), lambda: held.complete(stored("1"))


def resume_resume(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """One wins; the job is then cancelled, so that the round ends."""
    job = shop.paused()
    return job.id, lambda: shop.supervisor.resume(job.id, actor="a"), lambda: shop.supervisor.resume(job.id, actor="b")


def answer_cancel(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """The answer stands or is refused; the job is cancelled."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    return (
        job_id,
        lambda: shop.supervisor.cancel(job_id, actor="a"),
        lambda: shop.supervisor.answer(question.id, True, actor="b"),
    )


def vote_vote(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """Two who agree: one votes, the other decides."""
    question = shop.asked(question=new_question(approvals=2))
    return (
        shop.job_of(question).id,
        lambda: shop.supervisor.answer(question.id, True, actor="a"),
        lambda: shop.supervisor.answer(question.id, True, actor="b"),
    )


def vote_reassign(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """It is decided before it goes to others, or the one who would have decided may not any more."""
    question = shop.asked(question=new_question(approvals=2, to=("a", "b")))
    shop.supervisor.answer(question.id, True, actor="b")
    return (
        shop.job_of(question).id,
        lambda: shop.supervisor.answer(question.id, True, actor="a"),
        lambda: shop.supervisor.reassign(question.id, to=["b", "c"], actor="d"),
    )


def answer_withdraw(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """It is answered, or it is taken back."""
    question = shop.asked()
    return (
        shop.job_of(question).id,
        lambda: shop.supervisor.answer(question.id, True, actor="a"),
        lambda: shop.supervisor.withdraw(question.id, actor="b"),
    )


def reap_complete(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """The attempt is lost or complete, never both."""
    short = Shop(shop.engine, lease=NO_TIME, broker=shop.broker)
    lease = short.running().lease
    held = shop.supervisor.holding(lease, worker="w")
    sweeper = Sweeper(shop.door, period=HOUR)
    return lease.job_id, lambda: sweeper._move(Pass(REAPING), [lease.job_id]), lambda: held.complete(stored("1"))


def answer_answer(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """One counts."""
    question = shop.asked()
    return (
        shop.job_of(question).id,
        lambda: shop.supervisor.answer(question.id, True, actor="a"),
        lambda: shop.supervisor.answer(question.id, False, actor="b"),
    )


def heartbeat_reap(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """The lease is renewed, or the attempt is lost."""
    short = Shop(shop.engine, lease=NO_TIME, broker=shop.broker)
    short.claimer = shop.claimer
    held = short.running()
    sweeper, job_id = Sweeper(shop.door, period=HOUR), held.lease.job_id
    return job_id, lambda: shop.beat(held), lambda: sweeper._move(Pass(REAPING), [job_id])


def expire_claim(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """No sweep runs: of two deliveries around the deadline one runs the job, or ends it."""
    job = shop.pending(deadline=timedelta(milliseconds=random.uniform(1, 12)))
    claim = partial(shop.supervisor.claim, job.id, job.ticket_id or uuid4(), shop.claimer)
    return job.id, claim, claim


def hold_claim(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """It had begun before, or does not begin."""
    job = shop.pending(task=f"task-{uuid4()}")
    return (
        job.id,
        lambda: shop.supervisor.hold(task=job.task, reason="now", actor="a"),
        lambda: shop.claim(job.id),
    )


def left(shop: Shop) -> Job:
    """A job of version 2 that code of version 1 left, longer ago than the grace."""
    job = shop.pending(task_version=2)
    assert versions.leave(shop.door, job.id, job.ticket_id or uuid4(), versions=(1,), version=1)
    backdate(shop, job.id, "incompatible_since", by=24 * HOUR)
    out_again(shop, job.id)
    return job


def shelve_claim(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """A worker that can run it comes in time, or finds it parked."""
    job, sweeper = left(shop), Sweeper(shop.door, period=HOUR)
    claimer = replace(shop.claimer, versions=(2,))
    claim = partial(shop.supervisor.claim, job.id, job.ticket_id or uuid4(), claimer)
    return job.id, lambda: sweeper._move(Pass(SHELVING), [job.id]), claim


def shelved(shop: Shop) -> Job:
    """The same, parked for it."""
    job = left(shop)
    assert Sweeper(shop.door, period=HOUR)._move(Pass(SHELVING), [job.id])
    return job


def take_up(shop: Shop) -> Any:
    """A worker that can run it looks for such."""
    return versions.take_up(shop.door, {"shop.task": Options(version=2)})


def take_up_take_up(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """One issues the ticket."""
    return shelved(shop).id, lambda: take_up(shop), lambda: take_up(shop)


def take_up_cancel(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """Cancelled, whether it was to go on by then or not."""
    job_id = shelved(shop).id
    return job_id, lambda: take_up(shop), lambda: shop.supervisor.cancel(job_id, actor="a")


def migrate_claim(shop: Shop) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """New code and old code: one of the two runs it, as its own."""
    job = shop.pending()
    old = OldJob(job.id, 1, job.run_id, None)
    changed = Memories(shop.door).migrated(old, lambda memory: memory.write("new", 1))
    claim = partial(claim_migrated, shop.door, old, job.ticket_id or uuid4(), shop.claimer)
    return job.id, lambda: claim(version=2, changed=changed), lambda: shop.claim(job.id)


PAIRS: dict[Maker, set[tuple[str, ...]]] = {
    cancel_complete: {("cancel_requested", "cancelled"), ("completed",)},
    cancel_ask: {("cancel_requested", "cancelled"), ("asked", "cancelled")},
    cancel_fail: {("cancel_requested", "cancelled"), ("failed",)},
    cancel_claim: {("cancelled",), ("claimed", "cancel_requested", "cancelled"), ("claimed", "completed")},
    pause_complete: {("pause_requested", "completed"), ("completed",)},
    resume_resume: {("resumed",)},
    vote_vote: {("voted", "answered")},
    vote_reassign: {("answered",), ("reassigned",)},
    answer_withdraw: {("answered",), ("withdrawn",)},
    answer_cancel: {("answered", "cancelled"), ("cancelled",)},
    reap_complete: {("lease_lost", "refused"), ("completed",)},
    answer_answer: {("answered",)},
    heartbeat_reap: {("lease_lost",), ()},
    expire_claim: {("claimed",), ("expired",)},
    hold_claim: {("claimed",), ()},
    shelve_claim: {("claimed",), ("parked",)},
    take_up_take_up: {("resumed",)},
    take_up_cancel: {("resumed", "cancelled"), ("cancelled",)},
    migrate_claim: {("claimed",), ("claimed", "migrated")},
}
"""What the log of a job may say of a race, from then on: one of these, and nothing else."""


@pytest.mark.parametrize("rounds", [EVERYDAY, pytest.param(LONG, marks=pytest.mark.soak)])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__.replace("_", "-"))
def test_rounds(shop: Shop, pair: Maker, rounds: int) -> None:
    """Two at once, over and over: each round ends in one of the ways that are right, and no error is but a refusal."""
    for _ in range(rounds):
        job_id, one, other = pair(shop)
        before = len(shop.events(job_id))
        outcomes = at_once([one, other])
        assert tuple(shop.events(job_id)[before:]) in PAIRS[pair]
        assert [error for error in outcomes if isinstance(error, Exception) and not isinstance(error, REFUSALS)] == []


# --- holds -----------------------------------------------------------------------------------------------


def hold_submit(shop: Shop, task: str) -> tuple[str, Callable[[], Any]]:
    """A call at the moment of the hold."""
    job = new_job(task=task)
    return job.id, lambda: shop.supervisor.submit(job)


def hold_relay(shop: Shop, task: str) -> tuple[str, Callable[[], Any]]:
    """The relay lets out what an earlier hold had kept."""
    shop.supervisor.hold(task=task, reason="before", actor="a")
    job = shop.pending(task=task)
    shop.supervisor.release(task=task, actor="a")
    return job.id, lambda: relayed(shop)


def hold_resume(shop: Shop, task: str) -> tuple[str, Callable[[], Any]]:
    """A person resumes a job at the moment of the hold."""
    job = shop.paused(task=task)
    return job.id, lambda: shop.supervisor.resume(job.id, actor="b")


def relayed(shop: Shop) -> Any:
    """One pass of the relay."""
    return Relay(shop.door, shop.broker, settling=NO_TIME).publish_once()


@pytest.mark.parametrize("rounds", [EVERYDAY, pytest.param(LONG, marks=pytest.mark.soak)])
@pytest.mark.parametrize("other", [hold_submit, hold_relay, hold_resume], ids=lambda one: one.__name__)
def test_rounds_of_holds(shop: Shop, other: Callable[..., tuple[str, Callable[[], Any]]], rounds: int) -> None:
    """Whichever comes first: after the relay's next pass the job does not start; it does once the hold is released."""
    for _ in range(rounds):
        task = f"task-{uuid4()}"
        job_id, call = other(shop, task)
        outcomes = at_once([partial(shop.supervisor.hold, task=task, reason="now", actor="a"), call])
        assert [error for error in outcomes if isinstance(error, Exception)] == []
        relayed(shop)
        assert shop.claim(job_id) is None
        shop.supervisor.release(task=task, actor="a")
        relayed(shop)
        assert isinstance(shop.claim(job_id), Lease)


# --- the deadline ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [60, pytest.param(LONG, marks=pytest.mark.soak)])
def test_s07_answers_at_the_deadline(shop: Shop, rounds: int) -> None:
    """Answers within milliseconds of the deadline, the sweep at full speed: each in time, or expired, never both."""
    ttl = timedelta(seconds=0.4)
    sweeping = threading.Event()
    sweeping.set()
    sweeper = Sweeper(shop.door, period=HOUR)

    def sweep() -> None:
        while sweeping.is_set():
            sweeper._move(Pass(EXPIRY), None)

    def answers(seed: int) -> list[tuple[NewQuestion, Any]]:
        chance, given = random.Random(seed), []
        for _ in range(rounds // 6):
            question = shop.asked(ttl=ttl * (0.25 + chance.random() / 4))
            until = shop.supervisor.question(question.id).expires_at.timestamp() + chance.uniform(-0.006, 0.004)
            time.sleep(max(0.0, until - time.time()))  # the server's clock is this machine's
            given.append((question, outcome_of(partial(shop.supervisor.answer, question.id, True, actor="ann"))))
        return given

    call = Call(sweep)
    given = list(chain.from_iterable(at_once([partial(answers, seed) for seed in range(6)])))
    sweeping.clear()
    assert call.outcome() is None
    assert {judged(shop, question, outcome) for question, outcome in given} <= {"in time", "late"}
    assert len(given) == rounds


def outcome_of(work: Callable[[], Any]) -> Any:
    """What it returned, or the refusal."""
    try:
        return work()
    except QuestionClosed as refused:
        return refused


def judged(shop: Shop, question: NewQuestion, outcome: Any) -> str:
    """Whether an answer was in time or late: all that there is to see says the same."""
    now = shop.supervisor.question(question.id)
    events = shop.events(now.job_id)
    if isinstance(outcome, Moved):
        assert (now.status, now.job_state) == ("answered", State.PARKED)
        assert now.answered_at is not None
        assert now.answered_at < now.expires_at
        assert events[-1] == "answered"
        return "in time"
    assert outcome.code == "expired"
    assert (now.status, now.job_state, now.answer) == ("expired", State.EXPIRED, None)
    assert events[-1] == "expired"
    return "late"
