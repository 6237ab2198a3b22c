"""Jobs that a worker's code cannot run: another worker's turn, then parked, then taken up by code that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.result import AsyncResult

from celery_supervise import Options, State, SupervisedTask
from tests.celery.site import Site, working
from tests.tools import wait_for

SOON = {"supervise_version_grace_seconds": 0.3}


def add(x: int) -> int:
    """A task."""
    return x + 1


def program(site: Site, *, version: int, name: str = "shop.add") -> Any:
    """What this app has of the task."""
    return site.app.task(base=SupervisedTask, shared=False, name=name, supervise=Options(version=version))(add)


def is_left(site: Site, result: AsyncResult[Any]) -> bool:
    """Whether a worker has left the job to others."""
    with site.runtime.engines().connect() as connection:
        sql = "SELECT incompatible_since IS NOT NULL FROM supervise.jobs WHERE id = %(id)s"
        return bool(connection.exec_driver_sql(sql, {"id": result.id}).scalar())


def test_s59_a_worker_that_does_not_know_the_task(open_site: Callable[..., Site]) -> None:
    """It leaves the job, and tells Celery of no failure; one that knows the task runs it."""
    new, old = open_site(), open_site()
    task, _ = program(new, version=1), program(old, version=1, name="shop.other")
    result = task.delay(1)
    with working(old):
        wait_for(lambda: is_left(new, result), what="the job to be left")
    assert (new.job(result).state, result.state) == (State.PENDING, "PENDING")
    with working(new):
        assert result.get(timeout=20) == 2
    assert new.job(result).attempts == 1


def test_s59_no_worker_knows_the_task(open_site: Callable[..., Site]) -> None:
    """After the grace the job is parked with the task's name; a worker that has it again takes it up by itself."""
    new, old = open_site(), open_site(**SOON)
    task, _ = program(new, version=1), program(old, version=1, name="shop.other")
    result = task.delay(1)
    with working(old):
        assert new.wait(result, State.PARKED).stop_reason == "unknown_task:shop.add"
    assert result.state == "PENDING"
    with working(new):
        assert result.get(timeout=20) == 2


def test_an_older_version_of_the_code(open_site: Callable[..., Site]) -> None:
    """It leaves jobs of newer code, which are parked after the grace with both versions, and go on where they can."""
    new, old = open_site(), open_site(**SOON)
    task, _ = program(new, version=2), program(old, version=1)
    result = task.delay(1)
    with working(old):
        assert new.wait(result, State.PARKED).stop_reason == "incompatible_version:2->1"
    with working(new):
        assert result.get(timeout=20) == 2
    events = [entry.event for entry in new.supervise.log(result.id).entries]
    assert events[:5] == ["submitted", "parked", "resumed", "claimed", "completed"]


def asks(self: SupervisedTask) -> list[int]:
    """Before the deploy."""
    first = self.step("first", add, 1)
    return [first, self.ask("more", "How much more?", schema={"type": "integer"})]


def asks_more(self: SupervisedTask) -> list[int]:
    """After it: something is new, something has moved, other helpers do the work."""
    new = self.step("new", add, 10)
    first = self.step("first", lambda: 0)  # decided: not called
    return [first, self.ask("more", "How much more?", schema={"type": "integer"}), new]


def test_s64_a_deploy_while_jobs_are_parked(open_site: Callable[..., Site]) -> None:
    """Nothing hangs on the code's text: all go on with the new code, with what the old one had decided."""
    old, new = open_site(), open_site(**SOON)
    for site, body in ((old, asks), (new, asks_more)):
        site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.asks")(body)
    results = [old.app.tasks["shop.asks"].delay() for _ in range(4)]
    with working(old):
        for result in results:
            old.parked(result)
        for result in results[2:]:  # half of them are paused, too
            old.supervise.pause(str(result.id), actor="user:ann")
    with working(new):
        for number, result in enumerate(results):
            new.answer(result, number)
        for result in results[2:]:
            new.wait(result, State.PARKED)
            wait_for(lambda result=result: new.job(result).stop_reason == "user_paused", what="the pause")
            new.supervise.resume(str(result.id), actor="user:ann")
        assert [result.get(timeout=20) for result in results] == [[2, number, 11] for number in range(4)]


def test_s64_code_that_says_it_cannot(open_site: Callable[..., Site]) -> None:
    """What an author calls another version stays parked, with its answer, and says why."""
    old, new = open_site(), open_site(**SOON)
    for site, version in ((old, 1), (new, 2)):
        options = Options(version=version)
        site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.asks", supervise=options)(asks)
    result = old.app.tasks["shop.asks"].delay()
    with working(old):
        old.parked(result)
    with working(new):
        new.answer(result, 7)
        wait_for(lambda: new.job(result).stop_reason == "incompatible_version:1->2", what="the reason")
    with working(old):
        assert result.get(timeout=20) == [2, 7]


def test_an_unknown_plain_task_stays_celerys(open_site: Callable[..., Site]) -> None:
    """A message that is not ours is thrown away and told as a failure, as Celery does."""
    site = open_site()
    program(site, version=1)
    with working(site):
        result = site.app.send_task("shop.nobody")
        wait_for(lambda: result.state == "FAILURE", what="Celery's failure")
    assert "shop.nobody" in str(result.result)
