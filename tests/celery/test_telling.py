"""Telling Celery how a job ended, when result backend or broker are away just then: late, but not falsely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery, chain
from celery.worker import state

from celery_supervise import State, SupervisedTask
from example_project import embedded
from example_project.machine import HOST
from tests.celery.site import Site, connect, place, working
from tests.jobs import close
from tests.proxy import Proxy
from tests.servers import Database
from tests.tools import wait_for

# how a worker tells that something went wrong outside of a body
pytestmark = pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
effects: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    effects.clear()


@pytest.fixture
def between(redis_server: embedded.Redis) -> Iterator[dict[str, Proxy]]:
    """Proxies in front of broker and result backend."""
    target = (HOST, redis_server.port)
    with Proxy(target) as broker, Proxy(target) as backend:
        yield {"broker": broker, "backend": backend}


@pytest.fixture
def shop(between: dict[str, Proxy], redis_url: str, redis_server: embedded.Redis, database: Database) -> Iterator[Site]:
    """An app whose servers are behind proxies, with a worker."""
    app = Celery("telling", set_as_current=False)
    settings = place(redis_server, database.url, queue="telling")
    settings |= {
        "broker_url": between["broker"].url(redis_url),
        "result_backend": between["backend"].url(settings["result_backend"]),
        "result_backend_transport_options": {"retry_policy": {"timeout": 1.0}},
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0.1},
        "broker_transport_options": {"socket_timeout": 2.0},
        "supervise_lease_seconds": 1.5,
        "supervise_heartbeat_seconds": 0.3,
    }
    define(app, between)
    with ExitStack() as stack:
        stack.callback(close, app)
        site = connect(app, None, settings)  # type: ignore[arg-type]  # nobody looks at the broker here
        stack.enter_context(working(site))
        yield site
        site.check()


def define(app: Celery, between: dict[str, Proxy]) -> None:
    """The tasks. They take servers away while they run, and the tests give them back."""
    outages = ExitStack()
    app.outages = outages

    def takes(_self: SupervisedTask, what: str, value: int) -> int:
        effects.append("run")
        if what:
            outages.enter_context(between[what].refusing())
        return value

    def follows(_self: SupervisedTask, value: int) -> int:
        effects.append(f"follows {value}")
        return value + 1

    def plain(value: int) -> int:
        effects.append(f"plain {value}")
        return value + 1

    def alarm(*_: Any) -> None:
        effects.append("alarm")

    for function in (takes, follows):
        app.task(base=SupervisedTask, bind=True, shared=False, name=function.__name__)(function)
    for function in (plain, alarm):
        app.task(shared=False, name=function.__name__)(function)


def test_result_backend_away_at_the_end(shop: Site) -> None:
    """The job has completed; Celery is told when the backend is back; the body ran once, its callback, too."""
    tasks = shop.app.tasks
    result = tasks["takes"].apply_async(("backend", 5), link=tasks["follows"].s())
    shop.wait(result, State.COMPLETED)
    wait_for(lambda: not state.active_requests, timeout=60, what="the end of the telling")
    shop.app.outages.close()
    assert result.get(timeout=40) == 5
    shop.settled(result)
    assert shop.events(result)[-2:] == ["completed", "settled"]
    assert effects == ["run", "follows 5"]


def test_broker_away_at_the_end(shop: Site) -> None:
    """What comes next in a chain is sent when the broker is back; nobody is told of a failure that is none."""
    tasks = shop.app.tasks
    flow = chain(tasks["takes"].s("broker", 5).on_error(tasks["alarm"].si()), tasks["plain"].s())
    result = flow.apply_async()
    shop.wait(result.parent, State.COMPLETED)
    wait_for(lambda: not state.active_requests, timeout=60, what="the end of the telling")
    shop.app.outages.close()
    assert result.get(timeout=60) == 6
    assert result.parent.get(timeout=20) == 5
    assert effects == ["run", "plain 5"]
