"""The shop's integration tests: on a worker."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult

from plain import tasks

pytestmark = pytest.mark.usefixtures("celery_session_worker")
WAIT = 20


def wait_for(condition: Any) -> None:
    """Until it is so."""
    import time

    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def test_delay() -> None:
    result = tasks.send_mail.delay("ann@example.org", subject="Your order")
    assert result.get(timeout=WAIT) == "ann@example.org"
    assert (result.state, result.ready(), result.result) == ("SUCCESS", True, "ann@example.org")
    assert tasks.outbox == ["mail: ann@example.org: Your order"]


def test_result_by_id() -> None:
    result = tasks.add.apply_async((1, 2), task_id="order-7")
    assert AsyncResult("order-7", app=tasks.app).get(timeout=WAIT) == 3
    assert result.id == "order-7"


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError):
        tasks.send_mail.delay()


def test_failure() -> None:
    result = tasks.reserve.delay("chair", 6)
    with pytest.raises(tasks.OutOfStock) as caught:
        result.get(timeout=WAIT)
    assert caught.value.args == ("chair", 6)
    assert result.state == "FAILURE"
    assert "OutOfStock" in result.traceback
    wait_for(lambda: tasks.outbox == ["audit: plain.tasks.reserve OutOfStock"])


def test_hooks() -> None:
    assert tasks.reserve.delay("chair", 2).get(timeout=WAIT) == 3
    wait_for(lambda: tasks.outbox == ["audit: plain.tasks.reserve ok"])


def test_retry() -> None:
    assert tasks.charge.delay("o-1", fails=2).get(timeout=WAIT) == "charged o-1"
    assert tasks.attempts == ["o-1"] * 3


def test_retry_used_up() -> None:
    with pytest.raises(tasks.GatewayDown):
        tasks.charge.delay("o-1", fails=9).get(timeout=WAIT)
    assert tasks.attempts == ["o-1"] * 4


def test_autoretry() -> None:
    assert tasks.refund.delay("o-1", fails=2).get(timeout=WAIT) == "refunded o-1"


def test_autoretry_used_up() -> None:
    with pytest.raises(tasks.GatewayDown):
        tasks.refund.delay("o-1", fails=9).get(timeout=WAIT)


def test_routed() -> None:
    assert tasks.resize.delay("cat.png", [10, 20]).get(timeout=WAIT) == ["cat.png@10", "cat.png@20"]


def test_ignored_result() -> None:
    result = tasks.track.delay("seen")
    wait_for(lambda: tasks.outbox == ["track: seen"])
    assert result.get(timeout=WAIT) is None


def test_request() -> None:
    seen = tasks.whoami.apply_async(headers={"tenant": "acme"}).get(timeout=WAIT)
    assert seen["tenant"] == "acme"
    assert seen["root"] == seen["id"]
    assert seen["parent"] is None


def test_countdown_and_eta() -> None:
    later = tasks.add.apply_async((1, 1), countdown=0.5)
    at = tasks.add.apply_async((2, 2), eta=datetime.now(timezone.utc) + timedelta(seconds=0.5))
    assert (later.get(timeout=WAIT), at.get(timeout=WAIT)) == (2, 4)


def test_chain() -> None:
    result = chain(tasks.add.s(1, 2), tasks.add.s(10), tasks.add.s(100))()
    assert result.get(timeout=WAIT) == 113
    assert result.parent.get(timeout=WAIT) == 13


def test_group() -> None:
    result = group(tasks.add.s(n, n) for n in range(5))()
    assert result.get(timeout=WAIT) == [0, 2, 4, 6, 8]
    assert result.successful()


def test_chord() -> None:
    assert chord(tasks.add.s(n, n) for n in range(5))(tasks.total.s()).get(timeout=WAIT) == 20


def test_flow() -> None:
    assert tasks.order_flow("o-1", [1, 2, 3])().get(timeout=WAIT) == 109


def test_link() -> None:
    tasks.add.apply_async((1, 2), link=tasks.track.si("linked"), link_error=tasks.track.si("error"))
    wait_for(lambda: "track: linked" in tasks.outbox)
    assert "track: error" not in tasks.outbox


def test_link_error() -> None:
    tasks.reserve.apply_async(("sofa", 1), link_error=tasks.track.si("error"))
    wait_for(lambda: "track: error" in tasks.outbox)


def test_chain_stops_at_a_failure() -> None:
    result = chain(tasks.reserve.s("sofa", 1), tasks.add.s(1))()
    with pytest.raises(tasks.OutOfStock):
        result.get(timeout=WAIT)


def test_started_by_another_task() -> None:
    result = tasks.checkout.delay("o-1", [1, 2])
    result.get(timeout=WAIT)
    wait_for(lambda: "track: checkout o-1" in tasks.outbox)


def test_own_state() -> None:
    result = tasks.moderate.delay("buy spam")
    wait_for(lambda: result.state == "SPAM")
    assert result.info == {"text": "buy spam"}


def test_options() -> None:
    result = tasks.report.apply_async(
        (2026,), {"currency": "EUR"}, serializer="json", shadow="yearly", ignore_result=False
    )
    assert result.get(timeout=WAIT) == "report 2026 [('currency', 'EUR')]"


def test_by_name() -> None:
    assert tasks.app.send_task("plain.tasks.send_mail", ("bob@example.org",)).get(timeout=WAIT) == "bob@example.org"


def test_signature() -> None:
    partial = tasks.add.s(2).set(countdown=0)
    assert partial.delay(3).get(timeout=WAIT) == 5
    assert tasks.add.si(4, 4).clone().apply_async().get(timeout=WAIT) == 8


def test_forgotten_result() -> None:
    result = tasks.add.delay(1, 2)
    assert result.get(timeout=WAIT) == 3
    result.forget()
    assert AsyncResult(result.id, app=tasks.app).state == "PENDING"
