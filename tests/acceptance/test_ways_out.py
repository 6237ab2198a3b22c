"""Other ways in which a body, its process, its worker or a server comes to an end: what becomes of the job."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from billiard.exceptions import TimeLimitExceeded

from celery_supervise import JobFailed, State
from example_project import embedded
from example_project.machine import HOST
from tests.acceptance.shop import Shop
from tests.acceptance.test_messages import held, ignored
from tests.proxy import Proxy
from tests.tools import frozen, wait_for

LEASE = timedelta(seconds=3)
SWEEP = timedelta(seconds=0.5)
AGAIN = timedelta(seconds=2)


def test_s62_segfault(shop: Shop) -> None:
    """The process is gone without a word: a lost attempt, and the job runs again."""
    result = shop.send("crashes")
    assert result.get(timeout=30) == "alive"
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (2, 1)


def test_memory_that_is_not_to_be_had(shop: Shop) -> None:
    """`MemoryError` is an error as any other, and ends no worker. Who is killed for it: see `test_killed`."""
    result = shop.send("greedy")
    with pytest.raises(JobFailed, match="MemoryError"):
        result.get(timeout=30)
    assert (shop.job(result).state, shop.job(result).lost_count) == (State.FAILED, 0)
    assert shop.send("add", 1, 2).get(timeout=20) == 3


def test_a_killed_child_is_followed_within_two_seconds(shop: Shop) -> None:
    """On the same host nobody waits for a lease: the next attempt begins."""
    result = shop.send("stand", "gate")
    shop.at("gate")
    killed_at = shop.now()
    os.kill(shop.supervise.attempts(result.id)[-1].pid, signal.SIGKILL)
    shop.at("gate", times=2)
    assert shop.supervise.attempts(result.id)[-1].started_at - killed_at < AGAIN
    shop.open("gate")
    assert result.get(timeout=20) == "gate"


def test_only_the_child_is_frozen(shop: Shop) -> None:
    """Its main process keeps its lease: nobody takes the job from it, and it ends it when it goes on."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    with frozen(shop.supervise.attempts(result.id)[-1].pid):
        shop.outlives_its_lease(result)
        shop.open("one")
        assert shop.job(result).state is State.RUNNING
    assert result.get(timeout=20) == ["ONE", "TWO"]
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)


def test_what_a_dead_worker_had(open_shop: Callable[..., Shop]) -> None:
    """Within a lease and a sweep another worker runs its job, and what it had fetched: nobody waits for Redis."""
    shop = open_shop(worker_prefetch_multiplier=4)
    first = shop.worker("first")
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    fetched = [shop.send("add", number, 0) for number in range(3)]
    wait_for(lambda: shop.broker.hlen("unacked") == 4, what="four messages in the worker's hands")
    shop.worker("second")
    first.kill_all()
    shop.open("one")
    for one in (result, *fetched):
        shop.wait(one, State.COMPLETED)
    lost, again = shop.supervise.attempts(result.id)
    assert again.started_at - lost.lease_until < SWEEP + AGAIN
    shop.settled(result, *fetched)
    assert sorted(shop.effects()) == ["add 0 0", "add 1 0", "add 2 0", "at one", "at one", "one", "two"]
    shop.check()


def test_s54_a_worker_that_hears_nothing(own: Shop) -> None:
    """Its main process stands still: what comes meanwhile is run by another one, what it took from Redis included."""
    deaf = own.worker("deaf")
    with frozen(deaf.pid):
        results = [own.send("add", number, 0) for number in range(5)]
        own.worker("other")
        for result in results:
            assert result.get(timeout=30) == results.index(result)
    own.settled(*results)
    assert len(own.effects()) == 5


def test_s52_an_acknowledgement_is_lost(own: Shop, redis_server: embedded.Redis) -> None:
    """The job has ended, and its message comes again: it is acknowledged, and nothing runs."""
    with Proxy((HOST, redis_server.port)) as proxy:
        own.place = replace(own.place, broker=proxy.url(own.place.broker))
        own.worker()
        result = own.send("parts")
        own.at("parting")
        copy = held(own, result)
        assert own.job(result).state is State.COMPLETED
        proxy.cut()
        own.open("parting")
        own.worker("again")
        own.broker.lpush("shop", copy)
        wait_for(lambda: ignored(own, result), what="the copy's end")
    own.settled(result)
    assert (result.state, own.effects("parts")) == ("SUCCESS", ["parts"])
    assert (own.count(result, "completed"), own.count(result, "claimed")) == (1, 1)


def test_postgres_is_away_for_longer_than_a_lease(own: Shop, pg_server: embedded.Postgres) -> None:
    """Nobody could renew: when it is back the sweeps hold back until the living have, and no job is taken."""
    own.worker(concurrency=2)
    result = own.send("walk", ["one", "two"], ["one"])
    own.at("one")
    pg_server.stop()
    until = time.monotonic() + 1.2 * LEASE.total_seconds()
    wait_for(lambda: time.monotonic() > until, what="the lease's end: no clock of the database's is there to be asked")
    pg_server.start()
    own.outlives_its_lease(result)
    own.open("one")
    assert result.get(timeout=30) == ["ONE", "TWO"]
    own.settled(result)
    assert own.effects() == ["one", "at one", "two"]
    assert (own.job(result).attempts, own.job(result).lost_count) == (1, 0)


@pytest.mark.parametrize(("name", "kind"), [("timely", Exception), ("doomed", TimeLimitExceeded)])
def test_a_time_limit_inside_our_own_commit(shop: Shop, name: str, kind: Any) -> None:
    """It strikes while the end of the job waits for its row: row and Celery say the same in the end."""
    result = shop.send(name, "gate")
    shop.at("gate")
    with shop.held(result):
        shop.open("gate")
        until = time.monotonic() + 2.5
        wait_for(lambda: time.monotonic() > until, what="the time limit, counted by Celery")
    job = shop.wait(result, State.COMPLETED, State.FAILED)
    shop.settled(result)
    if job.state is State.COMPLETED:
        assert result.get(timeout=20) == "gate"
    else:
        with pytest.raises(kind):
            result.get(timeout=20)
    assert shop.job(result).lost_count == 0
