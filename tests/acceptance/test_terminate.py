"""Cancels that end a process: that of their own attempt, after the grace, and no other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psutil
import pytest
from celery.exceptions import TaskRevokedError

from celery_supervise import Conflict, State
from tests.acceptance.shop import Shop
from tests.tools import wait_for

ANN = "user:ann"
NO_TIME = timedelta(0)


def process_of(shop: Shop) -> int:
    """The process that runs the deaf body."""
    (line,) = wait_for(lambda: shop.effects("deaf"), what="the body") or []
    return int(line.split()[1])


def test_s43_a_body_that_catches_everything_is_ended(shop: Shop) -> None:
    """It hears nothing of the cancel: its process is killed, the job is cancelled, the pool is as good as before."""
    result = shop.send("deaf")
    pid = process_of(shop)
    others = set(shop.workers["common"].children) - {pid}
    shop.supervise.cancel(result.id, actor=ANN, terminate=True, grace=timedelta(milliseconds=100))
    job = shop.wait(result, State.CANCELLED)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    assert (job.attempts, shop.events(result)[2:5]) == (1, ["cancel_requested", "lease_lost", "cancelled"])
    (lost,) = (entry for entry in shop.entries(result) if entry.event == "lease_lost")
    assert lost.data["why"] == "its process was ended because of the cancel"
    wait_for(lambda: not psutil.pid_exists(pid), what="the end of the process")
    assert others <= set(shop.workers["common"].children)
    assert shop.send("add", 1, 2).get(timeout=30) == 3
    assert "deaf to the end" not in shop.effects()


def test_a_plain_cancel_ends_no_process(shop: Shop) -> None:
    """Without `terminate` it waits for the body; a second cancel, with it, does not."""
    result = shop.send("deaf")
    pid = process_of(shop)
    assert shop.supervise.cancel(result.id, actor=ANN).changed
    again = shop.supervise.cancel(result.id, actor=ANN)
    assert not again.changed
    assert psutil.pid_exists(pid)
    assert shop.job(result).state is State.RUNNING
    assert shop.supervise.cancel(result.id, actor=ANN, terminate=True, grace=NO_TIME).changed
    shop.wait(result, State.CANCELLED)
    wait_for(lambda: not psutil.pid_exists(pid), what="its end")


def test_a_body_that_leaves_in_time_keeps_its_process(shop: Shop) -> None:
    """Within the grace it comes to its next step: cancelled there, and the process runs the next job."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    children = set(shop.workers["common"].children)
    shop.supervise.cancel(result.id, actor=ANN, terminate=True)
    shop.open("one")
    shop.wait(result, State.CANCELLED)
    assert shop.count(result, "lease_lost") == 0
    assert set(shop.workers["common"].children) == children


def test_s41_no_other_job_is_hit(open_shop: Callable[..., Shop]) -> None:
    """Short jobs on one child, each second one cancelled with its process just as it ends: all others complete."""
    shop = open_shop(supervise_relay_seconds=0.02)
    shop.worker()
    results = [shop.send("add", number, 0) for number in range(120)]
    told: dict[str, State | str] = {}
    for number in range(0, 120, 2):
        wait_for(lambda: f"add {number} 0" in shop.effects(), what=f"job {number}")  # noqa: B023  # used at once
        try:
            told[results[number].id] = shop.supervise.cancel(
                results[number].id, actor=ANN, terminate=True, grace=NO_TIME
            ).state
        except Conflict as conflict:
            told[results[number].id] = conflict.code
    for number in range(1, 120, 2):
        assert results[number].get(timeout=60) == number
    shop.settled(*results)
    for result in results[1::2]:
        assert (shop.job(result).attempts, shop.count(result, "lease_lost")) == (1, 0)
    for result in results[::2]:
        wanted = State.COMPLETED if told[result.id] == "already_final" else State.CANCELLED
        assert shop.job(result).state is wanted
    assert shop.send("add", 500, 0).get(timeout=30) == 500
    shop.check()
