"""The shop's tests of its question."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fast import tasks
from fast.db import Order, unit
from fastapi.testclient import TestClient

Ended = Callable[[str], dict[str, Any]]
pytestmark = pytest.mark.usefixtures("celery_session_worker")


@pytest.fixture
def asked(client: TestClient) -> tuple[str, str]:
    """A refund that somebody must approve: the task's id, and the question's."""
    with unit() as session:
        session.add(Order(id=7, customer="ann", amount=500))
    task = client.post("/orders/7/refund", json={"amount": 300}).json()["task"]
    until = time.monotonic() + 20
    while not (found := [one for one in client.get("/questions").json() if one["job"] == task]):
        assert time.monotonic() < until, client.get(f"/tasks/{task}").json()
        time.sleep(0.02)
    assert found[0]["prompt"] == "Give back 300?"
    return task, found[0]["id"]


def decide(client: TestClient, question: str, value: Any) -> int:
    """Answer it."""
    return client.post(f"/questions/{question}", json={"order": 7, "value": value}).status_code


def test_approved(client: TestClient, ended: Ended, asked: tuple[str, str]) -> None:
    task, question = asked
    assert client.get(f"/tasks/{task}").json()["state"] == "PARKED"
    assert decide(client, question, "yes") == 202
    assert ended(task) == {"state": "SUCCESS", "result": 300}
    assert client.get("/orders/7").json() == {"state": "refund decided", "refunded": 300}
    assert decide(client, question, "no") == 409


def test_refused(client: TestClient, ended: Ended, asked: tuple[str, str]) -> None:
    task, question = asked
    assert decide(client, question, "perhaps") == 422
    assert client.get("/orders/7").json()["state"] == "new"  # the shop's own write was rolled back
    assert decide(client, "00000000-0000-0000-0000-000000000000", "no") == 404
    assert decide(client, question, "no") == 202
    assert ended(task) == {"state": "SUCCESS", "result": 0}
    assert tasks.mails == []
