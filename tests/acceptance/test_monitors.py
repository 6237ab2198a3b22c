"""Flower and `celery events`: what they show of jobs that park, go on, and end without a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from celery.events import EventReceiver
from celery.events.state import State as Seen

from celery_supervise import State
from tests.acceptance.shop import Shop
from tests.tools import wait_for


@contextmanager
def listening(shop: Shop) -> Iterator[Seen]:
    """What a monitor of Celery's own makes of the events meanwhile."""
    seen = Seen()
    with shop.app.connection_for_read() as connection:
        receiver = EventReceiver(connection, handlers={"*": seen.event}, app=shop.app)
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            receiver.should_stop = True
            thread.join(10)


def test_what_monitors_show(own: Shop) -> None:
    """PARKED while it waits, RESUMED when it goes on, then each end: in Flower and as events, of the one worker."""
    own.worker("w", "-E", concurrency=2)
    with listening(own) as seen:
        flower = own.flower()
        asked, cancelled, paused = (own.send("approve", number) for number in range(3))
        expired = own.send("impatient", 2.0)
        for result in (asked, cancelled, paused):
            own.parked(result)
            wait_for(lambda result=result: flower.state(result) == "PARKED", what="PARKED")  # type: ignore[misc]  # mypy#12557
        own.supervise.cancel(cancelled.id, actor="user:ann")
        wait_for(lambda: flower.state(cancelled) == "REVOKED", what="REVOKED")
        wait_for(lambda: flower.state(expired) == "FAILURE", what="FAILURE of the expired one")
        own.wait(expired, State.EXPIRED)
        standing = own.send("resumes", "gate")
        own.answer(standing, "yes")
        own.at("gate")
        wait_for(lambda: flower.state(standing) == "RESUMED", what="RESUMED")
        own.open("gate")
        for result in (asked, paused):
            own.answer(result, "yes")
        for result in (asked, paused, standing):
            wait_for(lambda result=result: flower.state(result) == "SUCCESS", what="SUCCESS")  # type: ignore[misc]  # mypy#12557
        assert flower.workers() == ["w@shop"]
        results = (asked, cancelled, paused, expired, standing)
        wait_for(lambda: all(result.id in seen.tasks for result in results), what="all events")
        states = [seen.tasks[result.id].state for result in results]
        assert states == ["SUCCESS", "REVOKED", "SUCCESS", "FAILURE", "SUCCESS"]
        assert sorted(seen.workers) == ["w@shop"]


def test_nobody_listens(own: Shop) -> None:
    """A worker whose events are off sends none for us either."""
    own.worker()
    with listening(own) as seen:
        result = own.send("approve", 5)
        own.answer(result, "yes")
        assert result.get(timeout=20) == "yes"
        own.settled(result)
        assert not seen.tasks
