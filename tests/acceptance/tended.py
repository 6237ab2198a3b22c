"""A worker that is started again whenever it has stopped, as by systemd or Kubernetes. Knows no broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from celery.result import AsyncResult

from celery_supervise import State
from tests.acceptance.shop import Shop, Worker
from tests.tools import wait_for

PATIENCE = 90.0


@dataclass
class Tended:
    """The workers of a shop, one after the other; `may_stop`: whether there may be a second one."""

    shop: Shop
    may_stop: bool = True
    workers: list[Worker] = field(default_factory=list)

    def worker(self) -> Worker:
        """The worker that runs."""
        if not self.workers or not self.workers[-1].running:
            assert self.may_stop or not self.workers, self.shop.log_text()
            self.workers.append(self.shop.worker(f"w{len(self.workers)}", concurrency=3))
        return self.workers[-1]

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
