"""`self.on_abandon` with a worker: cleanups as Celery sends them, plain tasks and supervised ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, chain

from celery_supervise import State, SupervisedTask
from celery_supervise.abandoning import packed
from celery_supervise.errors import InvalidInput, PublishFailed, TooLarge
from celery_supervise.model import Message, MessageKind
from celery_supervise.runtime import runtime_of
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("abandon", set_as_current=False)
calls: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()


@app.task(shared=False)
def remove(path: str) -> None:
    """A plain task of the shop's."""
    calls.append(f"remove {path}")


@app.task(base=SupervisedTask, bind=True, shared=False)
def refund(self: Any, amount: int) -> None:
    """A supervised one."""
    self.step("refund", lambda: calls.append(f"refund {amount}"))


@app.task(base=SupervisedTask, bind=True, shared=False)
def export(self: Any, how: str) -> str:
    """Registers both, then does as it is told."""
    self.on_abandon(remove.si("file"), name="file")
    self.on_abandon(refund.s(7), name="money")
    calls.append("effect")
    if how == "fail":
        raise ValueError("no")
    if how == "ask":
        self.ask("go", "Go on?", choices=["yes"])
    if how == "twice":
        self.on_abandon(remove.si("file"), name="file")
    return how


def cleaned(shop: Site) -> None:
    """Wait until both have run."""
    wait_for(lambda: {"remove file", "refund 7"} <= set(calls))


def test_a_job_that_fails_is_cleaned_up(shop: Site) -> None:
    """Both are sent when it has ended, once each; the supervised one is a job of its own."""
    result = export.delay("fail")
    shop.wait(result, State.FAILED)
    cleaned(shop)
    shop.settled(result)
    assert sorted(calls) == ["effect", "refund 7", "remove file"]
    (job,), _ = shop.supervise.jobs(task=refund.name)
    shop.wait(refund.AsyncResult(job.id), State.COMPLETED)
    assert shop.supervise.log(job.id).entries[0].actor == "cleanup"


def test_a_parked_job_that_is_cancelled_is_cleaned_up(shop: Site) -> None:
    """No attempt runs any more: what one registered long ago is sent."""
    result = export.delay("ask")
    shop.parked(result)
    assert calls == ["effect"]
    shop.supervise.cancel(result.id, actor="user:ann")
    cleaned(shop)


def test_a_job_that_completes_keeps_what_it_made(shop: Site) -> None:
    """Nothing is sent."""
    result = export.delay("fine")
    assert result.get(timeout=20) == "fine"
    shop.settled(result)
    fates = shop.supervise.cleanups(result.id)
    assert [(one.name, one.dropped_at is not None, one.sent_at) for one in fates] == [
        ("file", True, None),
        ("money", True, None),
    ]
    assert calls == ["effect"]


def test_a_name_twice_in_one_attempt_is_an_error(shop: Site) -> None:
    """The second would take the first one's place."""
    result = export.delay("twice")
    shop.wait(result, State.FAILED)
    assert "DuplicateName" in (shop.supervise.attempts(result.id)[0].cause or "")
    cleaned(shop)


def test_a_supervised_cleanup_that_is_sent_twice_runs_once(shop: Site) -> None:
    """Its id is fixed: the relay may die between sending and noting that it did."""
    runtime = runtime_of(app)
    identity = runtime.incarnation
    message = Message(identity, MessageKind.CLEANUP, "j", export.name, "q", packed(runtime, refund.s(9)), State.FAILED)
    for _ in range(3):
        runtime.publisher.publish(message)
    shop.wait(refund.AsyncResult(str(identity)), State.COMPLETED)
    runtime.publisher.publish(message)
    assert calls == ["refund 9"]
    assert shop.supervise.job(str(identity)).attempts == 1


def test_a_row_that_is_no_message(shop: Site) -> None:
    """It is refused as one that cannot be sent, so that the relay goes on with the others."""
    stored = packed(runtime_of(app), refund.s(9))
    message = Message(uuid4(), MessageKind.SETTLE, "j", export.name, "q", stored, State.FAILED)
    with pytest.raises(PublishFailed, match="a row of kind settle is no message"):
        runtime_of(app).publisher.publish(message)


def test_a_message_of_a_process_that_does_not_know_the_task(shop: Site) -> None:
    """A relay without the shop's modules sends it as a message; the worker makes one job of it."""
    runtime = runtime_of(app)
    other = Celery("other", set_as_current=False)
    other.conf.update({name: app.conf[name] for name in ("broker_url", "result_backend", "supervise_database_url")})
    stranger = runtime_of(other)
    stored, identity = packed(runtime, refund.s(11)), stranger.incarnation
    for _ in range(2):
        stranger.publisher.publish(Message(identity, MessageKind.CLEANUP, "j", export.name, "q", stored, State.FAILED))
    wait_for(lambda: "refund 11" in calls)
    runtime.publisher.publish(Message(identity, MessageKind.CLEANUP, "j", export.name, "q", stored, State.FAILED))
    shop.wait(refund.AsyncResult(str(identity)), State.COMPLETED)
    assert calls == ["refund 11"]
    stranger.publisher.close()
    stranger.engines.dispose()


def test_the_message_is_celerys(shop: Site) -> None:
    """Queue, options and arguments as `apply_async` would send them; no header of ours, no time."""
    runtime = runtime_of(app)
    envelope = runtime.publisher.open(
        packed(runtime, remove.s("x").set(queue="elsewhere", priority=3, headers={"tenant": "acme"}))
    )
    args, kwargs, embed = envelope.content()
    assert (args, kwargs, embed["callbacks"]) == (["x"], {}, None)
    assert (envelope.queue, envelope.task, envelope.properties["priority"]) == ("elsewhere", remove.name, 3)
    assert (envelope.headers["tenant"], envelope.headers["eta"], "supervise" in envelope.headers) == (
        "acme",
        None,
        False,
    )
    assert json.loads(envelope.body)[0] == ["x"]


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        (lambda: "shop.remove", "a signature of one task"),
        (lambda: chain(remove.si("a"), remove.si("b")), "a signature of one task"),
        (lambda: remove.s("a").set(countdown=5), "countdown"),
        (lambda: app.signature("nobody.knows"), "not registered"),
    ],
)
def test_what_cannot_be_sent_is_refused(shop: Site, signature: Callable[[], Any], problem: str) -> None:
    """Where it is registered, before anything is written."""
    with pytest.raises(InvalidInput, match=problem):
        packed(runtime_of(app), signature())


def test_arguments_that_do_not_fit_are_refused(shop: Site) -> None:
    """By Celery's own typing, and by the limit of one value."""
    with pytest.raises(TypeError):
        packed(runtime_of(app), remove.s())
    with pytest.raises(TooLarge):
        packed(runtime_of(app), remove.s("x" * (1 << 20)))
