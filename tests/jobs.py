"""The jobs of one Celery app, as tests look at them and act on them from outside. Starts no worker."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from celery import Celery
from celery.result import AsyncResult

from celery_supervise import State, Supervisor, invariants
from celery_supervise.model import Job, LogEntry, Question
from celery_supervise.runtime import ATTRIBUTE, Runtime, runtime_of
from celery_supervise.supervisor import Supervisor as Service
from tests.tools import wait_for

END_SECONDS = 30.0


@dataclass
class Jobs:
    """An app, and what can be seen and done from outside of its jobs."""

    app: Celery

    @property
    def runtime(self) -> Runtime:
        """What the library has in this process."""
        return runtime_of(self.app)

    @property
    def supervise(self) -> Service:
        """The service."""
        return Supervisor.of(self.app)

    def job(self, result: AsyncResult[Any]) -> Job:
        """The row."""
        return self.supervise.job(str(result.id))

    def wait(self, result: AsyncResult[Any], *states: State, timeout: float = END_SECONDS) -> Job:
        """Wait until the job is in one of the states."""

        def there() -> bool:
            return self.job(result).state in states

        wait_for(there, timeout=timeout, what=f"{' or '.join(states)}: {result.id}")
        return self.job(result)

    def parked(self, result: AsyncResult[Any]) -> Question:
        """Wait until the job is parked on a question, and return that."""

        def asked() -> Question | None:
            questions = self.supervise.questions(job_id=str(result.id))
            return next((one for one in questions if one.status == "pending"), None)

        question = wait_for(asked, timeout=END_SECONDS, what="a question")
        assert question is not None
        return question

    def answer(self, result: AsyncResult[Any], value: Any) -> None:
        """Answer the job's open question."""
        self.supervise.answer(self.parked(result).id, value, actor="user:ann")

    def settled(self, *results: AsyncResult[Any], timeout: float = END_SECONDS) -> None:
        """Wait until Celery has been told of these ends."""
        wait_for(lambda: all(self.job(one).settled_at for one in results), timeout=timeout, what="settled")

    def entries(self, result: AsyncResult[Any]) -> list[LogEntry]:
        """The job's log."""
        return list(self.supervise.log(str(result.id), page=1000).entries)

    def events(self, result: AsyncResult[Any]) -> list[str]:
        """The names of the job's log entries."""
        return [entry.event for entry in self.entries(result)]

    def count(self, result: AsyncResult[Any], event: str) -> int:
        """How often this stands in the job's log."""
        return self.events(result).count(event)

    def check(self) -> None:
        """What must always hold, holds."""
        assert invariants.check(self.runtime.door) == []


def close(app: Celery) -> None:
    """Give back what an app holds open in this process."""
    gc.collect()  # a result that is forgotten later would connect again to say so
    runtime = app.__dict__.get(ATTRIBUTE)
    if runtime is not None:
        runtime.publisher.close()
        runtime.engines.dispose()
    backend = app.backend
    if hasattr(backend, "result_consumer"):
        backend.result_consumer.stop()
        backend.client.close()
    app.close()
