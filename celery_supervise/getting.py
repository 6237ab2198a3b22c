"""`.get()` of a job that waits for a person, where the app says that it raises: `supervise_get_parked = "raise"`.

Waits as Celery's own does, in pieces: between two it looks whether the result backend calls the job parked, and asks
the row, since there an answer shows at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from celery import Celery
from celery.exceptions import TimeoutError as CelerysTimeout
from celery.result import AsyncResult

from .errors import DatabaseUnavailable, JobNotFound, SuperviseError
from .execution import PARKED
from .lifecycle import State
from .model import Job
from .runtime import runtime_of, said_of

LOOK: Final = 1.0
"""Seconds for which `.get()` waits between two looks."""

AT_ONCE: Final = 0.001
"""The shortest wait: 0 would be none that ends."""


class JobParked(SuperviseError, CelerysTimeout):
    """``.get()`` of a job that goes on only when somebody answers or resumes: a ``TimeoutError`` of Celery's.

    ``question_id`` is None where the job is paused; ``reason`` is its stop reason.
    """

    def __init__(self, job_id: str, *, reason: str, question_id: str | None) -> None:
        super().__init__(f"job {job_id} is parked ({reason}): it has no result until somebody lets it go on")
        self.job_id = job_id
        self.reason = reason
        self.question_id = question_id


def raises_parked(app: Celery) -> bool:
    """Whether the app has said so. Needs no other setting."""
    return bool(said_of(app, "supervise_get_parked") == "raise")


class JobResult(AsyncResult):  # type: ignore[type-arg]  # generic in its stubs only
    """Celery's own result, whose `get` does not wait for people."""

    def get(self, timeout: float | None = None, *args: Any, **options: Any) -> Any:
        """Celery's own `get`. Raises `JobParked`, also for a job before it in its chain."""
        until = time.monotonic() + timeout if timeout else None  # 0 is no limit, as with Celery
        while True:
            if not self.ignored:
                self._look(follow_parents=options.get("follow_parents", True))
            left = LOOK if until is None else until - time.monotonic()
            try:
                return super().get(min(max(left, AT_ONCE), LOOK), *args, **options)
            except CelerysTimeout:
                if self.ready() or (left <= LOOK and until is not None):
                    raise  # the task's own, or there is no time left

    wait = get

    def _look(self, *, follow_parents: bool) -> None:
        for one in self._chain() if follow_parents else (self,):
            job = _parked(self.app, one)
            if job is not None:
                asked = None if job.question_id is None else str(job.question_id)
                raise JobParked(job.id, reason=job.stop_reason or PARKED, question_id=asked)

    def _chain(self) -> Iterator[Any]:
        node: Any = self
        while node is not None:
            yield node
            node = node.parent


def _parked(app: Any, result: Any) -> Job | None:
    """The job, where it is parked and nothing lets it go on.

    A database that is away cannot say so; the result may still come.
    """
    if getattr(result, "state", None) != PARKED:  # a group in the chain has none
        return None
    try:
        job = runtime_of(app).supervisor.job(str(result.id))
    except (DatabaseUnavailable, JobNotFound):
        return None
    return job if job.state is State.PARKED and job.ticket_id is None else None
