"""The shop's fixtures: Celery's own, from its pytest plugin."""

from __future__ import annotations

from typing import Any

import pytest

from plain import tasks

pytest_plugins = ["celery.contrib.pytest"]


@pytest.fixture(scope="session")
def celery_session_app() -> Any:
    """The shop's app, for the session's worker."""
    return tasks.app


@pytest.fixture(scope="session")
def celery_worker_parameters() -> dict[str, Any]:
    """Both queues."""
    return {"queues": ("celery", "media"), "perform_ping_check": False}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tasks.outbox.clear()
    tasks.attempts.clear()
    tasks.stock.clear()
    tasks.stock["chair"] = 5
