"""A job on a real worker, from submit to end."""

from __future__ import annotations

from collections.abc import Callable

from celery_supervise import State
from tests.acceptance.shop import Shop


def test_runs(shop: Shop) -> None:
    """A supervised task runs as any other, and leaves a complete log."""
    result = shop.send("add", 1, 2)
    assert result.get(timeout=20) == 3
    shop.settled(result)
    assert shop.effects() == ["add 1 2"]
    assert shop.job(result).state is State.COMPLETED
    assert shop.events(result) == ["submitted", "claimed", "completed", "settled"]


def test_children_that_live_for_one_job(open_shop: Callable[..., Shop]) -> None:
    """With `worker_max_tasks_per_child = 1` each job has a process, and a connection, of its own."""
    shop = open_shop(worker_max_tasks_per_child=1)
    shop.worker(concurrency=2)
    results = [shop.send("walk", ["one"], []) for _ in range(6)]
    for result in results:
        assert result.get(timeout=40) == ["ONE"]
    shop.settled(*results)
    pids = {shop.supervise.attempts(str(result.id))[0].pid for result in results}
    assert (len(pids), {shop.job(result).attempts for result in results}) == (6, {1})
    shop.check()


def test_asks(shop: Shop) -> None:
    """A question parks the job and frees the worker; the answer lets it go on where it stood."""
    result = shop.send("approve", 5)
    question = shop.parked(result)
    assert result.state == "PARKED"
    shop.supervise.answer(question.id, "yes", actor="user:ann")
    assert result.get(timeout=20) == "yes"
    assert shop.effects() == ["load 5", "pay 5"]
