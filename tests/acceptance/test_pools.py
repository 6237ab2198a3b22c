"""Workers with other pools than prefork: threads, solo, gevent. What each can promise, and what is refused."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery.result import AsyncResult

from celery_supervise import State
from tests.acceptance.shop import SERVE, Shop, Worker
from tests.tools import named, wait_for


@dataclass(frozen=True)
class Pool:
    """A pool of a worker, and how its process reaches Postgres."""

    name: str
    module: str = SERVE
    scheme: str = "postgresql"
    concurrency: int = 4

    def start(self, shop: Shop, name: str) -> Worker:
        """A worker of this pool."""
        shop.place = shop.place.with_database(shop.place.database.replace("postgresql:", f"{self.scheme}:"))
        return shop.worker(name, "-P", self.name, concurrency=self.concurrency, module=self.module)


THREADS = Pool("threads")
SOLO = Pool("solo", concurrency=1)
GEVENT = Pool("gevent", scheme="postgresql+psycopg")
PSYCOGREEN = Pool("gevent", module="tests.acceptance.green")


def heartbeat(shop: Shop, result: AsyncResult) -> datetime:
    """When the running attempt was last renewed."""
    return shop.supervise.attempts(result.id)[-1].heartbeat_at


@pytest.mark.parametrize("pool", [THREADS, GEVENT, PSYCOGREEN], ids=named)
def test_s82_bodies_side_by_side_in_one_process(own: Shop, pool: Pool) -> None:
    """Threads and green threads: everything works, what holds up one body holds up no other, and no lease is lost."""
    worker = pool.start(own, "w")
    results = [*asks_and_is_retried(own), *others_go_on_while_one_waits_for_its_row(own)]
    own.settled(*results)
    assert {own.job(result).lost_count for result in results} == {0}
    if pool is GEVENT:
        calculates_for_longer_than_a_lease(own)
        is_ended_by_its_time_limit(own)
    if pool is not PSYCOGREEN:
        leaves_when_its_worker_stops(own, worker)


def test_bodies_in_the_main_thread(own: Shop) -> None:
    """Solo: everything works, one after the other."""
    worker = SOLO.start(own, "w")
    own.settled(*asks_and_is_retried(own))
    leaves_when_its_worker_stops(own, worker)


def asks_and_is_retried(shop: Shop) -> list[AsyncResult]:
    """Parks for an answer; waits for its next try."""
    asked = shop.send("approve", 5)
    shop.answer(asked, "yes")
    retried = shop.send("retrying", 1, 0.1)
    assert (asked.get(timeout=30), retried.get(timeout=30)) == ("yes", 1)
    assert sorted(shop.effects()) == ["first", "load 5", "pay 5", "try", "try"]
    return [asked, retried]


def others_go_on_while_one_waits_for_its_row(shop: Shop) -> list[AsyncResult]:
    """Somebody holds the row of one job, for longer than it waits: others of its process begin, save and end."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    with shop.held(result):
        shop.open("one")
        others = [shop.send("walk", ["three"], []) for _ in range(5)]
        for other in others:
            assert other.get(timeout=30) == ["THREE"]
        assert shop.job(result).state is State.RUNNING
    assert result.get(timeout=30) == ["ONE", "TWO"]
    assert shop.effects("two") == ["two"]
    return [result, *others]


def calculates_for_longer_than_a_lease(shop: Shop) -> None:
    """S71 with gevent: an OS thread renews the lease while a body lets no green thread run."""
    result = shop.send("spin", "wheel")
    shop.at("wheel")
    shop.outlives_its_lease(result)
    shop.open("wheel")
    assert result.get(timeout=30) == "wheel"
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)


def is_ended_by_its_time_limit(shop: Shop) -> None:
    """It has time limits: the job fails, and is not taken for lost."""
    result = shop.send("stuck")
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=30)
    job = shop.job(result)
    assert (job.state, job.stop_reason, job.attempts) == (State.FAILED, "time_limit", 1)


def leaves_when_its_worker_stops(shop: Shop, worker: Worker) -> None:
    """The body's step goes on to its end, then the job leaves for another worker, and this one exits."""
    result = shop.send("walk", ["four", "five"], ["four"])
    shop.at("four")
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: shop.supervise.attempts(result.id)[-1].handing_over, what="the request to leave")
    shop.open("four")
    assert worker.wait(60) == 0
    # a worker that has just fetched the message as it stops runs it once more, and is told to leave once more
    assert shop.count(result, "handed_over") >= 1
    assert shop.job(result).lost_count == 0
    assert [shop.effects().count(step) for step in ("four", "five")] == [1, 1]


def test_s71_a_body_that_holds_the_interpreters_lock(shop: Shop) -> None:
    """Prefork: the main process renews the lease, whatever C code does to the child."""
    result = shop.send("clench", "fist")
    shop.at("fist")
    shop.outlives_its_lease(result)
    shop.unclench("fist")
    assert result.get(timeout=30) == "fist"
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)


def test_a_process_that_stood_still_takes_its_own_job_from_nobody(own: Shop) -> None:
    """Threads: C code that holds the lock stops heartbeats and sweeps alike; its sweep knows what it runs itself."""
    THREADS.start(own, "w")
    result = own.send("clench", "fist")
    own.at("fist")
    lease = own.supervise.attempts(result.id)[0].lease_until
    wait_for(lambda: own.now() > lease, what="the lease's end")
    assert heartbeat(own, result) < lease
    own.unclench("fist")
    assert result.get(timeout=30) == "fist"
    assert (own.job(result).attempts, own.job(result).lost_count) == (1, 0)


def test_gevent_with_a_driver_that_blocks(open_shop: Callable[..., Shop]) -> None:
    """psycopg2 without psycogreen is refused at start, with what to do."""
    worker = open_shop().worker("w", "-P", "gevent", ready=False)
    assert worker.wait(60) != 0
    assert "psycogreen.gevent.patch_psycopg()" in worker.text()
    assert " ready." not in worker.text()
