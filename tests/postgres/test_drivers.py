"""Every statement with every driver, and where the database's own default is another isolation level."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from celery_supervise import invariants, queries
from celery_supervise.engine import create_engine
from celery_supervise.errors import Conflict, LeaseLost
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.relay import Relay, Told, mark_settled
from celery_supervise.store import births, health, holder, leases, people, publishing
from celery_supervise.store import time as over
from celery_supervise.store.plans import PARAMETER
from celery_supervise.store.sql import Statement
from celery_supervise.sweeps import EXPIRY, REAPING, run_all
from tests.postgres.looking import backdate, driven, execute, lapse
from tests.postgres.shop import Shop, failure, new_job, new_question, retry, stored
from tests.servers import Database

HOUR = timedelta(hours=1)
ANN, BOB = "user:ann", "user:bob"
LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture(params=["psycopg2", "psycopg"])
def driver(request: pytest.FixtureRequest) -> str:
    """Each driver that a shop may use."""
    name: str = request.param
    return name


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    """Each level that a database may have as its default."""
    name: str = request.param
    return name


@pytest.fixture
def engine(database: Database, driver: str, level: str) -> Iterator[Engine]:
    """An engine of this driver on a database with this default."""
    owner = create_engine(database.owner_url)
    with owner.begin() as connection:
        name = connection.exec_driver_sql("SELECT quote_ident(current_database())").scalar()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")
    owner.dispose()
    engine = create_engine(driven(database.url, driver), pool_size=5, max_overflow=20)
    yield engine
    engine.dispose()


def test_a_whole_life(shop: Shop, engine: Engine, driver: str, level: str) -> None:
    """Submitted, run, asked, reassigned, answered, paused, resumed, asked anew, voted, retried, lost, completed."""
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW default_transaction_isolation").scalar() == level
        assert engine.driver == driver
    job_id = asked_and_paused(shop)
    asked_anew_and_retried(shop, job_id)
    lost_and_completed(shop, job_id)
    assert shop.supervisor.log(job_id, page=3).total_count == len(shop.events(job_id)) == 21
    assert shop.supervisor.jobs(owner="acme", states=[State.COMPLETED], prefix="j")[1] == 1


def asked_and_paused(shop: Shop) -> str:
    """A job that was asked and answered, then paused, then told to go on."""
    job = shop.pending(
        job_id="jöb", owner_id="acme", idempotency_key="k", deadline=HOUR, max_active=HOUR, start_by=HOUR, priority=1
    )
    assert not shop.supervisor.submit(new_job(owner_id="acme", idempotency_key="k")).created
    question = new_question(to=("user:dora",), remind_before=timedelta(minutes=1))
    holding = shop.hold(job.id)
    holding.checkpoint("load", NodeKind.STEP, stored("[1]"))
    holding.progress(1, 2, "half")
    holding.ask(question, ttl=HOUR)
    shop.supervisor.reassign(question.id, to=["bob", "carl"], actor=ANN, why="dora is ill", expected_generation=3)
    shop.supervisor.answer(question.id, value=True, actor=BOB, seen=question.digest, expected_generation=4)
    shop.supervisor.pause(job.id, actor=ANN)
    assert shop.claim(job.id)
    shop.supervisor.resume(job.id, actor=ANN)
    return job.id


def asked_anew_and_retried(shop: Shop, job_id: str) -> None:
    """The answered question is asked with other content; after its answer the body wants a retry."""
    (answered,) = shop.supervisor.questions(job_id=job_id)
    holding, again = shop.hold(job_id), new_question(digest="other", approvals=2)
    assert queries.values(shop.door, job_id, holding.lease.run_id, ["load"]) == {"load": stored("[1]")}
    holding.ask(again, ttl=HOUR, supersedes=answered.id)
    for actor in (BOB, "user:carl"):
        shop.supervisor.answer(again.id, value=False, actor=actor)
    shop.hold(job_id).retry(retry(), failure())


def lost_and_completed(shop: Shop, job_id: str) -> None:
    """One attempt loses its lease, the next completes and is told of."""
    lost = shop.hold(job_id)
    assert shop.beat(lost) == [job_id]
    assert leases.ask_hand_over(shop.door, shop.claimer.incarnation) == [job_id]
    lapse(shop, job_id)
    assert [moved.job_id for moved in shop.reap().moved] == [job_id]
    with pytest.raises(LeaseLost):
        lost.complete(None)
    holding = shop.hold(job_id)
    assert holding.complete(stored('"done"')).state is State.COMPLETED
    assert mark_settled(shop.door, [Told(job_id, holding.lease.token, failed=False)], actor="w") == [job_id]


@pytest.mark.parametrize("level", ["read committed", "repeatable read"], indirect=True)
def test_other_ends(shop: Shop) -> None:
    """Failed, cancelled, expired, reported, given up, told by the relay, found lost."""
    relay = Relay(shop.door, shop.broker, settling=timedelta(0))
    for state in (State.FAILED, State.CANCELLED, State.EXPIRED):
        shop.ended(state)
    asked = shop.asked()
    shop.supervisor.withdraw(asked.id, actor=ANN, why="wrong")
    shop.supervisor.cancel(shop.job_of(asked).id, actor=ANN, why="enough")
    late = shop.asked(ttl=timedelta(microseconds=1))
    assert [moved.job_id for moved in shop.expire().moved] == [shop.job_of(late).id]
    with pytest.raises(Conflict):
        shop.supervisor.answer(late.id, value=True, actor=ANN)
    reported = shop.pending()
    assert reported.ticket_id is not None
    assert shop.supervisor.fail_waiting(reported.id, reported.ticket_id, failure(), reason="x", actor="w")
    given_up = shop.running(lost_limit=1)
    assert shop.lose(given_up)
    execute(shop, "UPDATE supervise.jobs SET settle_due_at = clock_timestamp() WHERE settle_id IS NOT NULL")
    shop.pending(due=HOUR)
    waiting = shop.pending()
    shop.broker.flush()
    assert (relay.find_lost(), relay.find_lost()) == (0, 1)
    done = relay.run_once()
    assert (done.published, done.settled) == (1, 7)
    assert [message.job_id for message in shop.broker.messages] == [waiting.id]
    assert run_all(shop.sweeper(), force=True)


def test_in_the_callers_transaction(shop: Shop, engine: Engine) -> None:
    """Joined with whatever level the caller's transaction has."""
    question, paused, holding = shop.asked(), shop.paused(), shop.running()
    of_two = shop.asked(question=new_question(approvals=2))
    with engine.begin() as connection:
        shop.supervisor.submit(job := new_job(), session=connection)
        shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
        for actor in (ANN, BOB):
            shop.supervisor.answer(of_two.id, value=True, actor=actor, session=connection)
        shop.supervisor.resume(paused.id, actor=ANN, session=connection)
        holding.checkpoint("x", NodeKind.STEP, stored("1"), joined=connection)
    assert shop.job(job.id).state is State.PENDING
    assert shop.job_of(question).stop_reason == shop.job_of(of_two).stop_reason == "answered:approve"
    assert shop.job(paused.id).stop_reason == "resume_requested:user_paused"
    assert shop.job(holding.lease.job_id).node == "x"


def test_a_claim_judged_at_read_committed(shop: Shop, engine: Engine, level: str) -> None:
    """Our own statements see the newest row after a wait, whatever the database's default is."""
    assert level in LEVELS
    job = shop.pending()
    with engine.begin() as other:
        other.execute(sa.text("SELECT FROM supervise.jobs WHERE id = :id FOR NO KEY UPDATE"), {"id": job.id})
        with pytest.raises(Conflict) as refused:
            Shop(engine, lock_timeout=timedelta(milliseconds=20)).supervisor.cancel(job.id, actor=ANN)
    assert refused.value.code == "busy"
    assert shop.supervisor.cancel(job.id, actor=ANN).state is State.CANCELLED


@pytest.mark.parametrize("level", ["read committed"], indirect=True)
def test_every_statement_can_be_planned(shop: Shop, driver: str) -> None:
    """Each statement of the store and each read is understood by the server with this driver's parameters."""
    modules = (births, holder, leases, over, people, publishing, health, queries, invariants)
    statements = {one.name: one for module in modules for one in vars(module).values() if isinstance(one, Statement)}
    statements |= {rule.query.name: rule.query for rule in invariants.INVARIANTS}
    assert len(statements) > 60
    with shop.engine.connect() as connection:
        for statement in statements.values():
            text = sa.text("EXPLAIN " + statement.render('"supervise"', joined=False))
            names = PARAMETER.findall(text.text)
            connection.execute(text, {name: SAMPLES.get(name) for name in names})
    assert driver in ("psycopg2", "psycopg")


SAMPLES = {"batch": 1, "page": 1, "skip": 0, "lock_timeout": "1s", "namespace": "default", "job_ids": ["a"]}


def test_names_of_the_sweeps(shop: Shop) -> None:
    """Both sweeps run with this driver."""
    for sweep in (EXPIRY, REAPING):
        assert shop.sweep(sweep).ran
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    assert [moved.job_id for moved in shop.expire().moved] == [job.id]
