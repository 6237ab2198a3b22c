"""Fixtures of the Celery tests that start no processes: apps on a real broker and database, workers in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import redis
from celery import Celery

from example_project import embedded
from tests.celery.site import Site, connect, place, working
from tests.jobs import close
from tests.servers import created, revive
from tests.tools import wait_for


@pytest.fixture(scope="module", autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    """No worker's own threads outlive their module: they would look for its database for ever, and slow all others."""
    yield
    wait_for(lambda: not [one for one in threading.enumerate() if one.name.startswith("celery-supervise")])


@pytest.fixture
def site(open_site: Callable[..., Site]) -> Site:
    """An app with a broker and a migrated database of its own, without workers."""
    return open_site()


@pytest.fixture
def open_site(
    redis_server: embedded.Redis, database_url: str, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Site]]:
    """Opens apps on this test's database: with other settings, as other processes would be."""
    revive(redis_server)
    with ExitStack() as stack:

        def make(**settings: Any) -> Site:
            app = Celery("shop", set_as_current=False)
            found = place(redis_server, database_url, queue=request.node.name[:80], **settings)
            client = stack.enter_context(closing(redis.Redis.from_url(found["broker_url"], decode_responses=True)))
            client.flushdb()
            stack.callback(close, app)
            return connect(app, client, found)

        yield make


@pytest.fixture(scope="module")
def shop(
    request: pytest.FixtureRequest, pg_server: embedded.Postgres, migrated: str, redis_server: embedded.Redis
) -> Iterator[Site]:
    """The app of this test module, with a worker in a thread: `POOL` is its pool (default: solo)."""
    revive(redis_server)
    app: Celery = request.module.app
    pool = getattr(request.module, "POOL", "solo")
    with created(pg_server, migrated) as database, ExitStack() as stack:
        settings = place(redis_server, database.url, queue=request.module.__name__)
        client = stack.enter_context(closing(redis.Redis.from_url(settings["broker_url"], decode_responses=True)))
        stack.callback(close, app)
        site = connect(app, client, settings)
        stack.enter_context(working(site, pool=pool))
        yield site
        site.check()


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets this process's user, as far as our code can see."""
    return lambda uid: monkeypatch.setattr("os.geteuid", lambda: uid)
