"""Tells at once when a worker begins to stop, however much time Celery gives to its bodies. Stops nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import signals

WAITING = "wait_for_soft_shutdown"


def when_told_to_stop(worker: Any, act: Callable[[], object]) -> Callable[[], None]:
    """Call `act` as the worker begins to stop: in a signal handler, perhaps several times. What comes back ends that.

    Celery's own signal comes when the time of a soft shutdown is over, in which bodies might have left (5.5-5.7;
    5.4 has none). Its wait for them has a name of its own, and begins it.
    """

    def told(**_: Any) -> None:
        act()

    signals.worker_shutting_down.connect(told, sender=worker.hostname, weak=False)
    if hasattr(worker, WAITING):
        setattr(worker, WAITING, _preceded(getattr(worker, WAITING), act))

    def forget() -> None:
        signals.worker_shutting_down.disconnect(told, sender=worker.hostname)
        worker.__dict__.pop(WAITING, None)

    return forget


def _preceded(wait: Callable[[], object], act: Callable[[], object]) -> Callable[[], None]:
    def waiting() -> None:
        act()
        wait()

    return waiting
