"""`AsyncResult`, `GroupResult` and `ResultSet` of jobs: as a Celery user knows them, through all that a job can do."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from celery import Celery, chain, group
from celery.exceptions import TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeout
from celery.result import AsyncResult, GroupResult, ResultSet

from celery_supervise import JobExpired, State, SupervisedTask
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("results", set_as_current=False)
POOL = "threads"


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@task()
def asks(self: SupervisedTask, value: int) -> int:
    return value + int(self.ask("more", "How many more?", schema={"type": "integer"}))


@task()
def gives(self: SupervisedTask, value: int) -> int:
    return value


@task()
def fails(self: SupervisedTask) -> None:
    raise ValueError("no")


@task()
def steps(self: SupervisedTask) -> str:
    app_jobs.supervise.pause(self.request.id, actor="user:ann")
    return self.step("paused before", lambda: "went on")


class AppJobs:
    """The service, for bodies."""

    supervise: Any


app_jobs = AppJobs()


@pytest.fixture(autouse=True)
def _here(shop: Site) -> None:
    app_jobs.supervise = shop.supervise


def shown(result: AsyncResult, state: str) -> Any:
    """Wait until the state is shown; returns the result's `info`."""
    wait_for(lambda: result.state == state, what=state)
    return result.info


def test_of_a_job_that_waits(shop: Site) -> None:
    """PARKED, with the question in `info`: neither ready nor failed; `get` waits for the true end."""
    result = asks.delay(1)
    question = shop.parked(result)
    info = shown(result, "PARKED")
    assert info == {"question": "more", "question_id": str(question.id)}
    assert (result.status, result.result, result.traceback) == ("PARKED", info, None)
    assert (result.ready(), result.successful(), result.failed()) == (False, False, False)
    with pytest.raises(CeleryTimeout):
        result.get(timeout=0.3)
    with pytest.raises(CeleryTimeout):
        app.AsyncResult(result.id).get(timeout=0.3)
    got: list[Any] = []
    waiter = threading.Thread(target=lambda: got.append(app.AsyncResult(result.id).get(timeout=20)))
    waiter.start()
    shop.answer(result, 4)
    waiter.join()
    assert (got, result.get(timeout=20)) == ([5], 5)
    assert (result.state, result.info, result.ready(), result.successful()) == ("SUCCESS", 5, True, True)
    assert result.date_done is not None


def test_of_a_job_that_is_paused(shop: Site) -> None:
    """PARKED, with the reason."""
    result = steps.delay()
    shop.wait(result, State.PARKED)
    assert shown(result, "PARKED") == {"reason": "user_paused"}
    shop.supervise.resume(result.id, actor="user:ann")
    assert result.get(timeout=20) == "went on"


def test_of_a_job_that_is_cancelled(shop: Site) -> None:
    """REVOKED, as a task that Celery revoked: `get` raises, or gives the error with `propagate=False`."""
    result = asks.delay(1)
    shop.parked(result)
    shop.supervise.cancel(result.id, actor="user:ann")
    with pytest.raises(TaskRevokedError, match="cancelled"):
        result.get(timeout=20)
    assert (result.state, result.ready(), result.successful(), result.failed()) == ("REVOKED", True, False, False)
    assert isinstance(result.get(propagate=False), TaskRevokedError)


def test_of_a_job_that_expired(shop: Site) -> None:
    """FAILURE, of a class of its own, with the reason."""
    result = asks.delay(1)
    shop.parked(result)
    with shop.runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.jobs SET wait_until = clock_timestamp() - interval '1 s' WHERE id = %(id)s",
            {"id": result.id},
        )
    with pytest.raises(JobExpired, match="expired:awaiting_user_answer:more"):
        result.get(timeout=20)
    assert (result.state, result.failed()) == ("FAILURE", True)
    assert isinstance(result.info, JobExpired)


def test_of_a_job_that_failed(shop: Site) -> None:
    """FAILURE, the exception, the traceback of the body."""
    result = fails.delay()
    with pytest.raises(ValueError, match="no"):
        result.get(timeout=20)
    assert (result.state, result.failed(), type(result.info)) == ("FAILURE", True, ValueError)
    assert 'raise ValueError("no")' in result.traceback
    assert result.maybe_throw(propagate=False) is not None


def test_of_a_chain(shop: Site) -> None:
    """`parent`, `children`, `collect`: the family, though a member waited."""
    result = chain(gives.s(1), asks.s(), gives.s())()
    shop.answer(result.parent, 4)
    assert result.get(timeout=20) == 5
    assert [one.get(timeout=20) for one in (result.parent.parent, result.parent)] == [1, 5]
    first = app.AsyncResult(result.parent.parent.id)
    assert [value for _, value in first.collect(timeout=20)] == [1, 5, 5]
    assert first.children == [result.parent]


def test_group_result(shop: Site) -> None:
    """A parked member has not returned: counts, states, `join` and `get`, in order; saved and restored by its id."""
    result = group(gives.s(1), asks.s(2), gives.s(3))()
    member = result.results[1]
    shop.parked(member)
    wait_for(lambda: result.completed_count() == 2, what="the others")
    assert (result.ready(), result.waiting(), result.successful(), result.failed()) == (False, True, False, False)
    result.save()
    restored = GroupResult.restore(result.id, app=app)
    assert restored is not None
    assert [one.state for one in restored.results] == ["SUCCESS", "PARKED", "SUCCESS"]
    with pytest.raises(CeleryTimeout):
        restored.get(timeout=0.3)
    shop.answer(member, 10)
    assert result.get(timeout=20) == [1, 12, 3]
    assert restored.join(timeout=20) == restored.join_native(timeout=20) == [1, 12, 3]
    assert (restored.completed_count(), restored.successful(), restored.ready()) == (3, True, True)
    assert dict(enumerate(restored))[1].get() == 12
    restored.delete()
    assert GroupResult.restore(result.id, app=app) is None


def test_group_result_of_members_that_end(shop: Site) -> None:
    """One that was cancelled is no failure but revoked, and `get` raises; `propagate=False` gives all of them."""
    result = group(gives.s(1), asks.s(2), fails.si())()
    member = result.results[1]
    shop.parked(member)
    shop.supervise.cancel(member.id, actor="user:ann")
    found = result.join(timeout=20, propagate=False)
    assert [type(one) for one in found] == [int, TaskRevokedError, ValueError]
    assert (result.failed(), result.successful(), result.completed_count()) == (True, False, 1)


def test_result_set(shop: Site) -> None:
    """Results of any origin together, with what calls back for each."""
    waiting = asks.delay(2)
    results = ResultSet([gives.delay(1), waiting], app=app)
    results.add(gives.delay(3))
    assert not results.ready()
    shop.answer(waiting, 0)
    heard: list[Any] = []
    assert results.get(timeout=20, callback=lambda _id, value: heard.append(value)) is None
    assert sorted(heard) == [1, 2, 3]
    assert results.join(timeout=20) == [1, 2, 3]


def test_forgotten(shop: Site) -> None:
    """`forget` takes the result out of Celery; the row keeps it."""
    result = gives.delay(7)
    assert result.get(timeout=20) == 7
    shop.settled(result)
    result.forget()
    assert (app.AsyncResult(result.id).state, shop.supervise.result(result.id)) == ("PENDING", 7)
