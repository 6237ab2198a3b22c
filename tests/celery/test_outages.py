"""Broker or database away while somebody calls: what is accepted is not lost, and nobody waits for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import group

from celery_supervise import State, SupervisedTask, queries
from celery_supervise.model import Depth, Job
from celery_supervise.publisher import PEEK
from example_project import embedded
from example_project.machine import HOST
from tests.celery.site import Site
from tests.proxy import Proxy
from tests.tools import wait_for

PATIENCE = 1.5  # seconds for one call: a quarter for each step of a publish, and a busy machine


@pytest.fixture
def between(redis_server: embedded.Redis) -> Iterator[Proxy]:
    """A proxy in front of the broker."""
    with Proxy((HOST, redis_server.port)) as proxy:
        yield proxy


@pytest.fixture
def task(open_site: Callable[..., Site], between: Proxy, redis_server: embedded.Redis) -> Any:
    """A supervised task whose broker is behind the proxy."""
    site = open_site(broker_url=between.url(redis_server.url))
    made = site.app.task(base=SupervisedTask, shared=False, name="shop.echo")(echo)
    made.site = site
    return made


def echo(value: int) -> int:
    """A task."""
    return value


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the seconds that it took."""
    start = time.monotonic()
    return call(), time.monotonic() - start


def published(task: Any, job_id: str) -> int:
    """How often the broker has been given the job's message."""
    with task.site.runtime.engines().connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT publish_count FROM supervise.outbox WHERE job_id = %(id)s", {"id": job_id}
        )
        return int(found.scalar_one())


@pytest.mark.parametrize("how", ["refusing", "silent"])
def test_s56_submit_with_the_broker_down(task: Any, between: Proxy, redis_server: embedded.Redis, how: str) -> None:
    """The call returns within a second, the row is pending; the relay publishes when the broker is back."""
    task.delay(0)
    between.silent = how == "silent"
    if how == "refusing":
        with between.refusing():
            results = accepted(task)
    else:
        results = accepted(task)
        between.silent = False
        between.cut()
    assert [published(task, result.id) for result in results] == [0, 0, 0]
    task.site.runtime.publisher._link.skip_until = 0.0
    wait_for(lambda: publish(task) and all(published(task, one.id) for one in results), what="the relay")
    sent = [message["headers"]["id"] for message in task.site.messages()]
    assert sorted(sent[1:]) == sorted(result.id for result in results)


def test_a_group_with_the_broker_down(task: Any, between: Proxy) -> None:
    """Each member is accepted; the group waits for the broker no longer than one call does."""
    task.delay(0)
    with between.refusing():
        result, seconds = timed(lambda: group(task.s(number) for number in range(10)).apply_async())
    assert seconds < PATIENCE
    assert {task.site.job(member).state for member in result.results} == {State.PENDING}


def accepted(task: Any) -> list[Any]:
    """Three submits in a row."""
    calls = [timed(lambda number=number: task.delay(number)) for number in range(3)]
    assert max(seconds for _, seconds in calls) < PATIENCE
    # once it is known to be down, nobody waits for it
    assert sum(seconds for _, seconds in calls[1:]) < PATIENCE
    return [result for result, _ in calls]


def publish(task: Any) -> bool:
    """One pass of the relay, with nothing held back for those who submitted."""
    with task.site.runtime.engines().connect() as connection:
        connection.exec_driver_sql("UPDATE supervise.outbox SET publish_until = NULL WHERE published_at IS NULL")
        connection.commit()
    task.site.runtime.relay.run_once()
    return True


def test_s55_a_publish_that_only_seems_to_work(task: Any, between: Proxy, redis_server: embedded.Redis) -> None:
    """A message that the broker forgot is published again: by evidence, in two sweeps running."""
    result = task.delay(1)
    task.site.broker.delete(task.site.queue)
    runtime = task.site.runtime

    def found_again() -> bool:
        runtime.sweeper.find_lost(runtime.relay, force=True)
        runtime.relay.run_once()
        return bool(task.site.messages())

    wait_for(found_again, what="the message")
    assert [message["headers"]["id"] for message in task.site.messages()] == [result.id]
    assert published(task, result.id) == 2


def test_s02_answer_and_cancel_with_the_broker_down(task: Any, between: Proxy) -> None:
    """An answer is durable and its ticket is published later; a cancel needs no broker at all."""
    site: Site = task.site
    result, other = task.delay(1), task.delay(2)
    with between.refusing():
        site.runtime.publisher.close()
        cancelled, seconds = timed(lambda: site.supervise.cancel(other.id, actor="user:ann"))
        assert (cancelled.state, seconds < PATIENCE) == ("cancelled", True)
        site.supervise.pause(result.id, actor="user:ann")
        assert site.job(result).pause_requested_at is not None


def test_reads_need_no_broker(task: Any, between: Proxy) -> None:
    """Jobs, logs and questions are looked up in the database alone."""
    result = task.delay(1)
    with between.refusing():
        job: Job = task.site.job(result)
        assert job.id == result.id
        assert [entry.event for entry in queries.entries(task.site.runtime.door, job.id)] == ["submitted"]


def test_the_reply_of_a_submit_is_lost(
    open_site: Callable[..., Site], database_url: str, redis_server: embedded.Redis
) -> None:
    """The connection breaks after the commit, before its reply: the job is there once, and the caller has it."""
    parts = urlsplit(database_url)
    with Proxy((HOST, int(parts.port or 0))) as proxy:
        site = open_site(supervise_database_url=proxy.url(database_url))
        made = site.app.task(base=SupervisedTask, shared=False, name="shop.echo")(echo)
        made.delay(0)
        sprung = proxy.lose("reply", b'INSERT INTO "supervise".jobs')
        result = made.delay(1)
        assert sprung.is_set()
        assert site.job(result).id == result.id
        assert site.supervise.jobs()[1] == 2
        assert [message["headers"]["id"] for message in site.messages()].count(result.id) == 1


def test_a_long_queue_is_counted_by_message(open_site: Callable[..., Site]) -> None:
    """A few are looked at, to count ours; of many their number is known, and that others may be among them."""
    site = open_site()
    task = site.app.task(base=SupervisedTask, shared=False, name="shop.echo")(echo)
    task.delay(1)
    publisher = site.runtime.publisher
    site.app.send_task("others.task")
    assert publisher.depth(site.queue) == Depth(1)
    site.broker.lpush(site.queue, *["{}"] * PEEK)
    assert publisher.depth(site.queue) == Depth(PEEK + 2, exact=False)
