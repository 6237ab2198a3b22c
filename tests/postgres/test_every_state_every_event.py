"""Every situation that a job can be in, with all that can be done to it: exactly the table's move, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.engine import Engine

from celery_supervise import invariants, versions
from celery_supervise.engine import create_engine
from celery_supervise.errors import Conflict, LeaseLost, QuestionNotFound
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import TABLE, Event, State, Ticket
from celery_supervise.migrating import Memories, OldJob, claim_migrated
from celery_supervise.model import Job, Lease, Moved, NodeKind, Submitted
from celery_supervise.options import Options
from celery_supervise.relay import Told, mark_settled
from celery_supervise.store.leases import ask_hand_over
from celery_supervise.store.sql import OUTCOMES
from celery_supervise.sweeps import EXPIRY, REAPING, SHELVING, Pass, Sweep, Sweeper
from example_project import embedded
from tests.postgres.looking import backdate, driven, lapse, row, rows, unchanged, watching
from tests.postgres.shop import Shop, failure, new_question, replacement, retry, stored
from tests.servers import created

HOUR = timedelta(hours=1)
ANN = "user:ann"

GRID = """
                  claim  checkpoint judge  ask    complete fail   retry  hand_over retry_late
pending           claim  nobody     nobody nobody nobody   nobody nobody nobody    nobody
pending_later     -      nobody     nobody nobody nobody   nobody nobody nobody    nobody
pending_paused    park   nobody     nobody nobody nobody   nobody nobody nobody    nobody
pending_late      expire nobody     nobody nobody nobody   nobody nobody nobody    nobody
running           -      checkpoint ok     ask    complete fail   retry  hand_over fail
running_paused    -      park       park   park   complete fail   retry  hand_over fail
running_cancelled -      cancel     cancel cancel cancel   cancel cancel cancel    cancel
running_late      -      expire     expire expire expire   expire expire expire    expire
running_leaving   -      checkpoint ok     ask    complete fail   retry  hand_over fail
asked             -      same       same   same   same     same   same   same      same
asked_paused      -      same       same   same   same     same   same   same      same
asked_late        -      same       same   same   same     same   same   same      same
asked_of_two      -      same       same   same   same     same   same   same      same
half_decided      -      same       same   same   same     same   same   same      same
paused            -      same       same   same   same     same   same   same      same
answered          claim  same       same   same   same     same   same   same      same
answered_paused   park   same       same   same   same     same   same   same      same
withdrawn         claim  same       same   same   same     same   same   same      same
resumed           claim  same       same   same   same     same   same   same      same
shelved           -      nobody     nobody nobody nobody   nobody nobody nobody    nobody
completed         -      stale      stale  stale  same     stale  stale  stale     stale
failed            -      stale      stale  stale  stale    same   stale  stale     stale
expired           -      same       same   same   same     same   same   same      same
cancelled         -      same       same   same   same     same   same   same      same

                  lose   reap   beat progress report expire settle register
pending           -      -      -    nobody   fail   -      -      nobody
pending_later     -      -      -    nobody   fail   -      -      nobody
pending_paused    -      -      -    nobody   fail   -      -      nobody
pending_late      -      -      -    nobody   expire expire -      nobody
running           lose   lose   ok   ok       -      -      -      ok
running_paused    lose   lose   ok   ok       -      -      -      ok
running_cancelled cancel cancel ok   ok       -      -      -      ok
running_late      expire expire ok   ok       -      expire -      ok
running_leaving   lose   lose   ok   ok       -      -      -      ok
asked             -      -      -    stale    -      -      -      stale
asked_paused      -      -      -    stale    -      -      -      stale
asked_late        -      -      -    stale    -      expire -      stale
asked_of_two      -      -      -    stale    -      -      -      stale
half_decided      -      -      -    stale    -      -      -      stale
paused            -      -      -    stale    -      -      -      stale
answered          -      -      -    stale    fail   -      -      stale
answered_paused   -      -      -    stale    fail   -      -      stale
withdrawn         -      -      -    stale    fail   -      -      stale
resumed           -      -      -    stale    fail   -      -      stale
shelved           -      -      -    nobody   -      -      -      nobody
completed         -      -      -    stale    -      -      settle stale
failed            -      -      -    stale    -      -      settle stale
expired           -      -      -    stale    -      -      settle stale
cancelled         -      -      -    stale    -      -      settle stale

                  answer            pause          resume           cancel         rerun
pending           absent            request_pause  !not_parked      request_cancel !not_final
pending_later     absent            request_pause  !not_parked      request_cancel !not_final
pending_paused    absent            same           withdraw_pause   request_cancel !not_final
pending_late      absent            request_pause  !not_parked      request_cancel !not_final
running           absent            request_pause  !not_parked      request_cancel !not_final
running_paused    absent            same           withdraw_pause   request_cancel !not_final
running_cancelled absent            request_pause  !not_parked      same           !not_final
running_late      absent            request_pause  !not_parked      request_cancel !not_final
running_leaving   absent            request_pause  !not_parked      request_cancel !not_final
asked             answer            request_pause  !question_open   request_cancel !not_final
asked_paused      answer            same           withdraw_pause   request_cancel !not_final
asked_late        !expired          request_pause  !question_open   request_cancel !not_final
asked_of_two      vote              request_pause  !question_open   request_cancel !not_final
half_decided      answer            request_pause  !question_open   request_cancel !not_final
paused            absent            same           resume           request_cancel !not_final
answered          !already_answered request_pause  !already_resumed request_cancel !not_final
answered_paused   !already_answered same           withdraw_pause   request_cancel !not_final
withdrawn         !question_closed  request_pause  !already_resumed request_cancel !not_final
resumed           absent            request_pause  !already_resumed request_cancel !not_final
shelved           absent            same           resume           request_cancel !not_final
completed         absent            !already_final !already_final   !already_final new
failed            absent            !already_final !already_final   !already_final new
expired           absent            !already_final !already_final   !already_final new
cancelled         absent            !already_final !already_final   !already_final new

                  terminate      reassign          withdraw
pending           request_cancel absent            absent
pending_later     request_cancel absent            absent
pending_paused    request_cancel absent            absent
pending_late      request_cancel absent            absent
running           request_cancel absent            absent
running_paused    request_cancel absent            absent
running_cancelled request_cancel absent            absent
running_late      request_cancel absent            absent
running_leaving   request_cancel absent            absent
asked             request_cancel reassign          withdraw
asked_paused      request_cancel reassign          withdraw
asked_late        request_cancel !expired          !expired
asked_of_two      request_cancel reassign          withdraw
half_decided      request_cancel reassign          withdraw
paused            request_cancel absent            absent
answered          request_cancel !already_answered !already_answered
answered_paused   request_cancel !already_answered !already_answered
withdrawn         request_cancel !question_closed  !question_closed
resumed           request_cancel absent            absent
shelved           request_cancel absent            absent
completed         !already_final absent            absent
failed            !already_final absent            absent
expired           !already_final absent            absent
cancelled         !already_final absent            absent

                  shelve take_up  migrate
pending           shelve -       claim
pending_later     -      -       -
pending_paused    shelve -       park
pending_late      -      -       expire
running           -      -       -
running_paused    -      -       -
running_cancelled -      -       -
running_late      -      -       -
running_leaving   -      -       -
asked             -      -       -
asked_paused      -      -       -
asked_late        -      -       -
asked_of_two      -      -       -
half_decided      -      -       -
paused            -      -       -
answered          shelve -       claim
answered_paused   shelve -       park
withdrawn         shelve -       claim
resumed           shelve -       claim
shelved           -      reissue -
completed         -      -       -
failed            -      -       -
expired           -      -       -
cancelled         -      -       -

                  extend         extend_question
pending           extend         absent
pending_later     extend         absent
pending_paused    extend         absent
pending_late      over           absent
running           extend         absent
running_paused    extend         absent
running_cancelled extend         absent
running_late      over           absent
running_leaving   extend         absent
asked             extend         extend
asked_paused      extend         extend
asked_late        over           over
asked_of_two      extend         extend
half_decided      extend         extend
paused            extend         absent
answered          extend         !already_answered
answered_paused   extend         !already_answered
withdrawn         extend         !question_closed
resumed           extend         absent
shelved           extend         absent
completed         !already_final absent
failed            !already_final absent
expired           !already_final absent
cancelled         !already_final absent

                  replace replace_plain
pending           nobody  nobody
pending_later     nobody  nobody
pending_paused    nobody  nobody
pending_late      nobody  nobody
running           replace replace_plain
running_paused    replace replace_plain
running_cancelled cancel  cancel
running_late      expire  expire
running_leaving   replace replace_plain
asked             same    same
asked_paused      same    same
asked_late        same    same
asked_of_two      same    same
half_decided      same    same
paused            same    same
answered          same    same
answered_paused   same    same
withdrawn         same    same
resumed           same    same
shelved           nobody  nobody
completed         stale   stale
failed            stale   stale
expired           same    same
cancelled         same    same

                  erase      kick
pending           !not_ended ok
pending_later     !not_ended !nothing_to_send
pending_paused    !not_ended !nothing_to_send
pending_late      !not_ended ok
running           !not_ended !nothing_to_send
running_paused    !not_ended !nothing_to_send
running_cancelled !not_ended !nothing_to_send
running_late      !not_ended !nothing_to_send
running_leaving   !not_ended !nothing_to_send
asked             !not_ended !nothing_to_send
asked_paused      !not_ended !nothing_to_send
asked_late        !not_ended !nothing_to_send
asked_of_two      !not_ended !nothing_to_send
half_decided      !not_ended !nothing_to_send
paused            !not_ended !nothing_to_send
answered          !not_ended ok
answered_paused   !not_ended !nothing_to_send
withdrawn         !not_ended ok
resumed           !not_ended ok
shelved           !not_ended !nothing_to_send
completed         !not_told  !nothing_to_send
failed            !not_told  !nothing_to_send
expired           !not_told  !nothing_to_send
cancelled         !not_told  !nothing_to_send
"""
"""What must come of it. The name of an event: the table's move. ``ok``: done, and nothing that a client sees moved.
``same``: told how things stand, nothing changed. ``-``: nothing found. ``absent``: no such question.
``new``: another job is made, of which the log tells.
``nobody``: there is no such attempt. ``stale``: the attempt is over, which is logged. ``!code``: a conflict; ``over``:
the conflict that its time is over, which moves nothing.
"""


def cells() -> Iterator[tuple[str, str, str]]:
    """The grid as (situation, operation, expected)."""
    for block in GRID.strip("\n").split("\n\n"):
        head, *lines = (line.split() for line in block.splitlines())
        for situation, *expected in lines:
            assert len(expected) == len(head), f"{situation}: a cell is missing"
            for operation, cell in zip(head, expected, strict=True):
                yield situation, operation, cell


# --- situations ------------------------------------------------------------------------------------------


@dataclass
class Case:
    """A job in some situation, and what somebody may still hold of it."""

    job_id: str
    holding: Holding
    question: UUID
    ticket: UUID


def of_job(shop: Shop, job_id: str, holding: Holding | None = None, question: UUID | None = None) -> Case:
    """The case of a job. Where nobody ever held it, somebody claims to."""
    return Case(job_id, holding or pretender(shop, job_id), question or uuid4(), shop.job(job_id).ticket_id or uuid4())


def pretender(shop: Shop, job_id: str) -> Holding:
    """An attempt that never was."""
    lease = shop.running().lease
    return Holding(shop.door, replace(lease, job_id=job_id, token=uuid4()), worker="pretender")


def pending(shop: Shop, **changes: Any) -> Case:
    """It waits for a worker."""
    return of_job(shop, shop.pending(deadline=HOUR, **changes).id)


def running(shop: Shop) -> Case:
    """A worker runs it."""
    holding = shop.running(deadline=HOUR)
    return of_job(shop, holding.lease.job_id, holding)


def asked(shop: Shop) -> Case:
    """It waits for an answer."""
    holding, question = shop.running(deadline=HOUR), new_question()
    holding.ask(question, ttl=HOUR)
    return of_job(shop, holding.lease.job_id, holding, question.id)


def asked_of_two(shop: Shop) -> Case:
    """It waits for two people to agree."""
    holding, question = shop.running(deadline=HOUR), new_question(approvals=2)
    holding.ask(question, ttl=HOUR)
    return of_job(shop, holding.lease.job_id, holding, question.id)


def half_decided(shop: Shop) -> Case:
    """It waits for one more."""
    case = asked_of_two(shop)
    shop.supervisor.answer(case.question, value=True, actor="user:bob")
    return of_job(shop, case.job_id, case.holding, case.question)


def answered(shop: Shop) -> Case:
    """It was answered and waits for a worker."""
    case = asked(shop)
    shop.supervisor.answer(case.question, value=True, actor=ANN)
    return of_job(shop, case.job_id, case.holding, case.question)


def withdrawn(shop: Shop) -> Case:
    """Its question was taken back, and it waits for a worker to ask anew."""
    case = asked(shop)
    shop.supervisor.withdraw(case.question, actor=ANN)
    return of_job(shop, case.job_id, case.holding, case.question)


def paused(shop: Shop) -> Case:
    """Somebody paused it."""
    case = pause(shop, running(shop))
    case.holding.checkpoint("here", NodeKind.STEP, stored("1"))
    return of_job(shop, case.job_id, case.holding)


def resumed(shop: Shop) -> Case:
    """It was told to go on and waits for a worker."""
    case = paused(shop)
    shop.supervisor.resume(case.job_id, actor=ANN)
    return of_job(shop, case.job_id, case.holding)


def ended(shop: Shop, state: State) -> Case:
    """It has ended so."""
    case = running(shop)
    if state is State.CANCELLED:
        shop.supervisor.cancel(case.job_id, actor=ANN)
    if state is State.EXPIRED:
        backdate(shop, case.job_id, "expires_at")
    case.holding.fail(failure()) if state is State.FAILED else case.holding.complete(stored('"done"'))
    assert shop.job(case.job_id).state is state
    return of_job(shop, case.job_id, case.holding)


def pause(shop: Shop, case: Case) -> Case:
    """And a pause is requested."""
    shop.supervisor.pause(case.job_id, actor=ANN)
    return case


def late(shop: Shop, case: Case, column: str = "expires_at") -> Case:
    """And its time is over."""
    backdate(shop, case.job_id, column)
    return case


def cancel(shop: Shop, case: Case) -> Case:
    """And a cancel is requested."""
    shop.supervisor.cancel(case.job_id, actor=ANN)
    return case


def leaving(shop: Shop, case: Case) -> Case:
    """And its worker is shutting down."""
    ask_hand_over(shop.door, shop.claimer.incarnation)
    return case


def sweep(shop: Shop, kind: Sweep, case: Case) -> list[Moved]:
    """One sweep of just this job."""
    return Sweeper(shop.door, period=HOUR)._move(Pass(kind), [case.job_id])


def shelve(shop: Shop, case: Case) -> list[Moved]:
    """Let a worker leave the job that cannot run it, for longer than the grace, then sweep."""
    if versions.leave(shop.door, case.job_id, case.ticket, versions=(2,), version=2):
        backdate(shop, case.job_id, "incompatible_since", by=24 * HOUR)
    return sweep(shop, SHELVING, case)


def shelved(shop: Shop) -> Case:
    """Parked, since no code could run it."""
    case = pending(shop)
    assert shelve(shop, case)
    return of_job(shop, case.job_id)


SITUATIONS: Mapping[str, Callable[[Shop], Case]] = {
    "pending": pending,
    "pending_later": lambda shop: pending(shop, due=HOUR / 2),
    "pending_paused": lambda shop: pause(shop, pending(shop)),
    "pending_late": lambda shop: late(shop, pending(shop)),
    "running": running,
    "running_paused": lambda shop: pause(shop, running(shop)),
    "running_cancelled": lambda shop: cancel(shop, running(shop)),
    "running_late": lambda shop: late(shop, running(shop)),
    "running_leaving": lambda shop: leaving(shop, running(shop)),
    "asked": asked,
    "asked_paused": lambda shop: pause(shop, asked(shop)),
    "asked_late": lambda shop: late(shop, asked(shop), "wait_until"),
    "asked_of_two": asked_of_two,
    "half_decided": half_decided,
    "paused": paused,
    "answered": answered,
    "answered_paused": lambda shop: pause(shop, answered(shop)),
    "withdrawn": withdrawn,
    "resumed": resumed,
    "shelved": shelved,
    "completed": lambda shop: ended(shop, State.COMPLETED),
    "failed": lambda shop: ended(shop, State.FAILED),
    "expired": lambda shop: ended(shop, State.EXPIRED),
    "cancelled": lambda shop: ended(shop, State.CANCELLED),
}


# --- operations ------------------------------------------------------------------------------------------


def reap(shop: Shop, case: Case) -> list[Moved]:
    """Let the lease end, then sweep."""
    lapse(shop, case.job_id)
    return sweep(shop, REAPING, case)


def take_up(shop: Shop, case: Case) -> list[Moved]:
    """Let a worker that can run the job look for such; other cases' jobs are left out."""
    return [moved for moved in versions.take_up(shop.door, {"shop.task": Options()}) if moved.job_id == case.job_id]


def migrate(shop: Shop, case: Case) -> object:
    """Let code of version 2 claim the job, with what its migration changes."""
    job = shop.job(case.job_id)
    old = OldJob(job.id, 1, job.run_id, job.node)
    changed = Memories(shop.door).migrated(old, lambda remembered: remembered.write("new", 1))
    return claim_migrated(shop.door, old, case.ticket, shop.claimer, version=2, changed=changed)


OPERATIONS: Mapping[str, Callable[[Shop, Case], object]] = {
    "claim": lambda shop, case: shop.supervisor.claim(case.job_id, case.ticket, shop.claimer),
    "checkpoint": lambda _, case: case.holding.checkpoint("next", NodeKind.STEP, stored("2")),
    "judge": lambda _, case: case.holding.judge(),
    "ask": lambda _, case: case.holding.ask(new_question("other"), ttl=HOUR),
    "complete": lambda _, case: case.holding.complete(stored('"done"')),
    "fail": lambda _, case: case.holding.fail(failure()),
    "retry": lambda _, case: case.holding.retry(retry(), failure()),
    "retry_late": lambda _, case: case.holding.retry(retry(2 * HOUR), failure()),
    "replace": lambda _, case: case.holding.replace(replacement()),
    "replace_plain": lambda _, case: case.holding.replace_plain("shop.plain"),
    "hand_over": lambda _, case: case.holding.hand_over(),
    "lose": lambda shop, case: shop.lose(case.holding),
    "reap": reap,
    "beat": lambda shop, case: shop.beat(case.holding),
    "progress": lambda _, case: case.holding.progress(1, 2, "half"),
    "register": lambda _, case: case.holding.register("file", stored()),
    "report": lambda shop, case: shop.supervisor.fail_waiting(
        case.job_id, case.ticket, failure(), reason="refused by the worker", actor="worker:w"
    ),
    "expire": lambda shop, case: sweep(shop, EXPIRY, case),
    "settle": lambda shop, case: mark_settled(
        shop.door, [Told(case.job_id, shop.job(case.job_id).settle_id or uuid4())], actor="relay"
    ),
    "answer": lambda shop, case: shop.supervisor.answer(case.question, value=True, actor=ANN),
    "reassign": lambda shop, case: shop.supervisor.reassign(case.question, to=["carl", "dora"], actor=ANN),
    "withdraw": lambda shop, case: shop.supervisor.withdraw(case.question, actor=ANN),
    "pause": lambda shop, case: shop.supervisor.pause(case.job_id, actor=ANN),
    "resume": lambda shop, case: shop.supervisor.resume(case.job_id, actor=ANN),
    "cancel": lambda shop, case: shop.supervisor.cancel(case.job_id, actor=ANN),
    "kick": lambda shop, case: shop.supervisor.kick(case.job_id, actor=ANN),
    "shelve": shelve,
    "take_up": take_up,
    "migrate": migrate,
    "terminate": lambda shop, case: shop.supervisor.cancel(case.job_id, actor=ANN, terminate=True),
    "rerun": lambda shop, case: shop.supervisor.rerun(case.job_id, actor=ANN),
    "extend": lambda shop, case: shop.supervisor.extend(case.job_id, by=HOUR, actor=ANN),
    "extend_question": lambda shop, case: shop.supervisor.extend_question(case.question, by=HOUR, actor=ANN),
    "erase": lambda shop, case: shop.supervisor.erase(case.job_id, actor=ANN),
}


@pytest.fixture(scope="module")
def engine(pg_server: embedded.Postgres, migrated: str) -> Iterator[Engine]:
    """One database for all: each case has a job of its own."""
    with created(pg_server, migrated) as database:
        engine = create_engine(driven(database.url))
        yield engine
        engine.dispose()


@pytest.fixture(scope="module")
def shop(engine: Engine) -> Iterator[Shop]:
    """One service; at the end all that was done has left every invariant whole."""
    shop = Shop(engine)
    yield shop
    assert invariants.check(shop.door) == []


@pytest.mark.parametrize(("situation", "operation", "cell"), list(cells()))
def test_situation_and_operation(shop: Shop, situation: str, operation: str, cell: str) -> None:
    """What the grid says happens, and nothing else: state, generation, log, ticket, attempt."""
    case = SITUATIONS[situation](shop)
    call = OPERATIONS[operation]
    if cell in Event._value2member_map_ and not (operation == "judge" and cell == "ok"):
        moves(shop, case, call, operation, Event(cell))
    elif cell == "ok":
        works(shop, case, call, operation)
    elif cell == "!expired":
        expires(shop, case, call)
    elif cell == "new":
        begins_anew(shop, case, call)
    elif cell == "stale":
        is_stale(shop, case, call)
    else:
        refuses(shop, case, call, cell)


def test_the_grid_is_whole() -> None:
    """Every situation with every operation, none twice."""
    found = [(situation, operation) for situation, operation, _ in cells()]
    assert len(found) == len(set(found)) == len(SITUATIONS) * len(OPERATIONS)


def moves(shop: Shop, case: Case, call: Callable[[Shop, Case], object], operation: str, event: Event) -> None:
    """Assert the table's move."""
    before = shop.job(case.job_id)
    with watching(shop, case.job_id) as seen:
        result = call(shop, case)
    after, move = shop.job(case.job_id), TABLE[before.state][event]
    assert after.state is move.to
    assert seen.generation == int(move.generation)
    assert seen.events == entries(operation, move.log)
    assert_ticket(move.ticket, before, after)
    assert_attempt(shop, case, before, after, event)
    assert_told(result, after)


def entries(operation: str, log: str | None) -> list[str]:
    """The log entries of a move: some operations log themselves before what they are judged to be."""
    own = {"lose": "lease_lost", "reap": "lease_lost", "checkpoint": "checkpoint"}.get(operation)
    after = "migrated" if operation == "migrate" and log == "claimed" else None
    return [entry for entry in (own if own != log else None, log, after) if entry]


def assert_ticket(ticket: Ticket, before: Job, after: Job) -> None:
    """The job's ticket is what the move says."""
    if ticket is Ticket.CLEAR:
        assert after.ticket_id is None
    elif ticket is Ticket.KEEP or (ticket is Ticket.ENSURE and before.ticket_id):
        assert after.ticket_id == before.ticket_id
    else:
        assert after.ticket_id not in (None, before.ticket_id)


def assert_attempt(shop: Shop, case: Case, before: Job, after: Job, event: Event) -> None:
    """An attempt that left running has ended as what it was judged to be; a new one is there after a claim."""
    attempts = shop.supervisor.attempts(case.job_id)
    if before.state is State.RUNNING and after.state is not State.RUNNING:
        assert attempts[-1].outcome == OUTCOMES[event]
        assert (attempts[-1].ended_at, after.current_token) == (rows(shop, "log", case.job_id)[-1]["at"], None)
    if after.state is State.RUNNING:
        assert (attempts[-1].token, attempts[-1].ended_at) == (after.current_token, None)


def assert_told(result: object, after: Job) -> None:
    """The caller is told the state and generation that the job has."""
    told = result[0] if isinstance(result, list) else result
    if isinstance(told, Moved):
        assert (told.state, told.generation, told.stop_reason) == (after.state, after.generation, after.stop_reason)
        assert told.changed
    else:
        assert isinstance(told, Lease) or told == after.id


def works(shop: Shop, case: Case, call: Callable[[Shop, Case], object], operation: str) -> None:
    """Assert that it is done, with nothing that a client would see as a change."""
    before = row(shop, case.job_id)
    with watching(shop, case.job_id) as seen:
        result = call(shop, case)
    after = row(shop, case.job_id)
    shown = {name for name in after if name.startswith("progress_")} if operation == "progress" else set()
    assert (seen.generation, seen.events) == (0, [])
    assert {name for name in after if after[name] != before[name]} <= shown
    assert result is None if operation in {"progress", "register"} else result


def begins_anew(shop: Shop, case: Case, call: Callable[[Shop, Case], object]) -> None:
    """Assert that another job is made, and that the old one only has this in its log."""
    before = row(shop, case.job_id)
    with watching(shop, case.job_id) as seen:
        made = call(shop, case)
    assert isinstance(made, Submitted)
    assert (seen.generation, seen.events, made.created) == (0, ["rerun"], True)
    assert row(shop, case.job_id) == {**before, "log_seq": before["log_seq"] + 1}
    assert (shop.job(made.job_id).state, shop.job(made.job_id).rerun_of) == (State.PENDING, case.job_id)


def is_stale(shop: Shop, case: Case, call: Callable[[Shop, Case], object]) -> None:
    """Assert that a late attempt is refused, and that only this is written."""
    before = row(shop, case.job_id)
    with watching(shop, case.job_id) as seen, pytest.raises(LeaseLost) as refused:
        call(shop, case)
    assert (seen.generation, seen.events) == (0, ["refused"])
    assert row(shop, case.job_id) == {**before, "log_seq": before["log_seq"] + 1}
    assert refused.value.state == before["current_state"]


def expires(shop: Shop, case: Case, call: Callable[[Shop, Case], object]) -> None:
    """Assert the one refusal that moves the job: an answer that is late ends it."""
    with watching(shop, case.job_id) as seen, pytest.raises(Conflict) as refused:
        call(shop, case)
    assert (refused.value.code, refused.value.state) == ("expired", State.EXPIRED)
    assert (seen.generation, seen.events) == (1, ["expired"])


def refuses(shop: Shop, case: Case, call: Callable[[Shop, Case], object], cell: str) -> None:
    """Assert that nothing at all changed, and how that is told."""
    errors: dict[str, type[BaseException]] = {"nobody": LeaseLost, "absent": QuestionNotFound}
    with unchanged(shop, case.job_id):
        if cell == "-":
            assert not call(shop, case)
        elif cell == "same":
            result = call(shop, case)
            assert isinstance(result, Moved)
            assert not result.changed
        else:
            with pytest.raises(errors.get(cell, Conflict)) as refused:
                call(shop, case)
            if isinstance(refused.value, Conflict):
                told = cell.replace("over", "!expired")
                assert (f"!{refused.value.code}", refused.value.state) == (told, shop.job(case.job_id).state)
