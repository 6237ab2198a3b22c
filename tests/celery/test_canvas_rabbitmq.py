"""Canvas and ways in, with RabbitMQ as the broker: exchanges, acknowledgements and headers are another matter there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from celery import Celery, chain, chord
from kombu import Exchange, Queue

from celery_supervise import State, SupervisedTask, queries
from celery_supervise.model import Message, MessageKind
from example_project import embedded
from tests.celery.site import Site, connect, got, place, working
from tests.jobs import close
from tests.servers import created
from tests.tools import wait_for

app = Celery("rabbit", set_as_current=False)
seen: Counter[str] = Counter()
TOPIC = Exchange("shop.topic", type="topic")


@app.task(base=SupervisedTask, bind=True, shared=False, name="rabbit.asks")
def asks(self: Any, value: int) -> int:
    way = self.request.delivery_info
    seen[f"asks {value} {way['routing_key']} {way.get('priority') or 0}"] += 1
    return value + int(self.ask("more", "How many more?", schema={"type": "integer"}))


@app.task(shared=False, name="rabbit.note")
def note(value: Any) -> Any:
    seen[f"note {value}"] += 1
    return value


@app.task(shared=False, name="rabbit.total")
def total(values: list[int]) -> int:
    seen[f"total {values}"] += 1
    return sum(values)


@pytest.fixture(scope="module")
def shop(
    rabbitmq_server: embedded.RabbitMQ, redis_server: embedded.Redis, pg_server: embedded.Postgres, migrated: str
) -> Iterator[Site]:
    """The app, with a worker of threads that listens to a queue of each kind."""
    with created(pg_server, migrated) as database, ExitStack() as stack:
        queues = [Queue("rabbit", max_priority=10), Queue("rabbit.topic", TOPIC, routing_key="media.#")]
        settings = place(redis_server, database.url, queue="rabbit", task_queues=queues)
        stack.callback(close, app)
        site = connect(app, None, {**settings, "broker_url": rabbitmq_server.url})  # type: ignore[arg-type]  # not Redis
        stack.enter_context(working(site, pool="threads"))
        yield site
        site.check()


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def test_s24_around_a_job_that_parks(shop: Site) -> None:
    """A chord in a chain: each part once, in order."""
    result = chain(note.s(1), chord([asks.si(1), asks.si(2)], total.s()), note.s())()
    members = list(result.parent.parent.results)
    for member in members:
        wait_for(lambda: shop.supervise.jobs(prefix=member.id)[1], what="the member")  # noqa: B023  # called at once
        shop.answer(member, 10)
    assert got(result) == 23
    assert (seen["total [11, 12]"], seen["note 23"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "rabbit"),
        ({"priority": 7}, "rabbit"),
        ({"exchange": TOPIC, "routing_key": "media.video"}, "media.video"),
        ({"queue": "rabbit.topic"}, "media.#"),
    ],
    ids=["default", "priority", "topic exchange", "queue"],
)
def test_it_goes_on_by_the_way_that_it_came(shop: Site, options: dict[str, Any], key: str) -> None:
    """Exchange, routing key and priority are those of the call, at each entry of the body."""
    result = asks.apply_async((1,), **options)
    shop.answer(result, 1)
    assert got(result) == 2
    assert seen == {f"asks 1 {key} {options.get('priority', 0)}": 2}


def test_copies(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    """A message that comes again runs nothing, and is acknowledged."""
    result = asks.delay(1)
    shop.parked(result)
    job = shop.job(result)
    envelope = queries.payload(shop.runtime.door, job.id, "envelope")
    assert envelope is not None
    ticket = shop.supervise.attempts(job.id)[0].ticket_id
    with caplog.at_level("INFO", "celery_supervise.runner"):
        for _ in range(3):
            shop.runtime.publisher.publish(
                Message(ticket, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state)
            )
        wait_for(lambda: caplog.text.count("supervise.dropped") == 3, what="the copies' ends")
    shop.answer(result, 1)
    assert got(result) == 2
    assert sum(seen.values()) == 2


def test_a_message_by_hand(shop: Site) -> None:
    """As another language would send it, with the few headers of protocol 2."""
    headers = {"lang": "js", "task": asks.name, "id": "by-hand", "root_id": "by-hand"}
    with app.connection_for_write() as connection:
        connection.Producer().publish(
            json.dumps([[1], {}, {}]),
            routing_key="rabbit",
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
        )
    result = app.AsyncResult("by-hand")
    wait_for(lambda: shop.supervise.jobs(prefix="by-hand")[1], what="the job")
    shop.answer(result, 1)
    assert got(result) == 2
    shop.settled(result)
    assert shop.job(result).state is State.COMPLETED
