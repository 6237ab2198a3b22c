"""A worker's child is killed at each place where it matters: no accepted work is lost, no step is done twice."""

from __future__ import annotations

import pytest

from celery_supervise import State
from celery_supervise.errors import JobLost
from tests.acceptance import faults
from tests.acceptance.shop import Shop
from tests.tools import wait_for

WALK = (["one", "two", "three"], ["two"])


def test_killed_before_the_claim(shop: Shop) -> None:
    """The message is delivered again, and nothing counts as lost: no attempt had begun."""
    faults.plan(shop.place, "before", "claim")
    result = shop.send("add", 1, 2)
    assert result.get(timeout=30) == 3
    shop.settled(result)
    assert shop.effects() == ["add 1 2"]
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)


def test_killed_after_the_claim(shop: Shop) -> None:
    """The attempt is lost, another one runs the body."""
    faults.plan(shop.place, "after", "claim")
    result = shop.send("add", 1, 2)
    assert result.get(timeout=30) == 3
    assert shop.effects() == ["add 1 2"]
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (2, 1)


def test_killed_inside_a_step(shop: Shop) -> None:
    """The step before is not repeated; the one that was interrupted is."""
    result = shop.send("suicidal", 1)
    assert result.get(timeout=30) == "alive"
    assert shop.effects() == ["first", "second", "second"]
    assert shop.count(result, "lease_lost") == 1


def test_killed_after_a_checkpoint(shop: Shop) -> None:
    """A step whose checkpoint has committed is not repeated, although the body never saw it return."""
    faults.plan(shop.place, "after", "checkpoint")
    result = shop.send("walk", ["one", "two"], [])
    assert result.get(timeout=30) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "two"]


def test_killed_before_a_checkpoint(shop: Shop) -> None:
    """A step whose checkpoint has not committed is done again: that is what effect keys are for."""
    faults.plan(shop.place, "before", "checkpoint")
    result = shop.send("walk", ["one", "two"], [])
    assert result.get(timeout=30) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "one", "two"]


def test_killed_in_a_loop(shop: Shop) -> None:
    """A durable loop goes on at the item in which it was killed, with what it carries."""
    faults.plan(shop.place, "before", "checkpoint")
    result = shop.send("loop", 5, -1)
    assert result.get(timeout=30) == 10
    assert shop.effects() == ["item 0", "item 0", "item 1", "item 2", "item 3", "item 4"]


def test_killed_after_asking(shop: Shop) -> None:
    """The question is there and stays; the answer finds a job that can go on."""
    faults.plan(shop.place, "after", "ask")
    result = shop.send("approve", 5)
    shop.answer(result, "yes")
    assert result.get(timeout=30) == "yes"
    assert shop.effects() == ["load 5", "pay 5"]
    assert (shop.count(result, "asked"), shop.job(result).lost_count) == (1, 0)


def test_killed_before_asking(shop: Shop) -> None:
    """The step before is not repeated, and there is one question."""
    faults.plan(shop.place, "before", "ask")
    result = shop.send("approve", 5)
    shop.answer(result, "yes")
    assert result.get(timeout=30) == "yes"
    assert shop.effects() == ["load 5", "pay 5"]
    assert (shop.count(result, "asked"), shop.job(result).lost_count) == (1, 1)


@pytest.mark.parametrize(("moment", "tries", "lost"), [("before", 3, 1), ("after", 2, 0)])
def test_killed_while_retrying(shop: Shop, moment: str, tries: int, lost: int) -> None:
    """A retry that has committed happens, though nothing was sent; one that has not is an attempt that was lost."""
    faults.plan(shop.place, moment, "retry")
    result = shop.send("retrying", 1, 0.1)
    assert result.get(timeout=30) == 1
    assert shop.effects() == ["first", *["try"] * tries]
    assert (shop.count(result, "retry_scheduled"), shop.job(result).lost_count) == (1, lost)


def test_s26_killed_after_it_took_the_answer(shop: Shop) -> None:
    """Each new claim finds the stored answer; nobody is asked again."""
    result = shop.send("approve", 5)
    shop.parked(result)
    faults.plan(shop.place, "after", "claim", times=3)
    shop.answer(result, "yes")
    assert result.get(timeout=40) == "yes"
    assert shop.effects() == ["load 5", "pay 5"]
    assert (shop.count(result, "asked"), shop.count(result, "answered")) == (1, 1)
    job = shop.job(result)
    assert 1 <= job.lost_count <= 3  # a copy that is dropped may be the one that is killed
    assert shop.count(result, "claimed") == job.attempts == 2 + job.lost_count


def test_killed_before_completing(shop: Shop) -> None:
    """The body runs again and finds its steps done."""
    faults.plan(shop.place, "before", "complete")
    result = shop.send("walk", ["one", "two"], [])
    assert result.get(timeout=30) == ["ONE", "TWO"]
    assert shop.effects() == ["one", "two"]


def test_killed_between_completing_and_telling(shop: Shop) -> None:
    """The outcome is committed, so the body does not run again; what was linked to it runs once."""
    faults.plan(shop.place, "after", "complete")
    result = shop.send("add", 1, 2, link=shop.task("record").s())
    assert result.get(timeout=30) == 3
    shop.settled(result)
    wait_for(lambda: shop.effects("record"), what="the linked task, which has its own turn")
    assert shop.effects() == ["add 1 2", "record 3"]
    assert (shop.job(result).attempts, shop.count(result, "completed")) == (1, 1)


def test_killed_before_telling_with_its_result_ignored(shop: Shop) -> None:
    """What comes next in a chain gets the value, also where Celery is not to store it."""
    faults.plan(shop.place, "after", "complete")
    result = (shop.task("add").s(1, 2).set(ignore_result=True) | shop.task("record").s()).apply_async()
    assert result.get(timeout=30) == 3
    assert shop.effects() == ["add 1 2", "record 3"]


def test_s16_a_job_that_kills_its_workers_is_given_up(shop: Shop) -> None:
    """After three lost attempts the job fails as `worker_lost`, and others have run meanwhile."""
    result = shop.send("suicidal", 99)
    other = shop.send("add", 1, 2)
    with pytest.raises(JobLost, match="worker_lost"):
        result.get(timeout=40)
    assert other.get(timeout=20) == 3
    shop.settled(result)
    job = shop.job(result)
    assert (job.state, job.stop_reason, job.lost_count) == (State.FAILED, "worker_lost", 3)
    events = shop.events(result)
    assert [events.count(event) for event in ("claimed", "lease_lost", "failed")] == [3, 3, 1]
    assert shop.effects("second") == ["second"] * 3


def test_s62_a_process_that_leaves_without_a_word_is_lost(shop: Shop) -> None:
    """`os._exit` in a body is a lost attempt, and the job runs again."""
    result = shop.send("leaving")
    assert result.get(timeout=30) == "alive"
    assert shop.job(result).lost_count == 1
