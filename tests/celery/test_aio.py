"""`supervise.aio`: the same operations for coroutines, which keep no event loop waiting."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from celery_supervise import InvalidInput, JobNotFound, State, SupervisedTask
from celery_supervise.aio import THREADS, Aio
from celery_supervise.engine import create_engine
from celery_supervise.supervisor import Supervisor
from tests.celery.site import Site, working
from tests.postgres.races import row_held, waiters
from tests.servers import Database
from tests.tools import wait_for

OpenSite = Callable[..., Site]
WORKERS = {"claim", "holding", "fail_waiting", "publish_ticket", "publish_notice"}
tenant: ContextVar[str | None] = ContextVar("tenant", default=None)


@pytest.fixture
def here(open_site: OpenSite) -> Iterator[Site]:
    """The app, whose calls wait long for a row, and whose threads for coroutines end with the test."""
    site = open_site(supervise_lease_seconds=600.0, supervise_lock_timeout_seconds=60.0)
    yield site
    site.supervise.aio.close()


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """A connection of somebody else."""
    engine = create_engine(database.url, pool_size=5)
    yield engine
    engine.dispose()


def asking(site: Site) -> Any:
    """A task that asks."""

    def pay(self: SupervisedTask, amount: int) -> int:
        return amount if self.ask("approve", "Pay?", schema={"type": "boolean"}) else 0

    return site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.decided")(pay)


def current_tenant() -> str | None:
    """For `supervise_owner`."""
    return tenant.get()


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it in a loop of its own."""
    return asyncio.run(coroutine)


def test_each_operation_is_there() -> None:
    """Those of people, producers and readers, each with the signature that it has when it is not awaited."""
    public = {name for name, _ in inspect.getmembers(Supervisor, inspect.isfunction) if not name.startswith("_")}
    assert public - WORKERS == {name for name in vars(Aio) if not name.startswith("_")} - {"run", "close"}
    for name in public - WORKERS:
        assert inspect.signature(getattr(Aio, name)) == inspect.signature(getattr(Supervisor, name)), name
        assert inspect.getdoc(getattr(Aio, name)) == inspect.getdoc(getattr(Supervisor, name)), name


def test_a_job_from_beginning_to_end(here: Site) -> None:
    """Called, looked at, paused, resumed and cancelled by coroutines; what is refused is raised as ever."""
    task, aio = asking(here), here.supervise.aio
    assert here.supervise.aio is aio

    async def main() -> None:
        result = await aio.run(task.delay, 7)
        assert (await aio.job(result.id)).state is State.PENDING
        assert (await aio.jobs())[1] == 1
        assert (await aio.pause(result.id, actor="user:ann")).pause_requested
        assert not (await aio.resume(result.id, actor="user:ann")).pause_requested
        assert (await aio.cancel(result.id, actor="user:ann")).state is State.CANCELLED
        with pytest.raises(JobNotFound):
            await aio.job("nobody's")
        assert [entry.event for entry in (await aio.log(result.id)).entries][-1] == "cancelled"

    run(main())
    assert len(here.messages()) == 1


def test_the_loop_goes_on(here: Site, engine: Engine) -> None:
    """While a call waits for a row, the loop that awaits it runs what would let the row go."""
    job_id, aio = str(asking(here).delay(1).id), here.supervise.aio

    async def main() -> Any:
        with row_held(engine, "jobs", "id", job_id) as gate:
            waits = asyncio.ensure_future(aio.pause(job_id, actor="user:ann"))
            await asyncio.to_thread(wait_for, lambda: waiters(engine, gate))
            assert not waits.done()
        return await waits

    assert run(main()).pause_requested


def test_cancelled_calls(here: Site, engine: Engine) -> None:
    """One that waits for a thread never happens; one that runs goes on to its end."""
    task, aio = asking(here), here.supervise.aio
    jobs = [str(task.delay(number).id) for number in range(THREADS + 1)]

    async def main() -> None:
        with row_held(engine, "jobs", "id", jobs[0]) as one, row_held(engine, "jobs", "id", jobs[1]) as two:
            calls = [asyncio.ensure_future(aio.pause(job_id, actor="user:ann")) for job_id in jobs]
            await asyncio.to_thread(wait_for, lambda: waiters(engine, one) and waiters(engine, two))
            for call in calls:
                call.cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(one) for one in done} == {asyncio.CancelledError}
        # the threads are free again when this comes to its turn
        await aio.job(jobs[0])

    run(main())
    for job_id in jobs[:THREADS]:
        wait_for(lambda job_id=job_id: here.supervise.job(job_id).pause_requested_at is not None)
    assert here.supervise.job(jobs[-1]).pause_requested_at is None


def test_many_calls_at_once_wait_for_a_thread(here: Site) -> None:
    """More than there are connections: each has its turn, none is refused for want of one."""
    task, aio = asking(here), here.supervise.aio

    async def main() -> list[Any]:
        return await asyncio.gather(*(aio.run(task.delay, number) for number in range(20)))

    assert len({result.id for result in run(main())}) == here.supervise.jobs()[1] == 20


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
def test_s60_asynchronous_sessions(here: Site, database: Database, driver: str) -> None:
    """An answer and a job with the caller's own commit; after a rollback the question is open, and there is no job."""
    task, aio = asking(here), here.supervise.aio
    with working(here):
        question = here.parked(task.delay(7))

    async def decide(session: AsyncSession) -> Any:
        await session.execute(sa.text("SELECT 1"))
        with here.statements() as ours:
            await aio.answer(question.id, True, actor="user:ann", session=session)
            made = await aio.run(task.apply_async_on_commit, (8,), session=session)
        assert ours == []
        assert (await aio.question(question.id)).status == "pending"
        return made

    async def main() -> Any:
        engine = create_async_engine(make_url(database.url).set(drivername=driver))
        async with AsyncSession(engine) as session:
            dropped = await decide(session)
            await session.rollback()
            kept = await decide(session)
            await session.commit()
        await engine.dispose()
        return dropped, kept

    dropped, kept = run(main())
    with pytest.raises(JobNotFound):
        here.job(dropped)
    assert here.supervise.question(question.id).answered_by == "user:ann"
    assert here.job(kept).state is State.PENDING


@pytest.mark.parametrize("driver", ["postgresql+asyncpg", "postgresql+psycopg"])
def test_asynchronous_connections(here: Site, database: Database, driver: str) -> None:
    """A Core connection is as good; a refusal leaves its transaction usable."""
    task, aio = asking(here), here.supervise.aio

    async def main() -> Any:
        engine = create_async_engine(make_url(database.url).set(drivername=driver))
        async with engine.begin() as connection:
            with pytest.raises(JobNotFound):
                await aio.resume("nobody's", actor="user:ann", session=connection)
            made = await aio.run(task.apply_async_on_commit, (9,), session=connection)
        await engine.dispose()
        return made

    assert here.job(run(main())).state is State.PENDING


def test_a_session_goes_where_it_belongs(here: Site) -> None:
    """`delay` and `apply_async` take none: Celery would send it; said before anything is."""
    task, aio = asking(here), here.supervise.aio

    async def main() -> None:
        with pytest.raises(InvalidInput, match="apply_async_on_commit"):
            await aio.run(task.apply_async, (8,), session=object())
        with pytest.raises(InvalidInput, match=r"supervise\.aio"):
            here.supervise.resume("any", actor="user:ann", session=AsyncSession())  # type: ignore[arg-type]

    run(main())
    assert here.messages() == []


def test_context_variables_are_the_callers(open_site: OpenSite) -> None:
    """`supervise_owner` reads them in the thread as in the coroutine: two requests do not mix."""
    site = open_site(supervise_owner=f"{__name__}:current_tenant")
    task = asking(site)

    async def request(name: str) -> Any:
        tenant.set(name)
        return name, await site.supervise.aio.run(task.delay, 1)

    async def main() -> Any:
        return await asyncio.gather(*(request(name) for name in ("acme", "initech", "hooli")))

    assert [site.job(result).owner_id == name for name, result in run(main())] == [True] * 3
    site.supervise.aio.close()


def test_a_transaction_of_djangos_is_a_threads(here: Site) -> None:
    """A call that runs in another thread would not join it: refused."""
    with pytest.raises(InvalidInput, match="sync_to_async"):
        asyncio.run(here.supervise.aio.run(here.supervise.resume, "some", actor="user:ann", using="default"))
