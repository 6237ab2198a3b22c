"""Eager, `.apply()`, called as a function, `.run()`: bodies work without broker, database and settings."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from celery import Celery, chain
from celery.exceptions import Retry

from celery_supervise import SupervisedTask
from celery_supervise.errors import DuplicateName, NeedsAnswer, NotSerialisable, OutsideAttempt
from celery_supervise.runtime import ATTRIBUTE
from celery_supervise.testing import answers

Entry = Any


@pytest.fixture
def app() -> Iterator[Celery]:
    """An app without any setting of ours, whose broker nobody can reach."""
    app = Celery("eager", broker="redis://127.0.0.1:1/0", set_as_current=False)
    app.conf.task_always_eager = True
    yield app
    assert ATTRIBUTE not in app.__dict__, "something needed our settings"
    app.close()


def by_delay(task: Any, *args: Any) -> Any:
    """As with `task_always_eager`."""
    return task.delay(*args).get()


def by_apply(task: Any, *args: Any) -> Any:
    """Locally, whatever the settings."""
    return task.apply(args).get()


def by_call(task: Any, *args: Any) -> Any:
    """As a function."""
    return task(*args)


def by_run(task: Any, *args: Any) -> Any:
    """Past the task, as unit tests do."""
    return task.run(*args)


ENTRIES = [by_delay, by_apply, by_call, by_run]
entries = pytest.mark.parametrize("enter", ENTRIES)
whole = pytest.mark.parametrize("enter", [by_delay, by_apply, by_call])


def make(app: Celery, function: Any, **options: Any) -> Any:
    """A supervised task."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)(function)


@entries
def test_steps_run(app: Celery, enter: Entry) -> None:
    """A step runs and gives back what would have been stored: typed JSON keeps dates and decimals."""

    def body(self: SupervisedTask, n: int) -> list[Any]:
        self.checkpoint("begin", n=n)
        value = self.step("value", lambda: {"at": date(2026, 11, 30), "sum": Decimal("1.10")})
        self.progress(1, 2, "half")
        total = 0
        for item in self.each("items", range(n), key=lambda item: item):
            total += item
        return [value["at"].isoformat(), str(value["sum"]), total, len(self.effect_key("x"))]

    assert enter(make(app, body), 4) == ["2026-11-30", "1.10", 6, 36]


@entries
def test_values_are_checked(app: Celery, enter: Entry) -> None:
    """A value that would not come back the same is refused in a test, too."""

    def body(self: SupervisedTask) -> Any:
        return self.step("pair", lambda: {1: 2})

    with pytest.raises(NotSerialisable, match=r"\$"):
        enter(make(app, body))


@whole
def test_names_are_checked(app: Celery, enter: Entry) -> None:
    """A step name used twice in one run is refused in a test, too."""

    def body(self: SupervisedTask) -> None:
        self.step("same", int)
        self.step("same", int)

    with pytest.raises(DuplicateName):
        enter(make(app, body))


@entries
def test_questions_need_a_test_answer(app: Celery, enter: Entry) -> None:
    """Without one nothing goes past the question, whatever the body catches."""
    after = []

    def body(self: SupervisedTask) -> Any:
        try:
            answer = self.ask("ok", "Go on?", choices=["yes", "no"])
        except Exception:
            answer = "swallowed"
        after.append(answer)
        return answer

    task = make(app, body)
    with pytest.raises(NeedsAnswer, match="ok"):
        enter(task)
    assert after == []
    with answers({"ok": "yes"}):
        assert enter(task) == "yes"


def test_s35_a_chain_stops_at_the_question(app: Celery) -> None:
    """In eager mode nothing after an unanswered question runs."""
    after = []

    def asks(self: SupervisedTask) -> Any:
        return self.ask("ok", "Go on?", choices=["yes"])

    def effect(self: SupervisedTask, value: Any) -> None:  # a bound task
        after.append(value)

    with pytest.raises(NeedsAnswer):
        chain(make(app, asks).s(), make(app, effect).s())()
    assert after == []


@entries
def test_another_thread_is_refused(app: Celery, enter: Entry) -> None:
    """Supervised calls belong to the body's thread, in a test as in a worker."""
    caught: list[BaseException] = []

    def body(self: SupervisedTask) -> None:
        def elsewhere() -> None:
            try:
                self.step("thread", int)
            except OutsideAttempt as refused:
                caught.append(refused)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    task = make(app, body)
    if enter is by_run:  # nothing tells us that a body runs: it is a function like any other
        enter(task)
        return
    enter(task)
    assert [type(one) for one in caught] == [OutsideAttempt]


def test_eager_retry(app: Celery) -> None:
    """Retries are Celery's own in eager mode; each try runs its steps."""
    tries = []

    def body(self: SupervisedTask) -> int:
        tries.append(self.step("try", lambda: self.request.retries))
        if len(tries) < 3:
            raise self.retry(countdown=0)
        return len(tries)

    assert make(app, body).delay().get() == 3
    assert tries == [0, 1, 2]


def test_retry_in_a_direct_call(app: Celery) -> None:
    """As with Celery: the original exception, or Retry."""

    def body(self: SupervisedTask) -> None:
        raise self.retry(exc=KeyError("x"))

    with pytest.raises(KeyError):
        make(app, body)()

    def bare(self: SupervisedTask) -> None:
        raise self.retry()

    with pytest.raises(Retry):
        make(app, bare)()


def test_a_supervised_task_calls_another(app: Celery) -> None:
    """Each has its own names."""

    def inner(self: SupervisedTask) -> int:
        return self.step("same", lambda: 1)

    inside = make(app, inner)

    def outer(self: SupervisedTask) -> int:
        return self.step("same", lambda: 2) + inside()

    assert make(app, outer).delay().get() == 3


def test_unbound_tasks(app: Celery) -> None:
    """A task that is not bound is a task as before."""
    task = app.task(base=SupervisedTask, shared=False)(echo)
    assert (task.delay(1).get(), task.apply((2,)).get(), task(3), task.run(4)) == (1, 2, 3, 4)


def echo(value: int) -> int:
    """A task."""
    return value


def test_calling_past_celery_needs_no_settings(app: Celery) -> None:
    """`.apply()` and calls work also where `task_always_eager` is off and nothing is configured."""
    app.conf.task_always_eager = False
    task = app.task(base=SupervisedTask, shared=False)(echo)
    assert (task.apply((2,)).get(), task(3), task.run(4)) == (2, 3, 4)
