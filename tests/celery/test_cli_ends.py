"""The command line on jobs that have ended: what came too late. No worker: its part is done through the service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from celery_supervise.holding import Holding
from celery_supervise.model import NodeKind
from celery_supervise.moments import instant
from celery_supervise.outcomes import pack_result
from celery_supervise.relay import Told, mark_settled
from celery_supervise.runtime import runtime_of
from tests.celery.test_cli import Desk, at_desk
from tests.postgres.looking import row
from tests.postgres.shop import failure, retry, stored

HOUR = timedelta(hours=1)


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


def test_show_tells_what_becomes_of_cleanups(desk: Desk) -> None:
    """Before the end, and once the job has completed; for programs too."""
    holding = desk.running()
    holding.register("temporary file", stored())
    assert (
        "cleanup     temporary file: sent if the job does not complete" in desk.run("show", holding.lease.job_id).stdout
    )
    holding.complete(None)
    mark_settled(desk.shop.door, [Told(holding.lease.job_id, holding.lease.token)], actor="worker")
    assert "temporary file: not needed" in desk.run("show", holding.lease.job_id).stdout
    (one,) = desk.read("show", holding.lease.job_id)["cleanups"]
    assert (one["name"], one["number"], one["sent_at"]) == ("temporary file", 1, None)


def failed(desk: Desk) -> str:
    """A job that failed."""
    holding = desk.running()
    holding.fail(failure())
    return holding.lease.job_id


def test_rerun_makes_a_new_job(desk: Desk) -> None:
    """It says the new job's id; `show` leads from each to the other."""
    old = failed(desk)
    said = desk.run("rerun", old, "--as", "ann").stdout
    new = desk.shop.supervisor.successor(old)
    assert new is not None
    assert said.strip() == f"{old}: runs again, from the start, as {new}"
    assert f"rerun as    {new}" in desk.run("show", old).stdout
    assert f"rerun of    {old}" in desk.run("show", new).stdout
    assert desk.read("show", old)["rerun_as"] == new
    assert desk.shop.supervisor.log(new).entries[0].actor == "cli:ann"


def test_rerun_for_programs(desk: Desk) -> None:
    """The same as JSON."""
    old = failed(desk)
    made = desk.read("rerun", old, "--from-checkpoints", "--with-callbacks", "--as", "ann")
    assert made == {"job_id": desk.shop.supervisor.successor(old), "rerun_of": old, "state": "pending"}


def test_rerun_twice_names_the_first(desk: Desk) -> None:
    """Refused, with the id of the job that was made."""
    old = failed(desk)
    made = desk.read("rerun", old, "--as", "ann")["job_id"]
    assert f"already run again, as '{made}'" in desk.run("rerun", old, "--as", "bob", code=1).stderr


def test_rerun_of_a_job_that_goes_on(desk: Desk) -> None:
    """Refused, with what the job is."""
    refused = desk.run("rerun", desk.pending(), "--as", "ann", code=1)
    assert "the job is pending; only one that has ended can be run again" in refused.stderr


def test_cancel_with_terminate(desk: Desk) -> None:
    """The row says when its process is ended; so do the answer and `show`."""
    job_id = desk.running().lease.job_id
    said = desk.run("cancel", job_id, "--terminate", "--grace", "90", "--as", "ann").stdout
    assert "its worker stops at its next step, or its process is ended, and no other end is possible" in said
    job = desk.shop.job(job_id)
    assert job.terminate_after is not None
    assert job.cancel_requested_at is not None
    assert (job.terminate_after - job.cancel_requested_at).total_seconds() == 90
    assert f"or is ended at {instant(job.terminate_after)}" in desk.run("show", job_id).stdout


def test_a_grace_without_terminate_is_a_mistake(desk: Desk) -> None:
    """It would do nothing."""
    refused = desk.run("cancel", desk.pending(), "--grace", "5", "--as", "ann", code=2)
    assert "--grace goes with --terminate" in refused.stderr


def test_show_tells_why_a_job_was_given_up(desk: Desk) -> None:
    """Each attempt with its cause and where it was, and what the last one failed with."""
    holding = desk.running(supervise={"deadline": HOUR / 2})
    job_id = holding.lease.job_id
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    same = row(desk.shop, job_id)["input_digest"]
    holding.retry(retry(digest=same), failure("bank down"))
    desk.shop.hold(job_id).retry(retry(HOUR, digest=same), failure("bank still down"))
    text = desk.run("show", job_id).stdout
    assert "failed: not tried again (its deadline)" in text
    assert "at load: failed, to be tried again: shop.Broken: bank down" in text
    assert "at load: failed: shop.Broken: bank still down" in text
    assert "checkpoint  load" in text
    assert "error       Traceback …" in text
    (_, last) = desk.read("show", job_id)["attempts_made"]
    assert (last["traceback"], last["checkpoint_ref"]) == ("Traceback …", "load")
