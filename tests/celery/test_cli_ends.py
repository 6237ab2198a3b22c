"""The command line on jobs that have ended: what came too late. No worker: its part is done through the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_supervise.holding import Holding
from celery_supervise.outcomes import pack_result
from celery_supervise.runtime import runtime_of
from tests.celery.test_cli import Desk, at_desk


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this test's database."""
    yield from at_desk(database_url)


def cancelled(desk: Desk, value: object) -> Holding:
    """An attempt whose job a person cancelled, and that came back with a value all the same."""
    holding = desk.running()
    desk.shop.supervisor.cancel(holding.lease.job_id, actor="user:ann")
    holding.complete(pack_result(runtime_of(desk.app), value))
    return holding


def test_show_says_that_a_result_came_too_late(desk: Desk) -> None:
    """That it is there, and how it is read; the value itself only where it is asked for."""
    job_id = cancelled(desk, {"paid": 7}).lease.job_id
    text = desk.run("show", job_id).stdout
    assert "the result of attempt 1 came too late and does not count (11 bytes); --rejected shows it" in text
    assert "paid" not in text
    assert '{"paid": 7}' in desk.run("show", job_id, "--rejected").stdout
    assert "\nresult " not in desk.run("show", job_id, "--rejected").stdout


def test_show_of_what_came_too_late_for_programs(desk: Desk) -> None:
    """The same as JSON: never under `result`."""
    job_id = cancelled(desk, 7).lease.job_id
    seen = desk.read("show", job_id)
    assert "result" not in seen
    (one,) = seen["rejected"]
    assert (one["attempt"], one["size"], one["is_error"], "value" in one) == (1, 1, False, False)
    assert desk.read("show", job_id, "--rejected")["rejected"][0]["value"] == 7
