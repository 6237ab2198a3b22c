"""The broker doubles, delays, loses: the row decides what runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import kombu
import pytest
from celery.result import AsyncResult

from celery_supervise import State, queries
from celery_supervise.model import Message, MessageKind, Stored
from tests.acceptance.shop import Shop
from tests.tools import wait_for


def message(shop: Shop, result: AsyncResult) -> Message:
    """The message that would start the job now."""
    job = shop.job(result)
    envelope = queries.payload(shop.runtime.door, job.id, "envelope")
    assert job.ticket_id is not None
    assert envelope is not None
    return Message(job.ticket_id, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state)


def ignored(shop: Shop, result: AsyncResult) -> int:
    """How many deliveries the workers have dropped, those that parked the job included."""
    return shop.log_text().count(f"[{result.id}] ignored")


def held(shop: Shop, result: AsyncResult) -> str:
    """The job's message in a worker's hands, as kombu puts it back when the visibility timeout is over."""
    taken = [json.loads(one)[0] for one in shop.broker.hvals("unacked")]
    content = next(one for one in taken if one["headers"]["id"] == result.id)
    return json.dumps({**content, "headers": {**content["headers"], "redelivered": True}})


def test_thirty_copies_of_a_message(own: Shop) -> None:
    """One of them runs the body, the others are acknowledged and leave."""
    result = own.send("add", 1, 2, link=own.task("record").s())
    for _ in range(30):
        own.runtime.publisher.publish(message(own, result))
    own.worker(concurrency=2)
    assert result.get(timeout=30) == 3
    wait_for(lambda: ignored(own, result) == 30, what="thirty dropped copies")
    own.settled(result)
    wait_for(lambda: "record 3" in own.effects(), what="the linked task, which has its own turn")
    assert sorted(own.effects()) == ["add 1 2", "record 3"]
    assert own.job(result).attempts == 1


def test_copies_while_running_parked_and_ended(shop: Shop) -> None:
    """A copy that comes late changes nothing, whatever has become of the job."""
    result = shop.send("approve", 5)
    first = message_of_the_claimed(shop, result)
    shop.runtime.publisher.publish(first)
    wait_for(lambda: ignored(shop, result) == 2, what="the copy for the parked job")
    assert shop.job(result).state is State.PARKED
    shop.answer(result, "yes")
    assert result.get(timeout=30) == "yes"
    shop.runtime.publisher.publish(first)
    wait_for(lambda: ignored(shop, result) == 3, what="the copy for the ended job")
    assert shop.effects() == ["load 5", "pay 5"]
    assert shop.job(result).attempts == 2
    assert result.get(timeout=5) == "yes"


def message_of_the_claimed(shop: Shop, result: AsyncResult) -> Message:
    """The message that started the job's first attempt; returned when the job is parked."""
    shop.parked(result)
    job = shop.job(result)
    envelope = queries.payload(shop.runtime.door, job.id, "envelope")
    assert envelope is not None
    ticket = shop.supervise.attempts(result.id)[0].ticket_id
    return Message(ticket, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state)


def test_an_old_message_after_a_newer_one(own: Shop) -> None:
    """The message of an earlier stage does not use up the ticket of the present one."""
    worker = own.worker("first")
    result = own.send("approve", 5)
    old = message_of_the_claimed(own, result)
    worker.stop()
    own.runtime.publisher.publish(old)
    own.answer(result, "yes")
    own.worker("second")
    assert result.get(timeout=30) == "yes"
    wait_for(lambda: ignored(own, result) == 2, what="the old message's drop")
    assert own.job(result).attempts == 2


def test_a_lost_message_is_published_again(own: Shop) -> None:
    """A job whose message is gone from the broker runs, without anybody's help."""
    result = own.send("add", 1, 2)
    assert own.broker.delete("shop") == 1
    own.worker()
    assert result.get(timeout=30) == 3
    assert own.effects() == ["add 1 2"]


def test_a_message_whose_row_is_gone_is_dropped(shop: Shop) -> None:
    """A message with our header and no row (rolled back, pruned, restored from backup) makes no job."""
    result = shop.send("stand", "never")
    shop.at("never")
    lost = message_of_the_running(shop, result)
    other = AsyncResult("rolled-back", app=shop.app)
    shop.runtime.publisher.publish(
        Message(lost.id, lost.kind, other.id, lost.task, lost.queue, renamed(shop, lost, other.id), lost.state)
    )
    wait_for(lambda: ignored(shop, other), what="the drop")
    shop.open("never")
    assert result.get(timeout=20) == "never"
    assert shop.effects() == ["at never"]


def message_of_the_running(shop: Shop, result: AsyncResult) -> Message:
    """The message that started the running attempt."""
    job = shop.job(result)
    envelope = queries.payload(shop.runtime.door, job.id, "envelope")
    assert envelope is not None
    ticket = shop.supervise.attempts(result.id)[-1].ticket_id
    return Message(ticket, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state)


def renamed(shop: Shop, original: Message, job_id: str) -> Stored:
    """The envelope of a job of another id."""
    envelope = shop.runtime.publisher.open(original.envelope)
    changed = replace(envelope, headers={**envelope.headers, "id": job_id})
    return Stored(changed.pack(), original.envelope.encoding)


@pytest.mark.parametrize("pending", [20])
def test_s15_the_broker_is_flushed(own: Shop, pending: int) -> None:
    """Pending, running, parked and answered jobs all finish once, and nobody has to do anything."""
    own.worker(concurrency=2)
    asked = [own.send("approve", number) for number in range(10)]
    for result in asked:
        own.parked(result)
    standing = [own.send("stand", f"gate {number}") for number in range(2)]
    for number in range(2):
        own.at(f"gate {number}")
    waiting = [own.send("add", number, 0) for number in range(pending)]
    for result in asked[:5]:
        own.answer(result, "yes")
    own.broker.flushall()
    for number in range(2):
        own.open(f"gate {number}")
    for result in asked[5:]:
        own.answer(result, "yes")
    for result in (*asked, *standing, *waiting):
        own.wait(result, State.COMPLETED)
    own.settled(*asked, *standing, *waiting)
    expected = [f"{verb} {number}" for number in range(10) for verb in ("load", "pay")]
    expected += [f"add {number} 0" for number in range(pending)] + [f"at gate {number}" for number in range(2)]
    assert sorted(own.effects()) == sorted(expected)


def test_s04_the_broker_redelivers_what_still_runs(shop: Shop) -> None:
    """Copies of the message of a job that still runs: they run nothing, and leave before the job ends."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    copy = held(shop, result)
    for copies in range(1, 6):
        shop.broker.lpush("shop", copy)
        wait_for(lambda: ignored(shop, result) >= copies, what="the drop of a copy")  # noqa: B023 - called at once
    assert shop.job(result).state is State.RUNNING
    shop.open("one")
    assert result.get(timeout=30) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "at one", "two"]
    assert (shop.count(result, "claimed"), shop.count(result, "lease_lost")) == (1, 0)


def test_s51_no_message_waits_in_the_broker(shop: Shop) -> None:
    """Countdowns and retries are times in the row: meanwhile the broker holds nothing of the job."""
    far = timedelta(hours=1).total_seconds()
    shop.send("add", 0, 0, countdown=far)
    retried = shop.send("retrying", 1, far)
    wait_for(lambda: shop.count(retried, "retry_scheduled"), what="the retry")
    wait_for(lambda: shop.broker.hlen("unacked") == 0, what="the first try's acknowledgement")
    assert shop.queued == 0


def test_s51_what_waits_in_the_row_runs_when_it_is_due(shop: Shop) -> None:
    """Neither a second too early nor never."""
    later = shop.send("add", 1, 2, countdown=1.5)
    again = shop.send("retrying", 1, 1.5)
    assert (later.get(timeout=20), again.get(timeout=20)) == (3, 1)
    assert sorted(shop.effects()) == ["add 1 2", "first", "try", "try"]
    for result in (later, again):
        scheduled = shop.job(result)
        assert scheduled.finished_at is not None
        assert scheduled.finished_at - scheduled.created_at >= timedelta(seconds=1.5)


def test_a_message_by_name_that_waits(shop: Shop) -> None:
    """Sent by name with a countdown it waits in a worker, as Celery has it; its job is born when it is due."""
    result = shop.app.send_task("tests.acceptance.bodies.add", (1, 2), countdown=0.5, expires=60)
    assert result.get(timeout=20) == 3
    assert shop.entries(result)[0].actor == "message"


def test_s04_a_visibility_timeout_shorter_than_the_task(shop: Shop) -> None:
    """Kombu puts back what is unacknowledged for a second: while the body runs, and the copy is dropped."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    impatient = {"visibility_timeout": 1}
    with kombu.Connection(shop.place.broker, transport_options=impatient) as connection:
        quality: Any = connection.channel().qos

        def dropped() -> bool:
            quality.restore_visible(interval=1)  # as every worker's does, at every tenth look
            return ignored(shop, result) >= 1

        wait_for(dropped, timeout=60, what="the drop of a second delivery")
    assert shop.job(result).state is State.RUNNING
    shop.open("one")
    assert result.get(timeout=40) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "at one", "two"]
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)
