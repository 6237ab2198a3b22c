"""Celery's beat beside workers: its entries appear by themselves, may be retimed, and are not needed."""

from __future__ import annotations

import json
from collections.abc import Callable

from celery_supervise import State
from tests.acceptance.shop import Shop
from tests.tools import wait_for

SWEEP, RELAY = "celery_supervise.sweep", "celery_supervise.relay"
QUICK = {
    f"supervise.{name}": {"task": task, "schedule": 0.3, "options": {"expires": 0.3, "queue": "ops"}}
    for name, task in (("sweep", SWEEP), ("relay", RELAY))
}
"""The shop's own times for our entries."""


def test_an_entry_appears_and_its_messages_end(open_shop: Callable[..., Shop]) -> None:
    """A shop that does not name it gets it, in its queue: no message is worth more than a period."""
    shop = open_shop(supervise_beat=True, supervise_queue="ops")
    shop.beat()
    waiting = wait_for(lambda: shop.broker.lrange("ops", 0, -1), what="beat's message")
    headers = [json.loads(one)["headers"] for one in waiting]
    assert [one["task"] for one in headers] == [SWEEP] * len(headers)
    assert all(one["expires"] for one in headers)


def test_beat_does_what_workers_threads_do(open_shop: Callable[..., Shop]) -> None:
    """Where workers neither relay nor sweep, beat's entries, retimed by the shop, start and expire jobs."""
    shop = open_shop(supervise_beat=True, supervise_worker_thread=False, beat_schedule=QUICK)
    shop.worker("w", "-Q", "shop,ops")
    later = shop.send("add", 1, 2, countdown=0.5)
    asked = shop.send("impatient", 0.5)
    shop.parked(asked)
    shop.beat()
    assert later.get(timeout=30) == 3
    assert shop.wait(asked, State.EXPIRED).stop_reason == "expired:awaiting_user_answer:approve"
    wait_for(lambda: asked.state == "FAILURE", what="Celery's being told")
    shop.check()


def test_beat_and_two_workers_at_once(open_shop: Callable[..., Shop]) -> None:
    """Everybody relays and sweeps: each job starts once and ends once."""
    shop = open_shop(supervise_beat=True, beat_schedule=QUICK)
    shop.beat()
    for name in ("one", "two"):
        shop.worker(name, "-Q", "shop,ops", ready=False)
    later = [shop.send("add", number, 1, countdown=0.2) for number in range(20)]
    asked = [shop.send("impatient", 0.5) for _ in range(5)]
    for number, result in enumerate(later):
        assert result.get(timeout=40) == number + 1
    for result in asked:
        shop.wait(result, State.EXPIRED)
    shop.settled(*later, *asked)
    assert sorted(shop.effects()) == sorted(f"add {number} 1" for number in range(20))
    assert {(shop.count(one, "claimed"), shop.count(one, "expired")) for one in asked} == {(1, 1)}
    shop.check()
