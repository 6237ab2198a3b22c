"""What a body may do in a worker, and what becomes of its job: retries, Celery's own exceptions, errors, values."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.result import AsyncResult
from kombu.exceptions import EncodeError

from celery_supervise import JobFailed, State, SupervisedTask, queries
from celery_supervise.errors import OutsideAttempt
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("bodies", set_as_current=False)
seen: list[Any] = []


class Broken(Exception):
    """What tasks raise here."""


class Unpicklable(Exception):
    """Cannot be rebuilt, and has an attribute that no pipe takes."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}, {second}")
        self.lock = threading.Lock()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def failed(shop: Site, result: AsyncResult, error: type[BaseException], match: str | None = None) -> Any:
    """The job has failed, and its caller gets this error. Returns the row."""
    with pytest.raises(error, match=match):
        result.get(timeout=20)
    assert result.state == "FAILURE"
    shop.settled(result)
    job = shop.job(result)
    assert job.state is State.FAILED
    return job


# --- retry -----------------------------------------------------------------------------------------------


@task(max_retries=5)
def retries(self: SupervisedTask, fails: int, how: str) -> list[Any]:
    """Fails so often, asking for another try in one of the ways there are."""
    once = self.step("once", lambda: seen.append("step") or "kept")
    seen.append(self.request.retries)
    if self.request.retries < fails:
        if how == "raise":
            raise self.retry(countdown=0)
        if how == "exc":
            raise self.retry(countdown=0, exc=Broken("not yet"))
        if how == "throw=False":
            self.retry(countdown=0, throw=False)
            return ["ignored"]
        if how == "by hand":
            raise Retry("again", when=0)
        raise AssertionError(how)
    return [once, self.request.retries]


@pytest.mark.parametrize("how", ["raise", "exc", "throw=False"])
def test_retry(shop: Site, how: str) -> None:
    """The same job runs again; its steps are remembered, Celery's counter goes on."""
    result = retries.delay(2, how)
    assert result.get(timeout=20) == ["kept", 2]
    assert seen == ["step", 0, 1, 2]
    shop.settled(result)
    assert (shop.job(result).attempts, shop.count(result, "retry_scheduled")) == (3, 2)


def test_retry_raised_by_hand(shop: Site) -> None:
    """`raise Retry` without `self.retry()`: Celery would lose the task; the row runs it again."""
    result = by_hand.delay()
    assert result.get(timeout=20) == 2
    assert shop.count(result, "retry_scheduled") == 1


@task()
def by_hand(self: SupervisedTask) -> int:
    seen.append("try")
    if len(seen) < 2:
        raise Retry("again", when=0)
    return len(seen)


@task(max_retries=2)
def exhausts(self: SupervisedTask, given: bool) -> None:
    raise self.retry(countdown=0, exc=Broken("for good") if given else None)


def test_retries_used_up(shop: Site) -> None:
    """After `max_retries` the job fails: with the exception that was given, else with Celery's own."""
    failed(shop, exhausts.delay(True), Broken, "for good")
    job = failed(shop, exhausts.delay(False), MaxRetriesExceededError)
    assert job.attempts == 3


@task(max_retries=3)
def changes(self: SupervisedTask, number: int) -> list[Any]:
    value = self.step("once", lambda: seen.append(number) or number)
    if number < 2:
        raise self.retry(args=(number + 1,), countdown=0)
    return [value, str(self.decisions.run_id)]


def test_retry_with_other_arguments_is_another_run(shop: Site) -> None:
    """Nothing that was remembered for the old arguments holds for the new ones."""
    result = changes.delay(0)
    value, run_id = result.get(timeout=20)
    assert (value, seen) == (2, [0, 1, 2])
    assert run_id == str(shop.job(result).run_id)


def test_retry_of_pickled_arguments_is_the_same_run(shop: Site) -> None:
    """How arguments travel does not make them others."""
    result = retries.apply_async((1, "raise"), serializer="pickle")
    assert result.get(timeout=20) == ["kept", 1]
    assert seen.count("step") == 1


@task(autoretry_for=(Broken,), retry_backoff=False, default_retry_delay=0, max_retries=3)
def autoretries(self: SupervisedTask) -> int:
    if self.request.retries < 2:
        raise Broken("not yet")
    return int(self.request.retries)


def test_autoretry(shop: Site) -> None:
    """`autoretry_for` works as it did."""
    assert autoretries.delay().get(timeout=20) == 2


@task(autoretry_for=(Exception,), default_retry_delay=0, max_retries=3)
def asks(self: SupervisedTask, key: str) -> str:
    return str(self.ask(key, "Well?", choices=["yes", "no"]))


def test_autoretry_does_not_swallow_a_question(shop: Site) -> None:
    """`autoretry_for=(Exception,)` sees nothing of the parking."""
    result = asks.delay("q")
    shop.answer(result, "no")
    assert result.get(timeout=20) == "no"
    assert shop.count(result, "retry_scheduled") == 0


# --- Celery's own exceptions -----------------------------------------------------------------------------


@task()
def ignores(self: SupervisedTask) -> None:
    self.update_state(state="DONE", meta={"by": "hand"})
    raise Ignore("the state is mine")


def test_ignore(shop: Site) -> None:
    """A body that sets its own state: the job completes without a result, and the state stays."""
    result = ignores.delay()
    job = shop.wait(result, State.COMPLETED)
    shop.settled(result)
    assert (result.state, job.attempts) == ("DONE", 1)


@task(max_retries=0)
def rejects(self: SupervisedTask, requeue: bool) -> str:
    seen.append("run")
    if len(seen) == 1 or not requeue:
        raise Reject("not here", requeue=requeue)
    return "elsewhere"


@task()
def alarm(self: SupervisedTask, *_: Any) -> None:
    seen.append("alarm")


def test_reject_and_requeue(shop: Site) -> None:
    """Another worker is to do it: back to pending, no attempt used up."""
    result = rejects.delay(True)
    assert result.get(timeout=20) == "elsewhere"
    assert (shop.count(result, "handed_over"), shop.job(result).lost_count) == (1, 0)


def test_reject_for_good(shop: Site) -> None:
    """The job has failed, its errback runs once, whatever the version of Celery makes of a rejected message."""
    result = rejects.apply_async((False,), link_error=alarm.si())
    job = failed(shop, result, Exception, "not here")
    assert job.stop_reason == "rejected"
    wait_for(lambda: "alarm" in seen, what="the errback")
    assert shop.events(result).count("settled") == 1
    assert seen == ["run", "alarm"]


@task()
def leaves(self: SupervisedTask, code: Any) -> None:
    sys.exit(code)


@pytest.mark.parametrize("code", [0, 1, "no"])
def test_s62_system_exit_is_a_failure(shop: Site, code: Any) -> None:
    """`sys.exit` in a body ends its job, not the worker."""
    failed(shop, leaves.delay(code), JobFailed, "SystemExit")


@task()
def interrupted(self: SupervisedTask) -> None:
    raise KeyboardInterrupt


def test_keyboard_interrupt_is_a_failure(shop: Site) -> None:
    """As is any other exception that is no `Exception`."""
    failed(shop, interrupted.delay(), JobFailed, "KeyboardInterrupt")


@task()
def other(self: SupervisedTask, value: int) -> str:
    return f"other {value}"


# --- errors ----------------------------------------------------------------------------------------------


@task()
def raises(self: SupervisedTask, how: str) -> None:
    if how == "nul":
        raise Broken("nul \0 and more")
    if how == "huge":
        raise Broken("x" * 3_000_000)
    raise Unpicklable("a", "b")


def test_exception_that_cannot_be_pickled(shop: Site) -> None:
    """The job fails, the worker goes on, the caller is told the text."""
    failed(shop, raises.delay("unpicklable"), Exception, "a, b")
    with pytest.raises((TypeError, pickle.PicklingError)):
        pickle.dumps(Unpicklable("a", "b"))


def test_s66_nul_in_an_exceptions_text(shop: Site) -> None:
    """What a text column refuses does not keep a job from failing."""
    result = raises.delay("nul")
    failed(shop, result, Broken, "nul \0 and")
    cause = shop.supervise.attempts(result.id)[0].cause
    assert cause is not None
    assert "nul \\x00 and" in cause


def test_huge_exception(shop: Site) -> None:
    """It is cut for people, and does not keep a job from failing."""
    result = raises.delay("huge")
    failed(shop, result, Broken)
    assert len(shop.supervise.attempts(result.id)[0].cause or "") < 10_000


@task()
def misuses(self: SupervisedTask, how: str) -> str:
    """Uses the library wrongly, and swallows what it is told."""
    try:
        if how == "twice":
            self.step("same", int)
            self.step("same", int)
        if how == "value":
            self.step("pair", lambda: (1, 2))
        if how == "thread":
            in_a_thread(self)
    except BaseException as error:
        seen.append(type(error).__name__)
    return "fine"


def in_a_thread(self: SupervisedTask) -> None:
    """A supervised call where it does not belong."""
    caught: list[BaseException] = []

    def elsewhere() -> None:
        try:
            self.ask("q", "From a thread?", choices=["yes"])
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    raise caught[0]


@pytest.mark.parametrize(("how", "error"), [("twice", "DuplicateName"), ("value", "NotSerialisable")])
def test_swallowed_errors_of_the_library_fail_the_job(shop: Site, how: str, error: str) -> None:
    """The attempt was over when it was told: its return value does not count."""
    failed(shop, misuses.delay(how), JobFailed, error)
    assert seen == [error]


@task(autoretry_for=(Exception,), default_retry_delay=0)
def misuses_and_retries(self: SupervisedTask) -> None:
    seen.append("run")
    self.step("a", int)
    self.step("a", int)


def test_a_mistake_of_the_body_is_not_retried(shop: Site) -> None:
    """The attempt was over: `autoretry_for` does not try the same mistake again, and nothing is refused as stale."""
    failed(shop, result := misuses_and_retries.delay(), JobFailed, "DuplicateName: the name 'a' is used twice")
    assert seen == ["run"]
    assert [entry.event for entry in shop.entries(result)][:4] == ["submitted", "claimed", "checkpoint", "failed"]


def test_s11_question_in_a_thread(shop: Site) -> None:
    """Refused with a clear error, and nothing is half parked."""
    result = misuses.delay("thread")
    assert result.get(timeout=20) == "fine"
    assert seen == [OutsideAttempt.__name__]
    assert shop.supervise.questions(job_id=result.id) == []


@task()
def swallows(self: SupervisedTask) -> str:
    try:
        self.ask("q", "Well?", choices=["yes", "no"])
    except BaseException:  # what no code should do
        seen.append("swallowed")
    return "not an answer"


def test_s11_swallowed_question(shop: Site) -> None:
    """The job is parked all the same: the row is believed. Answered, it goes on."""
    result = swallows.delay()
    shop.answer(result, "yes")
    assert result.get(timeout=20) == "not an answer"
    assert seen == ["swallowed"]
    assert shop.job(result).attempts == 2


# --- values ----------------------------------------------------------------------------------------------


@task()
def returns(self: SupervisedTask, what: str) -> Any:
    values = {"object": object(), "large": "x" * 1_100_000, "none": None, "false": False, "tuple": (1, 2)}
    return values[what]


@pytest.mark.parametrize(("what", "value"), [("none", None), ("false", False), ("tuple", [1, 2])])
def test_results(shop: Site, what: str, value: Any) -> None:
    """As Celery gives them back, and the same from the row."""
    result = returns.delay(what)
    assert result.get(timeout=20) == value
    assert shop.supervise.result(result.id) == value


def test_result_that_cannot_be_serialised(shop: Site) -> None:
    """Found before anything is told: the job fails, naming the type."""
    failed(shop, returns.delay("object"), EncodeError, "not JSON serializable")


def test_result_that_is_too_large(shop: Site) -> None:
    """Refused with its size and the limit."""
    failed(shop, returns.delay("large"), JobFailed, "TooLarge: result: 11000.. bytes")


def test_ignored_result(shop: Site) -> None:
    """With `ignore_result` nothing is stored, in Celery or in the row."""
    result = returns.apply_async(("false",), ignore_result=True)
    shop.wait(result, State.COMPLETED)
    shop.settled(result)
    assert result.state == "PENDING"
    assert shop.supervise.result(result.id) is None


@pytest.mark.parametrize("answer", [False, 0, "", [], {}, None])
def test_s13_falsy_answers(shop: Site, answer: Any) -> None:
    """False, zero and nothing are answers like any other, and come back as they are."""
    result = any_answer.delay()
    shop.answer(result, answer)
    value = result.get(timeout=20)
    assert (type(value), value) == (type(answer), answer)
    assert shop.count(result, "asked") == 1


@task()
def any_answer(self: SupervisedTask) -> Any:
    return self.ask("any", "What?", schema={})


def test_started_is_shown_after_the_claim(shop: Site) -> None:
    """With `task_track_started` the state is STARTED while the body runs, as with any other task."""
    assert looks.delay().get(timeout=20) == "PENDING"
    app.conf.task_track_started = True
    try:
        assert looks.delay().get(timeout=20) == "STARTED"
    finally:
        app.conf.task_track_started = False


@task()
def looks(self: SupervisedTask) -> str:
    return str(self.AsyncResult(self.request.id).state)


class Mute(Exception):
    """One whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@task()
def mute(_self: SupervisedTask) -> None:
    raise Mute


def test_an_exception_without_a_text(shop: Site) -> None:
    """It fails its job once, as what it is, whatever its own code does when it is asked for a text."""
    result = mute.delay()
    with pytest.raises(Exception, match="Mute: it has no text: its __str__ raises RuntimeError"):
        result.get(timeout=20)
    job = shop.job(result)
    assert (job.state, job.attempts, job.lost_count) == (State.FAILED, 1, 0)
    assert "Mute" in str(shop.supervise.attempts(result.id)[0].cause)


@pytest.mark.parametrize(
    "change",
    [
        {"ticket": "zzz"},
        {"ticket": 5},
        {"ticket": ["a"]},
        {"ticket": "\0"},
        {"ticket": None},
        {"kind": "settle", "ticket": "zzz"},
        {"kind": "odd"},
        {"received": True, "serializer": "none"},
    ],
    ids=str,
)
def test_a_header_that_cannot_be_read(shop: Site, change: dict[str, Any]) -> None:
    """The message is dropped; Celery tells of no failure of a job that is alive, which then ends as it should."""
    result = any_answer.delay()
    shop.parked(result)
    envelope = shop.runtime.publisher.open(queries.payload(shop.runtime.door, result.id, "envelope"))
    forged = envelope.with_ticket({"v": 1, "ns": "default", "kind": "run", "ticket": str(uuid4()), **change})
    with app.connection_for_write() as connection:
        connection.Producer().publish(
            forged.body,
            routing_key=shop.queue,
            headers=forged.headers,
            content_type=forged.content_type,
            content_encoding=forged.content_encoding,
            **forged.properties,
        )
    wait_for(lambda: not shop.messages(shop.queue) and result.id not in shop.held(), what="the message to be dropped")
    assert result.state == "PARKED"
    shop.answer(result, 7)
    assert result.get(timeout=20) == 7


# --- messages without our header -------------------------------------------------------------------------


def test_sent_by_name(shop: Site) -> None:
    """`send_task`, beat and other languages send no header: the job is born when a worker receives it."""
    result = app.send_task(other.name, (5,))
    assert result.get(timeout=20) == "other 5"
    shop.settled(result)
    assert shop.events(result) == ["submitted", "claimed", "completed", "settled"]
    assert shop.entries(result)[0].actor == "message"


def test_sent_by_name_with_the_id_of_a_job(shop: Site) -> None:
    """A message without header never runs a job that has a row: its own message does."""
    result = other.apply_async((5,), task_id="taken")
    assert result.get(timeout=20) == "other 5"
    app.send_task(other.name, (6,), task_id="taken")
    app.send_task(returns.name, ("none",), task_id="taken")
    assert other.delay(1).get(timeout=20) == "other 1"
    assert (result.get(timeout=5), shop.job(result).attempts) == ("other 5", 1)


def test_sent_by_name_and_asking(shop: Site) -> None:
    """It parks and goes on like any other."""
    result = app.send_task(asks.name, ("q",))
    shop.answer(result, "yes")
    assert result.get(timeout=20) == "yes"


# --- inside a task ---------------------------------------------------------------------------------------


@task()
def spawns(self: SupervisedTask) -> list[str]:
    first = other.delay(1)
    other.apply_async((2,), add_to_parent=False)
    return [str(first.id), str(self.request.root_id)]


def test_children(shop: Site) -> None:
    """What a body sends knows its parent and root, and is among the parent's children."""
    result = spawns.delay()
    child, root = result.get(timeout=20)
    assert root == result.id
    assert [one.id for one in result.children] == [child]
    assert AsyncResult(child, app=app).get(timeout=20) == "other 1"
