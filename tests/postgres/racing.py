"""What tests share whose sessions race under every plan: one database for all of them, a namespace for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy.engine import Connection, Engine

from celery_supervise.supervisor import Supervisor
from example_project import embedded
from tests.postgres.races import PLANS, OpenDoor, planning
from tests.postgres.shop import Shop
from tests.servers import created


@pytest.fixture(scope="module", params=PLANS)
def planned(request: pytest.FixtureRequest, pg_server: embedded.Postgres, migrated: str) -> Iterator[Engine]:
    """An engine whose sessions plan in one way; one database for all the races, each of which has its own job."""
    with created(pg_server, migrated) as database, planning(database.url, PLANS[request.param]) as engine:
        yield engine


@pytest.fixture
def engine(planned: Engine) -> Engine:
    """The one that `shop` uses here."""
    return planned


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """A namespace for each test in one database. Patient: a slow machine must not turn a wait into a refusal."""
    return open_shop(namespace=f"race-{uuid4()}", lock_timeout=timedelta(seconds=60))


def unseen(shop: Shop, connection: Connection) -> Shop:
    """The same shop, all in the open transaction of `connection`: nobody sees it yet, who meets its rows waits."""
    other = Shop(shop.engine, broker=shop.broker)
    other.door = OpenDoor(shop.door, connection)
    other.supervisor = Supervisor(other.door)
    return other
