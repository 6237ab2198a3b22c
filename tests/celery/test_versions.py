"""Jobs that a worker's code cannot run: another worker's turn, then parked, then taken up by code that can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.result import AsyncResult

from celery_supervise import Options, Remembered, State, SupervisedTask
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
    """Nothing hangs on the code's text: what asks and what is paused goes on with it, with what the old one decided."""
    old, new = open_site(), open_site(**SOON)
    for site, body in ((old, asks), (new, asks_more)):
        site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.asks")(body)
    results = [old.app.tasks["shop.asks"].delay() for _ in range(4)]
    with working(old):
        for result in results:
            old.parked(result)
        for number, result in enumerate(results[2:], 2):  # half of them are paused, one of these before its answer
            old.supervise.pause(str(result.id), actor="user:ann")
            if number == 3:
                old.answer(result, number)
                wait_for(lambda result=result: old.job(result).stop_reason == "user_paused", what="the pause")
    with working(new):
        for number, result in enumerate(results[:3]):
            new.answer(result, number)
        for result in results[2:]:
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


def asks_old(self: SupervisedTask) -> list[Any]:
    """Before the deploy."""
    rows = self.step("load", lambda: [1, 2])
    return [rows, self.ask("more", "How much more?", schema={"type": "integer"})]


def asks_new(self: SupervisedTask) -> list[Any]:
    """After it: the step is called otherwise, and its rows are dicts."""
    rows = self.step("load_rows", lambda: [{"id": 0}])
    return [rows, self.ask("more", "How much more?", schema={"type": "integer"})]


def as_dicts(memory: Remembered) -> None:
    """What the new code expects."""
    memory.rename("load", "load_rows")
    memory.write("load_rows", [{"id": row} for row in memory.read("load_rows")])


def asking(site: Site, body: Any, **options: Any) -> Any:
    """What this app has of the task that asks."""
    options_ = Options(**options)
    return site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.asks", supervise=options_)(body)


def parked_by(site: Site, task: Any) -> AsyncResult[Any]:
    """A job that a worker of this app began, and that asks."""
    result: AsyncResult[Any] = task.delay()
    with working(site):
        site.parked(result)
    return result


def test_s64_code_that_migrates_what_older_code_began(open_site: Callable[..., Site]) -> None:
    """What was done is not done again, and comes as the new code expects it; what was answered counts."""
    old, new = open_site(), open_site()
    task = asking(old, asks_old)
    asking(new, asks_new, version=2, migrate={1: as_dicts})
    result = parked_by(old, task)
    with working(new):
        new.answer(result, 7)
        assert result.get(timeout=20) == [[{"id": 1}, {"id": 2}], 7]
    events = [entry.event for entry in new.supervise.log(result.id).entries]
    assert events[3:8] == ["asked", "answered", "claimed", "migrated", "completed"], events
    assert new.supervise.job(str(result.id)).task_version == 2


def test_a_migration_that_raises_costs_the_job_nothing(open_site: Callable[..., Site]) -> None:
    """Left, then parked with what was raised, not tried again by that version; a better one goes on with it."""
    old, bad, good = open_site(), open_site(**SOON), open_site()
    task = asking(old, asks_old)
    seen: list[bool] = []

    def raises(memory: Remembered) -> None:
        seen.append(is_left(old, result))
        raise KeyError(memory.job_id)

    asking(bad, asks_new, version=2, migrate={1: raises})
    asking(good, asks_new, version=3, migrate={1: as_dicts})
    result = parked_by(old, task)
    with working(bad):
        bad.answer(result, 7)
        wait_for(lambda: bad.job(result).stop_reason == "incompatible_version:1->2:KeyError", what="the refusal")
    assert all(seen), "a function that ends its process would be tried for ever"
    assert bad.job(result).attempts == 1
    with working(good):
        assert result.get(timeout=20) == [[{"id": 1}, {"id": 2}], 7]


def test_a_migration_that_hangs_is_tried_only_until_the_grace_is_over(open_site: Callable[..., Site]) -> None:
    """The job is parked while the function is still at it; what that came to is nothing."""
    old, bad = open_site(), open_site(**SOON)
    task = asking(old, asks_old)

    def hangs(_: Remembered) -> None:
        wait_for(lambda: bad.job(result).stop_reason == "incompatible_version:1->2:tried", what="the sweep")

    asking(bad, asks_new, version=2, migrate={1: hangs})
    result = parked_by(old, task)
    with working(bad, pool="threads"):
        bad.answer(result, 7)
        wait_for(lambda: bad.job(result).stop_reason == "incompatible_version:1->2:tried", what="the reason")
    assert "its migration did not end" in bad.supervise.why(str(result.id)).sentence


def test_an_unknown_plain_task_stays_celerys(open_site: Callable[..., Site]) -> None:
    """A message that is not ours is thrown away and told as a failure, as Celery does."""
    site = open_site()
    program(site, version=1)
    with working(site):
        result = site.app.send_task("shop.nobody")
        wait_for(lambda: result.state == "FAILURE", what="Celery's failure")
    assert "shop.nobody" in str(result.result)
