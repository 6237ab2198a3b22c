"""Jobs that do not complete: failed, cancelled, expired, timed out. What Celery's callers see of it."""

from __future__ import annotations

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery.exceptions import SoftTimeLimitExceeded, TaskRevokedError

from celery_supervise import JobExpired, JobFailed, State
from tests.acceptance.bodies import Broken
from tests.acceptance.shop import Shop
from tests.tools import wait_for


def test_failed(shop: Shop) -> None:
    """The caller gets the exception, its errback runs once, the log names the error."""
    result = shop.send("fail", "no money", link_error=shop.task("alarm").s())
    with pytest.raises(Broken, match="no money"):
        result.get(timeout=20)
    shop.settled(result)
    wait_for(lambda: shop.effects("alarm"), what="the errback")
    assert shop.effects() == ["fail", "alarm"]
    assert shop.job(result).state is State.FAILED


def test_hard_time_limit(shop: Shop) -> None:
    """The child is killed, the job fails as `time_limit`, errbacks run once; the worker goes on."""
    result = shop.send("stuck", link_error=shop.task("alarm").s())
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=30)
    job = shop.wait(result, State.FAILED)
    assert job.stop_reason == "time_limit"
    (failed,) = (entry for entry in shop.entries(result) if entry.event == "failed")
    assert failed.data["reason"] == "time_limit"
    shop.settled(result)
    wait_for(lambda: shop.effects("alarm"), what="the errback, which has its own turn")
    assert shop.send("add", 1, 2).get(timeout=30) == 3
    assert shop.effects() == ["first", "stuck", "alarm", "add 1 2"]
    assert (shop.job(result).attempts, shop.count(result, "lease_lost")) == (1, 0)


def test_hard_time_limit_after_the_end(shop: Shop) -> None:
    """A limit that strikes when the job has completed, in a hook of the shop's, makes no failure of it."""
    result = shop.send("lingers", link_error=shop.task("alarm").s())
    assert result.get(timeout=30) == "done"
    wait_for(lambda: "Hard time limit" in shop.log_text() or "lingering" in shop.effects(), what="the hook")
    shop.settled(result, timeout=40)
    assert (shop.job(result).state, result.state) == (State.COMPLETED, "SUCCESS")
    assert shop.effects("alarm") == []
    assert shop.count(result, "completed") == 1


def test_s62_sys_exit_in_a_body(shop: Shop) -> None:
    """A failure, told as one at once; the child that the body wanted to end is not lost with it."""
    result = shop.send("exits")
    with pytest.raises(JobFailed, match="SystemExit: 3"):
        result.get(timeout=30)
    job = shop.job(result)
    assert (job.state, job.attempts, job.lost_count) == (State.FAILED, 1, 0)
    assert shop.effects() == ["exits"]


def test_soft_time_limit(shop: Shop) -> None:
    """An ordinary failure of the body, with its own exception, which the log names."""
    result = shop.send("soft")
    with pytest.raises(SoftTimeLimitExceeded):
        result.get(timeout=30)
    assert (shop.job(result).state, shop.job(result).stop_reason) == (State.FAILED, None)
    (failed,) = (entry for entry in shop.entries(result) if entry.event == "failed")
    assert failed.data["error"].endswith("SoftTimeLimitExceeded")


def test_a_step_that_hangs_is_left_and_retried(shop: Shop) -> None:
    """Its own time limit interrupts a dependency that does not answer; Celery retries, in the same process."""
    result = shop.send("patient")
    assert result.get(timeout=30) == "answered"
    assert shop.effects() == ["call", "call"]
    (retried,) = (entry for entry in shop.entries(result) if entry.event == "retry_scheduled")
    assert retried.data["error"].endswith("StepTimedOut")
    job = shop.job(result)
    assert (job.attempts, job.lost_count) == (2, 0)


def test_cancelled_while_running(shop: Shop) -> None:
    """A cancel is obeyed at the next step; Celery shows REVOKED."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    shop.supervise.cancel(result.id, actor="user:ann", why="changed my mind")
    assert shop.job(result).state is State.RUNNING
    shop.open("one")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=20)
    assert (result.state, shop.job(result).state) == ("REVOKED", State.CANCELLED)
    assert shop.count(result, "cancelled") == 1


def test_s39_an_error_after_a_cancel_is_no_retry(shop: Shop) -> None:
    """Code that turns the cancel into an error of its own does not bring the job back."""
    result = shop.send("stubborn")
    shop.at("stubborn")
    shop.supervise.cancel(result.id, actor="user:ann")
    shop.open("stubborn")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=20)
    job = shop.job(result)
    assert (job.state, job.attempts, shop.count(result, "retry_scheduled")) == (State.CANCELLED, 1, 0)


def test_revoke_with_terminate(shop: Shop) -> None:
    """Celery's own way to stop a running task: cancelled, and the pool is as good as before."""
    result = shop.send("stand", "for ever")
    shop.at("for ever")
    shop.app.control.revoke(result.id, terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    shop.wait(result, State.CANCELLED)
    shop.settled(result)
    assert shop.send("add", 1, 2).get(timeout=30) == 3
    assert shop.effects() == ["at for ever", "add 1 2"]


def test_revoke_of_a_running_job(shop: Shop) -> None:
    """Without `terminate` no process is ended: its body learns of it at its next supervised call."""
    result = shop.send("walk", ["one", "two"], ["one"])
    shop.at("one")
    children = set(shop.workers["common"].children)
    shop.app.control.revoke(result.id)
    wait_for(lambda: shop.job(result).cancel_requested_at, what="the request")
    assert shop.job(result).state is State.RUNNING
    shop.open("one")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    shop.wait(result, State.CANCELLED)
    assert (shop.count(result, "cancel_requested"), shop.job(result).attempts) == (1, 1)
    assert set(shop.workers["common"].children) == children


def test_revoke_of_a_parked_job(shop: Shop) -> None:
    """At once: no message of it need come."""
    result = shop.send("approve", 5)
    shop.parked(result)
    shop.app.control.revoke(result.id)
    shop.wait(result, State.CANCELLED)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=30)
    assert [entry.actor for entry in shop.entries(result) if entry.event == "cancelled"] == ["celery:revoke"]
    assert shop.effects() == ["load 5"]


def test_revoke_of_a_job_that_waits(own: Shop) -> None:
    """Celery's own way to stop a task before it starts."""
    own.worker()
    standing = own.send("stand", "gate")
    own.at("gate")
    own.app.control.revoke("revoked-before-it-starts")
    result = own.send("add", 1, 2, task_id="revoked-before-it-starts")
    own.open("gate")
    assert standing.get(timeout=20) == "gate"
    own.wait(result, State.CANCELLED)
    own.settled(result)
    assert result.state == "REVOKED"
    assert own.effects() == ["at gate"]


def test_s37_cancelled_while_no_worker_listens(own: Shop) -> None:
    """A cancel is in the row, not in a worker's memory: what is found later does not run."""
    results = [own.send("add", number, 0) for number in range(5)]
    for result in results:
        own.supervise.cancel(result.id, actor="user:ann")
    own.worker("first")
    own.settled(*results)
    last = own.send("add", 9, 9)
    assert last.get(timeout=20) == 18
    assert own.effects() == ["add 9 9"]
    assert {own.job(result).state for result in results} == {State.CANCELLED}


def test_deadline_passes_while_running(shop: Shop) -> None:
    """The job expires under its body, which is told at its next step; Celery shows a failure of class JobExpired."""
    result = shop.send("brief")
    shop.at("brief")
    job = shop.wait(result, State.EXPIRED)
    assert job.stop_reason == "expired:deadline"
    shop.open("brief")
    with pytest.raises(JobExpired, match="expired:deadline"):
        result.get(timeout=20)
    assert result.state == "FAILURE"
    wait_for(lambda: f"[{result.id}] ignored" in shop.log_text(), what="the body's end")
    assert shop.job(result).state is State.EXPIRED
    assert result.state == "FAILURE"


def test_deadline_passes_while_parked(shop: Shop) -> None:
    """The errback of an expired job runs; the reason says what it waited for."""
    result = shop.send("impatient", 0.5, link_error=shop.task("alarm").s())
    with pytest.raises(JobExpired, match="expired:awaiting_user_answer:approve"):
        result.get(timeout=20)
    shop.settled(result)
    wait_for(lambda: shop.effects("alarm"), what="the errback")
    assert shop.effects() == ["alarm"]


def test_s47_a_deadline_does_not_start_again(shop: Shop) -> None:
    """The kill of a worker moves no deadline."""
    result = shop.send("suicidal", 1)
    before = shop.job(result).deadline
    assert result.get(timeout=30) == "alive"
    assert shop.job(result).deadline == before
