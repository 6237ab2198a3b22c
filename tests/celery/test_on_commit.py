"""Calls in the caller's own transaction: a job with its commit, none after its rollback, by whatever session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from celery_supervise import InvalidInput, JobNotFound, NotMigrated, State, SupervisedTask
from celery_supervise.config import Settings
from tests.celery.site import Site, working
from tests.servers import Database

OpenSite = Callable[..., Site]
seen: list[Any] = []
current: list[Session] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()
    current.clear()


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """The shop's own engine, and a table of its own."""
    owner = sa.create_engine(make_url(database.owner_url).set(drivername="postgresql+psycopg2"))
    with owner.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE orders (id text PRIMARY KEY)")
        connection.exec_driver_sql("GRANT ALL ON orders TO PUBLIC")
    owner.dispose()
    engine = sa.create_engine(make_url(database.url).set(drivername="postgresql+psycopg2"))
    yield engine
    engine.dispose()


def session_here() -> Session:
    """For `supervise_session`."""
    return current[-1]


def shipping(site: Site) -> Any:
    """A task."""

    def ship(order: str) -> str:
        seen.append(order)
        return f"shipped {order}"

    return site.app.task(base=SupervisedTask, shared=False, name="shop.ship")(ship)


def order(session: Any, name: str) -> None:
    """Something that the shop writes in its transaction."""
    session.execute(sa.text("INSERT INTO orders VALUES (:name)"), {"name": name})


def orders(engine: Engine) -> list[str]:
    """What the shop has committed."""
    with engine.connect() as connection:
        return list(connection.execute(sa.text("SELECT id FROM orders ORDER BY id")).scalars())


def is_there(site: Site, result: Any) -> bool:
    """Whether there is such a job."""
    try:
        return site.job(result).state is State.PENDING
    except JobNotFound:
        return False


# --- the row joins the transaction -----------------------------------------------------------------------


def test_s60_accepted_with_the_commit(site: Site, engine: Engine) -> None:
    """Before it there is neither job nor message; after it the relay's next pass sends it, and a result comes."""
    task = shipping(site)
    with Session(engine) as session:
        order(session, "o1")
        with site.statements() as ours:
            result = task.apply_async_on_commit(("o1",), session=session)
        assert ours == []  # nothing by a connection of our own
        assert type(result) is type(task.AsyncResult("any"))
        site.runtime.relay.run_once()
        assert (is_there(site, result), site.messages()) == (False, [])
        session.commit()
    assert (is_there(site, result), orders(engine), site.messages()) == (True, ["o1"], [])
    site.runtime.relay.run_once()
    assert [message["headers"]["id"] for message in site.messages()] == [result.id]
    with working(site):
        assert result.get(timeout=30) == "shipped o1"


def test_it_is_sent_within_a_second(site: Site, engine: Engine) -> None:
    """Nothing holds it back from the first pass of a relay after the commit, and those come each second."""
    with Session(engine) as session, session.begin():
        shipping(site).apply_async_on_commit(("o1",), session=session)
    with engine.connect() as connection:
        held = "SELECT publish_until > clock_timestamp() OR due_at > clock_timestamp() FROM supervise.outbox"
        assert not connection.exec_driver_sql(held).scalar()
    assert Settings().relay_seconds == 1.0


def test_s60_nothing_after_a_rollback(site: Site, engine: Engine) -> None:
    """No job, no message, and the id is free."""
    task = shipping(site)
    with Session(engine) as session:
        order(session, "o1")
        result = task.apply_async_on_commit(("o1",), task_id="one", session=session)
        session.rollback()
    site.runtime.relay.run_once()
    assert (is_there(site, result), orders(engine), site.messages()) == (False, [], [])
    assert site.job(task.apply_async(("o2",), task_id="one")).id == "one"


def test_a_connection_and_a_savepoint(site: Site, engine: Engine) -> None:
    """A Core connection is as good, and what is rolled back to a savepoint was never accepted."""
    task = shipping(site)
    with engine.begin() as connection:
        kept = task.apply_async_on_commit(("o1",), session=connection)
        inner = connection.begin_nested()
        dropped = task.apply_async(("o2",), supervise={"session": connection})
        inner.rollback()
    assert (is_there(site, kept), is_there(site, dropped)) == (True, False)


def test_all_options_of_a_call(site: Site, engine: Engine) -> None:
    """As of any call: when it starts, whose it is, where it goes."""
    with engine.begin() as connection:
        result = shipping(site).apply_async_on_commit(
            ("o1",), session=connection, countdown=60, queue="slow", supervise={"owner": "acme"}
        )
    job = site.job(result)
    assert (job.owner_id, job.queue) == ("acme", "slow")
    assert job.starts_at is not None


def test_the_session_of_the_caller(open_site: OpenSite, engine: Engine) -> None:
    """`supervise_session` names it, so that `delay_on_commit` needs none."""
    site = open_site(supervise_session=f"{__name__}:session_here")
    with Session(engine) as session, session.begin():
        current.append(session)
        result = shipping(site).delay_on_commit("o1")
        assert not is_there(site, result)
    assert is_there(site, result)


def test_no_session_at_all(site: Site) -> None:
    """Refused, naming what to give: the call would count before the commit."""
    task = shipping(site)
    with pytest.raises(InvalidInput, match="supervise_session"):
        task.delay_on_commit("o1")
    for wrong in (object(), "default"):
        with pytest.raises(InvalidInput, match="Session or Connection"):
            task.apply_async_on_commit(("o1",), session=wrong)
    assert site.supervise.jobs()[1] == 0


# --- asynchronous sessions -------------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
def test_asynchronous_sessions(site: Site, database: Database, engine: Engine, driver: str) -> None:
    """By `run_sync`, on the caller's own asynchronous connection: committed with it, or not at all."""
    task = shipping(site)

    async def in_a_transaction(call: Callable[[AsyncSession], Awaitable[Any]], *, commit: bool) -> Any:
        async_engine = create_async_engine(make_url(database.url).set(drivername=driver))
        async with AsyncSession(async_engine) as session:
            found = await call(session)
            await (session.commit() if commit else session.rollback())
        await async_engine.dispose()
        return found

    async def ship(session: AsyncSession) -> Any:
        await session.execute(sa.text("INSERT INTO orders VALUES ('o1')"))
        return await session.run_sync(lambda here: task.apply_async_on_commit(("o1",), session=here))

    dropped = asyncio.run(in_a_transaction(ship, commit=False))
    assert (is_there(site, dropped), orders(engine)) == (False, [])
    kept = asyncio.run(in_a_transaction(ship, commit=True))
    assert (is_there(site, kept), orders(engine)) == (True, ["o1"])
    with pytest.raises(InvalidInput, match="run_sync"):
        task.apply_async_on_commit(("o1",), session=AsyncSession())


def test_an_asynchronous_database_without_our_tables(site: Site, empty_database: Database) -> None:
    """Its own error, whatever the driver calls it: it says what to run."""
    task = shipping(site)

    async def ship() -> None:
        engine = create_async_engine(make_url(empty_database.owner_url).set(drivername="postgresql+asyncpg"))
        try:
            async with AsyncSession(engine) as session:
                await session.run_sync(lambda here: task.apply_async_on_commit(("o1",), session=here))
        finally:
            await engine.dispose()

    with pytest.raises(NotMigrated, match="migrate"):
        asyncio.run(ship())


# --- where calls make no rows ----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [{"task_always_eager": True}, {"supervise_submit": "worker"}])
def test_calls_without_rows_wait_for_the_commit(open_site: OpenSite, engine: Engine, mode: dict[str, Any]) -> None:
    """Eagerly, and while workers make the rows: what the call does, it does after the commit; else never."""
    site = open_site(**mode)
    task = shipping(site)

    def done() -> list[str]:
        return [*seen, *(message["headers"]["argsrepr"][2:-3] for message in site.messages())]

    with Session(engine) as session:
        order(session, "o1")
        result = task.apply_async_on_commit(("o1",), session=session)
        with session.begin_nested():
            task.apply_async_on_commit(("o2",), session=session)
        with session.begin_nested() as inner:
            task.apply_async_on_commit(("o3",), session=session)
            inner.rollback()
        assert done() == []
        session.commit()
        assert done() == ["o1", "o2"]
        task.apply_async_on_commit(("o4",), session=session)
        session.rollback()
        order(session, "o5")
        session.commit()
    assert done() == ["o1", "o2"]
    assert type(result) is type(task.AsyncResult("any"))
    with engine.begin() as connection, pytest.raises(InvalidInput, match="Session"):
        task.apply_async_on_commit(("o1",), session=connection)


# --- a step and the body's own writes --------------------------------------------------------------------


def test_a_step_in_the_bodys_own_transaction(site: Site, engine: Engine) -> None:
    """`self.transaction(session)`: what the step writes and that it is decided are one commit; it is not done twice."""

    def book(self: SupervisedTask, fails: bool) -> list[str]:
        with Session(engine) as session, self.transaction(session):
            self.step("book", lambda: order(session, "o1"))
        if fails and self.request.retries == 0:
            raise self.retry(countdown=0)
        return orders(engine)

    task = site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.book")(book)
    with working(site):
        result = task.delay(True)
        assert result.get(timeout=30) == ["o1"]
    assert site.count(result, "checkpoint") == 1
    assert site.count(result, "claimed") == 2
