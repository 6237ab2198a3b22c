"""A worker that is looked after while something is waited for: it must not stop. Knows no broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from celery.result import AsyncResult

from celery_supervise import State
from tests.acceptance.shop import Shop, Worker
from tests.tools import wait_for

PATIENCE = 90.0


@dataclass
class Tended:
    """The one worker of a shop."""

    shop: Shop
    started: Worker | None = None

    def worker(self) -> Worker:
        """It, running."""
        if self.started is None:
            self.started = self.shop.worker("w0", concurrency=3)
        assert self.started.running, self.shop.log_text()
        return self.started

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Wait for something that needs a worker."""

        def met() -> object:
            self.worker()
            return condition()

        wait_for(met, timeout=PATIENCE, what=what)

    def parked(self, result: AsyncResult) -> UUID:
        """Wait until the job is parked; the id of its question."""
        self.wait(lambda: self.shop.job(result).state is State.PARKED, "a question")
        return self.shop.parked(result).id

    def completed(self, *results: AsyncResult) -> None:
        """Wait until these jobs have completed, and Celery has been told."""
        self.wait(lambda: all(self.shop.job(one).settled_at for one in results), "their ends")
        assert {self.shop.job(one).state for one in results} <= {State.COMPLETED}
