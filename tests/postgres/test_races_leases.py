"""Heartbeats, sweeps, losses and hand-overs against each other and against the attempts they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.sql import text

from celery_supervise import queries
from celery_supervise.errors import LeaseLost, QuestionClosed
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, NodeKind
from celery_supervise.relay import Relay, Told, mark_settled
from celery_supervise.store.door import Door
from celery_supervise.store.leases import HEARTBEAT, LOSE, REAP, RENEW_SETTLING, ask_hand_over
from celery_supervise.store.publishing import SETTLED, STAMP
from celery_supervise.store.time import EXPIRE
from celery_supervise.supervisor import Supervisor
from celery_supervise.sweeps import EXPIRY, REAPING, Pass, Sweep, Sweeper
from tests.postgres.races import PLANS, Call, OpenDoor, at_once, halted, pid_of, planning, row_held, waiter, waiters
from tests.postgres.shop import NO_TIME, Shop, new_question, stored
from tests.tools import wait_for

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


under_every_plan = pytest.mark.parametrize("engine", PLANS.values(), ids=PLANS, indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, database_url: str) -> Iterator[Engine]:
    """The engine of `shop`, whose sessions plan as the test wants."""
    with planning(database_url, getattr(request, "param", ())) as engine:
        yield engine


def sweep(shop: Shop, kind: Sweep) -> list[str]:
    """The jobs that one pass moved: its batches, without the question whether it should hold back."""
    return [change.job_id for change in Sweeper(shop.door, period=MINUTE)._run(Pass(kind), mass=False).moved]


def lapsed(shop: Shop, number: int = 1, **changes: Any) -> list[Holding]:
    """Attempts of one worker whose leases are over."""
    short = Shop(shop.engine, lease=NO_TIME, broker=shop.broker)
    short.claimer = shop.claimer
    leases = [short.running(**changes).lease for _ in range(number)]
    return [shop.supervisor.holding(lease, worker="worker@test") for lease in leases]


def heartbeat(shop: Shop, held: Sequence[Holding], door: Door | None = None) -> list[str]:
    """The jobs whose leases were renewed."""
    jobs = [holding.lease.job_id for holding in held]
    rows = (door or shop.door).all(HEARTBEAT, incarnation=shop.claimer.incarnation, job_ids=jobs)
    return [row["job_id"] for row in rows]


def lose(held: Holding, door: Door) -> Any:
    """What a worker's main process does when it saw the process of `held` die."""
    return door.one(
        LOSE,
        job_id=held.lease.job_id,
        token=held.lease.token,
        ticket_id=uuid4(),
        cause="exit code -9",
        actor="worker:test",
        settle_after=NO_TIME,
    )


# --- heartbeat and reap ----------------------------------------------------------------------------------


@under_every_plan
def test_a_lease_that_is_being_renewed_is_not_reaped(shop: Shop) -> None:
    """A reap that finds a lease over waits for the heartbeat that holds it, and then leaves it."""
    held = lapsed(shop)
    with shop.engine.connect() as connection, connection.begin():
        assert heartbeat(shop, held, OpenDoor(shop.door, connection))
        reap = Call(lambda: sweep(shop, REAPING))
        waiter(shop.engine, pid_of(connection))
    assert reap.outcome() == []
    assert held[0].complete(None).state is State.COMPLETED


@under_every_plan
def test_a_lease_that_was_renewed_after_the_sweep_saw_it_is_not_reaped(shop: Shop) -> None:
    """A heartbeat between a sweep's look and its move saves the attempt."""
    held = lapsed(shop)
    with halted(shop.engine, REAP) as halt:
        reap = Call(lambda: sweep(shop, REAPING))
        halt.reached(reap)
        assert heartbeat(shop, held) == [held[0].lease.job_id]
    assert reap.outcome() == []
    assert shop.job(held[0].lease.job_id).state is State.RUNNING


def test_a_heartbeat_does_not_wait_for_a_reap(shop: Shop) -> None:
    """A row that a sweep holds is skipped, which means "not known"; only an ended attempt is lost."""
    held = lapsed(shop)
    job_id = held[0].lease.job_id
    with halted(shop.engine, None) as halt:
        reap = Call(lambda: sweep(shop, REAPING))
        halt.reached(reap)
        assert heartbeat(shop, held) == []
        assert not ended(shop, job_id)
    assert reap.outcome() == [job_id]
    assert heartbeat(shop, held) == []
    assert ended(shop, job_id) == ["lost"]


def ended(shop: Shop, job_id: str) -> list[str]:
    """How this worker's attempts at a job ended, if they did."""
    own = [one for one in shop.supervisor.attempts(job_id) if one.incarnation == shop.claimer.incarnation]
    return [str(one.outcome) for one in own if one.ended_at is not None]


def test_heartbeats_and_reaps_of_many_neither_deadlock_nor_take_both(shop: Shop) -> None:
    """After an outage a worker renews and the sweeps reap the same attempts, each in its own order."""
    held = lapsed(shop, 60)
    for _ in range(10):
        heartbeat(shop, held, Shop(shop.engine, lease=NO_TIME).door)
        renewed, *reaped = at_once(
            [partial(heartbeat, shop, held[::-1]), partial(sweep, shop, REAPING), partial(sweep, shop, REAPING)]
        )
        taken = [job_id for part in reaped for job_id in part]
        assert sorted(renewed + taken) == sorted(holding.lease.job_id for holding in held)
        held = [holding for holding in held if holding.lease.job_id in renewed] + [shop.hold(job) for job in taken]


# --- reap and the holder ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda held: held.checkpoint("load", NodeKind.STEP, stored("1")),
        lambda held: held.ask(new_question(), ttl=HOUR),
        lambda held: held.complete(stored("1")),
        lambda held: held.hand_over(),
        lambda held: held.progress(1, 2, "half"),
    ],
    ids=["checkpoint", "ask", "complete", "hand-over", "progress"],
)
def test_s05_a_write_behind_the_reap_is_refused(shop: Shop, write: Callable[[Holding], object]) -> None:
    """What a frozen worker writes while its lease is being taken waits, and changes nothing but the log."""
    (held,) = lapsed(shop)
    job_id = held.lease.job_id
    with halted(shop.engine, REAP) as halt:
        reap = Call(lambda: sweep(shop, REAPING))
        pid = halt.reached(reap)
        late = Call(lambda: write(held))
        waiter(shop.engine, pid)
    assert reap.outcome() == [job_id]
    assert isinstance(late.outcome(), LeaseLost)
    assert shop.events(job_id) == ["submitted", "claimed", "lease_lost", "refused"]
    assert queries.nodes(shop.door, job_id, held.lease.run_id) == {}
    assert isinstance(shop.claim(job_id), Lease)


def test_a_reap_leaves_a_job_that_is_being_saved(shop: Shop) -> None:
    """A sweep does not wait for a checkpoint on its way, which renews the lease."""
    (held,) = lapsed(shop)
    with shop.engine.connect() as connection, connection.begin():
        saving = Holding(OpenDoor(shop.door, connection), held.lease, worker="w")
        saving.checkpoint("load", NodeKind.STEP, stored("1"))
        assert sweep(shop, REAPING) == []
    assert sweep(shop, REAPING) == []
    assert held.complete(None).state is State.COMPLETED


def test_a_loss_behind_the_reap_changes_nothing(shop: Shop) -> None:
    """A death that is reported while its lease is being taken is counted once."""
    (held,) = lapsed(shop)
    with halted(shop.engine, REAP) as halt:
        reap = Call(lambda: sweep(shop, REAPING))
        pid = halt.reached(reap)
        loss = Call(lambda: lose(held, shop.door))
        waiter(shop.engine, pid)
    assert reap.outcome() == [held.lease.job_id]
    assert loss.outcome() is None
    assert shop.job(held.lease.job_id).lost_count == 1


def test_a_reap_leaves_what_is_being_lost(shop: Shop) -> None:
    """A sweep does not wait for a loss that is being reported, and does not count it again."""
    (held,) = lapsed(shop)
    with shop.engine.connect() as connection, connection.begin():
        assert lose(held, OpenDoor(shop.door, connection))["current_state"] == State.PENDING
        assert sweep(shop, REAPING) == []
    assert sweep(shop, REAPING) == []
    assert shop.job(held.lease.job_id).lost_count == 1


# --- sweeps against sweeps -------------------------------------------------------------------------------


def test_s74_a_second_sweep_does_not_wait_for_the_first(shop: Shop) -> None:
    """Rows that one sweep holds are skipped by the other: one entry of a loss for each."""
    held = lapsed(shop, 3)
    with halted(shop.engine, REAP) as halt:
        first = Call(lambda: sweep(shop, REAPING))
        halt.reached(first)
        assert sweep(shop, REAPING) == []
    assert sorted(first.outcome()) == sorted(holding.lease.job_id for holding in held)
    assert [shop.job(holding.lease.job_id).lost_count for holding in held] == [1, 1, 1]


def test_s74_a_sweep_that_dies_in_its_batch_holds_nothing(shop: Shop) -> None:
    """When a sweep's session ends in the middle of its batch, another takes all of it at once."""
    held = lapsed(shop, 3)
    with halted(shop.engine, REAP) as halt:
        first = Call(lambda: sweep(shop, REAPING))
        with shop.engine.connect() as connection:
            connection.execute(text("SELECT pg_terminate_backend(:pid, 10000)"), {"pid": halt.reached(first)})
        assert sorted(sweep(shop, REAPING)) == sorted(holding.lease.job_id for holding in held)
    assert isinstance(first.outcome(), Exception)


def test_s18_sweeps_and_claims_at_once_run_each_job_once(shop: Shop) -> None:
    """Sweeps and workers that all start on the same lapsed jobs: each job is claimed once more, and no more."""
    held = lapsed(shop, 15)
    jobs = [holding.lease.job_id for holding in held]

    def claims() -> list[Any]:
        return [shop.claim(job_id) for job_id in jobs * 3]

    outcomes = at_once([*[lambda: sweep(shop, REAPING)] * 3, *[claims] * 3])
    leases = [lease for part in outcomes[3:] for lease in part if lease is not None]
    leases += [lease for job_id in jobs if (lease := shop.claim(job_id)) is not None]
    assert sorted(job_id for part in outcomes[:3] for job_id in part) == sorted(jobs)
    assert sorted(lease.job_id for lease in leases) == sorted(jobs)


# --- expiry ----------------------------------------------------------------------------------------------


@under_every_plan
def test_s07_an_answer_behind_the_sweep_is_late(shop: Shop) -> None:
    """An answer that waited for the sweep is told that the time was over, and is not stored."""
    question = shop.asked(ttl=timedelta(milliseconds=300))
    job_id = shop.job_of(question).id
    with halted(shop.engine, EXPIRE) as halt:
        expiry = Call(lambda: wait_for(lambda: sweep(shop, EXPIRY)))
        pid = halt.reached(expiry)
        answer = Call(lambda: shop.supervisor.answer(question.id, True, actor="user:ann"))
        waiter(shop.engine, pid)
    assert expiry.outcome() == [job_id]
    assert isinstance(answer.outcome(), QuestionClosed)
    assert answer.outcome().code == "expired"
    assert shop.supervisor.question(question.id).answer is None


def test_s07_a_sweep_leaves_a_question_that_is_being_answered(shop: Shop) -> None:
    """An answer that was in time is not taken back by a sweep that comes after the time, before the commit."""
    question = shop.asked(ttl=timedelta(seconds=1))
    job_id = shop.job_of(question).id
    with shop.engine.connect() as connection, connection.begin():
        Supervisor(OpenDoor(shop.door, connection)).answer(question.id, True, actor="user:ann")
        expires_at = shop.supervisor.question(question.id).expires_at
        wait_for(lambda: shop.door.all(queries.CLOCK)[0]["at"] > expires_at)
        assert sweep(shop, EXPIRY) == []
    assert sweep(shop, EXPIRY) == []
    assert isinstance(shop.claim(job_id), Lease)


@under_every_plan
def test_a_complete_behind_the_sweep_has_expired(shop: Shop) -> None:
    """A result that waited for the sweep finds the job expired, without a second end."""
    held = shop.running(max_active=timedelta(milliseconds=100))
    with halted(shop.engine, EXPIRE) as halt:
        expiry = Call(lambda: wait_for(lambda: sweep(shop, EXPIRY)))
        pid = halt.reached(expiry)
        complete = Call(lambda: held.complete(stored("1")))
        waiter(shop.engine, pid)
    assert expiry.outcome() == [held.lease.job_id]
    assert complete.outcome().state is State.EXPIRED
    assert shop.events(held.lease.job_id).count("expired") == 1


# --- hand-over -------------------------------------------------------------------------------------------


@pytest.fixture
def by_place(database_url: str) -> Iterator[Shop]:
    """Statements that come to rows in the order in which they lie."""
    with planning(database_url, ["indexscan", "bitmapscan", "nestloop"]) as engine:
        yield Shop(engine)


@pytest.fixture
def by_id(database_url: str) -> Iterator[Shop]:
    """Statements that come to rows in the order of their jobs' ids."""
    with planning(database_url, ["seqscan", "hashjoin", "mergejoin"]) as engine:
        yield Shop(engine)


def test_a_hand_over_of_many_and_a_reap_do_not_deadlock(shop: Shop, by_place: Shop, by_id: Shop) -> None:
    """A worker that shuts down flags its attempts while a sweep takes some of them: under plans of opposite order."""
    lapsed(shop, job_id="z")
    live = shop.running(job_id="m")
    lapsed(shop, job_id="a")
    with row_held(shop.engine, "attempts", "token", live.lease.token) as gate:
        flags = Call(lambda: ask_hand_over(by_place.door, shop.claimer.incarnation))
        flagging = waiter(shop.engine, gate)
        reap = Call(lambda: sweep(by_id, REAPING))
        wait_for(lambda: not reap.running or waiters(shop.engine, flagging))
    assert sorted(reap.outcome()) == ["a", "z"]
    assert "m" in flags.outcome()


@under_every_plan
def test_a_checkpoint_sees_a_hand_over_flagged_while_it_waited(shop: Shop) -> None:
    """The flag is read from the attempt's newest row, so that the worker stops within one step."""
    held = shop.running()
    token = held.lease.token
    with row_held(shop.engine, "attempts", "token", token) as gate:
        flag = Call(lambda: ask_hand_over(shop.door, shop.claimer.incarnation))
        flagging = waiter(shop.engine, gate)
        save = Call(lambda: held.checkpoint("load", NodeKind.STEP, stored("1")))
        waiter(shop.engine, flagging)
    assert flag.outcome() == [held.lease.job_id]
    assert save.outcome().hand_over


# --- the relay and sweeps --------------------------------------------------------------------------------


def test_a_relay_that_stamps_many_and_a_sweep_do_not_deadlock(shop: Shop, by_place: Shop, by_id: Shop) -> None:
    """A relay marks what it sent while a sweep ends some of those jobs: under plans of opposite order."""
    soon = timedelta(milliseconds=1)
    jobs = [shop.pending(job_id="z", deadline=soon), shop.pending(job_id="m"), shop.pending(job_id="a", deadline=soon)]
    tickets = [job.ticket_id for job in jobs]
    with row_held(shop.engine, "outbox", "id", tickets[1]) as gate:
        stamps = Call(lambda: by_place.door.all(STAMP, ids=tickets))
        wait_for(lambda: waiters(shop.engine, gate) or not stamps.running)
        expiry = Call(lambda: sweep(by_id, EXPIRY))
        wait_for(lambda: not expiry.running or any(waiters(shop.engine, pid) for pid in waiters(shop.engine, gate)))
    assert sorted(expiry.outcome()) == ["a", "z"]
    assert isinstance(stamps.outcome(), list)


# --- settling --------------------------------------------------------------------------------------------


def unsettled(shop: Shop) -> str:
    """A job that completed, and of which somebody else may tell Celery at once."""
    short = Shop(shop.engine, lease=NO_TIME, broker=shop.broker)
    short.claimer = shop.claimer
    return short.ended(State.COMPLETED).id


def settle(shop: Shop) -> int:
    """How many jobs one pass of a relay settled."""
    return Relay(shop.door, shop.broker, settling=NO_TIME).run_once().settled


def mark(shop: Shop, job_id: str) -> list[str]:
    """What a worker's main process does when its own child has told Celery."""
    return mark_settled(shop.door, [Told(job_id)], actor="worker", incarnation=shop.claimer.incarnation)


def test_two_relays_settle_a_job_once(shop: Shop) -> None:
    """Of two tellers the second finds nothing while the first is telling."""
    job_id = unsettled(shop)
    with halted(shop.engine, SETTLED) as halt:
        first = Call(lambda: settle(shop))
        halt.reached(first)
        assert settle(shop) == 0
    assert first.outcome() == 1
    assert [settlement.job.id for settlement in shop.broker.told] == [job_id]
    assert shop.events(job_id).count("settled") == 1


def test_a_teller_that_was_too_slow_settles_nothing(shop: Shop) -> None:
    """A worker whose time to tell is over, and a relay that took it over: one of them settles the job."""
    job_id = unsettled(shop)
    with halted(shop.engine, SETTLED) as halt:
        relay = Call(lambda: settle(shop))
        halt.reached(relay)
        assert mark(shop, job_id) == []
    assert relay.outcome() == 1
    assert shop.events(job_id).count("settled") == 1


def test_a_teller_that_is_still_at_it_keeps_others_away(shop: Shop) -> None:
    """A relay does not wait for a main process that is renewing its time to tell, and then finds it renewed."""
    job_id = unsettled(shop)
    with shop.engine.connect() as connection, connection.begin():
        params = {"incarnation": shop.claimer.incarnation, "job_ids": [job_id]}
        assert OpenDoor(shop.door, connection).all(RENEW_SETTLING, **params)
        assert settle(shop) == 0
    assert settle(shop) == 0
    assert mark(shop, job_id) == [job_id]


def test_many_tellers_settle_a_job_once(shop: Shop) -> None:
    """Relays and a main process that all come at once leave one entry."""
    job_id = unsettled(shop)
    relays = [lambda: settle(shop)] * 4
    outcomes = at_once([*relays, *[lambda: len(mark(shop, job_id))] * 4])
    assert sum(outcomes) == 1
    assert shop.events(job_id).count("settled") == 1
