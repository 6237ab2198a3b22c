"""A worker in a thread of the tests' process, and the rules that must hold after it. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from kombu.asynchronous import set_event_loop

from .. import invariants
from ..runtime import runtime_of

SHUTDOWN_SECONDS = 60.0
WORKER: Mapping[str, Any] = {"pool": "solo", "concurrency": 1}


class BrokenRules(AssertionError):
    """The database holds what must never be there. `findings`: which rules, which jobs."""

    def __init__(self, findings: tuple[invariants.Finding, ...]) -> None:
        told = "; ".join(f"{one.meaning}: {one.job_id} ({one.detail})" for one in findings)
        super().__init__(f"not so: {told}")
        self.findings = findings


def assert_invariants(app: Celery) -> None:
    """What must hold at any time in the jobs of `app`: the rules that `doctor` checks. Raises `BrokenRules`."""
    findings = tuple(invariants.check(runtime_of(app).door))
    if findings:
        raise BrokenRules(findings)


@contextmanager
def working(app: Celery, options: Mapping[str, Any]) -> Iterator[Any]:
    """A worker of `app` in a thread; `options` as those of Celery's `start_worker`."""
    set_event_loop(None)  # the one of a worker before it in this process has timers that nobody looks at
    given = {**WORKER, "perform_ping_check": False, "shutdown_timeout": SHUTDOWN_SECONDS, **options}
    with start_worker(app, **given) as worker:
        yield worker
    # Celery's test worker ends without this (5.4-5.7): its threads would go on, in a process that goes on
    signals.worker_shutdown.send(sender=worker)
