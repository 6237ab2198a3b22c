"""The shop's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
from celery.exceptions import OperationalError
from fast import tasks
from fast.db import Order, unit
from fastapi.testclient import TestClient

Ended = Callable[[str], dict[str, Any]]
worker = pytest.mark.usefixtures("celery_session_worker")


@pytest.fixture
def eager() -> Iterator[None]:
    """Tasks run where they are called."""
    tasks.app.conf.task_always_eager = True
    yield
    tasks.app.conf.task_always_eager = False


def ordered(client: TestClient, **fields: Any) -> dict[str, Any]:
    """An order of Ann's."""
    answer = client.post("/orders", json={"customer": "ann", "amount": 70, **fields})
    assert answer.status_code == 202
    return dict(answer.json())


@worker
def test_an_order_is_shipped(client: TestClient, ended: Ended) -> None:
    placed = ordered(client)
    assert ended(placed["task"]) == {"state": "SUCCESS", "result": "bike"}
    assert client.get(f"/orders/{placed['order']}").json()["state"] == "shipped by bike"


@worker
def test_a_printer_that_jams(client: TestClient, ended: Ended) -> None:
    assert ended(ordered(client, jams=2)["task"])["state"] == "SUCCESS"


@worker
def test_an_order_that_is_gone(client: TestClient, ended: Ended) -> None:
    assert ended(tasks.pack.delay(10**6).id)["state"] == "FAILURE"


@worker
def test_a_refund(client: TestClient, ended: Ended) -> None:
    order = ordered(client)["order"]
    answer = client.post(f"/orders/{order}/refund", json={"amount": 20})
    assert (answer.status_code, ended(answer.json()["task"])["result"]) == (202, 20)
    assert client.get(f"/orders/{order}").json()["refunded"] == 20


@worker
def test_turnover(client: TestClient, ended: Ended) -> None:
    with unit() as session:
        session.add_all(Order(customer="bob", amount=amount) for amount in (1, 2, 3))
    assert ended(client.post("/turnover").json()["task"])["result"] == 6


@worker
def test_mail(client: TestClient, ended: Ended) -> None:
    result = tasks.ship.delay(ordered(client)["order"])
    assert result.get(timeout=20) == "post"
    assert result.children is not None


def test_no_such_order(client: TestClient) -> None:
    assert client.get("/orders/1000000").status_code == 404
    assert client.post("/orders/1000000/refund", json={"amount": 1}).status_code == 404


def test_the_broker_is_away(client: TestClient) -> None:
    with unit() as session:
        session.add(Order(id=7, customer="ann", amount=7))
    with mock.patch.object(tasks.refund, "delay", side_effect=OperationalError("away")):
        assert client.post("/orders/7/refund", json={"amount": 1}).status_code == 503


@pytest.mark.usefixtures("eager")
def test_eagerly(client: TestClient) -> None:
    placed = ordered(client)
    assert client.get(f"/orders/{placed['order']}").json()["state"] == "shipped by bike"
    assert tasks.mails == ["ann: on its way"]


@pytest.mark.usefixtures("eager")
def test_results_of_eager_tasks() -> None:
    assert tasks.total.delay([1, 2]).get() == 3
    assert tasks.total([3, 4]) == 7
    with pytest.raises(TypeError):
        tasks.total.delay()
