"""Postgres that is away, restarts, or makes everybody wait: nothing is lost, nobody hangs, what can go on does."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from celery_supervise import queries
from celery_supervise.engine import create_engine
from celery_supervise.errors import Conflict, DatabaseUnavailable, SuperviseError
from celery_supervise.lifecycle import State
from celery_supervise.model import Depth, Message, NodeKind, Settlement
from celery_supervise.relay import Relay
from celery_supervise.sweeps import REAPING, Pass, Sweeper, run_all
from example_project import embedded
from tests.postgres.operations import HOLDERS, NOT_OF_HOLDERS, ON_A_ROW, Operation, picture, said, undisturbed
from tests.postgres.races import IDLE_IN_TRANSACTION, Call, row_held, waiter
from tests.postgres.shop import NO_TIME, Broker, Shop, new_job, stored
from tests.tools import wait_for

BOUND = timedelta(milliseconds=300)
"""How long a call waits for a row here."""


# --- a row that somebody holds ---------------------------------------------------------------------------


@pytest.fixture
def failures(shop: Shop) -> list[object]:
    """The errors that the shop's connections have had."""
    seen: list[object] = []
    sa.event.listen(shop.engine, "handle_error", seen.append)
    return seen


@pytest.mark.parametrize("operation", [each for each in NOT_OF_HOLDERS if each in ON_A_ROW], ids=str)
def test_a_call_on_a_held_row_is_told_busy(shop: Shop, operation: Operation) -> None:
    """Somebody who waits for a row waits for a bounded time, and is told to try again; nothing has changed."""
    shop.door.lock_timeout = BOUND
    subject = operation.prepare(shop)
    before = picture(shop, subject.job_id)
    with row_held(shop.engine, "jobs", "id", subject.job_id), pytest.raises(Conflict) as refused:
        operation.call(shop, subject)
    assert refused.value.code == "busy"
    assert picture(shop, subject.job_id) == before


def test_a_submit_behind_one_that_does_not_commit_is_told_busy(shop: Shop) -> None:
    """An id that an open transaction has taken is waited for a bounded time."""
    shop.door.lock_timeout = BOUND
    job = new_job()
    with shop.engine.connect() as connection:
        shop.supervisor.submit(job, session=connection)
        with pytest.raises(Conflict) as refused:
            shop.supervisor.submit(job)
        connection.rollback()
    assert refused.value.code == "busy"
    assert shop.supervisor.submit(job).created


@pytest.mark.parametrize("operation", HOLDERS, ids=str)
def test_a_holder_waits_for_a_held_row(shop: Shop, failures: list[object], operation: Operation) -> None:
    """What an attempt commits is tried again after each bounded wait, and done once the row is free."""
    wanted, told = undisturbed(shop, operation)
    subject = operation.prepare(shop)
    shop.door.lock_timeout = BOUND
    with row_held(shop.engine, "jobs", "id", subject.job_id) as gate:
        call = Call(lambda: operation.call(shop, subject))
        wait_for(lambda: failures)
        waiter(shop.engine, gate)
    assert said(call.outcome()) == said(told)
    assert picture(shop, subject.job_id) == wanted


def test_a_sweep_goes_round_what_somebody_holds(shop: Shop) -> None:
    """One attempt whose row is held for long does not keep a sweep from the others; a lease later it is tried again."""
    short = Shop(shop.engine, lease=NO_TIME, lock_timeout=BOUND)
    jobs = [short.running().lease for _ in range(3)]
    sweeper = Sweeper(short.door, period=timedelta(minutes=1))
    with row_held(shop.engine, "attempts", "token", jobs[1].token):
        sweeper._run(Pass(REAPING), mass=False)
        states = [shop.job(lease.job_id).state for lease in jobs]
    assert states == [State.PENDING, State.RUNNING, State.PENDING]
    assert [change.job_id for change in sweeper._run(Pass(REAPING), mass=False).moved] == [jobs[1].job_id]


# --- restarts --------------------------------------------------------------------------------------------


def test_a_holder_outlives_a_restart(shop: Shop, pg_server: embedded.Postgres) -> None:
    """Postgres is killed and recovers while a body saves: what it was told is saved is there, and it completes."""
    held = shop.running()
    saved: list[str] = []

    def body() -> State:
        for number in range(1000):
            held.checkpoint(f"step-{number}", NodeKind.STEP, stored(str(number)))
            saved.append(f"step-{number}")
            if restarted.is_set() and number > 20:
                break
        return held.complete(stored('"done"')).state

    restarted = threading.Event()
    call = Call(body)
    wait_for(lambda: len(saved) > 5)
    pg_server.restart("immediate")
    restarted.set()
    assert call.outcome() is State.COMPLETED
    assert list(queries.nodes(shop.door, held.lease.job_id, held.lease.run_id)) == saved


def test_people_outlive_a_restart(shop: Shop, pg_server: embedded.Postgres) -> None:
    """Connections that died in the pool cost nobody an error: each call finds out and uses another."""
    question, job, paused, ended = shop.asked(), shop.pending(), shop.paused(), shop.pending()
    for call in (
        lambda: shop.supervisor.answer(question.id, True, actor="user:ann"),
        lambda: shop.supervisor.resume(paused.id, actor="user:ann"),
        lambda: shop.supervisor.pause(job.id, actor="user:ann"),
        lambda: shop.supervisor.cancel(ended.id, actor="user:ann"),
        lambda: shop.supervisor.submit(new_job()),
        lambda: shop.supervisor.job(job.id),
    ):
        pg_server.restart("immediate")
        call()


def test_calls_without_a_database_are_told_at_once(shop: Shop, pg_server: embedded.Postgres) -> None:
    """While Postgres is down every call says so; when it is back the same process goes on."""
    job = shop.pending()
    shop.engine.dispose()
    pg_server.stop()
    try:
        for call in (lambda: shop.supervisor.cancel(job.id, actor="user:ann"), lambda: shop.supervisor.job(job.id)):
            with pytest.raises(DatabaseUnavailable):
                call()
    finally:
        pg_server.start()
    assert shop.supervisor.cancel(job.id, actor="user:ann").state is State.CANCELLED


def test_s19_a_restart_in_the_middle_of_recovery(shop: Shop, pg_server: embedded.Postgres) -> None:
    """250 lost attempts, and Postgres is killed while they are reaped: the next passes take the rest."""
    number, lease = 250, timedelta(seconds=1)
    short = Shop(shop.engine, lease=NO_TIME, broker=shop.broker)
    jobs = [short.running().lease.job_id for _ in range(number)]
    recovering = Recovery(Shop(shop.engine, lease=lease, broker=shop.broker))
    call = Call(lambda: recovering.until(number))
    wait_for(lambda: recovering.moved)
    pg_server.restart("immediate")
    assert call.outcome() is None
    assert sorted(recovering.moved) == sorted(jobs)
    assert {shop.job(job_id).lost_count for job_id in jobs} == {1}
    assert {shop.hold(job_id).complete(None).state for job_id in jobs} == {State.COMPLETED}


class Recovery:
    """A process that sweeps again and again, whatever happens."""

    def __init__(self, shop: Shop) -> None:
        self.sweeper = Sweeper(shop.door, period=timedelta(seconds=0.1))
        self.moved: list[str] = []
        self.held: set[str | None] = set()
        self.errors: list[SuperviseError] = []

    def until(self, number: int) -> None:
        """Sweep until so many jobs have been moved."""
        while len(self.moved) < number:
            self.once()

    def once(self) -> None:
        """One pass; an outage ends it, and the next one is tried."""
        try:
            swept = self.sweeper.run_once(REAPING)
        except SuperviseError as error:
            self.errors.append(error)
            return
        self.held.add(swept.held)
        self.moved += [change.job_id for change in swept.moved]


@pytest.mark.parametrize("driver", ["postgresql+psycopg2", "postgresql+psycopg"])
def test_a_connection_that_was_closed_in_the_pool_is_told_and_replaced(database_url: str, driver: str) -> None:
    """What the driver says of such a connection is an error of ours, and the next call uses another one."""
    engine = create_engine(make_url(database_url).set(drivername=driver))
    shop = Shop(engine)
    job = shop.pending()
    with engine.connect() as connection:
        pooled = connection.connection.dbapi_connection
    assert pooled is not None
    pooled.close()
    with pytest.raises(DatabaseUnavailable):
        shop.supervisor.pause(job.id, actor="user:ann")
    assert shop.supervisor.pause(job.id, actor="user:ann").pause_requested
    engine.dispose()


# --- transactions that stay open -------------------------------------------------------------------------


class Watcher(Broker):
    """A broker that looks, whenever it is called, for sessions that wait with a transaction open."""

    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self._engine = shop.engine
        self.callers: set[str] = set()
        self.open: list[str] = []

    def look(self, caller: str) -> None:
        """What the library is calling, and what its sessions are at meanwhile."""
        self.callers.add(caller)
        with self._engine.connect() as connection:
            self.open += connection.execute(IDLE_IN_TRANSACTION).scalars()

    def publish(self, message: Message) -> None:
        """Look, and keep it."""
        self.look("publish")
        super().publish(message)

    def tell(self, settlement: Settlement) -> bool:
        """Likewise."""
        self.look("tell")
        return super().tell(settlement)

    def depth(self, queue: str) -> Depth | None:
        """Likewise."""
        self.look("depth")
        return super().depth(queue)


def test_s77_no_transaction_is_open_while_others_are_called(shop: Shop) -> None:
    """Bodies, the broker and whoever is told of a sweep run while no session of the library waits in a transaction."""
    watcher = Watcher(shop)
    shop = Shop(shop.engine, broker=watcher)
    question, paused = shop.asked(), shop.paused()
    shop.supervisor.answer(question.id, True, actor="user:ann")
    shop.supervisor.resume(paused.id, actor="user:ann")
    held = shop.hold(paused.id)
    held.checkpoint("again", NodeKind.STEP, stored("1"))
    watcher.look("body")
    shop.supervisor.cancel(shop.pending().id, actor="user:ann")
    Shop(shop.engine, lease=NO_TIME, broker=Broker()).running()
    quick = Shop(shop.engine, lease=timedelta(milliseconds=1)).door
    run_all(Sweeper(quick, period=timedelta(minutes=1)), then=lambda _: watcher.look("told of a sweep"))
    relay = Relay(shop.door, watcher, settling=NO_TIME)
    relay.run_once()
    relay.find_lost()
    held.complete(stored("1"))
    assert watcher.callers == {"publish", "body", "told of a sweep", "tell", "depth"}
    assert watcher.open == []


def test_the_watcher_sees_an_open_transaction(shop: Shop) -> None:
    """What the test above looks for is seen where it is."""
    watcher = Watcher(shop)
    with row_held(shop.engine, "jobs", "id", shop.pending().id):
        watcher.look("test")
    assert len(watcher.open) == 1
