"""The Celery app. Its servers come from environment variables, so that it also runs against a shop's own."""

from __future__ import annotations

import os

from celery import Celery

DATABASE = os.environ.get("SUPERVISE_DATABASE_URL", "postgresql://localhost/supervise")
BROKER = os.environ.get("CELERY_BROKER_URL", "redis://localhost:6379/0")

app = Celery("example_project", broker=BROKER, backend=os.environ.get("CELERY_RESULT_BACKEND", BROKER))
app.conf.update(
    include=["example_project.tasks"],
    # Two lanes: what people wait for does not stand behind a payment run. The demo's workers serve both; in production
    # each lane has its own: `worker -Q interactive`, `worker -Q batch`.
    task_default_queue="interactive",
    task_routes={"example_project.tasks.pay_vendors": {"queue": "batch"}},
    supervise_database_url=DATABASE,
    # A demo should not keep people waiting. The defaults (60, 10, 10 and 30 seconds) are for production.
    supervise_lease_seconds=6,
    supervise_heartbeat_seconds=2,
    supervise_sweep_seconds=2,
    supervise_republish_seconds=5,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)
