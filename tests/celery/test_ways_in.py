"""Every way into a job: by name, from beat, by hand, from code without tasks; and every form that a task may have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, Task, chain, chord, group
from celery.beat import Scheduler
from celery.result import AsyncResult

from celery_supervise import ConfigError, JobExpired, State, SupervisedTask
from tests.celery.site import Site, got
from tests.jobs import close
from tests.tools import wait_for

app = Celery("ways", set_as_current=False)
POOL = "threads"
NAME = "ways.asks"
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def asks_for_more(self: Any, x: int, y: int = 0) -> int:
    return x + y + int(self.ask("more", "How many more?", schema={"type": "integer"}))


asks = app.task(base=SupervisedTask, bind=True, shared=False, name=NAME)(asks_for_more)


@app.task(shared=False, name="ways.total")
def total(values: list[int]) -> int:
    seen.append(f"total {values}")
    return sum(values)


def asked(shop: Site, job_id: str, *, born: str) -> Any:
    """The job is there, parks, goes on, ends once. `born`: who made its row."""
    result = app.AsyncResult(job_id)
    wait_for(lambda: shop.supervise.jobs(prefix=job_id)[1], what="the job")
    shop.answer(result, 10)
    value = got(result)
    shop.settled(result)
    assert shop.events(result) == ["submitted", "claimed", "asked", "answered", "claimed", "completed", "settled"]
    assert shop.entries(result)[0].actor == born
    return value


# --- calls -----------------------------------------------------------------------------------------------


def raw(shop: Site, headers: dict[str, Any], body: Any, **properties: Any) -> None:
    """Put a message on the queue as a program would that knows nothing of Celery but its protocol."""
    with app.connection_for_write() as connection:
        connection.Producer().publish(
            json.dumps(body),
            routing_key=shop.queue,
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
            **properties,
        )


def by_another_language(shop: Site, job_id: str) -> None:
    """Protocol 2, with the few headers that such clients send."""
    headers = {"lang": "js", "task": NAME, "id": job_id, "root_id": job_id}
    raw(shop, headers, [[1], {"y": 2}, {}], correlation_id=job_id, reply_to=str(uuid4()))


def by_another_language_with_all(shop: Site, job_id: str) -> None:
    """Protocol 2, with everything that its specification names."""
    empty = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    said = {"lang": "go", "task": NAME, "id": job_id, "root_id": job_id, "retries": 0, "timelimit": [None, None]}
    shown = {"argsrepr": "(1,)", "kwargsrepr": "{'y': 2}", "origin": "1@go"}
    headers = {**dict.fromkeys(("parent_id", "group", "meth", "shadow", "eta", "expires")), **said, **shown}
    raw(shop, headers, [[1], {"y": 2}, empty], correlation_id=job_id)


def by_an_old_client(shop: Site, job_id: str) -> None:
    """Protocol 1, which some clients still speak: everything in the body."""
    raw(shop, {}, {"task": NAME, "id": job_id, "args": [1], "kwargs": {"y": 2}, "retries": 0})


def by_beat(known: bool) -> Callable[[Site, str], None]:
    """An entry of a beat that knows the task, or has no task code at all."""

    def send(shop: Site, job_id: str) -> None:
        beat = app if known else client_of(shop)
        scheduler = Scheduler(beat, lazy=True)
        said = {"args": (1,), "kwargs": {"y": 2}, "options": {"task_id": job_id, "expires": 60}}
        scheduler.apply_async(scheduler.Entry("entry", NAME, schedule=timedelta(hours=1), app=beat, **said))

    return send


def client_of(shop: Site) -> Celery:
    """An app of a process that has no task code, on the same servers."""
    client = Celery("client", set_as_current=False)
    client.conf.update({name: app.conf[name] for name in ("broker_url", "result_backend", "task_default_queue")})
    return client


def by_the_command_line(shop: Site) -> None:
    """`celery call`."""
    broker, backend = app.conf.broker_url, app.conf.result_backend
    command = [sys.executable, "-m", "celery", "-b", broker, "--result-backend", backend, "call", NAME]
    subprocess.run(
        [*command, "-a", "[1]", "-k", '{"y": 2}', "--queue", shop.queue],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
        capture_output=True,
    )


BY_CALL: dict[str, Callable[[Site, str], Any]] = {
    "apply_async": lambda _, job_id: asks.apply_async((1,), {"y": 2}, task_id=job_id),
    "signature": lambda _, job_id: asks.s(1, y=2).set(task_id=job_id).delay(),
    "signature by name": lambda _, job_id: app.signature(NAME, (1,), {"y": 2}).set(task_id=job_id).delay(),
    "beat": by_beat(known=True),
}
BY_MESSAGE: dict[str, Callable[[Site, str], Any]] = {
    "send_task": lambda _, job_id: app.send_task(NAME, (1,), {"y": 2}, task_id=job_id),
    "client without tasks": lambda shop, job_id: (
        client_of(shop).signature(NAME, (1,), {"y": 2}, task_id=job_id).delay()
    ),
    "beat without tasks": by_beat(known=False),
    "another language": by_another_language,
    "another language, at length": by_another_language_with_all,
    "an old client": by_an_old_client,
}


@pytest.mark.parametrize("way", [*BY_CALL, *BY_MESSAGE])
def test_ways(shop: Site, way: str) -> None:
    """The same job, whoever asks for it: it parks, goes on, and ends once."""
    job_id = f"way {way}"
    {**BY_CALL, **BY_MESSAGE}[way](shop, job_id)
    assert asked(shop, job_id, born="producer" if way in BY_CALL else "message") == 13


def test_the_command_line(shop: Site) -> None:
    """`celery call` sends by name."""
    before = {job.id for job in shop.supervise.jobs(page=100)[0]}
    by_the_command_line(shop)
    (job_id,) = wait_for(lambda: {job.id for job in shop.supervise.jobs(page=100)[0]} - before, what="the job")
    assert asked(shop, job_id, born="message") == 13


def test_a_canvas_of_a_client_without_tasks(shop: Site) -> None:
    """A web process that knows names alone: its chords count jobs that were born on receipt, and those that follow."""
    client = client_of(shop)
    header = group(client.signature(NAME, (1,)), client.signature(NAME, (2,)))
    result = chain(chord(header, client.signature("ways.total")), client.signature(NAME))()

    def pending() -> list[str]:
        return [one.job_id for one in shop.supervise.questions() if one.status == "pending"]

    wait_for(lambda: len(pending()) == 2, what="both questions")
    for member in pending():
        shop.answer(AsyncResult(member, app=app), 10)
    wait_for(lambda: seen == ["total [11, 12]"], what="the chord's body")
    shop.answer(AsyncResult(result.id, app=app), 100)
    assert got(AsyncResult(result.id, app=app)) == 123
    close(client)


def test_a_message_that_has_expired(shop: Site) -> None:
    """As any call whose `expires` is over before it starts: an expired job, which Celery is told of."""
    result = app.send_task(NAME, (1,), expires=-1)
    with pytest.raises(JobExpired, match="start_by"):
        got(result)
    job = shop.job(result)
    assert (job.state, job.stop_reason, job.attempts) == (State.EXPIRED, "expired:start_by", 0)


def test_a_message_that_comes_again_after_its_time(shop: Site, caplog: pytest.LogCaptureFixture) -> None:
    """`expires` is for the first start: a copy that the broker gives back later does nothing to what has started."""
    results = [app.send_task(NAME, (1,), expires=600) for _ in range(2)]
    for result in results:
        shop.parked(result)
    with caplog.at_level("INFO", "celery_supervise.runner"):
        app.send_task(NAME, (1,), task_id=results[0].id, expires=-1)
        wait_for(lambda: "supervise.dropped" in caplog.text, what="the end of the copy")
    for result in results:
        shop.answer(result, 10)
        assert got(result) == 11
    with caplog.at_level("INFO", "celery_supervise.runner"):
        caplog.clear()
        app.send_task(NAME, (1,), task_id=results[1].id, expires=-1)
        wait_for(lambda: "supervise.dropped" in caplog.text, what="the end of the copy")
    assert (results[1].state, shop.job(results[1]).state) == ("SUCCESS", State.COMPLETED)


def test_a_call_that_does_not_fit(shop: Site) -> None:
    """By name nobody checks the arguments before: the job fails, and says why."""
    result = app.send_task(NAME, (), {"z": 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        got(result)
    shop.settled(result)
    assert shop.job(result).state is State.FAILED


# --- tasks -----------------------------------------------------------------------------------------------


@dataclass
class Order:
    """What only pickle can carry."""

    number: int


class Traced(SupervisedTask):
    """A base of the shop's, that adds a header to each call."""

    abstract = True
    prefix = "plain"

    def apply_async(self, *args: Any, **options: Any) -> Any:
        """With a trace."""
        return super().apply_async(*args, **{**options, "headers": {"trace": "t-1", **(options.get("headers") or {})}})

    def greeting(self) -> str:
        """What its tasks may call."""
        return f"{self.prefix} {(self.request.headers or {}).get('trace')}"


class Louder(Traced):
    """A base of that base."""

    abstract = True
    prefix = "loud"


def greets(self: Any) -> str:
    return f"{self.greeting()} {self.ask('who', 'Who?', schema={'type': 'string'})}"


class Counter(Task):
    """A class-based task of the shop's that keeps something in its process."""

    name = "ways.counter"
    count = 0

    def run(self, by: int) -> int:
        """Counts."""
        self.count += by
        return self.count


class SupervisedCounter(Counter, SupervisedTask):
    """The same, supervised from outside."""

    name = "ways.supervised_counter"


def keeps(self: Any, order: Any) -> int:
    kept = self.step("number", lambda: order.number)
    return kept + int(self.ask("more", "How many more?", schema={"type": "integer"}))


def loose(self: Any, *args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs, self.ask("more", "How many more?", schema={"type": "integer"})]


def made(function: Any, name: str, **options: Any) -> Any:
    """A task of the app."""
    return app.task(bind=True, shared=False, name=name, **{"base": SupervisedTask, **options})(function)


pickled = made(keeps, "ways.pickled", serializer="pickle")
untyped = made(loose, "ways.untyped", typing=False)
traced = made(greets, "ways.traced", base=Traced)
louder = made(greets, "ways.louder", base=Louder)
limited = made(loose, "ways.limited", rate_limit="100/s", compression="zlib", ignore_result=False)
counter = app.register_task(SupervisedCounter())


@pytest.mark.parametrize(
    ("task", "args", "kwargs", "answer", "value"),
    [
        (pickled, (Order(5),), {}, 2, 7),
        (untyped, (1, 2), {"z": 3}, 4, [[1, 2], {"z": 3}, 4]),
        (traced, (), {}, "ann", "plain t-1 ann"),
        (louder, (), {}, "bob", "loud t-1 bob"),
        (limited, (), {}, 4, [[], {}, 4]),
    ],
    ids=["pickle", "typing=False", "abstract base", "base of a base", "options"],
)
def test_forms_of_tasks(  # noqa: PLR0917  # a row of the table
    shop: Site, task: Any, args: Any, kwargs: Any, answer: Any, value: Any
) -> None:
    """It parks, and goes on with what it was given."""
    result = task.apply_async(args, kwargs)
    shop.answer(result, answer)
    assert got(result) == value
    shop.settled(result)
    assert shop.job(result).attempts == 2


def test_a_pickled_call_by_name(shop: Site) -> None:
    """Born on receipt, it keeps its serialiser: another one could not carry its arguments."""
    result = app.send_task(pickled.name, (Order(5),), serializer="pickle")
    shop.answer(result, 2)
    assert got(result) == 7


def test_a_class_of_the_shops(shop: Site) -> None:
    """`SupervisedTask` may be mixed in, too; what the class keeps, its process keeps."""
    assert [got(counter.delay(2)) for _ in range(2)] == [2, 4]
    assert shop.supervise.jobs(task=counter.name)[1] == 2


def test_a_request_class_of_the_shops(site: Site) -> None:
    """It must be one of ours, since ends would not reach the row: refused where the task is declared."""

    class Own(SupervisedTask):
        abstract = True
        Request = "celery.worker.request:Request"

    with pytest.raises(ConfigError, match="Request"):
        site.app.task(base=Own, shared=False, name="shop.own", lazy=False)(loose)
