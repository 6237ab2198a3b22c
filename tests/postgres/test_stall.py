"""Liveness is not progress: a job that runs and goes nowhere is noted once a stage, and ended where its task says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import InvalidInput, LeaseLost
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.store.stalls import COUNT_STALLED, NOTE_STALLED
from celery_supervise.sweeps import STALLING, Swept
from tests.postgres.looking import backdate, execute, row, unchanged, watching
from tests.postgres.races import Call, halted, row_held, waiter
from tests.postgres.shop import Shop, failure, new_job, stored

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
ANN = "user:ann"


def stalled(shop: Shop, by: timedelta = 2 * MINUTE, **changes: Any) -> Holding:
    """A job that has run for a while and said nothing; a minute is what it may."""
    holding = shop.running(stall_after=MINUTE, **changes)
    stand_still(shop, holding, by)
    return holding


def stand_still(shop: Shop, holding: Holding, by: timedelta = 2 * MINUTE) -> None:
    """Let so much time have passed in which it made no progress."""
    execute(
        shop,
        "UPDATE supervise.jobs SET stage_at = clock_timestamp() - CAST(:by AS interval),"
        " progress_at = clock_timestamp() - CAST(:by AS interval) WHERE id = :id",
        id=holding.lease.job_id,
        by=by,
    )


def sweep(shop: Shop) -> Swept:
    """One pass of the sweep."""
    return shop.sweep(STALLING)


# --- noted -----------------------------------------------------------------------------------------------


def test_a_job_that_goes_nowhere_is_noted_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """However often its lease is renewed: logged, with where it stands and since when; no client sees a change."""
    holding = shop.running(stall_after=MINUTE)
    job_id = holding.lease.job_id
    caplog.set_level(logging.INFO, "celery_supervise")
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    with unchanged(shop, job_id):
        assert sweep(shop).moved == []
    stand_still(shop, holding)
    shop.beat(holding)
    with watching(shop, job_id) as seen:
        (moved,) = sweep(shop).moved
    assert (moved.job_id, moved.state, seen.generation) == (job_id, State.RUNNING, 0)
    assert (seen.events, seen.entries[0].actor) == (["stalled"], "sweep")
    assert (seen.entries[0].data["node"], seen.entries[0].data["attempt"]) == ("load", 1)
    assert shop.job(job_id).stalled_at == seen.entries[0].at
    (told,) = (record for record in caplog.records if record.__dict__.get("event") == "supervise.stalled")
    assert vars(told)["job_id"] == job_id
    with unchanged(shop, job_id):
        assert sweep(shop).moved == []
    assert holding.complete(None).state is State.COMPLETED


def test_the_next_stage_may_stall_again(shop: Shop) -> None:
    """A checkpoint takes the mark away; what stands still after it is noted anew."""
    holding = stalled(shop)
    sweep(shop)
    holding.checkpoint("next", NodeKind.STEP, stored("1"))
    assert shop.job(holding.lease.job_id).stalled_at is None
    assert sweep(shop).moved == []
    stand_still(shop, holding)
    sweep(shop)
    assert shop.events(holding.lease.job_id).count("stalled") == 2


def test_what_goes_on_is_not_stalled(shop: Shop) -> None:
    """An item of a loop, again at the same node, and a word of progress are progress; a heartbeat is not."""
    ways: list[Callable[[Holding], object]] = [
        lambda holding: holding.checkpoint("pay", NodeKind.EACH, stored("2")),
        lambda holding: holding.progress(1, 2, "half"),
    ]
    for go_on in ways:
        holding = shop.running(stall_after=MINUTE)
        holding.checkpoint("pay", NodeKind.EACH, stored("1"))
        stand_still(shop, holding)
        go_on(holding)
        with unchanged(shop, holding.lease.job_id):
            assert sweep(shop).moved == []


def test_waiting_is_not_standing_still(shop: Shop) -> None:
    """A job that waits for a person or a worker, and one that has ended, make no progress, and need not."""
    question = shop.asked(stall_after=MINUTE)
    for job_id in (shop.job_of(question).id, shop.pending(stall_after=MINUTE).id, shop.ended(State.COMPLETED).id):
        execute(
            shop,
            "UPDATE supervise.jobs SET stage_at = clock_timestamp() - interval '1 day'"
            " WHERE id = :id AND finished_at IS NULL",
            id=job_id,
        )
        with unchanged(shop, job_id):
            assert sweep(shop).moved == []
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    shop.hold(shop.job_of(question).id)
    assert sweep(shop).moved == []  # its stage begins with the attempt


def test_a_job_without_a_limit_is_never_stalled(shop: Shop) -> None:
    """Who does not say how long it may stand still is not asked why it does."""
    holding = shop.running()
    stand_still(shop, holding, timedelta(days=100))
    with unchanged(shop, holding.lease.job_id):
        assert sweep(shop).moved == []


@pytest.mark.parametrize("changes", [{"on_stall": "kill"}, {"stall_after": timedelta(0)}, {"stall_after": 60}])
def test_what_a_stall_cannot_be(shop: Shop, changes: dict[str, Any]) -> None:
    """Another word, no time, no timedelta: refused before anything is written."""
    job = new_job(**changes)
    with pytest.raises(InvalidInput) as refused:
        shop.supervisor.submit(job)
    assert [refused.value.field] == list(changes)


# --- ended -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("action", "state"), [("cancel", State.CANCELLED), ("fail", State.FAILED)])
def test_a_task_may_ask_for_an_end(shop: Shop, action: str, state: State) -> None:
    """Noted and ended in one commit, with the reason; the attempt is over, though its process lives."""
    holding = stalled(shop, on_stall=action)
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        (moved,) = sweep(shop).moved
    assert (moved.state, moved.stop_reason, seen.generation) == (state, "stalled", 1)
    assert seen.events == ["stalled", str(state)]
    job, (attempt,) = row(shop, job_id), shop.supervisor.attempts(job_id)
    assert (job["current_token"], job["settle_due_at"]) == (None, job["finished_at"])
    assert (attempt.ended_at, attempt.outcome, attempt.cause) == (
        job["finished_at"],
        str(state),
        "it made no progress",
    )


@pytest.mark.parametrize("action", ["cancel", "fail"])
def test_a_body_that_wakes_up_learns_it_at_its_next_call(shop: Shop, action: str) -> None:
    """Whatever it then writes is not kept: checkpoint, progress, result, failure."""
    holding = stalled(shop, on_stall=action)
    job_id = holding.lease.job_id
    sweep(shop)
    ended = shop.job(job_id)
    calls: list[Callable[[], Any]] = [
        lambda: holding.checkpoint("late", NodeKind.STEP, stored("1")),
        lambda: holding.progress(1, 2, None),
        lambda: holding.complete(stored('"done"')),
        lambda: holding.fail(failure()),
    ]
    for call in calls:
        outcome = Call(call).outcome()
        assert isinstance(outcome, LeaseLost) or not outcome.changed
    job = shop.job(job_id)
    assert (job.state, job.stop_reason, job.node, job.settle_id) == (ended.state, "stalled", None, ended.settle_id)


@pytest.mark.parametrize(
    ("column", "reason", "state"),
    [("expires_at", "expired:deadline", State.EXPIRED), ("active_until", "expired:max_active", State.EXPIRED)],
)
def test_time_goes_before_a_stall(shop: Shop, column: str, reason: str, state: State) -> None:
    """A stalled job whose time is over has expired; one that is to be cancelled is cancelled, not failed."""
    holding = stalled(shop, on_stall="fail", deadline=HOUR, max_active=HOUR)
    backdate(shop, holding.lease.job_id, column)
    (moved,) = sweep(shop).moved
    assert (moved.state, moved.stop_reason) == (state, reason)


def test_a_cancel_request_goes_before_a_stall(shop: Shop) -> None:
    """From a cancel request on no other outcome is possible."""
    holding = stalled(shop, on_stall="fail")
    shop.supervisor.cancel(holding.lease.job_id, actor=ANN)
    (moved,) = sweep(shop).moved
    assert (moved.state, moved.stop_reason) == (State.CANCELLED, None)


# --- two at once -----------------------------------------------------------------------------------------


def test_a_sweep_behind_a_checkpoint_finds_progress(shop: Shop) -> None:
    """A job that saved something while the sweep was at it goes on: it is judged again under its lock."""
    holding = stalled(shop, on_stall="fail")
    with row_held(shop.engine, "jobs", "id", holding.lease.job_id):
        assert Call(lambda: sweep(shop)).outcome().moved == []  # it waits for nobody
    holding.checkpoint("x", NodeKind.STEP, stored("1"))
    assert sweep(shop).moved == []
    assert holding.complete(None).state is State.COMPLETED


def test_a_checkpoint_behind_the_end_is_refused(shop: Shop) -> None:
    """A checkpoint that waited for the sweep is told that the job has ended, and saves nothing."""
    holding = stalled(shop, on_stall="fail")
    job_id = holding.lease.job_id
    with halted(shop.engine, NOTE_STALLED) as halt:
        swept = Call(lambda: sweep(shop))
        pid = halt.reached(swept)  # it has locked the job
        saved = Call(lambda: holding.checkpoint("x", NodeKind.STEP, stored("1")))
        waiter(shop.engine, pid)
        halt.go()
    assert [moved.state for moved in swept.outcome().moved] == [State.FAILED]
    assert isinstance(saved.outcome(), LeaseLost)
    assert (shop.job(job_id).state, shop.job(job_id).node) == (State.FAILED, None)


def test_many_stalls_at_once_are_not_believed_at_first(shop: Shop) -> None:
    """More than a fifth of all that runs, to be ended at once: what is noted only is not counted, the rest is held."""
    for _ in range(21):
        stalled(shop)
    assert shop.door.all(COUNT_STALLED)[0]["over"] == 0
    for _ in range(21):
        stalled(shop, on_stall="fail")
    assert shop.door.all(COUNT_STALLED)[0] == {"live": 42, "over": 21}


def test_other_namespaces_are_not_ours_to_judge(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Each app notes its own."""
    stalled(open_shop(namespace="other"))
    assert sweep(shop).moved == []
