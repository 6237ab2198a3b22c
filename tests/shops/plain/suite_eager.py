"""The shop's unit tests: everything in this process."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
from celery import chain, group
from celery.exceptions import MaxRetriesExceededError, Retry

from plain import tasks


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    tasks.app.conf.task_always_eager = True
    yield
    tasks.app.conf.task_always_eager = False


def test_delay() -> None:
    result = tasks.send_mail.delay("ann@example.org", subject="Your order")
    assert (result.get(), result.state, result.successful()) == ("ann@example.org", "SUCCESS", True)
    assert tasks.outbox == ["mail: ann@example.org: Your order"]


def test_called_as_a_function() -> None:
    assert tasks.send_mail("bob@example.org") == "bob@example.org"
    assert tasks.add(1, 2) == 3
    assert tasks.add.run(3, 4) == 7


def test_apply() -> None:
    assert tasks.add.apply((1,), {"y": 5}).get() == 6


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        tasks.add.delay(1)


def test_failure() -> None:
    result = tasks.reserve.delay("chair", 6)
    assert result.failed()
    with pytest.raises(tasks.OutOfStock) as caught:
        result.get()
    assert (caught.value.sku, caught.value.wanted) == ("chair", 6)
    assert tasks.outbox == ["audit: plain.tasks.reserve OutOfStock"]


def test_hooks() -> None:
    assert tasks.reserve.delay("chair", 2).get() == 3
    assert tasks.outbox == ["audit: plain.tasks.reserve ok"]


def test_retry() -> None:
    assert tasks.charge.delay("o-1", fails=2).get() == "charged o-1"
    assert tasks.attempts == ["o-1"] * 3


def test_retry_used_up() -> None:
    result = tasks.charge.delay("o-1", fails=9)
    with pytest.raises((tasks.GatewayDown, MaxRetriesExceededError)):
        result.get()


def test_retry_is_mocked() -> None:
    with mock.patch.object(tasks.charge, "retry", side_effect=Retry) as retry, pytest.raises(Retry):
        tasks.charge("o-1", fails=1)
    assert retry.call_args.kwargs["countdown"] == 0


def test_delay_is_mocked() -> None:
    with mock.patch.object(tasks.track, "delay") as delay:
        tasks.checkout.apply(("o-1", [1])).get()
    delay.assert_called_once_with("checkout o-1")


def test_chain_and_group() -> None:
    assert chain(tasks.add.s(1, 2), tasks.add.s(10))().get() == 13
    assert group(tasks.add.s(n, n) for n in range(3))().get() == [0, 2, 4]


def test_flow() -> None:
    assert tasks.order_flow("o-1", [1, 2, 3])().get() == 109


def test_exceptions_propagate() -> None:
    tasks.app.conf.task_eager_propagates = True
    try:
        with pytest.raises(tasks.OutOfStock):
            tasks.reserve.delay("sofa", 1)
    finally:
        tasks.app.conf.task_eager_propagates = False


def test_request() -> None:
    seen = tasks.whoami.apply(task_id="t-1").get()
    assert (seen["id"], seen["name"], seen["retries"]) == ("t-1", "plain.tasks.whoami", 0)


def test_autoretry() -> None:
    assert tasks.refund.delay("o-1", fails=1).get() == "refunded o-1"
