"""Fixtures of the database tests. After each, the invariants that `doctor` checks must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from celery_supervise import invariants
from celery_supervise.engine import create_engine
from tests.servers import Database

from .looking import driven, told_otherwise
from .shop import Shop


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on this test's own, migrated database, with room for many sessions."""
    engine = create_engine(driven(database_url), pool_size=5, max_overflow=60)
    yield engine
    engine.dispose()


@pytest.fixture
def database_owner(database: Database) -> Iterator[Engine]:
    """The same database, for whoever owns the tables."""
    engine = create_engine(database.owner_url)
    yield engine
    engine.dispose()


@pytest.fixture
def open_shop(engine: Engine) -> Iterator[Callable[..., Shop]]:
    """Makes services on this test's database: other namespaces, leases, brokers. All are checked."""
    shops: list[Shop] = []

    def make(**options: Any) -> Shop:
        shops.append(Shop(engine, **options))
        return shops[-1]

    yield make
    assert [finding for shop in shops for finding in invariants.check(shop.door)] == []
    assert told_otherwise(engine) == []


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """The service on this test's database."""
    return open_shop()
