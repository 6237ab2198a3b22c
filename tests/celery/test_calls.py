"""Options of a call that Celery would take, and fail with, or a worker would: refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from kombu import Exchange, Queue

from celery_supervise import ConfigError, InvalidInput, SupervisedTask, queries
from celery_supervise.model import Claimer, Lease
from celery_supervise.submitting import pack
from tests.celery.site import Site


def add(x: int) -> int:
    """A task."""
    return x + 1


def program(site: Site) -> Any:
    """The task."""
    return site.app.task(base=SupervisedTask, shared=False, name="shop.add")(add)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_limit", "soon"),
        ("time_limit", float("nan")),
        ("soft_time_limit", 0),
        ("soft_time_limit", True),
        ("countdown", float("nan")),
        ("countdown", "1"),
        ("priority", 5000),
        ("priority", 1.5),
        ("retries", "many"),
        ("queue", 5),
        ("queue", "q" * 300),
        ("exchange", object()),
        ("routing_key", object()),
        ("routing_key", "\ud800"),
        ("shadow", "a\0b"),
        ("compression", "gzipp"),
        ("compression", "x" * 100_000),
        ("priority", 10**10_000),
        ("time_limit", 10**400),
        ("soft_time_limit", -(10**10_000)),
    ],
    ids=lambda one: one if isinstance(one, str) and len(one) < 20 else type(one).__name__,
)
def test_what_could_not_be_sent_or_taken_is_refused(site: Site, name: str, value: Any) -> None:
    """Naming the option; no row is made, nothing is sent."""
    task = program(site)
    with pytest.raises(InvalidInput) as refused:
        task.apply_async((1,), **{name: value})
    assert refused.value.field == name
    assert len(str(refused.value)) < 500
    assert site.supervise.jobs() == ([], 0)
    assert site.messages() == []


def test_what_can_be_is_not(site: Site) -> None:
    """Celery's own ways to say it."""
    task = program(site)
    for options in (
        {"time_limit": 30, "soft_time_limit": 2.5, "priority": 0, "retries": 1, "compression": "gzip"},
        {"queue": Queue("slow", Exchange("slow"), routing_key="slow")},
        {"exchange": Exchange("slow"), "routing_key": "slow", "shadow": "an add", "countdown": 0},
        {"countdown": 10**400},
    ):
        assert site.job(task.apply_async((1,), **options)).task == "shop.add"


def test_one_message_that_cannot_be_sent_holds_up_no_other(open_site: Callable[..., Site]) -> None:
    """Its own row waits, with the reason; the broker is there for the others, in the same pass."""
    site = open_site(supervise_worker_thread=False)
    task = program(site)
    poisoned, fine = task.apply_async((1,), countdown=0.01), task.apply_async((2,), countdown=0.02)
    runtime = site.runtime
    stored = queries.payload(runtime.door, str(poisoned.id), "envelope")
    assert stored is not None
    broken = pack(runtime, replace(runtime.publisher.open(stored), compression="gzipp"))
    with runtime.engines().begin() as connection:
        connection.exec_driver_sql(
            "UPDATE supervise.payloads SET data = %(data)s WHERE job_id = %(id)s",
            {"data": broken.data, "id": poisoned.id},
        )
        connection.exec_driver_sql("SELECT pg_sleep(0.05)")
    assert runtime.relay.publish_once().published == 1
    assert [message["headers"]["id"] for message in site.messages()] == [fine.id]
    with runtime.engines().connect() as connection:
        sql = "SELECT last_error FROM supervise.outbox WHERE job_id = %(id)s"
        assert "gzipp" in str(connection.exec_driver_sql(sql, {"id": poisoned.id}).scalar())
    assert site.job(task.delay(3)).id in {message["headers"]["id"] for message in site.messages()}


def test_a_message_that_only_tells_has_no_time_limits(site: Site) -> None:
    """Nobody's body runs for it; a limit that no worker can read would end each worker that takes it."""
    task = program(site)
    result = task.apply_async((1,), time_limit=30)
    site.messages()
    site.broker.flushdb()
    runtime = site.runtime
    job = site.job(result)
    assert job.ticket_id is not None
    _complete(site, result)
    runtime.relay.settle_once()
    (message,) = site.messages()
    assert message["headers"]["supervise"]["kind"] == "settle"
    assert message["headers"]["timelimit"] == [None, None]


def _complete(site: Site, result: Any) -> None:
    """As a worker that dies before it tells."""
    ticket = site.job(result).ticket_id
    assert ticket is not None
    lease = site.supervise.claim(str(result.id), ticket, Claimer(uuid4(), "worker@test", 1))
    assert isinstance(lease, Lease)
    site.supervise.holding(lease, worker="worker@test").complete(None)
    with site.runtime.engines().begin() as connection:
        connection.exec_driver_sql("UPDATE supervise.jobs SET settle_due_at = clock_timestamp() - interval '1 s'")


def test_a_call_that_goes_past_the_job_is_refused(site: Site) -> None:
    """A `__call__` that runs the body itself would run it again and again, as no job: an error where it is declared."""

    class Flask(SupervisedTask):
        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.run(*args, **kwargs)

    with pytest.raises(ConfigError, match="must call super"):
        site.app.task(base=Flask, shared=False, name="shop.flask", lazy=False)(add)
