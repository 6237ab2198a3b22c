"""Tasks as shops write them: hooks, mixins, bases, classes, pydantic, shared tasks. Only `base=` is new."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task, shared_task
from celery.signals import task_failure, task_postrun, task_prerun, task_retry, task_success

from celery_supervise import State, SupervisedTask
from tests.celery.site import Site

app = Celery("tasks", set_as_current=False)
calls: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()


class Hooked(SupervisedTask):
    """A base of the shop's, with every hook that Celery has."""

    abstract = True

    def before_start(self, *_: Any) -> None:
        calls.append("before_start")

    def on_success(self, retval: Any, *_: Any) -> None:
        calls.append(f"on_success {retval}")

    def on_failure(self, exc: Any, *_: Any) -> None:
        calls.append(f"on_failure {exc}")

    def on_retry(self, exc: Any, *_: Any) -> None:
        calls.append(f"on_retry {exc}")

    def after_return(self, status: str, *_: Any) -> None:
        calls.append(f"after_return {status}")


@app.task(base=Hooked, bind=True, shared=False, max_retries=3)
def hooked(self: Any, how: str) -> str:
    self.step("once", lambda: calls.append("step"))
    if how == "fail":
        raise ValueError("no")
    if how == "retry" and self.request.retries == 0:
        raise self.retry(countdown=0, exc=ValueError("not yet"))
    if how == "ask":
        return str(self.ask("q", "Well?", choices=["yes"]))
    return how


def test_hooks_of_a_job_that_completes(shop: Site) -> None:
    """Each once, in Celery's order."""
    result = hooked.delay("fine")
    assert result.get(timeout=20) == "fine"
    shop.settled(result)
    assert calls == ["before_start", "step", "on_success fine", "after_return SUCCESS"]


def test_hooks_of_a_job_that_fails(shop: Site) -> None:
    """Each once, in Celery's order."""
    result = hooked.delay("fail")
    with pytest.raises(ValueError, match="no"):
        result.get(timeout=20)
    shop.settled(result)
    assert calls == ["before_start", "step", "on_failure no", "after_return FAILURE"]


def test_hooks_of_a_job_that_is_retried(shop: Site) -> None:
    """As Celery calls them."""
    result = hooked.delay("retry")
    assert result.get(timeout=20) == "retry"
    shop.settled(result)
    first = ["before_start", "step", "on_retry not yet"]
    assert calls == [*first, "before_start", "on_success retry", "after_return SUCCESS"]


def test_hooks_of_a_job_that_parks(shop: Site) -> None:
    """`before_start` with each entry of the body, the ends once."""
    result = hooked.delay("ask")
    shop.answer(result, "yes")
    assert result.get(timeout=20) == "yes"
    shop.settled(result)
    assert calls == ["before_start", "step", "before_start", "on_success yes", "after_return SUCCESS"]


def test_signals_of_a_job_that_parks(shop: Site) -> None:
    """`task_prerun` and `task_postrun` with each entry of the body, `task_success` once."""
    handlers = {
        signal: lambda name=name, **_: calls.append(name)
        for name, signal in {
            "prerun": task_prerun,
            "postrun": task_postrun,
            "success": task_success,
            "failure": task_failure,
            "retry": task_retry,
        }.items()
    }
    for signal, handler in handlers.items():
        signal.connect(handler, sender=plain)
    try:
        result = plain.delay()
        shop.answer(result, "yes")
        assert result.get(timeout=20) == "yes"
        shop.settled(result)
    finally:
        for signal, handler in handlers.items():
            signal.disconnect(handler, sender=plain)
    assert calls == ["prerun", "postrun", "prerun", "success", "postrun"]


@app.task(base=SupervisedTask, bind=True, shared=False)
def plain(self: Any) -> str:
    return str(self.ask("q", "Well?", choices=["yes"]))


class Counting:
    """A mixin with a `__call__` of its own, as some tracing libraries have."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calls.append("mixin in")
        try:
            return super().__call__(*args, **kwargs)  # type: ignore[misc]  # of the next base
        finally:
            calls.append("mixin out")


class CountingOutside(Counting, SupervisedTask):
    """The shop's mixin around ours."""

    abstract = True


class CountingInside(SupervisedTask, Counting, Task):  # type: ignore[type-arg]  # generic only in celery-types
    """The shop's mixin inside ours."""

    abstract = True


@app.task(base=CountingOutside, bind=True, shared=False)
def outside(self: Any) -> str:
    calls.append("body")
    return str(self.ask("q", "Well?", choices=["yes"]))


@app.task(base=CountingInside, bind=True, shared=False)
def inside(self: Any) -> str:
    calls.append("body")
    return str(self.ask("q", "Well?", choices=["yes"]))


@pytest.mark.parametrize("task", [outside, inside], ids=["outside", "inside"])
def test_a_mixin_with_a_call_of_its_own(shop: Site, task: Any) -> None:
    """It sees every entry of the body, and the body's questions pass through it."""
    result = task.delay()
    shop.answer(result, "yes")
    assert result.get(timeout=20) == "yes"
    shop.settled(result)
    assert calls == ["mixin in", "body", "mixin out"] * 2


class Greeter(SupervisedTask):
    """A class-based task."""

    name = "tests.celery.test_tasks.Greeter"
    greeting = "hello"

    def run(self, whom: str) -> str:
        polite = self.step("polite", str.title, whom)
        return f"{self.greeting} {polite}"


greeter = app.register_task(Greeter())


def test_class_based(shop: Site) -> None:
    """A task that is a class works as one that is a function."""
    result = greeter.delay("ann")
    assert result.get(timeout=20) == "hello Ann"
    shop.settled(result)
    assert shop.job(result).task == Greeter.name


@shared_task(base=SupervisedTask, bind=True, name="tests.celery.test_tasks.shared")
def shared(self: Any, number: int) -> int:
    return int(self.step("double", lambda: 2 * number))


def test_shared_task(shop: Site) -> None:
    """`shared_task` of a reusable app belongs to whichever app runs it."""
    task = app.tasks["tests.celery.test_tasks.shared"]
    result = task.delay(4)
    assert result.get(timeout=20) == 8
    shop.settled(result)
    assert shop.job(result).state is State.COMPLETED


@app.task(base=SupervisedTask, shared=False)
def unbound(x: int, *, y: int = 1) -> int:
    calls.append("unbound")
    return x + y


def test_unbound(shop: Site) -> None:
    """A task that is not bound, with keyword-only arguments."""
    assert unbound.delay(1).get(timeout=20) == 2
    assert unbound.apply_async((1,), {"y": 5}).get(timeout=20) == 6
    assert unbound.s(2, y=3).delay().get(timeout=20) == 5


@app.task(base=SupervisedTask, bind=True, shared=False)
def recursive(self: Any, number: int) -> int:
    self.step("count", lambda: calls.append(f"count {number}"))
    return 1 if number <= 0 else number * int(self(number - 1))


def test_a_task_that_calls_itself(shop: Site) -> None:
    """As a function: only the outer one is the job, the inner ones are not recorded."""
    result = recursive.delay(3)
    assert result.get(timeout=20) == 6
    shop.settled(result)
    assert calls == ["count 3", "count 2", "count 1", "count 0"]
    assert shop.job(result).attempts == 1
