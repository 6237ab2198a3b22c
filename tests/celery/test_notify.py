"""`supervise_notify`: the shop's own task is told of questions, plain or supervised, and holds up no job."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery.exceptions import Ignore
from kombu import Queue

from celery_supervise import State, SupervisedTask
from example_project import embedded
from example_project.machine import HOST
from tests.celery.site import Site, body_of, working
from tests.proxy import Proxy
from tests.tools import wait_for

TELL = "shop.tell"
PATIENCE = 2.0  # seconds that asking may take while nobody can be told: a quarter for each step, and a busy machine


def asker(site: Site, **terms: Any) -> Any:
    """A task that asks."""

    def pay(self: SupervisedTask) -> Any:
        return self.ask("approve", "Pay 7?", choices=["yes", "no"], to="user:ann", **terms)

    return site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.notify.pay")(pay)


def teller(site: Site, told: list[Any], **options: Any) -> Any:
    """The task that is told; it keeps what it hears."""

    def tell(notice: Any) -> None:
        told.append(notice)

    return site.app.task(shared=False, name=TELL, **options)(tell)


@pytest.mark.parametrize("options", [{}, {"base": SupervisedTask}], ids=["plain", "supervised"])
def test_the_shops_task_is_told(open_site: Callable[..., Site], options: dict[str, Any]) -> None:
    """Asked, reminded, withdrawn: one call each, with one argument that is JSON, and no value in it."""
    site, told = open_site(supervise_notify=TELL), []
    pay, tell = (
        asker(site, ttl=timedelta(minutes=5), remind_before=timedelta(seconds=299.9)),
        teller(site, told, **options),
    )
    assert tell.name == TELL
    with working(site):
        result = pay.delay()
        question = site.parked(result)
        wait_for(lambda: len(told) == 2, timeout=30, what="a reminder")
        site.supervise.cancel(result.id, actor="user:ann")
        wait_for(lambda: len(told) == 3, timeout=30, what="the end")
    assert [one["kind"] for one in told] == ["asked", "reminder", "withdrawn"]
    assert {one["job_id"] for one in told} == {result.id}
    assert {one["question_id"] for one in told} == {str(question.id)}
    assert told[0]["assignees"] == ["user:ann"]
    assert "Pay" not in json.dumps(told)
    if options:
        site.check()
        jobs, _ = site.supervise.jobs(task=TELL)
        assert [job.state for job in jobs] == [State.COMPLETED] * 3


def test_the_asker_sends_it_at_once(open_site: Callable[..., Site]) -> None:
    """No relay has to come by: the message is on its way when the task has parked. It is a child of the job."""
    site = open_site(supervise_notify=TELL, supervise_worker_thread=False, supervise_beat=False)
    site.app.conf.task_routes = {TELL: {"queue": "mail"}}
    pay = asker(site)
    with working(site):
        result = pay.delay()
        question = site.parked(result)
        (message,) = wait_for(lambda: site.messages("mail"), what="the notice")
    assert body_of(message)[0][0]["kind"] == "asked"
    headers = message["headers"]
    assert (headers["id"], headers["root_id"], headers["parent_id"]) == (str(question.id), result.id, result.id)
    assert "supervise" not in headers


def test_s30_the_broker_is_away_when_a_job_asks(open_site: Callable[..., Site], redis_server: embedded.Redis) -> None:
    """The job parks within moments; it is told of when the broker is back."""
    with Proxy((HOST, redis_server.port)) as between:
        site = open_site(broker_url=between.url(redis_server.url), supervise_notify=TELL)
        pay = asker(site)
        with between.refusing():
            result = pay.delay()
            start = time.monotonic()
            attempt(site, pay, result)
            assert time.monotonic() - start < PATIENCE
        assert site.job(result).state is State.PARKED
        site.runtime.publisher._link.skip_until = 0.0
        released(site)
        assert [body_of(one)[0][0]["kind"] for one in site.messages() if one["headers"]["task"] == TELL] == ["asked"]


def test_s30_no_way_leads_to_who_is_to_be_notified(open_site: Callable[..., Site]) -> None:
    """A queue that is not there is told of in the log and in the row; the job parks, and others are published."""
    site = open_site(supervise_notify=TELL)
    site.app.conf.update(
        task_create_missing_queues=False, task_queues=[Queue(site.queue)], task_routes={TELL: {"queue": "nowhere"}}
    )
    pay = asker(site)
    result = pay.delay()
    attempt(site, pay, result)
    assert site.job(result).state is State.PARKED
    released(site)
    with site.runtime.engines().connect() as connection:
        waiting = connection.exec_driver_sql(
            "SELECT published_at, last_error FROM supervise.outbox WHERE kind = 'notify'"
        ).one()
    assert waiting.published_at is None
    assert waiting.last_error.startswith(f"no way to {TELL}: QueueNotFound")
    before = len(site.messages())
    pay.delay()
    assert len(site.messages()) == before + 1


def attempt(site: Site, task: Any, result: Any) -> None:
    """What a worker does with the job's message, in this thread."""
    job = site.job(result)
    message_header = {"v": 1, "ns": "default", "kind": "run", "ticket": str(job.ticket_id)}
    task.push_request(
        id=result.id, args=(), kwargs={}, hostname="worker@test", called_directly=False, supervise=message_header
    )
    with pytest.raises(Ignore, match="parked"):
        task()
    task.pop_request()


def released(site: Site) -> None:
    """One pass of the relay, with nothing held back for those who wrote it."""
    with site.runtime.engines().connect() as connection:
        connection.exec_driver_sql("UPDATE supervise.outbox SET publish_until = NULL WHERE published_at IS NULL")
        connection.commit()
    site.runtime.relay.run_once()
