"""A body that hangs in a real worker: its lease is kept, and its job is noted, or ended, for want of progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from celery.result import AsyncResult

from celery_supervise import JobFailed, Options, State, SupervisedTask
from tests.celery.site import Site
from tests.celery.test_cli import Desk, desk
from tests.postgres.test_stall import stand_still
from tests.tools import wait_for

__all__ = ["desk"]

app = Celery("stalls", set_as_current=False)
dependency, left = threading.Event(), threading.Event()
POOL = "threads"
SOON = timedelta(seconds=1)


def wait() -> str:
    """A call of a dependency that hangs, until a test lets it go."""
    dependency.wait(60)
    return "answered"


def body(self: SupervisedTask) -> str:
    """A task that hangs in its second step."""
    self.step("first", str)
    try:
        return self.step("hangs", wait)
    finally:
        left.set()


def task(name: str, **options: Any) -> Any:
    """A task with this body."""
    made = app.task(base=SupervisedTask, bind=True, name=name, supervise=Options(stall_after=SOON, **options))
    return made(body)


noted, failed, cancelled = task("noted"), task("failed", on_stall="fail"), task("cancelled", on_stall="cancel")


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    dependency.clear()
    left.clear()
    yield
    dependency.set()


def started(shop: Site, task: Any) -> AsyncResult[Any]:
    """A job that has come to its second step."""
    result = task.delay()
    wait_for(lambda: shop.job(result).node == "first", timeout=30, what="the first step")
    return result


def test_a_hanging_body_is_noted(shop: Site) -> None:
    """By default only the log and `show` say so; when the dependency answers, the job completes."""
    result = started(shop, noted)
    wait_for(lambda: shop.job(result).stalled_at, timeout=30, what="the note")
    assert shop.job(result).state is State.RUNNING
    dependency.set()
    assert result.get(timeout=30) == "answered"
    assert shop.count(result, "stalled") == 1


@pytest.mark.parametrize(
    ("task", "state", "told"), [(failed, State.FAILED, "FAILURE"), (cancelled, State.CANCELLED, "REVOKED")]
)
def test_a_hanging_body_is_ended(shop: Site, task: Any, state: State, told: str) -> None:
    """Where its task asks for it, whoever waits is told while the body still hangs; what it does later is not kept."""
    result = started(shop, task)
    assert shop.wait(result, state).stop_reason == "stalled"
    shop.settled(result)
    assert result.state == told
    if state is State.FAILED:
        assert isinstance(result.result, JobFailed)
    dependency.set()
    assert left.wait(30)
    assert (shop.job(result).state, shop.job(result).node, result.state) == (state, "first", told)


# --- the command line ------------------------------------------------------------------------------------


def test_show_tells_of_a_stalled_job(desk: Desk) -> None:
    """How long its stage lasts, when its checkpoint was saved, and that it makes no progress."""
    holding = desk.running()
    job_id = holding.lease.job_id
    assert "stage       since " in desk.run("show", job_id).stdout
    stand_still(desk.shop, holding, timedelta(hours=2))
    swept = desk.run("sweep").stdout
    assert f"made no progress    1 job: {job_id}" in swept
    shown = desk.run("show", job_id).stdout
    assert "running: makes no progress, as was noted at " in shown
    assert "(2 h ago)" in shown
    told = desk.read("show", job_id)
    assert told["stalled_at"] > told["stage_at"]
