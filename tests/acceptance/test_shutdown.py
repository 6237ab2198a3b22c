"""A worker is told to stop: its jobs go to another one, without waiting for a lease, without using up an attempt."""

from __future__ import annotations

import os
import signal

import pytest
from celery.result import AsyncResult

from tests.acceptance.shop import Shop, Worker
from tests.tools import wait_for


def walking(shop: Shop) -> tuple[Worker, AsyncResult]:
    """A worker inside a job, between two steps."""
    worker = shop.worker("first")
    result = shop.send("walk", ["one", "two", "three"], ["one"])
    shop.at("one")
    return worker, result


def told_to_leave(shop: Shop, result: AsyncResult) -> bool:
    """Whether the attempt is to hand over at its next checkpoint."""
    return shop.supervise.attempts(result.id)[-1].handing_over


def went_on_elsewhere(shop: Shop, result: AsyncResult) -> None:
    """The job ends at a second worker: nothing lost, no step done twice beyond the one interrupted."""
    shop.worker("second")
    assert result.get(timeout=40) == ["ONE", "TWO", "THREE"]
    events = shop.events(result)
    assert (events.count("handed_over"), events.count("lease_lost")) == (1, 0)
    assert shop.job(result).lost_count == 0
    assert [shop.effects().count(step) for step in ("one", "two", "three")] == [1, 1, 1]


def test_s61_warm_shutdown_hands_over_at_the_next_checkpoint(own: Shop) -> None:
    """SIGTERM to the worker: the step goes on to its end, then the job leaves; the worker exits."""
    worker, result = walking(own)
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: told_to_leave(own, result), what="the request to leave")
    own.open("one")
    # up to 5.4 a child may wait half a minute for its last message to be read, in any warm shutdown
    assert worker.wait(60) == 0
    went_on_elsewhere(own, result)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_s61_shutdown_that_interrupts_the_body(own: Shop, number: signal.Signals) -> None:
    """SIGTERM to parent and children at once, as some init systems do, and a cold shutdown: handed over at once."""
    worker, result = walking(own)
    children = worker.children
    worker.send_signal(number)
    for child in children if number is signal.SIGTERM else ():
        os.kill(child, number)
    worker.wait()
    own.open("one")
    went_on_elsewhere(own, result)
