"""Supervised tasks in a pool of threads: each body has its own journal, and what ends it ends only its job."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import TaskRevokedError

from celery_supervise import JobFailed, State, SupervisedTask
from tests.celery.site import Site
from tests.tools import wait_for

POOL = "threads"
app = Celery("threads", set_as_current=False)
effects: list[str] = []
together = threading.Barrier(4, timeout=20)
gate = threading.Event()


@pytest.fixture(autouse=True)
def _forget() -> None:
    effects.clear()
    gate.clear()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@task()
def meets(self: SupervisedTask, number: int) -> list[Any]:
    """Four of them run at the same time, with steps of the same names."""
    first = self.step("first", lambda: number * 10)
    together.wait()
    second = self.step("second", lambda: number * 100)
    return [first, second, list(self.decisions.visited)]


def test_bodies_side_by_side(shop: Site) -> None:
    """Steps of one job are never another's, however threads change places."""
    results = [meets.delay(number) for number in range(4)]
    for number, result in enumerate(results):
        assert result.get(timeout=30) == [number * 10, number * 100, ["first", "second"]]
    shop.settled(*results)


@task(max_retries=3)
def mixed(self: SupervisedTask, how: str) -> str:
    once = self.step("once", lambda: effects.append(how) or how)
    if how == "ask":
        return str(self.ask("q", "Well?", choices=["yes"]))
    if how == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0)
    if how == "exit":
        sys.exit(3)
    if how == "fail":
        raise ValueError("no")
    return once


def test_each_end(shop: Site) -> None:
    """Questions, retries, failures and exits: acknowledged, told, and the pool goes on."""
    asked, retried = mixed.delay("ask"), mixed.delay("retry")
    exits, fails = mixed.delay("exit"), mixed.delay("fail")
    shop.answer(asked, "yes")
    assert asked.get(timeout=20) == "yes"
    assert retried.get(timeout=20) == "retry"
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        exits.get(timeout=20)
    with pytest.raises(ValueError, match="no"):
        fails.get(timeout=20)
    shop.settled(asked, retried, exits, fails)
    assert sorted(effects) == ["ask", "exit", "fail", "retry"]
    ids = {result.id for result in (asked, retried, exits, fails)}
    wait_for(lambda: not ids & shop.held(), what="the acknowledgements")


@task()
def waits(self: SupervisedTask) -> None:
    effects.append("waits")
    gate.wait(20)
    self.step("after", lambda: effects.append("after"))
    self.step("never", lambda: effects.append("never"))


def test_cancel_while_running(shop: Site) -> None:
    """A thread cannot be killed: it is told at its next step."""
    result = waits.delay()
    wait_for(lambda: effects == ["waits"], what="the body")
    shop.supervise.cancel(result.id, actor="user:ann")
    gate.set()
    with pytest.raises(TaskRevokedError):
        result.get(timeout=20)
    shop.settled(result)
    assert effects == ["waits", "after"]
    assert shop.job(result).state is State.CANCELLED


def test_a_long_body_keeps_its_lease(shop: Site) -> None:
    """The heartbeat is another thread's: a body that takes longer than a lease is not taken for lost."""
    result = waits.delay()
    wait_for(lambda: effects == ["waits"], what="the body")
    first = shop.supervise.attempts(result.id)[0].lease_until
    wait_for(lambda: shop.supervise.attempts(result.id)[0].heartbeat_at > first, what="more than a lease")
    gate.set()
    result.get(timeout=20)
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (1, 0)
