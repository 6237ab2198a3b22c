"""The same promises with RabbitMQ as the broker. Each test has a queue of its own on one node."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

import celery
import kombu
import pytest
from celery.bin.base import CLIContext
from celery.exceptions import TaskRevokedError
from click.testing import CliRunner

from celery_supervise import State
from celery_supervise.cli import supervise
from celery_supervise.model import Claimer
from example_project import embedded
from example_project.machine import HOST
from tests.acceptance.shop import Shop
from tests.acceptance.tended import Tended
from tests.acceptance.test_shutdown import told_to_leave
from tests.proxy import Proxy
from tests.tools import wait_for

HURRIED = {"consumer_timeout": "5000", "channel_tick_interval": "500"}
"""Milliseconds: how long a message may be unacknowledged, how often RabbitMQ looks."""


def purge(shop: Shop) -> int:
    """Empty the shop's queue, as a broker that was replaced; how many messages are gone."""
    with kombu.Connection(shop.place.broker) as connection, connection.channel() as channel:
        gone: int = channel.queue_purge(shop.place.queue)
        return gone


def copies(shop: Shop) -> int:
    """How many messages were sent more than one a ticket, so far."""
    with shop.runtime.engines().connect() as connection:
        found = connection.exec_driver_sql("SELECT sum(publish_count) - count(*) FROM supervise.outbox")
        return int(found.scalar() or 0)


def sweeps_pass(shop: Shop, count: int) -> None:
    """Wait until so many more sweeps have counted the broker's messages."""
    for _ in range(count):
        before = counted_at(shop)
        wait_for(lambda before=before: counted_at(shop) != before, what="a sweep")  # type: ignore[misc]  # mypy#12557


def counted_at(shop: Shop) -> Any:
    """When a sweep last did so."""
    with shop.runtime.engines().connect() as connection:
        return connection.exec_driver_sql("SELECT last_ok_at FROM supervise.sweeps WHERE name = 'lost'").scalar()


def test_basics(open_rabbit: Callable[..., Shop]) -> None:
    """Submit, ask, answer, retry, link, errback, cancel, revoke: all as on Redis, none of it left in the queue."""
    shop = open_rabbit()
    shop.worker(concurrency=2)
    asked = shop.send("approve", 5)
    retried = shop.send("retrying", 1, 0.1)
    linked = shop.send("add", 1, 2, link=shop.task("record").s())
    failed = shop.send("fail", "no", link_error=shop.task("alarm").s())
    shop.answer(asked, "yes")
    assert (asked.get(timeout=30), retried.get(timeout=30), linked.get(timeout=30)) == ("yes", 1, 3)
    wait_for(lambda: {"record 3", "alarm"} <= {*shop.effects()}, what="callback and errback")
    parked = shop.send("approve", 6)
    shop.parked(parked)
    shop.supervise.cancel(parked.id, actor="user:ann")
    with pytest.raises(TaskRevokedError):
        parked.get(timeout=30)
    shop.settled(asked, retried, linked, failed, parked)
    effects = ["add 1 2", "alarm", "fail", "first", "load 5", "load 6", "pay 5", "record 3", "try", "try"]
    assert sorted(shop.effects()) == effects
    assert purge(shop) == 0
    shop.check()


def test_a_worker_dies(open_rabbit: Callable[..., Shop]) -> None:
    """RabbitMQ delivers its message again at once; it waits for the lease all the same, and no step is done twice."""
    shop = open_rabbit()
    first = shop.worker("first")
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    shop.worker("second")
    first.kill_all()
    shop.open("one")
    assert result.get(timeout=40) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "at one", "at one", "two"]
    assert shop.count(result, "lease_lost") == 1


def test_s15_an_emptied_queue_is_healed(open_rabbit: Callable[..., Shop]) -> None:
    """What waits is sent again from the rows, what is parked or runs goes on; nothing runs twice."""
    shop = open_rabbit()
    shop.worker()
    parked = shop.send("approve", 5)
    shop.parked(parked)
    standing = shop.send("stand", "gate")
    shop.at("gate")
    waiting = [shop.send("add", number, 0) for number in range(20)]
    shop.answer(parked, "yes")
    assert purge(shop) >= 19
    shop.open("gate")
    for result in (parked, standing, *waiting):
        shop.wait(result, State.COMPLETED)
    shop.settled(parked, standing, *waiting)
    assert sorted(shop.effects()) == sorted(
        ["load 5", "pay 5", "at gate", *(f"add {number} 0" for number in range(20))]
    )


def test_what_workers_have_fetched_is_not_sent_again(open_rabbit: Callable[..., Shop]) -> None:
    """Messages that wait behind a long body, in a worker's hands, are known to be there: none is copied."""
    shop = open_rabbit(worker_prefetch_multiplier=4, supervise_republish_seconds=0.1)
    shop.worker()
    standing = shop.send("stand", "gate")
    shop.at("gate")
    waiting = [shop.send("add", number, 0) for number in range(10)]
    wait_for(lambda: depth(shop) == 7, what="three messages in the worker's hands")
    sweeps_pass(shop, 8)
    assert copies(shop) == 0
    shop.open("gate")
    for result in (standing, *waiting):
        shop.wait(result, State.COMPLETED)
    assert len(shop.effects("add")) == 10


def depth(shop: Shop) -> int:
    """How many messages are ready in the shop's queue."""
    found = shop.runtime.publisher.depth(shop.place.queue)
    assert found is not None
    return found.count


def test_a_queue_that_is_not_there_is_empty(open_rabbit: Callable[..., Shop]) -> None:
    """A broker that was replaced by a new one has not even the queue."""
    assert depth(open_rabbit()) == 0


def test_s57_doctor_looks_at_consumer_timeout(open_rabbit: Callable[..., Shop]) -> None:
    """RabbitMQ's default, or what the queue says: a job that runs longer is told of."""
    shop = open_rabbit()
    shop.supervise.claim(*begun(shop))
    assert "its settings suit long jobs" in examined(shop)
    patient = {"x-consumer-timeout": 1}
    shop.app.amqp.queues.add(kombu.Queue(shop.place.queue, queue_arguments=patient))
    assert "consumer_timeout of 0 s" in examined(shop)


def begun(shop: Shop) -> tuple[str, uuid.UUID, Claimer]:
    """A job that is about to run, with its ticket and who is to run it."""
    result = shop.send("add", 1, 2)
    ticket = shop.job(result).ticket_id
    assert ticket is not None
    return str(result.id), ticket, Claimer(uuid.uuid4(), "test", os.getpid())


def examined(shop: Shop) -> str:
    """What `doctor` says of Celery's settings."""
    ran = CliRunner().invoke(supervise, ["doctor"], obj=CLIContext(app=shop.app, no_color=True, workdir=None))
    return " ".join(ran.output.split())


@pytest.mark.may_skip  # after a lost connection its worker hands no message to a child: docs/guarantees.md
@pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery 5.4 may run nothing after a lost connection to RabbitMQ")
def test_s57_a_message_is_taken_back_from_a_long_body(
    open_rabbit: Callable[..., Shop], rabbitmq_server: embedded.RabbitMQ
) -> None:
    """As by RabbitMQ's consumer_timeout, which closes the channel: the body runs on, and ends its job once."""
    with Proxy((HOST, rabbitmq_server.port)) as proxy:
        shop = open_rabbit(through=proxy)
        with proxy.refusing():
            waiting = shop.send("add", 1, 2)
        worker = shop.worker(concurrency=2)
        running = shop.send("walk", ["one", "two"], ["one"])
        shop.at("one")
        proxy.cut()
        wait_for(lambda: f"[{running.id}] ignored" in worker.text(), what="the second delivery's end")
        shop.open("one")
        assert (running.get(timeout=30), waiting.get(timeout=30)) == (["ONE", "TWO"], 3)
        shop.settled(running, waiting)
        assert sorted(shop.effects()) == ["add 1 2", "at one", "one", "two"]
        assert (shop.job(running).attempts, shop.job(running).lost_count) == (1, 0)
        shop.check()


@pytest.mark.usefixtures("rabbitmq_server")  # where there is RabbitMQ; this node is the test's own
def test_s57_a_delivery_times_out(open_shop: Callable[..., Shop]) -> None:
    """RabbitMQ's own consumer_timeout: Celery's worker stops, its body leaves, no second delivery runs it again."""
    with embedded.rabbitmq(options=HURRIED) as server:
        shop = open_shop(other_broker=server.url)
        first = shop.worker("first")
        result = shop.send("walk", ["one", "two", "three"], ["one"])
        shop.at("one")
        wait_for(lambda: "PRECONDITION_FAILED" in first.text(), timeout=60, what="the timeout")
        tended = Tended(shop)
        tended.wait(lambda: f"[{result.id}] ignored" in shop.log_text(), "the second delivery's end")
        wait_for(lambda: told_to_leave(shop, result), what="the request to leave")
        assert shop.job(result).state is State.RUNNING
        shop.open("one")
        tended.completed(result)
        assert first.wait(90) != 0
        assert [shop.effects().count(step) for step in ("one", "two", "three")] == [1, 1, 1]
        assert shop.count(result, "handed_over") >= 1
        assert shop.job(result).lost_count == 0
        shop.check()
