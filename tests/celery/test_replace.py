"""`self.replace`: by tasks that are supervised and by such as are not, by chains, groups and chords."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.result import AsyncResult

from celery_supervise import JobFailed, State, SupervisedTask
from tests.celery.site import Site, got
from tests.tools import wait_for

app = Celery("replace", set_as_current=False)
POOL = "threads"
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@app.task(shared=False)
def plain(value: Any) -> Any:
    seen.append(f"plain {value}")
    return value


@app.task(shared=False)
def last(value: Any) -> Any:
    seen.append(f"last {value}")
    return value


@app.task(shared=False)
def total(values: list[int]) -> int:
    seen.append(f"total {values}")
    return sum(values)


@task()
def adds(self: SupervisedTask, value: int, more: int = 1) -> int:
    seen.append(f"adds {value}")
    return self.step("added", lambda: value + more)


@task()
def sums(self: SupervisedTask, values: list[int]) -> int:
    seen.append(f"sums {values}")
    return sum(values)


@task()
def asks(self: SupervisedTask, value: int) -> int:
    seen.append(f"asks {value}")
    return value + int(self.ask("more", "How many more?", schema={"type": "integer"}))


@task()
def fails(self: SupervisedTask, *_: Any) -> None:
    raise ValueError("no")


@task()
def alarm(self: SupervisedTask, *_: Any) -> None:
    seen.append("alarm")


WAYS = {
    "plain": lambda: plain.s(5),
    "supervised": lambda: adds.s(4),
    "asking": lambda: asks.s(2),
    "failing": fails.s,
    "chain that ends plainly": lambda: chain(adds.s(1), plain.s()),
    "chain": lambda: chain(plain.s(1), adds.s(2), adds.s(1)),
    "group": lambda: group(adds.s(1), plain.s(3)),
    "chord": lambda: chord([adds.s(1), plain.s(3)], total.s()),
    "chord of jobs": lambda: chord([adds.s(1), adds.s(2)], sums.s()),
    "with options": lambda: adds.s(4).set(supervise={"owner": "acme"}),
    "not sent": lambda: adds.s(object()),
}


@task()
def replaced(self: SupervisedTask, by: str) -> Any:
    self.step("load", lambda: seen.append("load"))
    return self.replace(WAYS[by]())


def ended(shop: Site, result: AsyncResult, state: State = State.COMPLETED) -> Any:
    """The job has ended so, and Celery was told."""
    job = shop.wait(result, state)
    shop.settled(result)
    return job


def test_by_a_plain_task(shop: Site) -> None:
    """The result is that of the task that took over; the job is completed, and says by what it was replaced."""
    result = replaced.delay("plain")
    assert got(result) == 5
    ended(shop, result)
    (entry,) = [one for one in shop.entries(result) if one.event == "completed"]
    assert (entry.data["replaced_by"], shop.supervise.attempts(result.id)[0].outcome) == (plain.name, "replaced")


def test_by_another_supervised_task(shop: Site) -> None:
    """That takes over the job: the same row, another task, another run."""
    result = replaced.delay("supervised")
    assert got(result) == 5
    job = ended(shop, result)
    assert (job.task, job.attempts, shop.supervise.result(result.id)) == (adds.name, 2, 5)
    assert shop.events(result) == [
        *("submitted", "claimed", "checkpoint", "replaced"),
        *("claimed", "checkpoint", "completed", "settled"),
    ]
    assert seen == ["load", "adds 4"]


def test_by_one_that_asks(shop: Site) -> None:
    """The replacement parks as the job that it is now; links of the first task run once, at the true end."""
    result = replaced.apply_async(("asking",), link=plain.s())
    question = shop.parked(result)
    wait_for(lambda: result.state == "PARKED", what="the state")
    assert (shop.job(result).task, seen) == (asks.name, ["load", "asks 2"])
    shop.supervise.answer(question.id, 5, actor="user:ann")
    assert got(result) == 7
    wait_for(lambda: "plain 7" in seen, what="the link")
    ended(shop, result)
    assert seen == ["load", "asks 2", "asks 2", "plain 7"]


def test_by_one_that_fails(shop: Site) -> None:
    """The job has failed with the replacement's error, and the first task's errback runs once."""
    result = replaced.apply_async(("failing",), link_error=alarm.si())
    with pytest.raises(ValueError, match="no"):
        got(result)
    ended(shop, result, State.FAILED)
    wait_for(lambda: "alarm" in seen, what="the errback")
    assert seen == ["load", "alarm"]


@pytest.mark.parametrize(
    ("by", "value"),
    [
        ("chain that ends plainly", 2),
        ("chain", 4),
        ("group", [2, 3]),
        ("chord", 5),
        ("chord of jobs", 5),
    ],
)
def test_by_a_canvas(shop: Site, by: str, value: Any) -> None:
    """Its last result is this task's; each of its supervised tasks is a job of its own, and runs once."""
    result = chain(replaced.s(by), last.s())()
    first = result.parent
    assert got(result) == value
    assert got(first) == value
    job = ended(shop, first)
    assert (job.task, job.attempts) == (replaced.name, 1)
    others = [one for one in shop.supervise.jobs()[0] if one.id != first.id]
    shop.settled(*(AsyncResult(one.id, app=app) for one in others))
    assert seen.count(f"last {value}") == 1


@pytest.mark.parametrize("by", ["plain", "supervised"])
def test_a_member_of_a_chord(shop: Site, by: str) -> None:
    """A chord counts the replacement as its member, once, and goes on with its result."""
    result = chord([replaced.s(by), adds.s(1)], total.s())()
    assert got(result) == 7
    assert [one for one in seen if one.startswith("total")] == ["total [5, 2]"]


def test_a_member_of_a_chord_that_parks(shop: Site) -> None:
    """The chord waits for the replacement's answer."""
    result = chord([replaced.s("asking"), adds.s(1)], total.s())()
    member = result.parent.results[0]
    shop.answer(member, 10)
    assert got(result) == 14
    assert [one for one in seen if one.startswith("total")] == ["total [12, 2]"]


def test_in_a_chain(shop: Site) -> None:
    """What comes next gets the replacement's result."""
    result = chain(replaced.s("supervised"), adds.s(1), plain.s())()
    assert got(result) == 6
    assert seen == ["load", "adds 4", "adds 5", "plain 6"]


@task()
def shrinks(self: SupervisedTask, number: int) -> Any:
    seen.append(self.step("number", lambda: number))
    if number:
        raise self.replace(shrinks.s(number - 1))
    return "done"


def test_by_itself(shop: Site) -> None:
    """As often as it likes, with other arguments: nothing that was remembered for the old ones holds."""
    result = shrinks.delay(3)
    assert got(result) == "done"
    assert (seen, ended(shop, result).attempts) == ([3, 2, 1, 0], 4)
    assert shop.count(result, "retry_scheduled") == 0


def test_a_job_with_an_idempotency_key(shop: Site) -> None:
    """It keeps its name, so that a second call with the key still finds it; the replacement is a job of its own."""
    first = replaced.apply_async(("supervised",), supervise={"idempotency_key": "order-7"})
    assert got(first) == 5
    assert ended(shop, first).task == replaced.name
    assert replaced.apply_async(("supervised",), supervise={"idempotency_key": "order-7"}).id == first.id
    assert seen == ["load", "adds 4"]


@pytest.mark.parametrize(
    ("by", "told"), [("with options", "InvalidInput: supervise"), ("not sent", "not JSON serializable")]
)
def test_a_replacement_that_cannot_be(shop: Site, by: str, told: str) -> None:
    """The job fails with what the call would have raised."""
    result = replaced.delay(by)
    with pytest.raises(Exception, match=told) as caught:
        got(result)
    assert isinstance(caught.value, JobFailed) is (by == "with options")
    assert ended(shop, result, State.FAILED).task == replaced.name


@task()
def cancelled_before(self: SupervisedTask, by: str) -> Any:
    shop_of(self).supervise.cancel(self.request.id, actor="user:ann")
    try:
        self.replace(WAYS[by]())
    finally:
        seen.append("left")


def shop_of(self: SupervisedTask) -> Site:
    """The service, of the task's app."""
    return Site(self.app, None, "")  # type: ignore[arg-type]  # nobody looks at the broker here


def test_a_cancel_comes_before_the_replacement(shop: Site) -> None:
    """The job is cancelled: nothing takes it over."""
    result = cancelled_before.delay("supervised")
    ended(shop, result, State.CANCELLED)
    assert result.state == "REVOKED"
    assert seen == ["left"]


def test_eager() -> None:
    """As Celery does it, without broker and database."""
    assert replaced.apply(("supervised",)).get() == 5
    assert replaced.apply(("plain",)).get() == 5
    assert replaced.apply(("chain",)).get() == 4
