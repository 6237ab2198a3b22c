"""Pause and resume, with a real worker."""

from __future__ import annotations

from celery_supervise import State
from tests.acceptance.shop import Shop


def test_s36_pause_is_obeyed_at_the_next_boundary(shop: Shop) -> None:
    """The step that runs goes on to its end, the next one does not start; then the job is parked until resumed."""
    result = shop.send("walk", ["one", "two", "three", "four"], ["two"])
    shop.at("two")
    asked = shop.supervise.pause(result.id, actor="user:ann")
    assert (asked.state, asked.pause_requested) == (State.RUNNING, True)
    shop.open("two")
    job = shop.wait(result, State.PARKED)
    assert job.stop_reason == "user_paused"
    assert shop.effects() == ["one", "two", "at two", "three"]
    shop.supervise.resume(result.id, actor="user:ann")
    assert result.get(timeout=20) == ["ONE", "TWO", "THREE", "FOUR"]
    assert shop.effects() == ["one", "two", "at two", "three", "at two", "four"]


def test_a_job_without_boundaries_finishes(shop: Shop) -> None:
    """A pause that was asked for too late stays visible as requested, and the finish wins."""
    result = shop.send("stand", "gate")
    shop.at("gate")
    shop.supervise.pause(result.id, actor="user:ann")
    assert shop.job(result).pause_requested_at is not None
    shop.open("gate")
    assert result.get(timeout=20) == "gate"
    assert shop.job(result).state is State.COMPLETED


def test_pause_before_the_start(own: Shop) -> None:
    """A pending job that is paused parks at its claim, and uses up no attempt."""
    result = own.send("add", 1, 2)
    own.supervise.pause(result.id, actor="user:ann")
    own.worker()
    job = own.wait(result, State.PARKED)
    assert (job.stop_reason, job.attempts) == ("user_paused", 0)
    own.supervise.resume(result.id, actor="user:ann")
    assert result.get(timeout=20) == 3
