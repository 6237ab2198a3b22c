"""The tasks of the throughput benchmark."""

from __future__ import annotations

import os

from celery import Celery

from celery_supervise import State, SupervisedTask, Supervisor

app = Celery("noop", broker=os.environ["BENCH_BROKER"], backend=os.environ["BENCH_BROKER"])
app.conf.supervise_database_url = os.environ["BENCH_DATABASE"]
app.conf.broker_connection_retry_on_startup = True


@app.task
def plain() -> int:
    """A plain task."""
    return 1


@app.task(base=SupervisedTask)
def supervised() -> int:
    """The same, supervised."""
    return 1


@app.task(base=SupervisedTask, bind=True)
def asks(self: SupervisedTask) -> bool:
    """Parks."""
    return self.ask("go", "Go on?", choices=[True, False])


supervise = Supervisor.of(app)

__all__ = ["State", "app", "asks", "plain", "supervise", "supervised"]
