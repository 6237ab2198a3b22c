"""`cancel(terminate=True)`: what the rows say, and whom a worker may end for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from celery_supervise.errors import InvalidInput
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved
from celery_supervise.store.sql import Statement
from celery_supervise.store.terminating import DOOM, FIND_DOOMED
from tests.postgres.looking import row, rows, unchanged, watching
from tests.postgres.races import Call, row_held, waiter
from tests.postgres.shop import NO_TIME, Shop, stored

ANN = "user:ann"
HOUR = timedelta(hours=1)
PID = Statement("pid", "SELECT pg_backend_pid() AS pid")


def doomed(shop: Shop, grace: timedelta = NO_TIME) -> Holding:
    """An attempt whose process is to be ended."""
    holding = shop.running()
    shop.supervisor.cancel(holding.lease.job_id, actor=ANN, terminate=True, grace=grace)
    return holding


def found(shop: Shop, **changes: Any) -> list[str]:
    """The jobs whose processes the worker finds due."""
    given = {"incarnation": shop.claimer.incarnation, **changes}
    return [one["job_id"] for one in shop.door.all(FIND_DOOMED, **given)]


def doom(shop: Shop, holding: Holding, **changes: Any) -> bool:
    """Whether the row agrees that the process runs this attempt, and that it is to end."""
    given = {
        "job_id": holding.lease.job_id,
        "token": holding.lease.token,
        "pid": shop.claimer.pid,
        "incarnation": shop.claimer.incarnation,
    }
    return shop.door.one(DOOM, **{**given, **changes}) is not None


def test_the_grace_is_in_the_row(shop: Shop) -> None:
    """On the database's clock, in the log; one mutation."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.cancel(job_id, actor=ANN, terminate=True, grace=HOUR, why="hangs")
    job = shop.job(job_id)
    assert (moved.state, moved.changed, seen.generation, seen.events) == (State.RUNNING, True, 1, ["cancel_requested"])
    assert job.cancel_requested_at is not None
    assert job.terminate_after == job.cancel_requested_at + HOUR
    assert set(seen.entries[0].data) >= {"why", "terminate_after"}
    assert found(shop) == []


def test_a_cancel_that_was_asked_for_can_still_end_the_process(shop: Shop) -> None:
    """Once: a third one changes nothing, and the time of the first cancel stays."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    at = shop.job(job_id).cancel_requested_at
    assert shop.supervisor.cancel(job_id, actor=ANN, terminate=True, grace=HOUR).changed
    assert shop.job(job_id).cancel_requested_at == at
    with unchanged(shop, job_id):
        assert not shop.supervisor.cancel(job_id, actor=ANN, terminate=True, grace=NO_TIME).changed
        assert not shop.supervisor.cancel(job_id, actor=ANN).changed


def test_a_job_that_nobody_runs_has_no_process(shop: Shop) -> None:
    """Cancelled at once, nothing to end."""
    job = shop.pending()
    assert shop.supervisor.cancel(job.id, actor=ANN, terminate=True).state is State.CANCELLED
    assert shop.job(job.id).terminate_after is None


@pytest.mark.parametrize("grace", [timedelta(seconds=-1), timedelta.max, 5])
def test_a_grace_that_is_none_is_refused(shop: Shop, grace: Any) -> None:
    """Before anything is written."""
    holding = shop.running()
    with unchanged(shop, holding.lease.job_id), pytest.raises(InvalidInput):
        shop.supervisor.cancel(holding.lease.job_id, actor=ANN, terminate=True, grace=grace)


def test_its_own_worker_finds_it_once(shop: Shop) -> None:
    """By incarnation; noted on the attempt, so that it is ended once."""
    holding = doomed(shop)
    assert found(shop) == [holding.lease.job_id]
    assert found(shop, incarnation=uuid4()) == []
    assert doom(shop, holding)
    assert rows(shop, "attempts", holding.lease.job_id)[0]["terminate_at"] is not None
    assert found(shop) == []
    assert not doom(shop, holding)


@pytest.mark.parametrize("other", [{"pid": 1}, {"incarnation": uuid4()}, {"token": uuid4()}])
def test_s41_another_process_is_never_meant(shop: Shop, other: dict[str, Any]) -> None:
    """Another child, another worker, another attempt: no."""
    holding = doomed(shop)
    with unchanged(shop, holding.lease.job_id):
        assert not doom(shop, holding, **other)


def test_before_the_grace_nobody_is_meant(shop: Shop) -> None:
    """The row is asked again under its lock."""
    assert not doom(shop, doomed(shop, HOUR))


def test_an_attempt_that_has_ended_is_not_meant(shop: Shop) -> None:
    """It left by itself: its process may be running something else."""
    holding = doomed(shop)
    holding.complete(stored("1"))
    assert found(shop) == []
    assert not doom(shop, holding)


def test_s41_an_end_that_waits_for_the_row_comes_first(shop: Shop) -> None:
    """The attempt commits its end while the worker waits to end its process: it then is not meant any more."""
    holding = doomed(shop)
    job_id = holding.lease.job_id
    with row_held(shop.engine, "jobs", "id", job_id) as gate:
        ending = Call(lambda: holding.complete(stored("1")))
        before = waiter(shop.engine, gate)
        asking = Call(lambda: doom(shop, holding))
        waiter(shop.engine, before)
    moved = ending.outcome()
    assert isinstance(moved, Moved)
    assert (moved.state, asking.outcome()) == (State.CANCELLED, False)


def test_s41_nothing_else_begins_while_the_process_is_ended(shop: Shop) -> None:
    """The attempt's end waits until the signal is sent: the process still runs this attempt, and no other."""
    holding = doomed(shop)
    job_id = holding.lease.job_id
    given = {"job_id": job_id, "token": holding.lease.token, "pid": shop.claimer.pid}
    with shop.door.batch() as run:
        assert run(DOOM, **given, incarnation=shop.claimer.incarnation)
        (pid,) = run_pid(run)
        ending = Call(lambda: holding.complete(stored("1")))
        waiter(shop.engine, pid)
        assert ending.running
    assert ending.outcome().state is State.CANCELLED
    assert row(shop, job_id)["current_token"] is None


def run_pid(run: Any) -> list[int]:
    """The session of a batch."""
    return [one["pid"] for one in run(PID)]
