"""Two apps on one schema, one with Redis and one with RabbitMQ: neither touches the other's jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import redis
from celery import Celery

from celery_supervise import JobNotFound, QuestionNotFound, State, SupervisedTask
from celery_supervise.errors import ConfigError
from celery_supervise.install import sweep_once
from example_project import embedded
from tests.celery.site import Site, connect, got, place, working
from tests.jobs import close
from tests.servers import created, revive
from tests.tools import wait_for

bank = Celery("bank", set_as_current=False)
shop = Celery("shop", set_as_current=False)
ran: Counter[str] = Counter()


def note(self: Any, value: int) -> int:
    ran[f"{self.app.main} {value}"] += 1
    return value


def approve(self: Any) -> str:
    return str(self.ask("ok", "Go on?", choices=["yes", "no"]))


for one in (bank, shop):  # the same names in both, as two copies of one product have them
    for body in (note, approve):
        one.task(base=SupervisedTask, bind=True, shared=False, name=f"product.{body.__name__}")(body)


@pytest.fixture(scope="module")
def both(
    rabbitmq_server: embedded.RabbitMQ, redis_server: embedded.Redis, pg_server: embedded.Postgres, migrated: str
) -> Iterator[tuple[Site, Site]]:
    """Both apps, without workers. The queue has the same name in both."""
    revive(redis_server)
    with created(pg_server, migrated) as database, ExitStack() as stack:
        client = stack.enter_context(closing(redis.Redis.from_url(redis_server.url, decode_responses=True)))
        client.flushdb()
        settings = place(redis_server, database.url, queue="jobs")
        rabbit = {**settings, "broker_url": rabbitmq_server.url, "supervise_namespace": "shop"}
        stack.callback(close, bank)
        stack.callback(close, shop)
        yield (
            connect(bank, client, {**settings, "supervise_namespace": "bank"}),
            connect(shop, None, rabbit),  # type: ignore[arg-type]  # not Redis
        )


@pytest.fixture(params=[0, 1], ids=["redis", "rabbitmq"])
def pair(both: tuple[Site, Site], request: pytest.FixtureRequest) -> tuple[Site, Site]:
    """One of them, which has a worker, and the other, which has none."""
    return both[request.param], both[1 - request.param]


def send(site: Site, body: str, *args: Any, **options: Any) -> Any:
    """Submit a job."""
    return site.app.tasks[f"product.{body}"].apply_async(args, **options)


def test_each_runs_its_own(pair: tuple[Site, Site]) -> None:
    """Worker, relay and sweeps of one leave the other's jobs as they are, due, over and without a message."""
    ours, theirs = pair
    over = send(theirs, "note", 1, expires=0.001)
    later = send(theirs, "note", 2, countdown=0.001)
    asked = send(theirs, "approve")
    with working(ours):
        assert got(send(ours, "note", 3)) == 3
        parked = send(ours, "approve")
        ours.answer(parked, "yes")
        assert got(parked) == "yes"
        sweep_once(ours.runtime, force=True)
    assert {theirs.job(one).state for one in (over, later, asked)} == {State.PENDING}
    assert ran[f"{theirs.app.main} 2"] == 0
    with working(theirs):
        theirs.answer(asked, "no")
        assert (got(later), got(asked)) == (2, "no")
        theirs.wait(over, State.EXPIRED)
    ours.check()
    theirs.check()


def test_nobody_acts_on_the_others_jobs(pair: tuple[Site, Site]) -> None:
    """For each the other's jobs and questions do not exist; an id is one job's all the same."""
    ours, theirs = pair
    asked = send(theirs, "approve", task_id=f"of {theirs.app.main}")
    with working(theirs):
        question = theirs.parked(asked)
    for act in (ours.supervise.cancel, ours.supervise.pause, ours.supervise.resume, ours.supervise.kick):
        with pytest.raises(JobNotFound):
            act(asked.id, actor="user:ann")
    with pytest.raises(QuestionNotFound):
        ours.supervise.answer(question.id, "yes", actor="user:ann")
    with pytest.raises(Exception, match="id"):
        send(ours, "approve", task_id=asked.id)
    theirs.supervise.cancel(asked.id, actor="user:ann")


def test_one_namespace_and_two_brokers(both: tuple[Site, Site]) -> None:
    """A mistake: whose relay comes second refuses, so that no message of the other's goes to its broker."""
    ours, theirs = both
    ours.runtime.relay.run_once()
    wrong = Celery("wrong", set_as_current=False)
    site = connect(wrong, ours.broker, {**dict(theirs.app.conf.changes), "supervise_namespace": "bank"})
    waiting = send(ours, "note", 9, countdown=0.001)
    try:
        wait_for(lambda: ours.job(waiting).starts_at is not None)
        with pytest.raises(ConfigError, match="is not the broker that namespace 'bank' has"):
            sweep_once(site.runtime, force=True)
        with pytest.raises(ConfigError, match="--move-broker"):
            site.runtime.relay.run_once()
    finally:
        close(wrong)
    with working(ours):
        assert got(waiting) == 9
