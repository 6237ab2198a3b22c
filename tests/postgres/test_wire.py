"""What goes over the wire: round trips are counted where they cost, behind the driver (protocol 9)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import make_url

from celery_supervise.engine import create_engine
from example_project import embedded
from example_project.machine import HOST
from tests.postgres.operations import OPERATIONS, Operation
from tests.postgres.shop import Shop
from tests.proxy import Tap

READS_FIRST = {
    "answer": 1,
    "vote": 2,
    "vote from a page": 2,
    "vote that decides": 2,
    "extend a question": 1,
    "reassign": 1,
    "withdraw": 1,
    "migrating claim": 2,
}
"""They read the question, to check the answer against its schema or to know its job, and the votes that there are; a
migration the job, and the names of what that remembers."""
MORE = {"migrating claim": 6}
"""Begin, what is gone, what is called otherwise, each value that is new, the version, commit."""
READS_AFTER = {"erase": 1}
"""It tells how the job is then."""
MAKES_A_MESSAGE = {"rerun"}
"""It needs what this shop is without: a broker."""
TRANSACTIONS = ("cancel", "vote", "extend", "reassign")
"""Begin, lock, move, commit."""


@pytest.fixture
def tap(pg_server: embedded.Postgres) -> Iterator[Tap]:
    """Between the driver and the server."""
    tap = Tap((HOST, pg_server.port))
    with tap:
        yield tap


@pytest.fixture(params=["postgresql+psycopg2", "postgresql+psycopg"])
def far(request: pytest.FixtureRequest, database_url: str, tap: Tap, shop: Shop) -> Iterator[Shop]:
    """A shop that listens on the line, without a broker: connected, and its connection used before."""
    engine = create_engine(make_url(tap.url(database_url)).set(drivername=request.param))
    far = Shop(engine)
    far.supervisor._publisher = None
    far.claimer = shop.claimer
    for prepare in (far.pending, far.paused):
        prepare()
    far.supervisor.cancel(far.pending().id, actor="user:ann")
    yield far
    engine.dispose()


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.name not in MAKES_A_MESSAGE], ids=str)
def test_round_trips(shop: Shop, far: Shop, tap: Tap, operation: Operation) -> None:
    """An operation is one round trip; one that needs a snapshot newer than its lock, a transaction of two."""
    subject = operation.prepare(shop)
    tap.requests.clear()
    operation.call(far, subject)
    reads = READS_FIRST.get(operation.name, 0) + READS_AFTER.get(operation.name, 0)
    expected = reads + MORE.get(operation.name, 0) + (4 if operation.name.startswith(TRANSACTIONS) else 1)
    assert len(tap.requests) == expected, [request[:80] for request in tap.requests]


def test_nothing_is_set_for_a_session(far: Shop, tap: Tap) -> None:
    """A session may be another's at the next transaction, behind a pooler: no SET, and no isolation left behind."""
    far.paused()
    assert [
        request for request in tap.requests if b"SET " in request[:60].upper() and b"SET_CONFIG" not in request
    ] == []
