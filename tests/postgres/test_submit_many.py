"""`submit_many`: what is accepted at once is what one by one would have been accepted, in fewer round trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from celery_supervise.engine import create_engine
from celery_supervise.errors import InvalidInput, JobExists, QuotaExceeded
from celery_supervise.gathering import BATCH
from celery_supervise.lifecycle import State
from celery_supervise.model import NewJob
from tests.postgres.looking import execute, rows
from tests.postgres.shop import Shop, new_job

HOUR = timedelta(hours=1)
OWN = ("id", "job_id", "ticket_id", "run_id", "created_at", "at", "idempotency_key")
TABLES = ("jobs", "payloads", "outbox", "log")


def utc() -> datetime:
    """Now."""
    return datetime.now(timezone.utc)


def wishes() -> list[dict[str, Any]]:
    """What calls may say of their jobs."""
    return [
        {},
        {"owner_id": "acme", "priority": 3, "input_version": "v2", "task_version": 4},
        {"due": HOUR, "deadline": 2 * HOUR, "start_by": HOUR},
        {"due": utc() + HOUR, "deadline": utc() + 2 * HOUR, "start_by": utc() + HOUR},
        {"max_active": HOUR, "stall_after": HOUR, "on_stall": "fail", "lost_limit": 7, "ignore_result": True},
        {"queue": "slow", "task": "shop.other", "idempotency_key": "once", "stored_bytes": 77},
    ]


def kept(shop: Shop, job: NewJob) -> dict[str, Any]:
    """All that is stored of a job, but for what differs from job to job, and the instants."""
    return {table: [comparable(row) for row in rows(shop, table, job.id)] for table in TABLES}


def comparable(row: Any) -> dict[str, Any]:
    """A row without what is its own."""
    found = {name: isinstance(value, datetime) or value for name, value in row.items() if name not in OWN}
    data = found.get("data")
    if isinstance(data, dict):  # of the log
        found["data"] = {name: value for name, value in data.items() if name != "deadline"}
    elif data is not None:
        found["data"] = bytes(data)
    return found


@pytest.mark.parametrize("driver", ["postgresql+psycopg2", "postgresql+psycopg"])
def test_a_job_of_many_is_as_one_alone(shop: Shop, database_url: str, driver: str) -> None:
    """Row by row and column by column, whatever its call said; with either driver."""
    engine = create_engine(make_url(database_url).set(drivername=driver))
    many = Shop(engine, broker=shop.broker)
    jobs = [new_job(**wish) for wish in wishes()]
    alone = [replace(job, id=f"{job.id} alone", ticket_id=uuid4(), idempotency_key=None) for job in jobs]
    for job in alone:
        shop.supervisor.submit(job)
    made = many.supervisor.submit_many(jobs)
    assert [one.job_id for one in made] == [job.id for job in jobs]
    assert {(one.state, one.created, one.generation) for one in made} == {(State.PENDING, True, 1)}
    assert [kept(shop, job) for job in jobs] == [kept(shop, job) for job in alone]
    assert shop.job(jobs[-1].id).idempotency_key == "once"
    engine.dispose()


def test_the_span_of_a_time_is_from_the_databases_now(shop: Shop) -> None:
    """As with one alone: what is due in an hour is due an hour after it was accepted."""
    job = new_job(due=HOUR, deadline=2 * HOUR)
    shop.supervisor.submit_many([new_job(), job])
    (row,) = rows(shop, "jobs", job.id)
    assert (row["ticket_due_at"] - row["created_at"], row["expires_at"] - row["created_at"]) == (HOUR, 2 * HOUR)


def test_what_is_due_is_sent_in_order(shop: Shop) -> None:
    """Each once, in the order in which it was given; what is due later is not."""
    jobs = [new_job() for _ in range(5)]
    shop.supervisor.submit_many([jobs[0], new_job(due=HOUR), *jobs[1:]])
    assert [message.job_id for message in shop.broker.messages] == [job.id for job in jobs]
    assert execute(shop, "SELECT count(*) AS n FROM supervise.outbox WHERE published_at IS NULL")[0]["n"] == 0


def test_one_statement_for_so_many(shop: Shop) -> None:
    """One round trip for each 500 of a queue, and one that marks them as sent."""
    sent: list[str] = []
    jobs = [new_job() for _ in range(BATCH + 1)]

    def note(_conn: Any, _cursor: Any, sql: str, *_: Any) -> None:
        sent.append(sql)

    sa.event.listen(shop.engine, "before_cursor_execute", note)
    try:
        shop.supervisor.submit_many(jobs)
    finally:
        sa.event.remove(shop.engine, "before_cursor_execute", note)
    assert [("INSERT" in sql) for sql in sent if "SHOW" not in sql] == [True, False, True, False]
    assert len(shop.broker.messages) == BATCH + 1


def test_a_broker_that_is_away_refuses_nothing(shop: Shop) -> None:
    """All are accepted; the relay sends them."""
    shop.broker.down = True
    made = shop.supervisor.submit_many([new_job(), new_job()])
    assert {shop.job(one.job_id).state for one in made} == {State.PENDING}


def test_a_refused_one_keeps_no_other(shop: Shop) -> None:
    """The others are accepted and sent; then the refusal is raised, naming its job."""
    taken = shop.pending()
    shop.broker.flush()
    before, after = new_job(), new_job()
    with pytest.raises(JobExists) as refused:
        shop.supervisor.submit_many([before, new_job(taken.id, input_digest="other"), after])
    assert refused.value.job_id == taken.id
    assert [message.job_id for message in shop.broker.messages] == [before.id, after.id]
    with pytest.raises(InvalidInput, match="past"):
        shop.supervisor.submit_many([late := new_job(deadline=utc() - HOUR), last := new_job()])
    assert (rows(shop, "jobs", late.id), shop.job(last.id).state) == ([], State.PENDING)


def test_one_that_is_there_already_is_found(shop: Shop) -> None:
    """The same id and input, or the same key: the job that exists, which is not sent again."""
    jobs = [new_job(), new_job(idempotency_key="once")]
    shop.supervisor.submit_many(jobs)
    again = shop.supervisor.submit_many([jobs[0], new_job(idempotency_key="once"), new_job()])
    assert [one.created for one in again] == [False, False, True]
    assert [one.job_id for one in again[:2]] == [job.id for job in jobs]
    assert len(shop.broker.messages) == 3


def test_one_id_twice_is_one_job(shop: Shop) -> None:
    """As in two calls."""
    job = new_job()
    assert [one.created for one in shop.supervisor.submit_many([job, new_job(), job])] == [True, True, False]
    assert shop.events(job.id) == ["submitted"]


def test_a_job_that_cannot_be_stored_stops_all(shop: Shop) -> None:
    """Before anything is written: the caller gave something that is wrong."""
    fine = new_job()
    with pytest.raises(InvalidInput, match="queue"):
        shop.supervisor.submit_many([fine, new_job(queue="")])
    assert rows(shop, "jobs", fine.id) == []


def test_limits_of_owners_hold(open_shop: Callable[..., Shop]) -> None:
    """Those of an owner with a limit are accepted one by one, up to it."""
    shop = open_shop(open_limit=lambda _owner: 2)
    with pytest.raises(QuotaExceeded):
        shop.supervisor.submit_many([new_job(owner_id="acme") for _ in range(3)])
    assert execute(shop, "SELECT count(*) AS n FROM supervise.jobs")[0]["n"] == 2
    more = [new_job(owner_id="acme") for _ in range(3)]
    assert len(shop.supervisor.submit_many(more, limited=False)) == 3  # what follows a job that was accepted


def test_a_queue_is_filled_and_no_more(open_shop: Callable[..., Shop]) -> None:
    """The first are let out, up to the window; the rest waits in its rows, and so does what comes next."""
    shop = open_shop(window=5)
    shop.supervisor.submit_many([new_job() for _ in range(3)])
    jobs = [new_job() for _ in range(4)]
    made = shop.supervisor.submit_many(jobs)
    assert [one.released for one in made] == [True, True, False, False]
    assert len(shop.broker.messages) == 5
    assert shop.supervisor.submit(new_job(queue="other")).released
    assert not shop.supervisor.submit(new_job()).released


def test_what_is_held_waits(shop: Shop) -> None:
    """A task that is held starts nothing, also where many of its jobs are accepted at once."""
    shop.supervisor.hold(task="shop.task", reason="stocktaking", actor="user:ann")
    made = shop.supervisor.submit_many([new_job(), new_job(task="shop.other")])
    assert [one.released for one in made] == [False, True]
