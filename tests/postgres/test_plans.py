"""Plans that a session keeps: of hot statements, in sessions that are ours alone, and never at a job's cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url

from celery_supervise import invariants
from celery_supervise.engine import create_engine
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease, NodeKind
from celery_supervise.store import births, holder, plans, publishing
from celery_supervise.store.plans import PATIENCE, Rendered
from celery_supervise.store.sql import Statement
from example_project import embedded
from example_project.machine import HOST
from tests.postgres.shop import Shop, stored
from tests.proxy import Link, Tap

HOT = (births.SUBMIT, holder.CLAIM, holder.CHECKPOINT, holder.COMPLETE, publishing.STAMP_ONE)
KEYS = {"jobs_pkey", "attempts_pkey", "outbox_pkey", "checkpoints_pkey", "tombstones_pkey", "holds_pkey"}
KEY_DATA = b"K\x00\x00\x00\x0c"  # the server's process id follows


@dataclass
class Pooler(Tap):
    """Tells clients a process id of its own, as poolers do."""

    pretends: bool = True

    def _reply(self, link: Link, chunk: bytes) -> bool:
        at = chunk.find(KEY_DATA) + len(KEY_DATA)
        if self.pretends and KEY_DATA in chunk:
            chunk = chunk[:at] + b"\x00\x00\x00\x07" + chunk[at + 4 :]
        return super()._reply(link, chunk)


@pytest.fixture
def pooler(pg_server: embedded.Postgres) -> Iterator[Pooler]:
    """Between the driver and the server."""
    pooler = Pooler((HOST, pg_server.port))
    with pooler:
        yield pooler


@pytest.fixture(params=["postgresql+psycopg2", "postgresql+psycopg"])
def engine(request: pytest.FixtureRequest, database_url: str, pooler: Pooler) -> Iterator[Engine]:
    """One session, by way of the proxy."""
    engine = create_engine(make_url(pooler.url(database_url)).set(drivername=request.param))
    yield engine
    engine.dispose()


def worked(shop: Shop, times: int) -> list[Holding]:
    """Jobs that were submitted, claimed, checkpointed and completed in the one session."""
    return [finished(shop, number) for number in range(times)]


def finished(shop: Shop, number: int) -> Holding:
    """One of them."""
    job = shop.pending()
    assert job.ticket_id is not None
    lease = shop.supervisor.claim(job.id, job.ticket_id, shop.claimer)
    assert isinstance(lease, Lease)
    held = shop.supervisor.holding(lease, worker="worker@test")
    held.checkpoint(f"node{number}", NodeKind.STEP, stored())
    assert held.complete(stored("1")).state is State.COMPLETED
    return held


def kept(engine: Engine) -> set[str]:
    """The plans that the session keeps."""
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT statement FROM pg_prepared_statements").scalars().all()
    return {one.name for one in HOT for text in found if _is_of(one, text)}


def _is_of(statement: Statement, text: str) -> bool:
    """By a piece of it without parameters."""
    piece = max(plans.PARAMETER.split(statement.render('"supervise"', joined=False)), key=len)
    return piece in text


def test_hot_statements_are_planned_once(shop: Shop, engine: Engine, pooler: Pooler) -> None:
    """After a few runs the session keeps their plans, and then a run is one small request."""
    pooler.pretends = False
    worked(shop, PATIENCE)
    assert kept(engine) == set()
    worked(shop, 2)
    assert kept(engine) >= {"submit", "claim", "checkpoint", "complete"}
    worked(shop, 1)  # psycopg 3 forgets what it has prepared at a rollback, which ends `kept`
    job = shop.running()
    pooler.requests.clear()
    job.checkpoint("late", NodeKind.STEP, stored())
    assert [len(request) < 1000 for request in pooler.requests] == [True]


def test_nothing_is_kept_behind_a_pooler(shop: Shop, engine: Engine, pooler: Pooler) -> None:
    """There the next statement may run in another session: nothing is prepared in any."""
    worked(shop, PATIENCE + 3)
    assert kept(engine) == set()
    assert [request for request in pooler.requests if b"PREPARE supervise" in request or b"_pg3_" in request] == []


def test_a_plan_that_is_gone(shop: Shop, engine: Engine, pooler: Pooler) -> None:
    """Somebody's DISCARD ALL costs a request, not a job: each statement runs once, from then on without plans."""
    pooler.pretends = False
    worked(shop, PATIENCE + 1)
    with engine.connect() as connection:
        connection.exec_driver_sql("DEALLOCATE ALL")
    for held in worked(shop, 3):
        entries = [entry.event for entry in shop.supervisor.log(held.lease.job_id).entries]
        assert entries == ["submitted", "claimed", "checkpoint", "completed"]
    assert invariants.check(shop.door) == []


def test_a_lost_reply(shop: Shop, engine: Engine, pooler: Pooler) -> None:
    """A statement with a kept plan, committed, its reply lost: repeated in a new session, found done, done once."""
    pooler.pretends = False
    worked(shop, PATIENCE + 2)
    held = shop.running()
    marker = b"EXECUTE supervise_checkpoint" if engine.dialect.driver == "psycopg2" else held.lease.job_id.encode()
    lost = pooler.lose("reply", marker)
    held.checkpoint("here", NodeKind.STEP, stored())
    assert lost.is_set()
    entries = [entry.event for entry in shop.supervisor.log(held.lease.job_id).entries]
    assert entries == ["submitted", "claimed", "checkpoint"]


def test_plans_are_renewed(shop: Shop, engine: Engine, pooler: Pooler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that was made while a table was small does not stay for ever."""
    pooler.pretends = False
    monkeypatch.setattr(plans, "RENEWED_AFTER", 7)
    seen: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: seen.append(statement))
    worked(shop, PATIENCE + 6)
    assert seen.count("DISCARD PLANS") >= 2
    assert kept(engine) >= {"claim", "complete"}


@pytest.mark.parametrize("statement", HOT, ids=lambda statement: statement.name)
def test_plans_go_by_keys(shop: Shop, statement: Statement) -> None:
    """Made on small tables without statistics, as a first worker's are, and used for a large one: by primary keys."""
    worked(shop, 1)
    rendered = Rendered(statement, statement.render('"supervise"', joined=False))
    with shop.engine.connect() as connection:
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.exec_driver_sql(rendered.prepare)
        nulls = ", ".join("NULL" for _ in rendered.names)
        plan = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) EXECUTE {rendered.plan}({nulls})").scalar()
        connection.exec_driver_sql("DEALLOCATE ALL")
        connection.rollback()
    entered = indexes(plan)
    assert entered <= KEYS, entered
    assert walked(plan) == set()
    assert entered


def walked(plan: object) -> set[str]:
    """The tables that a plan reads as a whole."""
    if isinstance(plan, list):
        return {name for part in plan for name in walked(part)}
    if isinstance(plan, dict):
        own = {plan["Relation Name"]} if plan.get("Node Type") == "Seq Scan" else set()
        return own | {name for part in plan.values() for name in walked(part)}
    return set()


def indexes(plan: object) -> set[str]:
    """The indexes that a plan, as EXPLAIN gives it, goes in by."""
    if isinstance(plan, list):
        return {name for part in plan for name in indexes(part)}
    if isinstance(plan, dict):
        own = {plan["Index Name"]} if "Index Name" in plan else set()
        return own | {name for part in plan.values() for name in indexes(part)}
    return set()
