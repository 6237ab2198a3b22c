"""An app whose every task is supervised, by its `task_cls`: at work, with a result backend that counts no chords.

In a module of its own: two workers in one process share the timers of Celery's own countdowns (5.4-5.7).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import Celery, chord

from tests.celery.site import Site, connect, working
from tests.jobs import close

KEPT = {
    "broker_url",
    "result_backend",
    "task_default_queue",
    "broker_connection_retry_on_startup",
    "supervise_database_url",
    "supervise_relay_seconds",
}


def test_all_tasks_of_an_app(open_site: Callable[..., Site], tmp_path: Path) -> None:
    """`task_cls`: every task of the shop is a job, Celery's own are not: here it counts a chord by one of them."""
    site = open_site(result_backend=f"file://{tmp_path}", supervise_worker_thread=True)
    whole = Celery("whole", task_cls="celery_supervise:SupervisedTask", set_as_current=False)
    connect(whole, site.broker, {name: value for name, value in site.app.conf.items() if name in KEPT})
    sums: list[Any] = []

    def more(self: Any, x: int) -> int:
        return x + int(self.ask("more", "How many more?", schema={"type": "integer"})) if x else 0

    def sum_up(values: list[int]) -> int:
        sums.append(values)
        return sum(values)

    tasks = [
        whole.task(bind=True, shared=False, name="whole.more")(more),
        whole.task(shared=False, name="whole.sum")(sum_up),
    ]
    here = Site(whole, site.broker, site.queue)
    with working(here, pool="threads"):
        result = chord([tasks[0].s(0), tasks[0].s(1)], tasks[1].s().set(countdown=0))(interval=0.2)
        here.answer(result.parent.results[1], 5)
        assert result.get(timeout=20) == 6
        here.settled(result)
    assert sums == [[0, 6]]
    assert {job.task for job in here.supervise.jobs()[0]} == {"whole.more", "whole.sum"}
    here.check()
    close(whole)
