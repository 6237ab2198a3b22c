"""The shop's fixtures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fast import tasks
from fast.db import Base, Order, unit, work
from fast.web import api
from fastapi.testclient import TestClient

pytest_plugins = ["celery.contrib.pytest"]
WAIT = 20


@pytest.fixture(scope="session")
def celery_session_app() -> Any:
    """The shop's app, for the session's worker."""
    return tasks.app


@pytest.fixture(scope="session")
def celery_worker_parameters() -> dict[str, Any]:
    """No ping."""
    return {"perform_ping_check": False}


@pytest.fixture(scope="session", autouse=True)
def _tables() -> None:
    Base.metadata.create_all(work)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tasks.mails.clear()
    with unit() as session:
        session.query(Order).delete()


@pytest.fixture
def client() -> Iterator[TestClient]:
    """Somebody at the shop."""
    with TestClient(api) as client:
        yield client


@pytest.fixture
def ended(client: TestClient) -> Callable[[str], dict[str, Any]]:
    """Waits for the end of a task."""

    def wait(task_id: str) -> dict[str, Any]:
        until = time.monotonic() + WAIT
        while True:
            seen: dict[str, Any] = client.get(f"/tasks/{task_id}").json()
            if seen["state"] in {"SUCCESS", "FAILURE", "REVOKED"}:
                return seen
            assert time.monotonic() < until, seen
            time.sleep(0.02)

    return wait
