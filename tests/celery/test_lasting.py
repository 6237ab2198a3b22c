"""What Celery's result backend keeps for jobs that wait longer than `result_expires`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery, chain, chord, group

from celery_supervise import SupervisedTask
from celery_supervise.lasting import RENEWALS, period, renew
from tests.celery.site import Site, got, working
from tests.tools import wait_for

EXPIRES = 2


def add(x: int, y: int = 0) -> int:
    """A plain task."""
    return x + y


def total(values: Any) -> int:
    """The body of a chord; of numbers, and of lists of them."""
    return sum(total(one) if isinstance(one, list) else one for one in values)


def asks(self: SupervisedTask, value: int = 0) -> int:
    """A supervised one, that waits."""
    return value + int(self.ask("more", "How many more?", schema={"type": "integer"}))


def tasks(app: Celery) -> Any:
    """The tasks of an app, by name."""
    for function in (add, total):
        app.task(shared=False, name=function.__name__)(function)
    app.task(base=SupervisedTask, bind=True, shared=False, name="asks")(asks)
    return app.tasks


CANVAS: dict[str, Callable[[Any], Any]] = {
    "chord": lambda t: chord([t["add"].s(1), t["asks"].s(2)], t["total"].s()),
    "chain in a chord": lambda t: chord([t["add"].s(1), chain(t["asks"].s(2), t["add"].s(0))], t["total"].s()),
    "chord in a chord": lambda t: chord(
        [t["add"].s(1), chord([t["asks"].s(2), t["add"].s(0)], t["total"].s())], t["total"].s()
    ),
    "chord of groups": lambda t: chord([t["add"].s(1), group(t["asks"].s(2), t["add"].s(0))], t["total"].s()),
}


@pytest.mark.parametrize("name", CANVAS)
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_the_keys_of_waiting_chords(open_site: Callable[..., Site], name: str, serializer: str) -> None:
    """Each key of each chord around a waiting member is renewed, and so is the state that people see."""
    site = open_site(result_expires=3600, task_serializer=serializer, supervise_worker_thread=False)
    t = tasks(site.app)
    client = site.app.backend.client
    client.flushdb()
    with working(site):
        result = CANVAS[name](t)()
        wait_for(site.supervise.questions, what="a question")
        (job,), _ = site.supervise.jobs()
        waiting = site.app.AsyncResult(job.id)
        wait_for(lambda: client.keys("celery-taskset-meta-*.j"), what="the other member's return")
        keys = [*client.keys("celery-taskset-meta-*"), site.app.backend.get_key_for_task(job.id)]
        for key in keys:
            client.expire(key, 60)
        assert renew(site.runtime) > 0
        assert {client.ttl(key) > 3000 for key in keys} == {True}
        site.answer(waiting, 10)
        assert got(result) == 13
    site.check()


def test_a_chord_that_waits_longer_than_results_last(open_site: Callable[..., Site]) -> None:
    """By the worker itself: the body runs with all results, and until then the state is PARKED."""
    site = open_site(result_expires=EXPIRES)
    t = tasks(site.app)
    with working(site, pool="threads"):
        result = CANVAS["chord"](t)()
        member = result.parent.results[1]
        other = site.app.AsyncResult(result.parent.results[0].id)
        site.parked(member)
        asked = time.monotonic()
        wait_for(lambda: time.monotonic() - asked > EXPIRES + 1, what="more than results last")
        wait_for(lambda: other.state == "PENDING", what="the expiry of a result that nobody waits for")
        assert (member.state, member.info["question"]) == ("PARKED", "more")
        site.answer(member, 10)
        assert got(result) == 13
    site.check()


def test_a_message_that_cannot_be_read_holds_up_no_other(open_site: Callable[..., Site]) -> None:
    """It is logged, and the others are renewed."""
    site = open_site(result_expires=3600, supervise_worker_thread=False)
    t = tasks(site.app)
    with working(site):
        bad, good = t["asks"].delay(), t["asks"].delay()
        for one in (bad, good):
            site.parked(one)
            wait_for(lambda: one.state == "PARKED")  # noqa: B023  # called at once
    with site.runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.payloads SET data = 'nonsense' WHERE job_id = %(id)s", {"id": bad.id}
        )
    backend = site.app.backend
    for one in (bad, good):
        backend.client.expire(backend.get_key_for_task(one.id), 60)
    assert renew(site.runtime) == 2
    assert backend.client.ttl(backend.get_key_for_task(good.id)) > 3000


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({"result_expires": 800}, 800 / RENEWALS),
        ({"result_expires": 800, "result_chord_expires": 80}, 80 / RENEWALS),
        ({"result_expires": None}, None),
        ({"result_expires": 0}, None),
        ({"result_backend": "disabled://"}, None),
    ],
)
def test_how_often(open_site: Callable[..., Site], settings: dict[str, Any], seconds: float | None) -> None:
    """Several times in what lasts shortest; never where nothing expires or nothing can be put off."""
    site = open_site(**settings)
    if "result_chord_expires" in settings and not hasattr(site.app.backend, "chord_expires"):
        seconds = settings["result_expires"] / RENEWALS  # Celery does not know it yet (5.4)
    found = period(site.app)
    assert (found.total_seconds() if found else None) == seconds
