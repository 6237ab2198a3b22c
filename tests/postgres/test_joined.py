"""Joined calls: submit, answer, resume and a checkpoint in the caller's own transaction, all or nothing with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from celery_supervise.errors import (
    Conflict,
    InvalidAnswer,
    InvalidInput,
    JobExists,
    JobNotFound,
    LeaseLost,
    QuestionChanged,
    QuestionClosed,
    QuestionNotFound,
)
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.relay import Relay
from tests.postgres.looking import backdate, execute, rows, unchanged, watching
from tests.postgres.shop import Shop, new_job, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
SHOPS_OWN = "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY)"


@pytest.fixture
def connection(engine: Engine, database_owner: Engine) -> Iterator[Connection]:
    """A connection of the shop's own, to a table of its own."""
    with database_owner.begin() as owner:
        owner.exec_driver_sql(SHOPS_OWN)
        owner.exec_driver_sql("GRANT ALL ON orders TO PUBLIC")
    with engine.connect() as connection:
        yield connection


def order(connection: Connection, name: str) -> None:
    """Something that the shop writes in its transaction."""
    connection.execute(sa.text("INSERT INTO orders VALUES (:name)"), {"name": name})


def orders(shop: Shop) -> list[str]:
    """What the shop has committed."""
    return [one["id"] for one in execute(shop, "SELECT id FROM orders ORDER BY id")]


def relayed(shop: Shop) -> list[str]:
    """The jobs whose messages the relay's next pass sends."""
    shop.broker.flush()
    Relay(shop.door, shop.broker, settling=HOUR).run_once()
    return [message.job_id for message in shop.broker.messages]


@contextmanager
def holding_the_row(engine: Engine, job_id: str) -> Iterator[None]:
    """Another session is in the middle of an operation on the job."""
    with engine.begin() as other:
        other.execute(sa.text("SELECT FROM supervise.jobs WHERE id = :id FOR NO KEY UPDATE"), {"id": job_id})
        yield


# --- submit ----------------------------------------------------------------------------------------------


def test_s60_a_job_is_accepted_with_the_callers_commit(shop: Shop, connection: Connection) -> None:
    """Before the commit nobody sees it and nothing is sent; after it the relay's next pass sends it."""
    job = new_job()
    order(connection, "o1")
    made = shop.supervisor.submit(job, session=connection)
    assert (made.job_id, made.state, made.created) == (job.id, State.PENDING, True)
    with pytest.raises(JobNotFound):
        shop.supervisor.job(job.id)
    assert shop.broker.messages == []
    assert relayed(shop) == []
    connection.commit()
    assert shop.job(job.id).state is State.PENDING
    assert shop.broker.messages == []
    assert relayed(shop) == [job.id]
    assert orders(shop) == ["o1"]


def test_s60_a_rollback_leaves_nothing(shop: Shop, connection: Connection) -> None:
    """No row, no message, and the id is free again."""
    job = new_job()
    order(connection, "o1")
    shop.supervisor.submit(job, session=connection)
    connection.rollback()
    assert relayed(shop) == []
    assert (orders(shop), rows(shop, "jobs", job.id), rows(shop, "log", job.id)) == ([], [], [])
    assert shop.supervisor.submit(job).created


def test_a_session_is_as_good_as_a_connection(shop: Shop, connection: Connection) -> None:
    """SQLAlchemy's Session, with its own pending writes, in one transaction."""
    job = new_job()
    with Session(connection) as session:
        session.execute(sa.text("INSERT INTO orders VALUES ('o1')"))
        shop.supervisor.submit(job, session=session)
        session.commit()
    connection.commit()
    assert (shop.job(job.id).state, orders(shop)) == (State.PENDING, ["o1"])


def test_a_savepoint_can_take_it_back(shop: Shop, connection: Connection) -> None:
    """Rolled back to a savepoint, the job is gone and the rest stays."""
    order(connection, "o1")
    inner = connection.begin_nested()
    shop.supervisor.submit(job := new_job(), session=connection)
    inner.rollback()
    connection.commit()
    assert (rows(shop, "jobs", job.id), orders(shop)) == ([], ["o1"])


def test_a_refused_submit_leaves_the_transaction_usable(shop: Shop, connection: Connection) -> None:
    """A refusal is zero rows, never an SQL error: what the shop wrote can still be committed."""
    taken = shop.pending(idempotency_key="once")
    order(connection, "o1")
    with pytest.raises(JobExists):
        shop.supervisor.submit(new_job(taken.id, input_digest="other"), session=connection)
    with pytest.raises(JobExists):
        shop.supervisor.submit(new_job(idempotency_key="once", input_digest="other"), session=connection)
    with pytest.raises(InvalidInput):
        shop.supervisor.submit(new_job(deadline=-HOUR), session=connection)
    assert not shop.supervisor.submit(new_job(idempotency_key="once"), session=connection).created
    order(connection, "o2")
    connection.commit()
    assert orders(shop) == ["o1", "o2"]


def test_a_submit_twice_in_one_transaction_is_one_job(shop: Shop, connection: Connection) -> None:
    """The second finds the first, though nobody else sees it yet."""
    job = new_job()
    assert shop.supervisor.submit(job, session=connection).created
    assert not shop.supervisor.submit(job, session=connection).created
    connection.commit()
    assert shop.events(job.id) == ["submitted"]


# --- answer ----------------------------------------------------------------------------------------------


def test_an_answer_counts_with_the_callers_commit(shop: Shop, connection: Connection) -> None:
    """Before it the question is open to all others; after it the relay's next pass sends the job on."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    order(connection, "o1")
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
        assert shop.supervisor.question(question.id).status == "pending"
        assert relayed(shop) == []
        connection.commit()
    assert (moved.state, moved.stop_reason) == (State.PARKED, "answered:approve")
    assert (seen.generation, seen.events) == (1, ["answered"])
    assert relayed(shop) == [job_id]
    assert (shop.hold(job_id).complete(None).state, orders(shop)) == (State.COMPLETED, ["o1"])


def test_a_rolled_back_answer_was_never_given(shop: Shop, connection: Connection) -> None:
    """The question is open as before, and takes the next answer."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id):
        shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
        connection.rollback()
    assert shop.supervisor.answer(question.id, value=False, actor="user:bob").changed


def test_a_refused_answer_leaves_the_transaction_usable(shop: Shop, connection: Connection) -> None:
    """Every refusal, told as precisely as outside a transaction; then the shop commits its own."""
    question, answered = shop.asked(), shop.asked()
    shop.supervisor.answer(answered.id, value=True, actor="user:bob")
    order(connection, "o1")
    supervisor = shop.supervisor
    with pytest.raises(InvalidAnswer):
        supervisor.answer(question.id, "yes", actor=ANN, session=connection)
    with pytest.raises(QuestionNotFound):
        supervisor.answer("nobody's", value=True, actor=ANN, session=connection)
    with pytest.raises(QuestionClosed) as closed:
        supervisor.answer(answered.id, value=True, actor=ANN, session=connection)
    assert closed.value.answered_by == "user:bob"
    with pytest.raises(Conflict) as stale:
        supervisor.answer(question.id, value=True, actor=ANN, expected_generation=1, session=connection)
    assert stale.value.code == "stale_generation"
    with pytest.raises(QuestionChanged) as changed:
        supervisor.answer(question.id, value=True, actor=ANN, seen="other", session=connection)
    assert changed.value.code == "question_changed"
    connection.commit()
    assert orders(shop) == ["o1"]


def test_an_answer_that_is_late_expires_with_the_callers_commit(shop: Shop, connection: Connection) -> None:
    """The refusal is no SQL error; whether the job is expired by it is the caller's commit's to say."""
    question = shop.asked(ttl=timedelta(microseconds=1))
    job_id = shop.job_of(question).id
    with pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
    assert refused.value.code == "expired"
    assert shop.job(job_id).state is State.PARKED
    connection.commit()
    assert shop.job(job_id).stop_reason == "expired:awaiting_user_answer:approve"


# --- resume ----------------------------------------------------------------------------------------------


def test_a_resume_counts_with_the_callers_commit(shop: Shop, connection: Connection) -> None:
    """As an answer: nothing is sent before, the next pass sends it after."""
    job = shop.paused()
    shop.supervisor.resume(job.id, actor=ANN, session=connection)
    assert relayed(shop) == []
    connection.commit()
    assert relayed(shop) == [job.id]


# --- others at the same time -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["answer", "resume"])
def test_a_joined_call_never_waits(shop: Shop, connection: Connection, engine: Engine, call: str) -> None:
    """A row that another session holds is `busy`, at once, and the transaction goes on."""
    question, paused = shop.asked(), shop.paused()
    job_id = shop.job_of(question).id if call == "answer" else paused.id
    order(connection, "o1")
    calls: dict[str, Callable[[], object]] = {
        "answer": lambda: shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection),
        "resume": lambda: shop.supervisor.resume(job_id, actor=ANN, session=connection),
    }
    with holding_the_row(engine, job_id), unchanged(shop, job_id), pytest.raises(Conflict) as refused:
        calls[call]()
    assert refused.value.code == "busy"
    connection.commit()
    assert orders(shop) == ["o1"]


def test_others_are_told_busy_until_the_caller_commits(open_shop: Callable[..., Shop], connection: Connection) -> None:
    """An operation on a job that a joined call holds waits a bounded time, changes nothing, and can be repeated."""
    shop = open_shop(lock_timeout=timedelta(milliseconds=50))
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
    calls: list[Callable[[], object]] = [
        lambda: shop.supervisor.answer(question.id, value=False, actor="user:bob"),
        lambda: shop.supervisor.pause(job_id, actor="user:bob"),
        lambda: shop.supervisor.resume(job_id, actor="user:bob"),
        lambda: shop.supervisor.cancel(job_id, actor="user:bob"),
    ]
    for call in calls:
        with unchanged(shop, job_id), pytest.raises(Conflict) as refused:
            call()
        assert refused.value.code == "busy"
    connection.commit()
    with pytest.raises(QuestionClosed) as closed:
        shop.supervisor.answer(question.id, value=False, actor="user:bob")
    assert closed.value.answered_by == ANN


def test_a_joined_call_changes_no_setting(shop: Shop, connection: Connection) -> None:
    """A lock timeout of ours would stay for the rest of the shop's transaction: there is none."""
    question, paused = shop.asked(), shop.paused()
    holding = shop.running()
    connection.exec_driver_sql("SET LOCAL lock_timeout = '123ms'")
    shop.supervisor.submit(new_job(), session=connection)
    shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
    shop.supervisor.resume(paused.id, actor=ANN, session=connection)
    holding.checkpoint("x", NodeKind.STEP, None, joined=connection)
    assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "123ms"
    connection.commit()


# --- isolation -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_other_isolation_levels_work(shop: Shop, engine: Engine, level: str) -> None:
    """A shop that works at another level submits and answers in its transactions like any other."""
    question = shop.asked()
    with engine.connect().execution_options(isolation_level=level) as connection:
        shop.supervisor.submit(job := new_job(), session=connection)
        shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
        connection.commit()
    assert shop.job(job.id).state is State.PENDING
    assert shop.supervisor.question(question.id).status == "answered"


def test_a_serialization_error_is_the_shops_own(shop: Shop, engine: Engine) -> None:
    """At REPEATABLE READ a row that changed since is Postgres's error, as for the shop's own statements."""
    question = shop.asked()
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("SELECT 1 FROM supervise.jobs").all()
        shop.supervisor.pause(shop.job_of(question).id, actor=ANN)
        with pytest.raises(DBAPIError) as raw:
            shop.supervisor.answer(question.id, value=True, actor=ANN, session=connection)
        assert "could not serialize" in str(raw.value.orig)


def test_an_error_of_the_shops_own_stays_its_own(shop: Shop, connection: Connection) -> None:
    """What is wrong with the caller's transaction is not dressed up as an error of ours."""
    order(connection, "o1")
    with pytest.raises(IntegrityError):
        order(connection, "o1")
    with pytest.raises(DBAPIError) as raw:
        shop.supervisor.submit(new_job(), session=connection)
    assert "aborted" in str(raw.value.orig)


# --- a checkpoint in the body's own transaction ----------------------------------------------------------


def test_a_checkpoint_commits_with_the_bodys_own_writes(shop: Shop, connection: Connection) -> None:
    """Effect and checkpoint are one commit: exactly once."""
    holding = shop.running()
    job_id = holding.lease.job_id
    order(connection, "o1")
    assert holding.checkpoint("pay", NodeKind.STEP, stored("1"), joined=connection).state is State.RUNNING
    assert rows(shop, "checkpoints", job_id) == []
    connection.commit()
    assert (len(rows(shop, "checkpoints", job_id)), orders(shop)) == (1, ["o1"])
    assert shop.events(job_id)[-1] == "checkpoint"


def test_a_rolled_back_checkpoint_was_never_saved(shop: Shop, connection: Connection) -> None:
    """Neither effect nor checkpoint: the step runs again."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id):
        order(connection, "o1")
        holding.checkpoint("pay", NodeKind.STEP, stored("1"), joined=connection)
        connection.rollback()
    assert orders(shop) == []


@pytest.mark.parametrize(
    ("what", "state"), [("cancel", State.CANCELLED), ("pause", State.PARKED), ("time", State.EXPIRED)]
)
def test_a_joined_checkpoint_that_is_judged(shop: Shop, connection: Connection, what: str, state: State) -> None:
    """It says where the job goes; the block is rolled back, and `judge` moves the job without the node."""
    holding = shop.running(deadline=HOUR)
    job_id = holding.lease.job_id
    if what == "time":
        backdate(shop, job_id, "expires_at")
    else:
        getattr(shop.supervisor, what)(job_id, actor=ANN)
    order(connection, "o1")
    with unchanged(shop, job_id):
        assert holding.checkpoint("pay", NodeKind.STEP, stored("1"), joined=connection).state is state
        connection.rollback()
    assert holding.judge().state is state
    assert (shop.job(job_id).state, rows(shop, "checkpoints", job_id), orders(shop)) == (state, [], [])


def test_a_stale_joined_checkpoint_is_refused(shop: Shop, connection: Connection) -> None:
    """An attempt that lost its job is told so at once, not after waiting for its own transaction; then it is logged."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.reap_now(job_id)
    order(connection, "o1")
    with unchanged(shop, job_id), pytest.raises(LeaseLost):
        holding.checkpoint("pay", NodeKind.STEP, stored("1"), joined=connection)
    connection.rollback()
    with watching(shop, job_id) as seen, pytest.raises(LeaseLost):
        holding.judge()
    assert (seen.events, orders(shop)) == (["refused"], [])


def test_a_joined_call_where_nothing_is_migrated(empty_database_url: str, shop: Shop) -> None:
    """A transaction in a database without our schema is told what to run."""
    engine = sa.create_engine(empty_database_url)
    with engine.connect() as connection, pytest.raises(Exception, match="migrate") as refused:
        shop.supervisor.submit(new_job(), session=connection)
    engine.dispose()
    assert type(refused.value).__name__ == "NotMigrated"
