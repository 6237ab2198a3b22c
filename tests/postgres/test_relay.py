"""The relay: the broker follows the rows. Released, published, stamped, found lost, told; nothing stale is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from celery_supervise.lifecycle import State
from celery_supervise.model import MessageKind
from celery_supervise.relay import BATCH, Relay, Told, mark_settled
from celery_supervise.store.plans import PARAMETER
from celery_supervise.store.publishing import TAKE, TAKE_SETTLING
from celery_supervise.store.releasing import COUNT_DUE, DUE_QUEUES, RELEASE
from celery_supervise.store.sql import Statement
from tests.postgres.looking import NO_TIME, backdate, execute, rows, unchanged
from tests.postgres.shop import Shop, retry, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def relay(shop: Shop, *, settling: timedelta = NO_TIME) -> Relay:
    """The relay of this shop. `settling`: how old a published ticket must be to be called lost."""
    return Relay(shop.door, shop.broker, settling=settling)


def outbox(shop: Shop, job_id: str) -> list[dict[str, object]]:
    """The rows of the job that are still to be published."""
    return [dict(one) for one in rows(shop, "outbox", job_id) if one["published_at"] is None and one["done_at"] is None]


def overdue(shop: Shop) -> None:
    """Let the time have passed that the publisher of each ticket was given for itself."""
    execute(shop, "UPDATE supervise.outbox SET publish_until = clock_timestamp() WHERE publish_until IS NOT NULL")


@pytest.fixture
def down(shop: Shop) -> Shop:
    """A shop whose broker does not answer."""
    shop.broker.down = True
    return shop


# --- publishing ------------------------------------------------------------------------------------------


def test_the_relay_publishes_what_nobody_did(down: Shop) -> None:
    """The row's own message with its ticket, once; the copy is stamped."""
    job = down.pending(envelope=stored('{"args": [7]}'))
    down.broker.down = False
    assert relay(down).run_once().published == 0, "its own process may still be at it"
    overdue(down)
    done = relay(down).run_once()
    assert (done.published, done.dropped) == (1, 0)
    (message,) = down.broker.messages
    assert (message.id, message.kind, message.job_id, message.task) == (
        job.ticket_id,
        MessageKind.RUN,
        job.id,
        job.task,
    )
    assert (message.queue, message.envelope, message.state) == (job.queue, stored('{"args": [7]}'), State.PENDING)
    assert outbox(down, job.id) == []
    assert relay(down).run_once().published == 0


def test_s56_what_was_accepted_first_is_sent_first(down: Shop) -> None:
    """After a broker's absence messages go out in the order in which their jobs were accepted."""
    jobs = [down.pending().id for _ in range(20)]
    overdue(down)
    down.broker.down = False
    relay(down).run_once()
    assert [message.job_id for message in down.broker.messages] == jobs


def test_a_pass_is_bounded(down: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass takes a batch at a time, and after its second takes no more; all goes out in the end, each once."""
    jobs = {down.pending().id for _ in range(BATCH + 3)}
    overdue(down)
    down.broker.down = False
    monkeypatch.setattr("celery_supervise.relay.PUBLISHING", -1.0)
    assert [relay(down).run_once().published for _ in range(3)] == [BATCH, 3, 0]
    assert {message.job_id for message in down.broker.messages} == jobs
    assert len(down.broker.messages) == len(jobs)


def test_a_broker_that_refuses_is_asked_again_later(down: Shop) -> None:
    """What could not be sent keeps its place and its error, and is tried again after a while, never given up."""
    job = down.pending()
    for _ in range(12):
        overdue(down)
        assert relay(down).run_once().published == 0
    (copy,) = rows(down, "outbox", job.id)
    assert copy["last_error"] == "connection refused"
    assert copy["publish_until"] - copy["created_at"] < timedelta(minutes=1), (
        "a broker that is back is not kept waiting"
    )
    with unchanged(down, job.id):
        assert relay(down).run_once().published == 0
    down.broker.down = False
    overdue(down)
    assert relay(down).run_once().published == 1
    (copy,) = rows(down, "outbox", job.id)
    assert (copy["publish_count"], copy["tries"], copy["last_error"], copy["publish_until"]) == (1, 0, None, None)


def test_two_relays_take_each_message_once(down: Shop) -> None:
    """Taking is a stamp that is committed before anything is sent: the second relay finds nothing."""
    down.pending()
    overdue(down)
    assert len(down.door.all(TAKE, batch=10)) == 1
    assert list(down.door.all(TAKE, batch=10)) == []


def test_a_relay_that_died_is_made_up_for(down: Shop) -> None:
    """Taken and never stamped: after its time another relay takes it."""
    job = down.pending()
    overdue(down)
    down.door.all(TAKE, batch=10)
    down.broker.down = False
    assert relay(down).run_once().published == 0
    overdue(down)
    assert relay(down).run_once().published == 1
    assert [message.job_id for message in down.broker.messages] == [job.id]


@pytest.mark.parametrize("how", ["claimed", "cancelled", "expired"])
def test_nothing_stale_is_published(down: Shop, how: str) -> None:
    """A ticket that is gone is not sent: its copy is done the moment it is used or its job ends."""
    job = down.pending(deadline=HOUR)
    if how == "claimed":
        down.hold(job.id)
    elif how == "cancelled":
        down.supervisor.cancel(job.id, actor=ANN)
    else:
        backdate(down, job.id, "expires_at")
        down.expire()
    down.broker.down = False
    overdue(down)
    assert relay(down).run_once().published == 0
    assert [message for message in down.broker.messages if message.kind is MessageKind.RUN] == []


def test_a_ticket_that_changed_while_it_was_taken_is_dropped(down: Shop) -> None:
    """A copy whose ticket is no longer the job's is dropped when it is found, not sent."""
    job = down.pending()
    down.hold(job.id)
    execute(down, "UPDATE supervise.outbox SET done_at = NULL, publish_until = NULL")
    down.broker.down = False
    done = relay(down).run_once()
    assert (done.published, done.dropped) == (0, 1)
    assert outbox(down, job.id) == []


def test_a_relay_is_of_one_namespace(down: Shop, open_shop: Callable[..., Shop]) -> None:
    """Another namespace's messages are not ours to send: they may be for another broker."""
    second = open_shop(namespace="second")
    job = down.pending()
    overdue(down)
    with unchanged(down, job.id):
        assert relay(second).run_once() == relay(second).run_once()
    assert second.broker.messages == []


# --- releasing -------------------------------------------------------------------------------------------


def test_what_is_due_is_released_and_sent(shop: Shop) -> None:
    """A time that has come: the same pass releases the ticket and sends it; before that nothing is in the broker."""
    job = shop.pending(due=HOUR)
    with unchanged(shop, job.id):
        assert relay(shop).run_once().released == 0
    backdate(shop, job.id, "ticket_due_at")
    execute(shop, "UPDATE supervise.outbox SET due_at = clock_timestamp()")
    generation = shop.job(job.id).generation
    done = relay(shop).run_once()
    assert (done.released, done.published) == (1, 1)
    assert shop.job(job.id).generation == generation
    assert shop.hold(job.id).lease.number == 1


def test_a_retry_fires_once_when_it_is_due(shop: Shop) -> None:
    """S51: the waiting time is a column; when it is over one message is sent, in the first pass."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.broker.flush()
    holding.retry(retry(timedelta(milliseconds=50)), None)
    starts_at = shop.job(job_id).starts_at
    execute(
        shop,
        "SELECT pg_sleep(greatest(0, extract(epoch FROM CAST(:at AS timestamptz) - clock_timestamp())))",
        at=starts_at,
    )
    done = [relay(shop).run_once() for _ in range(3)]
    assert [(one.released, one.published) for one in done] == [(1, 1), (0, 0), (0, 0)]
    assert len(shop.broker.messages) == 1
    assert shop.broker.messages[0].envelope == retry().envelope


def test_what_is_not_released_is_not_in_the_outbox(shop: Shop) -> None:
    """A job that waits for its time costs the relay nothing until then."""
    job = shop.pending(due=HOUR)
    with unchanged(shop, job.id):
        assert list(shop.door.all(TAKE, batch=10)) == []
    assert rows(shop, "outbox", job.id) == []


GIVEN = {"batch": 100, "most": 100, "namespace": "default", "queue": "celery"}


@pytest.mark.parametrize(
    "statement", [DUE_QUEUES, COUNT_DUE, RELEASE, TAKE, TAKE_SETTLING], ids=lambda statement: statement.name
)
def test_a_pass_costs_what_it_takes(shop: Shop, database_owner: Engine, statement: Statement) -> None:
    """Thousands of jobs that are queued, scheduled or ended and told cost a pass that finds nothing no reading."""
    for number, changes in enumerate(({}, {"due": HOUR})):
        shop.pending(f"template-{number}", **changes)
    done = shop.ended(State.COMPLETED)
    mark_settled(shop.door, [Told(done.id, done.settle_id)], actor="relay")
    with database_owner.begin() as owner:
        copy(owner, "jobs", "id", "ticket_id = CASE WHEN ticket_id IS NOT NULL THEN gen_random_uuid() END")
        owner.exec_driver_sql(
            "INSERT INTO supervise.outbox (id, namespace, kind, job_id, queue, due_at, published_at)"
            " SELECT ticket_id, namespace, 'run', id, queue, ticket_due_at, ticket_released_at FROM supervise.jobs"
            " WHERE id LIKE 'copy-%%' AND ticket_id IS NOT NULL"
        )
        owner.exec_driver_sql("ANALYZE")
        text = sa.text("EXPLAIN (ANALYZE, FORMAT JSON) " + statement.render("supervise", joined=False))
        params = {name: GIVEN.get(name) for name in PARAMETER.findall(text.text)}
        (plan,) = owner.execute(text, params).scalar_one()
        assert read_in_vain(plan["Plan"]) < 10, plan
        owner.rollback()


def copy(owner: Connection, table: str, key: str, change: str) -> None:
    """Two thousand copies of every row, with other keys."""
    owner.exec_driver_sql(
        f"CREATE TEMP TABLE one AS SELECT x.*, n FROM supervise.{table} AS x, generate_series(1, 2000) AS n"
    )
    owner.exec_driver_sql(f"UPDATE one SET {key} = 'copy-' || n || {key}, {change}")
    owner.exec_driver_sql("ALTER TABLE one DROP COLUMN n")
    owner.exec_driver_sql(f"INSERT INTO supervise.{table} SELECT * FROM one")


def read_in_vain(plan: Mapping[str, Any]) -> int:
    """How many rows a plan read and left out."""
    removed = int(plan.get("Rows Removed by Filter", 0)) + int(plan.get("Rows Removed by Index Recheck", 0))
    return removed + sum(read_in_vain(part) for part in plan.get("Plans", ()))
