"""Celery's soft shutdown: for a time the worker's bodies may leave at their next checkpoint; then they are ended."""

from __future__ import annotations

import signal
from collections.abc import Callable

import celery
import pytest
from celery.result import AsyncResult

from tests.acceptance.shop import Shop
from tests.acceptance.test_shutdown import told_to_leave
from tests.tools import wait_for

pytestmark = [
    pytest.mark.may_skip,
    pytest.mark.skipif(celery.VERSION < (5, 5), reason="Celery itself has it from 5.5 on"),
]
LONG = 600.0
SHORT = 1.0


def left(shop: Shop, result: AsyncResult) -> bool:
    """Whether the job waits for another worker."""
    return shop.count(result, "handed_over") == 1


def test_s61_bodies_leave_while_the_worker_waits_for_them(
    open_shop: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM, remapped to SIGQUIT: they leave at their next checkpoint; at a second one, wherever they are."""
    monkeypatch.setenv("REMAP_SIGTERM", "SIGQUIT")
    shop = open_shop(worker_soft_shutdown_timeout=LONG)
    worker = shop.worker("first", concurrency=2)
    walking, standing = (shop.send("walk", [name, f"then {name}"], [name]) for name in ("one", "two"))
    shop.at("one")
    shop.at("two")
    worker.send_signal(signal.SIGTERM)
    for result in (walking, standing):
        wait_for(lambda: told_to_leave(shop, result), what="the request to leave")  # noqa: B023 - called at once
    shop.open("one")
    wait_for(lambda: left(shop, walking), what="its next checkpoint")
    assert not left(shop, standing)
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: left(shop, standing), what="the end of its body")
    shop.open("two")
    shop.worker("second", concurrency=2)
    assert walking.get(timeout=40) == ["ONE", "THEN ONE"]
    assert standing.get(timeout=40) == ["TWO", "THEN TWO"]
    worker.kill_all()  # it would wait for the rest of its time
    shop.settled(walking, standing)
    assert sorted(shop.effects()) == [*["at one"] * 2, *["at two"] * 2, "one", "then one", "then two", "two"]
    assert [(shop.job(result).attempts, shop.job(result).lost_count) for result in (walking, standing)] == [(2, 0)] * 2
    shop.check()


def test_s61_bodies_that_cannot_leave_in_time(open_shop: Callable[..., Shop]) -> None:
    """A warm shutdown that takes too long, and becomes a soft one: interrupted; lost, if they do not hear that."""
    shop = open_shop(worker_soft_shutdown_timeout=SHORT)
    worker = shop.worker("first", concurrency=2)
    standing = shop.send("walk", ["two", "three"], ["two"])
    deaf = shop.send("unmoved", "gate")
    shop.at("two")
    shop.at("gate")
    worker.send_signal(signal.SIGTERM)
    wait_for(lambda: told_to_leave(shop, standing), what="the warm shutdown")
    worker.send_signal(signal.SIGQUIT)
    wait_for(lambda: left(shop, standing), what="the end of its body")
    shop.worker("second", concurrency=2)
    wait_for(lambda: shop.count(deaf, "claimed") == 2, what="the second attempt, when the lease has ended")
    worker.kill_all()  # as init systems do, after a grace: it would wait for the one that does not hear
    shop.open("two")
    shop.open("gate")
    assert (standing.get(timeout=40), deaf.get(timeout=40)) == (["TWO", "THREE"], "TWO")
    shop.settled(standing, deaf)
    assert [shop.effects().count(line) for line in ("one", "two", "three")] == [1, 2, 1]
    assert (shop.job(standing).lost_count, shop.job(deaf).lost_count) == (0, 1)
    shop.check()


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_s61_bodies_that_cannot_be_interrupted(open_shop: Callable[..., Shop], pool: str) -> None:
    """In the worker's own process they are left alone, and leave at their next checkpoint; no job fails of it."""
    shop = open_shop(worker_soft_shutdown_timeout=SHORT)
    worker = shop.worker("first", "-P", pool)
    result = shop.send("walk", ["one", "two", "three"], ["one"])
    shop.at("one")
    worker.send_signal(signal.SIGQUIT)
    wait_for(lambda: told_to_leave(shop, result), what="the request to leave")
    shop.open("one")
    worker.wait(60)
    shop.worker("second")
    assert result.get(timeout=40) == ["ONE", "TWO", "THREE"]
    assert [shop.effects().count(line) for line in ("one", "two", "three")] == [1, 1, 1]
    assert (shop.job(result).attempts, shop.job(result).lost_count) == (2, 0)
    shop.check()
