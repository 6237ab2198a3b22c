"""What a setup of pytest-celery shows of supervised tasks while all goes well."""

from __future__ import annotations

import pytest
from celery import chord
from celery.exceptions import TaskRevokedError
from pytest_celery import CeleryTestSetup

from celery_supervise import State
from tests.nodes.jobs import NodeJobs
from tests.nodes.tasks import approve, double, failed, flaky, total
from tests.tools import wait_for

SECONDS = 60


def test_a_question(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """It parks, the worker is free meanwhile, the answer lets it go on, each step happens once."""
    asked = approve.delay(5)
    jobs.parked(asked)
    wait_for(lambda: asked.state == "PARKED", timeout=SECONDS, what="PARKED")
    (active,) = celery_setup.app.control.inspect(timeout=SECONDS, limit=1).active().values()
    assert active == []
    assert double.delay(4).get(timeout=SECONDS) == 8
    jobs.answer(asked, "yes")
    assert asked.get(timeout=SECONDS) == 5
    celery_setup.worker.assert_log_exists(f"[{asked.id}] succeeded")
    assert [jobs.effects(text) for text in ("load 5", "pay 5", "double 4")] == [1, 1, 1]
    assert "Traceback" not in celery_setup.worker.logs()


def test_the_setup(celery_setup: CeleryTestSetup) -> None:
    """pytest-celery's own checks hold with supervised tasks: three nodes, its pings, the worker's processes."""
    assert celery_setup.ready(ping=True, control=True, docker=True)
    assert len(celery_setup) == 3
    worker = celery_setup.worker
    (registered,) = celery_setup.app.control.inspect(timeout=SECONDS, limit=1).registered().values()
    assert {"tests.nodes.tasks.approve", "tests.nodes.tasks.total"} <= {*registered}
    assert worker.container.pid in {process["pid"] for process in worker.get_running_processes_info(["pid"])}


def test_signals_of_a_job_that_asks(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """Handlers in the worker hear each entry of the body, and one end; a question is no failure."""
    asked = approve.delay(6)
    jobs.answer(asked, "no")
    assert asked.get(timeout=SECONDS) == 0
    celery_setup.worker.wait_for_log(f"success: {asked.id}.", timeout=SECONDS)
    logs = celery_setup.worker.logs()
    assert [logs.count(f"{name}: {asked.id}.") for name in ("prerun", "success", "failure")] == [2, 1, 0]


def test_a_chord_waits_for_an_answer(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """A parked member has not returned: the body, a plain task, runs once, after the answer."""
    members = chord([double.s(1), approve.s(7)])(total.s())
    asked = members.parent.children[1]
    jobs.parked(asked)
    celery_setup.worker.wait_for_log("effect: double 1.", timeout=SECONDS)
    assert jobs.effects("total 9") == 0
    jobs.answer(asked, "yes")
    assert members.get(timeout=SECONDS) == 9
    assert jobs.effects("total 9") == 1


def test_a_cancelled_job(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """A parked job that somebody cancels reads REVOKED, as one that Celery revoked; what follows does not run."""
    asked = (approve.s(8) | double.s()).delay().parent
    jobs.parked(asked)
    jobs.supervise.cancel(asked.id, actor="user:ann")
    with pytest.raises(TaskRevokedError):
        asked.get(timeout=SECONDS)
    jobs.settled(asked, timeout=SECONDS)
    assert (asked.state, jobs.effects("double 8")) == ("REVOKED", 0)


def test_sent_by_name(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """A message of somebody who knows only the task's name becomes a job when a worker receives it."""
    sent = celery_setup.app.send_task("tests.nodes.tasks.double", (21,))
    assert sent.get(timeout=SECONDS) == 42
    assert jobs.job(sent).state is State.COMPLETED


def test_retries_and_errbacks(celery_setup: CeleryTestSetup, jobs: NodeJobs) -> None:
    """Celery's autoretry counts as ever, and no step is done twice; used up, it is one failure with one errback."""
    assert flaky.delay(2).get(timeout=SECONDS) == 2
    assert jobs.effects("paid") == 1
    result = flaky.apply_async((9,), link_error=failed.s())
    jobs.wait(result, State.FAILED, timeout=SECONDS)
    celery_setup.worker.wait_for_log("effect: failed.", timeout=SECONDS)
    jobs.settled(result, timeout=SECONDS)
    assert (jobs.effects("failed"), jobs.effects("paid"), result.state) == (1, 2, "FAILURE")
