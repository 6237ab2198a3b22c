"""The contract of callers, of `docs/calling.md`: errors, round trips, groups. What each option does: `test_submit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery, group
from celery.exceptions import OperationalError
from sqlalchemy.engine import Connection

from celery_supervise import (
    Busy,
    DatabaseUnavailable,
    InvalidInput,
    JobExists,
    NotMigrated,
    QuotaExceeded,
    State,
    SupervisedTask,
    TooLarge,
    publisher,
)
from celery_supervise.gathering import BATCH
from example_project import embedded
from example_project.machine import HOST
from tests.celery.site import Site
from tests.proxy import Proxy
from tests.servers import Database

OpenSite = Callable[..., Site]
NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"
MEMORY = "cache+memory://"  # with results in Redis each member costs a caller one subscription, of either kind


def add(x: int, y: int = 0) -> int:
    """A task."""
    return x + y


def supervised(site: Site, **options: Any) -> Any:
    """The task, supervised."""
    return site.app.task(base=SupervisedTask, shared=False, **{"name": "shop.add", **options})(add)


def tenant() -> str:
    """Whose jobs these are."""
    return "acme"


# --- errors ----------------------------------------------------------------------------------------------


@contextmanager
def submitted_elsewhere(site: Site, task: Any, job_id: str) -> Iterator[None]:
    """Another session has the id, and has not committed."""
    with site.runtime.engines().connect() as connection:
        submit_in(connection, site, task, job_id)
        yield
        connection.rollback()


def submit_in(connection: Connection, site: Site, task: Any, job_id: str) -> None:
    """A job in a transaction that stays open."""
    task.apply_async((1,), task_id=job_id, supervise={"session": connection})


def test_an_outage_is_celerys_operational_error(open_site: OpenSite, empty_database: Database) -> None:
    """What keeps a call from being accepted just now is what Celery raises where it cannot send: `except` goes on."""
    away = supervised(open_site(supervise_database_url=NOBODY))
    empty = supervised(open_site(supervise_database_url=empty_database.owner_url))
    full = supervised(open_site(supervise_owner_open=1, supervise_owner=f"{__name__}:tenant"))
    full.delay(1)
    for task, kind in ((away, DatabaseUnavailable), (empty, NotMigrated), (full, QuotaExceeded)):
        with pytest.raises(task.OperationalError) as refused:
            task.delay(1)
        assert type(refused.value) is kind
        assert issubclass(kind, OperationalError)


def test_a_busy_row_is_celerys_operational_error(open_site: OpenSite) -> None:
    """An id that somebody is just submitting: the call waits for a bounded time, and may be repeated."""
    site = open_site(supervise_lock_timeout_seconds=0.05)
    task = supervised(site)
    with submitted_elsewhere(site, task, "one"), pytest.raises(OperationalError) as refused:
        task.apply_async((1,), task_id="one")
    assert type(refused.value) is Busy
    assert task.apply_async((1,), task_id="one").id == "one"


def test_a_mistake_of_the_caller_is_none(site: Site) -> None:
    """Trying again would not help: these are errors of their own."""
    task = supervised(site)
    task.apply_async((1,), task_id="one")
    for kind, call in (
        (JobExists, lambda: task.apply_async((2,), task_id="one")),
        (InvalidInput, lambda: task.apply_async((1,), priority="high")),
        (TooLarge, lambda: task.delay("x" * 1_100_000)),
        (TypeError, task.delay),
    ):
        with pytest.raises(kind) as refused:
            call()
        assert not isinstance(refused.value, OperationalError)


def test_the_id_of_a_job_that_has_ended(site: Site) -> None:
    """It is that job still: the call gives its result, and runs nothing again."""
    task = supervised(site)
    result = task.apply_async((1,), task_id="one")
    site.supervise.cancel("one", actor="user:ann")
    site.runtime.relay.settle_once()
    again = task.apply_async((1,), task_id="one")
    assert (again.state, again.id, len(site.messages())) == ("REVOKED", result.id, 1)
    with pytest.raises(JobExists):
        task.apply_async((2,), task_id="one")


# --- round trips -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "options", "statements"),
    [
        ("a call", {}, 2),
        ("with all that a call may say", {"priority": 3, "expires": 60, "supervise": {"owner": "a"}}, 2),
        ("later", {"countdown": 60}, 1),
        ("the id of a job that exists", {"task_id": "there"}, 2),
        ("the key of a job that exists", {"supervise": {"idempotency_key": "there"}}, 2),
    ],
)
def test_round_trips(site: Site, what: str, options: dict[str, Any], statements: int) -> None:
    """One to accept it, one to mark it as sent; one where it is not sent, two where another job is found."""
    task = supervised(site)
    for _ in range(4):  # its plan is kept from the third on
        task.delay(1)
    task.apply_async((1,), task_id="there")
    task.apply_async((1,), supervise={"idempotency_key": "there"})
    with site.statements() as sent:
        task.apply_async((1,), **options)
    assert len(sent) == statements, what


def test_round_trips_within_a_limit(open_site: OpenSite) -> None:
    """An owner that may only have so many: a transaction that takes the owner's lock, and the mark."""
    site = open_site(supervise_owner_open=9, supervise_owner=f"{__name__}:tenant")
    task = supervised(site)
    task.delay(1)
    with site.statements() as sent:
        task.delay(2)
    assert [sql.split()[0] for sql in sent] == ["BEGIN", "WITH", "WITH", "COMMIT", "WITH"]


def test_round_trips_of_workers_rows(open_site: OpenSite) -> None:
    """Where workers make the rows, a call touches no database."""
    site = open_site(supervise_submit="worker", supervise_database_url=NOBODY)
    supervised(site).delay(1)
    assert len(site.messages()) == 1


# --- groups ----------------------------------------------------------------------------------------------


def test_a_thousand_members(open_site: OpenSite) -> None:
    """One INSERT for each 500, one mark for each: what it takes beside Celery, `benchmarks` measures."""
    site = open_site(result_backend=MEMORY, supervise_release_window=10_000)
    ours = supervised(site)
    sent(ours, 5)
    with site.statements() as statements:
        sent(ours, 1000)
    assert ["INSERT" in sql for sql in statements] == [True, False, True, False]
    result = sent(ours, BATCH + 1)
    assert {site.job(result.results[number]).state for number in (0, BATCH)} == {State.PENDING}
    assert len({message["headers"]["id"] for message in site.messages()}) == 5 + 1000 + BATCH + 1


def sent(task: Any, count: int) -> Any:
    """A group, sent."""
    return group(task.s(number) for number in range(count)).apply_async()


def test_members_are_there_when_the_call_returns(site: Site) -> None:
    """In order, as jobs of this group, each sent once; groups in groups, too."""
    task = supervised(site)
    result = group(task.s(1), group(task.s(2), task.s(3)), task.s(4)).apply_async()
    every = flat(result)
    assert [site.job(one).state for one in every] == [State.PENDING] * 4
    assert [message["headers"]["id"] for message in site.messages()] == [one.id for one in every]


def flat(result: Any) -> list[Any]:
    """The members of a group, and of those in it."""
    members = getattr(result, "results", None)
    return [result] if members is None else [one for member in members for one in flat(member)]


def test_a_group_of_supervised_and_plain_tasks(site: Site) -> None:
    """Each by its own way."""
    task, plain = supervised(site), site.app.task(shared=False, name="shop.plain")(add)
    result = group(task.s(1), plain.s(2), task.s(3)).apply_async()
    assert {message["headers"]["id"] for message in site.messages()} == {one.id for one in result.results}
    assert site.supervise.jobs()[1] == 2


def test_a_member_that_is_refused(site: Site) -> None:
    """The caller is told; those that were accepted are jobs, and are sent."""
    task = supervised(site)
    task.apply_async((1,), task_id="taken")
    with pytest.raises(JobExists):
        group(task.s(2), task.s(3).set(task_id="taken"), task.s(4)).apply_async()
    assert (site.supervise.jobs()[1], len(site.messages())) == (3, 3)


def test_a_member_with_wrong_arguments(site: Site) -> None:
    """As with Celery: those before it are sent, those after it are not."""
    task = supervised(site)
    with pytest.raises(TypeError):
        group(task.s(1), task.s(), task.s(3)).apply_async()
    assert [message["headers"]["group"] is not None for message in site.messages()] == [True]


def test_a_group_while_the_database_is_away(open_site: OpenSite) -> None:
    """Nothing is accepted, nothing is sent; the next group is a group of its own."""
    site = open_site(supervise_database_url=NOBODY)
    task = supervised(site)
    for _ in range(2):
        with pytest.raises(OperationalError):
            group(task.s(1), task.s(2)).apply_async()
    assert site.messages() == []


def test_a_producer_of_the_callers_sends_at_once(site: Site) -> None:
    """A group that is given a producer is accepted when its call returns, not when the producer is given back."""
    task = supervised(site)
    with site.app.producer_or_acquire() as producer:
        task.apply_async((0,), producer=producer)
        assert len(site.messages()) == 1
    with site.app.producer_pool.acquire(block=True) as producer:
        group(task.s(1), task.s(2)).apply_async(producer=producer)
        assert len(site.messages()) == 3


def test_apps_gather_apart(site: Site) -> None:
    """An app without supervised tasks is as it was."""
    assert "producer_or_acquire" not in vars(Celery("other", set_as_current=False))
    supervised(site).bind(site.app)
    assert "producer_or_acquire" in vars(site.app)


# --- the broker ------------------------------------------------------------------------------------------


def test_a_broker_that_is_away_is_left_alone_for_a_while(
    open_site: OpenSite, redis_server: embedded.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish takes a quarter of a second a step; then no call asks that broker for five seconds, in this process."""
    assert (publisher.PATIENCE, publisher.SKIP) == (0.25, 5.0)
    monkeypatch.setattr(publisher, "SKIP", 1000.0)
    with Proxy((HOST, redis_server.port)) as between:
        site = open_site(broker_url=between.url(redis_server.url))
        task = supervised(site)
        with between.refusing():
            task.delay(1)
        task.delay(2)  # it is back, and nobody has looked
        assert site.messages() == []
        site.runtime.publisher._link.skip_until = 0.0
        assert task.delay(3).id == site.messages()[0]["headers"]["id"]
