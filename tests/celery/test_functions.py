"""Bodies that a worker runs as functions: `map`, `starmap`, `chunks`, errbacks called inline, tasks called by tasks."""

from __future__ import annotations

from typing import Any

import celery
import pytest
from celery import Celery
from celery.result import AsyncResult

from celery_supervise import JobFailed, State, SupervisedTask
from celery_supervise.errors import AskedAsFunction, NeedsAnswer
from tests.celery.site import Site, got
from tests.tools import wait_for

app = Celery("functions", set_as_current=False)
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@task()
def doubles(self: SupervisedTask, x: int, y: int = 0) -> int:
    self.checkpoint("here", x=x)
    self.progress(1, 2)
    return self.step("double", lambda: 2 * x + y)


@task()
def asks(self: SupervisedTask, x: int, y: int = 0) -> int:
    seen.append(f"asks {x}")
    return int(self.ask("more", "How many more?", schema={"type": "integer"})) + x + y


@task()
def swallows(self: SupervisedTask, x: int) -> int:
    """Goes on as if nothing had been said, and calls again."""
    try:
        self.ask("more", "How many more?", schema={"type": "integer"})
    except BaseException as error:
        seen.append(type(error).__name__)
    return self.step("on", lambda: x)


@task()
def fails(self: SupervisedTask) -> None:
    raise ValueError("no")


@app.task(shared=False)
def plainly_fails() -> None:
    raise ValueError("no")


@app.task(base=SupervisedTask, shared=False)
def errback(request: Any, exc: Any, traceback: Any) -> None:
    seen.append(f"errback {request.id} {exc}")


@app.task(base=SupervisedTask, shared=False)
def asking_errback(request: Any, exc: Any, traceback: Any) -> None:
    seen.append("asking errback")
    asking_errback.ask("what", "What now?", choices=["go"])
    seen.append("not reached")


@app.task(shared=False)
def alarm(job_id: str) -> None:
    seen.append(f"alarm {job_id}")


@app.task(shared=False)
def calls(x: int) -> int:
    return int(asks(x))


@task()
def calls_too(self: SupervisedTask, x: int) -> int:
    return int(asks(x))


@app.task(shared=False)
def applies(x: int) -> int:
    return int(asks.apply((x,)).get(disable_sync_subtasks=False))


def still_works(shop: Site) -> None:
    """The worker takes the next job, and nothing is left unacknowledged."""
    assert got(doubles.delay(4)) == 8
    wait_for(lambda: not shop.held(), what="the acknowledgements")


WAYS = {
    "map": (lambda body: body.map([1, 2]), [2, 4]),
    "starmap": (lambda body: body.starmap([(1, 1), (2, 2)]), [3, 6]),
    "chunks": (lambda body: body.chunks([(1, 1), (2, 2), (3, 3)], 2), [[3, 6], [9]]),
}


@pytest.mark.parametrize("way", WAYS)
def test_many_in_one_task(shop: Site, way: str) -> None:
    """They are one task of Celery's that calls the bodies: steps run, nothing is recorded, there is no job."""
    signature, value = WAYS[way]
    assert got(signature(doubles).apply_async()) == value
    assert shop.supervise.jobs(task=doubles.name) == ([], 0)


@pytest.mark.parametrize("way", WAYS)
def test_many_that_ask(shop: Site, way: str) -> None:
    """`ask` is an ordinary error that says what to do; the worker goes on."""
    result = WAYS[way][0](asks).apply_async()
    with pytest.raises(AskedAsFunction, match=r"ask\('more'\): this body runs as a function.*delay\(\)") as refused:
        got(result)
    assert refused.value.key == "more"
    assert shop.supervise.questions() == []
    still_works(shop)


def test_a_body_that_swallows_it(shop: Site) -> None:
    """Its value does not count, and no later call of it ends the worker."""
    with pytest.raises(AskedAsFunction):
        got(swallows.map([1]).apply_async())
    assert seen == ["AskedAsFunction"]
    still_works(shop)


@pytest.mark.parametrize("caller", [calls, applies], ids=["called", "applied"])
def test_in_a_plain_task(shop: Site, caller: Any) -> None:
    """A plain task that calls a supervised one, or applies it, fails with the same error."""
    with pytest.raises(AskedAsFunction):
        got(caller.delay(1))
    still_works(shop)


def test_in_another_job(shop: Site) -> None:
    """The calling job fails with it; nothing is parked."""
    result = calls_too.delay(1)
    with pytest.raises(JobFailed, match="AskedAsFunction"):
        got(result)
    shop.settled(result)
    assert shop.job(result).state is State.FAILED
    still_works(shop)


@pytest.mark.parametrize("failing", [fails, plainly_fails], ids=["of a job", "of a plain task"])
def test_errbacks_called_inline(shop: Site, failing: Any) -> None:
    """Celery itself calls an errback of more than one argument: once, as a function."""
    result = failing.apply_async(link_error=errback.s())
    with pytest.raises(ValueError, match="no"):
        got(result)
    wait_for(lambda: seen, what="the errback")
    still_works(shop)
    assert seen == [f"errback {result.id} no"]


# how Celery up to 5.6 tells of an errback's error
@pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
@pytest.mark.parametrize("failing", [fails, plainly_fails], ids=["of a job", "of a plain task"])
def test_an_errback_that_asks(shop: Site, failing: Any) -> None:
    """Its error is Celery's to tell of, as that of any errback; the worker goes on."""
    result = failing.apply_async(link_error=[asking_errback.s()])
    # Celery up to 5.6 may store the errback's error over the task's own
    with pytest.raises(ValueError if celery.VERSION >= (5, 7) else (ValueError, AskedAsFunction)):
        got(result)
    wait_for(lambda: seen, what="the errback")
    still_works(shop)
    assert set(seen) == {"asking errback"}


def test_errbacks_of_a_job_that_ends_outside(shop: Site) -> None:
    """Told by the relay, which goes on whatever an errback asks for."""
    first = asks.apply_async((1,), link_error=[asking_errback.s(), errback.s(), alarm.s()])
    expire(shop, first)
    shop.settled(first)
    wait_for(lambda: f"alarm {first.id}" in seen, what="the last errback")
    assert seen[:2] == ["asks 1", "asking errback"]
    assert seen[2].startswith(f"errback {first.id} expired:")
    second = asks.delay(2)
    shop.parked(second)
    shop.supervise.cancel(second.id, actor="user:ann")
    shop.settled(second)


def expire(shop: Site, result: AsyncResult) -> None:
    """Let the job's question run out."""
    shop.parked(result)
    with shop.runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.jobs SET wait_until = clock_timestamp() - interval '1 s' WHERE id = %(id)s",
            {"id": result.id},
        )
    shop.wait(result, State.EXPIRED)


def test_where_no_worker_is(site: Site) -> None:
    """Elsewhere it ends the test that forgot the answer, past every `except Exception`."""

    def body(self: SupervisedTask) -> Any:
        return self.ask("ok", "Go on?", choices=["yes"])

    quiet = site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.quiet")(body)
    with pytest.raises(NeedsAnswer):
        quiet()
