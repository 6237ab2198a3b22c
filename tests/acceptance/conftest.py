"""Fixtures of the acceptance tests: shops with real workers. After each test the invariants must hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import kombu
import pytest

from example_project import embedded
from tests.acceptance.shop import Shop, opened
from tests.servers import created

OWN_DATABASES = range(2, 16, 2)  # of Redis: broker and results; 0 and 1 are the common shop's


@pytest.fixture(scope="session")
def common(
    pg_server: embedded.Postgres, migrated: str, redis_server: embedded.Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """The shop that tests share which leave its worker's main process alone: three children."""
    folder = tmp_path_factory.mktemp("common")
    with created(pg_server, migrated) as database, opened(redis_server, 0, database, folder) as shop:
        shop.worker("common", concurrency=3)
        yield shop


@pytest.fixture
def shop(common: Shop) -> Iterator[Shop]:
    """The common shop, with no effects and no gates yet."""
    common.tidy()
    yield common
    common.check()


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Of the shops that tests open for themselves."""
    return count()


@pytest.fixture
def open_shop(
    pg_server: embedded.Postgres,
    migrated: str,
    redis_server: embedded.Redis,
    numbers: Iterator[int],
    tmp_path: Path,
) -> Iterator[Callable[..., Shop]]:
    """Opens a shop of the test's own, without workers: its database, its broker, other settings."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Shop:
            number = OWN_DATABASES[next(numbers) % len(OWN_DATABASES)]
            database = stack.enter_context(created(pg_server, migrated))
            return stack.enter_context(opened(redis_server, number, database, tmp_path, **settings))

        yield make


@pytest.fixture
def own(open_shop: Callable[..., Shop]) -> Iterator[Shop]:
    """A shop of the test's own, without workers."""
    shop = open_shop()
    yield shop
    shop.check()


@pytest.fixture
def open_rabbit(open_shop: Callable[..., Shop], rabbitmq_server: embedded.RabbitMQ) -> Iterator[Callable[..., Shop]]:
    """Opens shops on a queue of RabbitMQ that nobody else has."""
    queues = []

    def make(**settings: Any) -> Shop:
        queues.append(f"shop-{uuid.uuid4()}")
        return open_shop(other_broker=rabbitmq_server.url, queue=queues[-1], **settings)

    yield make
    with kombu.Connection(rabbitmq_server.url) as connection, connection.channel() as channel:
        for queue in queues:
            channel.queue_delete(queue)
