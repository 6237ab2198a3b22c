"""Messages of jobs whose task this worker does not know: left to one that does, where Celery would fail them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import bootsteps, signals

from .envelope import HEADER, ticket_of
from .events import events_of
from .publisher import RUN, sends_task_events
from .runtime import Runtime, runtime_of
from .versions import leave_unknown

logger = events_of(__name__)


class UnknownTasks(bootsteps.StartStopStep):
    """Stands before `Consumer.on_unknown_task` (5.4-5.7), which would throw the message away and tell of a failure."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        """At each connection to the broker, before the first message is taken."""
        celerys_own = type(consumer).on_unknown_task
        consumer.on_unknown_task = _handler(consumer, lambda *args: celerys_own(consumer, *args))
        runtime_of(consumer.app).publisher.watch(lambda: sends_task_events(consumer.event_dispatcher))


def _handler(consumer: Any, celerys_own: Callable[..., None]) -> Callable[..., None]:
    def on_unknown_task(body: Any, message: Any, error: BaseException) -> None:
        header = message.headers.get(HEADER)
        ticket_id = ticket_of(header)
        if ticket_id is None or header.get("kind") != RUN:
            celerys_own(body, message, error)
            return
        _leave(runtime_of(consumer.app), message, ticket_id)
        message.ack_log_error(logger, consumer.connection_errors)
        signals.task_unknown.send(
            sender=consumer, message=message, exc=error, name=message.headers["task"], id=message.headers["id"]
        )

    return on_unknown_task


def _leave(runtime: Runtime, message: Any, ticket_id: UUID) -> None:
    job_id = message.headers["id"]
    logger.error("supervise.unknown_task", extra={"job_id": job_id, "task": message.headers["task"]})
    runtime.reports.put(lambda: leave_unknown(runtime.door, job_id, ticket_id))
