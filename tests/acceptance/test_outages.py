"""Servers go away under real workers and come back: nobody has to do anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from celery_supervise import State
from example_project import embedded
from example_project.machine import HOST
from tests.acceptance.shop import Shop, opened
from tests.proxy import Proxy
from tests.servers import Database
from tests.tools import wait_for


@pytest.fixture
def open_own(database: Database, tmp_path: Path) -> Iterator[Callable[..., tuple[Shop, embedded.Redis]]]:
    """Opens a shop whose Redis is its own, to be stopped and started."""
    with ExitStack() as stack:

        def make(**settings: Any) -> tuple[Shop, embedded.Redis]:
            server = stack.enter_context(embedded.redis())
            return stack.enter_context(opened(server, 0, database, tmp_path, **settings)), server

        yield make


def test_the_broker_restarts_empty(open_own: Callable[..., tuple[Shop, embedded.Redis]]) -> None:
    """Running jobs go on, waiting ones are published again, the worker's main process survives."""
    shop, server = open_own()
    worker = shop.worker(concurrency=2)
    pid = worker.pid
    running = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    asked = shop.send("approve", 5)
    question = shop.parked(asked)
    server.kill()
    shop.supervise.answer(question.id, "yes", actor="user:ann")
    waiting = shop.send("add", 1, 2)
    server.start()
    shop.open("one")
    results = (running, asked, waiting)

    def completed() -> bool:
        return all(shop.job(result).state is State.COMPLETED for result in results)

    wait_for(completed, timeout=90, what="their ends")
    shop.settled(*results, timeout=60)
    assert (worker.running, worker.pid) == (True, pid)
    effects = ("one", "two", "load 5", "pay 5", "add 1 2")
    assert [shop.effects().count(line) for line in effects] == [1] * len(effects)
    shop.check()


def test_a_child_dies_while_the_broker_is_away(open_own: Callable[..., tuple[Shop, embedded.Redis]]) -> None:
    """Its job is not held for ever by a main process that heard nothing of it."""
    shop, server = open_own()
    worker = shop.worker()
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    server.kill()
    wait_for(lambda: "Cannot connect" in worker.text(), what="the loss of the broker")
    os.kill(worker.children[0], signal.SIGKILL)
    server.start()
    shop.open("one")
    shop.wait(result, State.COMPLETED, timeout=60)
    shop.settled(result, timeout=60)
    assert shop.effects() == ["one", "at one", "at one", "two"]
    assert shop.job(result).lost_count == 1
    shop.check()


def test_s19_postgres_restarts(own: Shop, pg_server: embedded.Postgres) -> None:
    """A body that saves meanwhile waits; workers, leases and sweeps go on when the database is back."""
    own.worker(concurrency=2)
    running = own.send("walk", ["one", "two"], ["one"])
    own.at("one")
    asked = own.send("approve", 5)
    own.parked(asked)
    pg_server.restart("immediate")
    own.open("one")
    assert running.get(timeout=60) == ["ONE", "TWO"]
    own.answer(asked, "yes")
    assert asked.get(timeout=60) == "yes"
    own.settled(running, asked, timeout=60)
    assert own.job(running).lost_count == 0


def test_messages_that_come_while_the_database_is_away(own: Shop, pg_server: embedded.Postgres) -> None:
    """One with a row is dropped and comes again from the row; one without goes back to its queue: neither is lost."""
    with Proxy((HOST, pg_server.port)) as proxy:
        own.place = own.place.with_database(proxy.url(own.place.database))
        worker = own.worker()
        assert own.send("add", 0, 0).get(timeout=20) == 0
        with proxy.refusing():
            ours = own.send("add", 1, 2)
            by_name = own.app.send_task("tests.acceptance.bodies.add", (3, 4))
            wait_for(lambda: worker.text().count("supervise.not_claimed") >= 2, what="both messages' failure")
        assert (ours.get(timeout=40), by_name.get(timeout=40)) == (3, 7)
        own.settled(ours, by_name)
    assert sorted(own.effects()) == ["add 0 0", "add 1 2", "add 3 4"]


def test_a_result_backend_that_hangs_costs_no_lease(
    open_shop: Callable[..., Shop], redis_server: embedded.Redis
) -> None:
    """While the relay waits for the result backend, leases are kept: a long body is not taken for lost."""
    with Proxy((HOST, redis_server.port)) as proxy:
        shop = open_shop(redis_backend_health_check_interval=None, redis_socket_timeout=5.0)
        behind = shop.place.with_backend(proxy.url(shop.place.backend))
        shop.place = behind
        shop.worker(concurrency=2)
        long = shop.send("stand", "gate")
        shop.at("gate")
        tells = [shop.send("impatient", 0.1) for _ in range(3)]
        for result in tells:
            shop.parked(result)
        proxy.silent = True
        for result in tells:
            shop.wait(result, State.EXPIRED)
        started = shop.supervise.attempts(long.id)[0].started_at
        wait_for(
            lambda: (shop.supervise.attempts(long.id)[0].heartbeat_at - started).total_seconds() > 7,
            what="more than two leases of heartbeats",
        )
        proxy.silent = False
        proxy.cut()
        shop.open("gate")
        shop.wait(long, State.COMPLETED)
        assert (shop.job(long).attempts, shop.job(long).lost_count) == (1, 0)
        shop.settled(*tells, timeout=60)
        shop.check()
