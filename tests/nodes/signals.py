"""What a shop's signal handlers hear in the worker. Copied there, like the tasks."""

from __future__ import annotations

from typing import Any

from celery.signals import task_failure, task_prerun, task_success
from celery.utils.log import get_task_logger

heard = get_task_logger("heard")


@task_prerun.connect
def on_prerun(task_id: str, **_: Any) -> None:
    """Each entry of the body."""
    heard.info("prerun: %s.", task_id)


@task_success.connect
def on_success(sender: Any, **_: Any) -> None:
    """The end, once."""
    heard.info("success: %s.", sender.request.id)


@task_failure.connect
def on_failure(task_id: str, **_: Any) -> None:
    """Never, for a question."""
    heard.info("failure: %s.", task_id)
