"""Nodes of pytest-celery that are killed and restarted: what Celery loses is not lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from pytest_celery import CeleryTestSetup, CeleryTestWorker, CeleryWorkerCluster

from celery_supervise import State
from tests.nodes.jobs import NodeJobs
from tests.nodes.tasks import approve, double, walk
from tests.tools import wait_for

SECONDS = 60


def test_a_worker_that_is_killed(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """`worker.kill()`, `worker.restart()`: on after the last step, though Redis keeps the message for an hour."""
    result = walk.delay("killed")
    jobs.at("killed")
    celery_setup.worker.kill()
    assert celery_setup.worker.container.status == "exited"
    jobs.open("killed")
    celery_setup.worker.restart()
    assert result.get(timeout=SECONDS) == ["one killed", "two killed"]
    assert [jobs.effects(text) for text in ("one killed", "at killed", "two killed")] == [1, 2, 1]
    assert jobs.count(result, "lease_lost") == 1


def test_a_child_that_is_killed(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """Its job goes on in the same worker, without waiting for a lease."""
    result = walk.delay("child")
    jobs.at("child")
    for child in psutil.Process(celery_setup.worker.container.pid).children():
        os.kill(child.pid, signal.SIGKILL)
    jobs.open("child")
    assert result.get(timeout=SECONDS) == ["one child", "two child"]
    assert jobs.effects("one child") == 1
    assert jobs.count(result, "lease_lost") == 1


def test_a_worker_that_is_told_to_stop(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """`worker.kill("SIGTERM")`: the job leaves at its next step, which uses up no attempt."""
    result = walk.delay("told")
    jobs.at("told")
    celery_setup.worker.kill("SIGTERM")
    wait_for(lambda: jobs.supervise.attempts(result.id)[-1].handing_over, timeout=SECONDS, what="the request to leave")
    jobs.open("told")
    jobs.exited(celery_setup.worker)
    celery_setup.worker.restart()
    assert result.get(timeout=SECONDS) == ["one told", "two told"]
    assert jobs.effects("two told") == 1
    assert (jobs.count(result, "handed_over"), jobs.job(result).lost_count) == (1, 0)


def test_a_broker_that_forgets(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """`broker.restart()` with messages in it, one of them an answered job's: all are sent again from the rows."""
    asked = approve.delay(9)
    jobs.parked(asked)
    celery_setup.worker.kill()
    waiting = [double.delay(number) for number in range(5)]
    jobs.answer(asked, "yes")
    celery_setup.broker.restart()
    celery_setup.worker.restart()
    assert [result.get(timeout=SECONDS) for result in (*waiting, asked)] == [0, 2, 4, 6, 8, 9]
    assert [jobs.effects(f"double {number}") for number in range(5)] == [1] * 5
    assert jobs.effects("pay 9") == 1


def test_a_result_backend_that_is_away(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """`backend.kill()` before a job ends: the row has its result, and Celery is told when the backend is back."""
    asked = approve.delay(3)
    jobs.parked(asked)
    celery_setup.backend.kill()
    jobs.answer(asked, "yes")
    jobs.wait(asked, State.COMPLETED, timeout=SECONDS)
    celery_setup.backend.restart()
    jobs.settled(asked, timeout=SECONDS)
    assert asked.get(timeout=SECONDS) == 3
    assert jobs.effects("pay 3") == 1


class TestTwoWorkers:
    """A cluster of two."""

    @pytest.fixture
    def celery_worker_cluster(
        self, celery_worker: CeleryTestWorker, start_worker: Callable[..., Any], celery_setup_app: Any
    ) -> CeleryWorkerCluster:
        """The setup's worker, and another one."""
        other = start_worker("other", "-n", "other@%h")
        return CeleryWorkerCluster(celery_worker, CeleryTestWorker(other, celery_setup_app))

    def test_the_other_takes_over(self, celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
        """The worker that has the job is killed and stays away: the other one goes on where it was."""
        assert len(celery_setup.worker_cluster) == 2
        result = walk.delay("over")
        jobs.at("over")
        (had,) = [worker for worker in celery_setup.worker_cluster if "effect: at over." in worker.logs()]
        had.kill()
        jobs.at("over", times=2)
        jobs.open("over")
        assert result.get(timeout=SECONDS) == ["one over", "two over"]
        assert [jobs.effects(text) for text in ("one over", "two over")] == [1, 1]
        assert had.container.status == "exited"
