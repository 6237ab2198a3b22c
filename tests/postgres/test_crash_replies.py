"""Connections that die with a commit on the way: what is accepted is done once, and the caller is told so.

The caller of a commit whose reply was lost finds out by the ids that it made before (protocol 5).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.sql import text

from celery_supervise.engine import create_engine
from celery_supervise.errors import AttemptEnded, DatabaseUnavailable
from celery_supervise.lifecycle import State
from example_project import embedded
from example_project.machine import HOST
from tests.postgres.operations import (
    HOLDERS,
    NOT_OF_HOLDERS,
    ON_A_ROW,
    OPERATIONS,
    Operation,
    picture,
    said,
    undisturbed,
)
from tests.postgres.races import Call, row_held, waiter, waiters
from tests.postgres.shop import Shop, stored
from tests.proxy import Loss, Proxy
from tests.tools import wait_for

TERMINATED = {"complete", "answer", "cancel of a running job", "claim"}
DRIVERS = ("postgresql+psycopg2", "postgresql+psycopg")


@pytest.fixture
def proxy(pg_server: embedded.Postgres) -> Iterator[Proxy]:
    """What loses replies."""
    with Proxy((HOST, pg_server.port)) as proxy:
        yield proxy


@pytest.fixture
def far(request: pytest.FixtureRequest, database_url: str, proxy: Proxy, shop: Shop) -> Iterator[Shop]:
    """The same shop, its connections by way of the proxy."""
    url = make_url(proxy.url(database_url)).set(drivername=getattr(request, "param", DRIVERS[0]))
    engine = create_engine(url, pool_size=1, max_overflow=1)
    far = Shop(engine, broker=shop.broker, lock_timeout=timedelta(seconds=60))
    far.claimer = shop.claimer
    yield far
    engine.dispose()


@pytest.mark.parametrize(
    ("far", "loss"), [(DRIVERS[0], "reply"), (DRIVERS[1], "reply"), (DRIVERS[0], "request")], indirect=["far"]
)
@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_a_connection_that_dies_at_a_commit_costs_nothing(
    shop: Shop, far: Shop, proxy: Proxy, operation: Operation, loss: Loss
) -> None:
    """Whether the request or the reply was lost, the operation is done once, and its caller gets its outcome."""
    (wanted, told), subject = undisturbed(shop, operation), operation.prepare(shop)
    lost = proxy.lose(loss, operation.marker)
    outcome = operation.call(far, subject)
    assert lost.is_set()
    assert picture(shop, subject.job_id) == wanted
    assert said(outcome) == said(told)


@pytest.mark.parametrize("operation", ON_A_ROW, ids=str)
def test_a_commit_that_comes_after_its_connection_died_counts(
    shop: Shop, far: Shop, proxy: Proxy, operation: Operation
) -> None:
    """The server goes on with a statement whose client is gone: the repeated call waits for it, and finds it done."""
    (wanted, told), subject = undisturbed(shop, operation), operation.prepare(shop)
    with row_held(shop.engine, "jobs", "id", subject.job_id) as gate:
        call = Call(lambda: operation.call(far, subject))
        orphan = waiter(shop.engine, gate)
        proxy.cut()
        waiter(shop.engine, orphan)
    assert said(call.outcome()) == said(told)
    assert picture(shop, subject.job_id) == wanted


@pytest.mark.parametrize("operation", [each for each in ON_A_ROW if each.name in TERMINATED], ids=str)
def test_a_session_that_is_terminated_in_a_wait_changes_nothing(shop: Shop, operation: Operation) -> None:
    """An operator who ends a waiting session costs its caller one more try."""
    (wanted, told), subject = undisturbed(shop, operation), operation.prepare(shop)
    with row_held(shop.engine, "jobs", "id", subject.job_id) as gate:
        call = Call(lambda: operation.call(shop, subject))
        victim = waiter(shop.engine, gate)
        with shop.engine.connect() as connection:
            assert connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": victim}).scalar()
        wait_for(lambda: waiters(shop.engine, gate) not in ([], [victim]))
    assert said(call.outcome()) == said(told)
    assert picture(shop, subject.job_id) == wanted


def test_a_holder_whose_database_is_away_gives_up_after_a_lease(shop: Shop, far: Shop, proxy: Proxy) -> None:
    """A commit is tried again while the lease may last; then the attempt is over, and where the job is, unknown."""
    far.door.lease = timedelta(seconds=0.5)
    held = HOLDERS[0].prepare(shop).held(far)
    with proxy.refusing():
        began = time.monotonic()
        with pytest.raises(AttemptEnded) as ended:
            held.complete(stored("1"))
    assert ended.value.state is None
    assert 0.3 < time.monotonic() - began < 10
    assert shop.job(held.lease.job_id).state is State.RUNNING


def test_a_holder_waits_for_its_database(shop: Shop, far: Shop, proxy: Proxy) -> None:
    """A commit that finds the database away is done once it is back, within a lease."""
    held = HOLDERS[0].prepare(shop).held(far)
    failures: list[object] = []
    sa.event.listen(far.engine, "handle_error", failures.append)
    with proxy.refusing():
        call = Call(lambda: held.complete(stored("1")))
        wait_for(lambda: len(failures) > 1)
    assert call.outcome().state is State.COMPLETED


@pytest.mark.parametrize("operation", NOT_OF_HOLDERS, ids=str)
def test_who_reaches_no_database_is_told_that_nothing_was_written(
    shop: Shop, far: Shop, proxy: Proxy, operation: Operation
) -> None:
    """A connection that cannot be made is no reason for doubt."""
    subject = operation.prepare(shop)
    before = picture(shop, subject.job_id)
    with proxy.refusing(), pytest.raises(DatabaseUnavailable) as refused:
        operation.call(far, subject)
    assert not refused.value.unknown
    assert picture(shop, subject.job_id) == before


@pytest.mark.parametrize("operation", NOT_OF_HOLDERS, ids=str)
def test_who_loses_two_replies_is_told_of_the_doubt(shop: Shop, far: Shop, proxy: Proxy, operation: Operation) -> None:
    """Where the outcome cannot be read back either, the error says that it is unknown; what was done, is done once."""
    (wanted, _), subject = undisturbed(shop, operation), operation.prepare(shop)
    for _ in range(2):
        proxy.lose("reply", operation.marker)
    with pytest.raises(DatabaseUnavailable) as lost:
        operation.call(far, subject)
    assert lost.value.unknown
    assert picture(shop, subject.job_id) == wanted
