"""Celery's revoke: what a worker hears ends in a cancel request, once; what it only remembers moves no job."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, chord
from celery.backends.redis import RedisBackend
from celery.exceptions import ChordError, TaskRevokedError
from celery.worker import state as worker_state

from celery_supervise import State, SupervisedTask
from celery_supervise.errors import DatabaseUnavailable
from celery_supervise.heard import Heard
from celery_supervise.revoking import cancel_heard
from celery_supervise.runtime import runtime_of
from example_project import embedded
from tests.celery.site import Site, got
from tests.proxy import Proxy
from tests.tools import wait_for

app = Celery("revoke", set_as_current=False)
POOL = "threads"
at_gate = Event()
gate = Event()
counted: list[str] = []


@pytest.fixture(autouse=True)
def _forget() -> None:
    at_gate.clear()
    gate.clear()
    counted.clear()


def task(**options: Any) -> Any:
    """A supervised task of this app."""
    return app.task(base=SupervisedTask, bind=True, shared=False, **options)


@task()
def echo(_self: SupervisedTask, value: int) -> int:
    """At once."""
    return value


@task()
def asks(self: SupervisedTask) -> int:
    """Parks."""
    return int(self.ask("which", "Which?", schema={"type": "integer"}))


@task()
def stands(self: SupervisedTask) -> str:
    """Runs until the gate is opened, and then comes to a supervised call."""
    at_gate.set()
    gate.wait(30)
    self.step("after", lambda: None)
    return "done"


@app.task(bind=True, shared=False)
def alarm(_self: Any, _job_id: str) -> None:
    """The errback of a chord."""
    counted.append("alarm")


@app.task(shared=False)
def total(values: list[int]) -> int:
    """The body of a chord."""
    return sum(values)


def cancels(shop: Site, result: Any) -> list[tuple[str, str]]:
    """By whom its cancel was asked for, and why."""
    return [
        (entry.actor, entry.data.get("why"))
        for entry in shop.entries(result)
        if entry.event in {"cancel_requested", "cancelled"} and entry.actor == "celery:revoke"
    ]


def test_a_parked_job_is_cancelled_at_once(shop: Site) -> None:
    """No message of it comes, and none need come."""
    result = asks.delay()
    shop.parked(result)
    result.revoke()
    shop.wait(result, State.CANCELLED)
    assert cancels(shop, result) == [("celery:revoke", "revoked")]
    with pytest.raises(TaskRevokedError):
        got(result)
    shop.settled(result)


def test_a_running_job_is_asked_to_stop(shop: Site) -> None:
    """It learns of it at its next supervised call; a second revoke changes nothing."""
    result = stands.delay()
    wait_for(at_gate.is_set, what="the body")
    result.revoke()
    wait_for(lambda: shop.job(result).cancel_requested_at, what="the request")
    result.revoke()
    wait_for(lambda: result.id not in shop.runtime.heard, what="the second one's look")
    gate.set()
    shop.wait(result, State.CANCELLED)
    assert cancels(shop, result)[0] == ("celery:revoke", "revoked")
    assert shop.count(result, "cancel_requested") == 1


def test_many_ids_at_once_of_which_some_are_jobs(shop: Site) -> None:
    """Ids of nothing, of ended jobs, of no text, and twice the same: skipped, without a word."""
    ended, parked = echo.delay(1), asks.delay()
    shop.settled(ended)
    shop.parked(parked)
    ids: list[Any] = [str(uuid4()), "a\0b", "", 7, ended.id, parked.id]
    app.control.revoke(ids)
    app.control.revoke(parked.id)
    shop.wait(parked, State.CANCELLED)
    shop.settled(parked)
    wait_for(lambda: not shop.runtime.heard.waiting(), what="a look at all of them")
    assert (shop.job(ended).state, cancels(shop, ended)) == (State.COMPLETED, [])
    assert len(cancels(shop, parked)) == 1


def test_terminate_by_the_command_of_that_name(shop: Site) -> None:
    """`control.terminate`, where there is no process to end: the request stands, and the body hears it."""
    result = stands.delay()
    wait_for(at_gate.is_set, what="the body")
    app.control.terminate(result.id)
    wait_for(lambda: shop.job(result).cancel_requested_at, what="the request")
    assert cancels(shop, result) == [("celery:revoke", "terminated")]
    gate.set()
    shop.wait(result, State.CANCELLED)


def test_an_id_revoked_before_its_job(shop: Site) -> None:
    """Its first message is stopped, as Celery does it."""
    job_id = str(uuid4())
    app.control.revoke(job_id)
    wait_for(lambda: job_id in shop.runtime.heard and not shop.runtime.heard.waiting(), what="the worker's look")
    result = echo.apply_async((1,), task_id=job_id)
    shop.wait(result, State.CANCELLED)
    shop.settled(result)
    assert result.state == "REVOKED"
    assert job_id not in shop.runtime.heard


def test_a_message_by_name_that_is_stopped_before_it_is_a_job(shop: Site) -> None:
    """No row tells of its end: the worker does, as Celery would."""
    job_id = str(uuid4())
    app.control.revoke(job_id)
    wait_for(lambda: job_id in worker_state.revoked, what="the worker's note")
    result = app.send_task(echo.name, (1,), task_id=job_id)
    with pytest.raises(TaskRevokedError):
        got(result)
    assert shop.supervise.jobs(prefix=job_id)[1] == 0


def test_what_a_worker_only_remembers_cancels_no_job(shop: Site) -> None:
    """Ids that it has from other workers, or from before: nobody said now that this job is to end."""
    job_id = str(uuid4())
    worker_state.revoked.add(job_id)
    result = echo.apply_async((1,), task_id=job_id)
    assert got(result) == 1
    assert job_id not in worker_state.revoked
    assert cancels(shop, result) == []


def test_an_id_is_used_again(shop: Site) -> None:
    """A revoke is used up by the job that it cancelled: one that is called so later runs."""
    result = asks.delay()
    shop.parked(result)
    result.revoke()
    shop.wait(result, State.CANCELLED)
    shop.settled(result)
    shop.supervise.prune(older_than=timedelta(0), actor="user:ann")
    assert result.id in worker_state.revoked
    again = echo.apply_async((3,), task_id=result.id)
    shop.wait(again, State.COMPLETED)
    assert cancels(shop, again) == []


def test_what_tells_of_an_end_is_not_stopped(shop: Site) -> None:
    """A job has completed and nobody has told Celery yet: the message that brings that comes through."""
    result = echo.delay(5)
    shop.settled(result)
    with shop.runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.jobs SET settled_at = NULL, settle_due_at = clock_timestamp() WHERE id = %(id)s",
            {"id": result.id},
        )
    app.backend.delete(app.backend.get_key_for_task(result.id))
    worker_state.revoked.add(result.id)
    shop.settled(result)
    assert app.AsyncResult(result.id).state == "SUCCESS"


@pytest.mark.parametrize("when", ["parked", "waiting"])
def test_a_member_of_a_chord_is_told_once(shop: Site, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its message was stopped or none came: the chord hears one end of it."""
    told: list[str] = []
    whole = RedisBackend.on_chord_part_return

    def counting(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
        told.append(request.id)
        whole(self, request, *args, **kwargs)

    monkeypatch.setattr(RedisBackend, "on_chord_part_return", counting)
    member = asks.si().set(task_id=str(uuid4()))
    if when == "waiting":
        app.control.revoke(member.options["task_id"])
        wait_for(lambda: member.options["task_id"] in shop.runtime.heard, what="the worker's note")
    result = chord([member, echo.si(2)], total.s().on_error(alarm.s()))()
    revoked = app.AsyncResult(member.options["task_id"])
    if when == "parked":
        shop.parked(revoked)
        revoked.revoke()
    shop.wait(revoked, State.CANCELLED)
    shop.settled(revoked)
    with pytest.raises(ChordError):
        got(app.AsyncResult(result.id))
    assert told.count(revoked.id) == 1


def same(value: int) -> int:
    """A task."""
    return value


def test_the_database_is_away(open_site: Callable[..., Site], pg_server: embedded.Postgres, database_url: str) -> None:
    """What was heard is tried again until the database has it."""
    with Proxy(("127.0.0.1", pg_server.port)) as between:
        site = open_site(supervise_database_url=between.url(database_url))
        made = site.app.task(base=SupervisedTask, shared=False, name="shop.echo")(same)
        result = made.delay(1)
        runtime = runtime_of(site.app)
        runtime.heard.add([result.id], terminate=False)
        with between.refusing(), pytest.raises(DatabaseUnavailable):
            cancel_heard(runtime)
        assert [one.job_id for one in runtime.heard.waiting()] == [result.id]
        cancel_heard(runtime)
        assert site.job(result).state is State.CANCELLED
        assert runtime.heard.waiting() == []


def test_what_is_heard_again() -> None:
    """Again is as new; a `terminate` stands; the oldest are forgotten first; an old look settles nothing new."""
    heard = Heard()
    heard.add(["a"], terminate=True)
    (first,) = heard.waiting()
    heard.add(["a"], terminate=False)
    heard.looked(first)
    (second,) = heard.waiting()
    assert second.terminate
    heard.looked(second)
    assert "a" in heard
    assert heard.waiting() == []
    heard.add((f"id {number}" for number in range(50_000)), terminate=False)
    assert "a" not in heard
    assert len(heard.waiting()) == 50_000
