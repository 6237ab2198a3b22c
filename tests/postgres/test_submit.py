"""Submit: a job is accepted once, whole, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from celery_supervise import queries
from celery_supervise.engine import create_engine
from celery_supervise.errors import InvalidInput, JobExists, JobNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import MessageKind, Moved
from celery_supervise.relay import Relay
from tests.postgres.looking import backdate, driven, everything, execute, now, row, rows, unchanged
from tests.postgres.shop import Broker, Shop, new_job, stored

HOUR = timedelta(hours=1)


def test_a_submitted_job_is_pending_with_its_ticket(shop: Shop) -> None:
    """One statement makes the row, its values, the ticket's copy and the first log entry."""
    job = new_job(owner_id="acme", envelope=stored('{"args": [1]}'), priority=3, stored_bytes=13)
    made = shop.supervisor.submit(job, actor="user:ann")
    assert (made.job_id, made.state, made.generation, made.created) == (job.id, State.PENDING, 1, True)
    found = shop.job(job.id)
    assert (found.state, found.generation, found.ticket_id) == (State.PENDING, 1, job.ticket_id)
    assert (found.task, found.queue, found.owner_id, found.run_id) == (job.task, job.queue, "acme", job.run_id)
    assert queries.payload(shop.door, job.id, "envelope") == job.envelope
    assert (row(shop, job.id)["priority"], row(shop, job.id)["stored_bytes"]) == (3, 13)
    (entry,) = queries.entries(shop.door, job.id)
    assert (entry.event, entry.actor, entry.sequence_num) == ("submitted", "user:ann", 1)
    assert entry.data["owner"] == "acme"


def test_the_message_is_published_after_the_commit(shop: Shop) -> None:
    """The broker gets the job's message with its ticket, once, and the outbox knows it."""
    job = new_job()
    shop.supervisor.submit(job)
    (message,) = shop.broker.messages
    assert (message.id, message.kind, message.job_id) == (job.ticket_id, MessageKind.RUN, job.id)
    assert message.envelope == job.envelope
    (copy,) = rows(shop, "outbox", job.id)
    assert (copy["publish_count"], copy["done_at"]) == (1, None)
    assert copy["published_at"] is not None


def test_a_broker_that_is_down_refuses_nothing(open_shop: Callable[..., Shop]) -> None:
    """Acceptance depends on Postgres alone; the relay publishes when the broker is back."""
    shop = open_shop(broker=Broker(down=True), publish_hold=timedelta(0))
    job = new_job()
    assert shop.supervisor.submit(job).created
    assert rows(shop, "outbox", job.id)[0]["published_at"] is None
    shop.broker.down = False
    Relay(shop.door, shop.broker, settling=HOUR).run_once()
    assert [message.id for message in shop.broker.messages] == [job.ticket_id]


def test_a_later_start_is_a_column(shop: Shop) -> None:
    """A job that is due later is neither released nor published: no countdown sits in the broker."""
    job = new_job(due=HOUR)
    shop.supervisor.submit(job)
    assert shop.broker.messages == []
    assert row(shop, job.id)["ticket_released_at"] is None
    starts_at = shop.job(job.id).starts_at
    assert starts_at is not None
    assert timedelta(minutes=59) < starts_at - now(shop) < HOUR
    assert shop.claim(job.id) is None


def test_a_start_in_the_past_is_now(shop: Shop) -> None:
    """A due time that is over releases the ticket at once."""
    job = new_job(due=datetime(2020, 1, 1, tzinfo=timezone.utc))
    assert shop.supervisor.submit(job).released
    assert len(shop.broker.messages) == 1


@pytest.mark.parametrize("name", ["deadline", "start_by"])
def test_times_are_kept_as_the_instant_they_are(shop: Shop, name: str) -> None:
    """A time in any zone is stored as the same instant and read back with an offset."""
    moment = datetime(2031, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=8)))
    times: dict[str, Any] = {name: moment}
    job = shop.pending(**times)
    column = row(shop, job.id)["expires_at" if name == "deadline" else name]
    assert column == moment
    assert column.utcoffset() is not None


def test_a_timedelta_counts_on_the_databases_clock(shop: Shop) -> None:
    """A deadline in an hour is an hour after the database made the row, to the microsecond."""
    job = shop.pending(deadline=HOUR)
    assert job.deadline == job.created_at + HOUR


# --- the same job twice ----------------------------------------------------------------------------------


def test_the_same_submit_again_is_the_existing_job(shop: Shop) -> None:
    """An id that is used again with the same input finds the job and changes nothing."""
    job = new_job()
    shop.supervisor.submit(job)
    holding = shop.hold(job.id)
    with unchanged(shop, job.id):
        again = shop.supervisor.submit(replace(job, ticket_id=uuid4(), run_id=uuid4()))
    assert (again.created, again.state, again.generation) == (False, State.RUNNING, 2)
    assert len(shop.broker.messages) == 1
    holding.complete(None)
    assert shop.supervisor.submit(job).state is State.COMPLETED


@pytest.mark.parametrize(
    "other", [{"task": "shop.other"}, {"input_digest": "else"}, {"owner_id": "bob"}, {"input_version": "2"}]
)
def test_an_id_with_another_input_is_refused(shop: Shop, other: dict[str, Any]) -> None:
    """The same id for another task, input, owner or input version is an error that names the id."""
    job = shop.pending(owner_id="ann", input_version="1")
    with unchanged(shop, job.id), pytest.raises(JobExists) as refused:
        shop.supervisor.submit(new_job(job.id, **{"owner_id": "ann", "input_version": "1", **other}))
    assert refused.value.job_id == job.id
    assert len(shop.broker.messages) == 1


def test_an_id_of_another_namespace_is_refused(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Ids are unique in the schema: another namespace's job is not found, and not taken over."""
    job = shop.pending()
    second = open_shop(namespace="second")
    with unchanged(shop, job.id), pytest.raises(JobExists):
        second.supervisor.submit(new_job(job.id))
    with pytest.raises(JobNotFound):
        second.supervisor.job(job.id)


def test_s20_an_idempotency_key_finds_the_first_job(shop: Shop) -> None:
    """Two submits with one key, in whatever process, are one job: the second gets the first one's id."""
    first = new_job(idempotency_key="once", owner_id="ann")
    second = new_job(idempotency_key="once", owner_id="ann")
    shop.supervisor.submit(first)
    with unchanged(shop, first.id):
        made = shop.supervisor.submit(second)
    assert (made.job_id, made.created) == (first.id, False)
    with pytest.raises(JobNotFound):
        shop.supervisor.job(second.id)
    assert [message.job_id for message in shop.broker.messages] == [first.id]
    assert shop.events(first.id) == ["submitted"]


@pytest.mark.parametrize("other", [{"input_digest": "another body"}, {"input_version": "2"}])
def test_s20_a_key_with_another_body_is_refused(shop: Shop, other: dict[str, Any]) -> None:
    """The key is taken by another request: refused, naming the key and the job that has it."""
    first = shop.pending(idempotency_key="once")
    with unchanged(shop, first.id), pytest.raises(JobExists) as refused:
        shop.supervisor.submit(new_job(idempotency_key="once", **other))
    assert (refused.value.job_id, refused.value.idempotency_key) == (first.id, "once")
    assert "once" in str(refused.value)


@pytest.mark.parametrize("other", [{"owner_id": "bob"}, {"owner_id": None}, {"task": "shop.other"}])
def test_s20_a_key_is_its_owners_own(shop: Shop, other: dict[str, Any]) -> None:
    """Another owner, nobody, or another task with the same key gets a new job of its own."""
    first = shop.pending(idempotency_key="once", owner_id="ann")
    second = shop.pending(**{"idempotency_key": "once", "owner_id": "ann", **other})
    assert first.id != second.id
    assert second.state is State.PENDING


def test_s20_a_key_is_of_one_namespace(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """The same key in another namespace is another job."""
    second = open_shop(namespace="second")
    assert shop.pending(idempotency_key="once").id != second.pending(idempotency_key="once").id


def test_s20_unicode_forms_are_two_keys_everywhere(shop: Shop) -> None:
    """NFC and NFD of one text are two keys, as they are two ids: nothing is normalised anywhere."""
    composed, decomposed = "\u00e9", "e\u0301"
    assert shop.pending(idempotency_key=composed).id != shop.pending(idempotency_key=decomposed).id
    assert shop.pending(job_id=composed).id != shop.pending(job_id=decomposed).id


# --- messages without a row ------------------------------------------------------------------------------


def test_a_received_message_makes_its_row_without_publishing(shop: Shop) -> None:
    """A message of another client makes the row; the worker that holds it claims, nothing is sent again."""
    job = new_job()
    made = shop.supervisor.submit(job, actor="worker:w", received=True)
    assert made.created
    assert shop.broker.messages == []
    assert rows(shop, "outbox", job.id)[0]["publish_count"] == 1
    assert shop.hold(job.id).lease.number == 1


def test_a_received_message_of_a_job_that_exists_makes_none(shop: Shop) -> None:
    """Without our header and with a row: dropped; the relay sends the row's own message."""
    job = shop.pending()
    with unchanged(shop, job.id):
        made = shop.supervisor.submit(new_job(job.id, input_digest="later"), received=True)
    assert not made.created


def test_a_received_message_of_a_pruned_job_makes_none(shop: Shop) -> None:
    """A late duplicate of a job that was pruned does not begin it anew; its id is used up."""
    job = shop.ended(State.COMPLETED)
    execute(shop, "UPDATE supervise.jobs SET settled_at = clock_timestamp() WHERE id = :id", id=job.id)
    (pruned,) = execute(shop, "SELECT supervise.prune_jobs(ARRAY[:id]) AS ids", id=job.id)
    assert pruned["ids"] == [job.id]
    assert not shop.supervisor.submit(new_job(job.id), received=True).created
    assert all(found == [] for found in everything(shop, job.id).values())


# --- bad input: tests/unit/test_intake.py has all of it --------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "x" * 256),
        ("owner_id", ""),
        ("idempotency_key", "r4nd0m" * 500),
        ("deadline", datetime(2031, 1, 1)),  # noqa: DTZ001  # that it is naive is the point
        ("deadline", "infinity"),
        ("deadline", datetime(2020, 1, 1, tzinfo=timezone.utc)),
        ("max_active", timedelta(0)),
        ("lost_limit", 0),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(shop: Shop, field: str, value: object) -> None:
    """One of the library's errors names the field; there is no row, and no message."""
    change: dict[str, Any] = {field: value}
    with pytest.raises(InvalidInput) as refused:
        shop.supervisor.submit(replace(new_job(), **change))
    assert refused.value.field == field
    assert execute(shop, "SELECT count(*) AS n FROM supervise.jobs") == [{"n": 0}]
    assert shop.broker.messages == []


def test_s69_a_name_of_the_full_length_works(shop: Shop) -> None:
    """255 bytes are accepted for every name, and the job runs to its end."""
    name = "é" * 127 + "x"
    job = shop.pending(job_id=name, task=name, queue=name, owner_id=name, idempotency_key=name)
    shop.hold(job.id).complete(None)
    assert shop.job(name).state is State.COMPLETED


@pytest.mark.parametrize("deadline", [datetime(9999, 12, 30, tzinfo=timezone.utc), timedelta(days=365_000)])
def test_s44_a_far_deadline(shop: Shop, deadline: datetime | timedelta) -> None:
    """The year 9999 is a time like any other, and comes back as one."""
    assert shop.pending(deadline=deadline).deadline is not None


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai", "Europe/Berlin"])
def test_s44_the_sessions_zone_changes_no_instant(database_url: str, zone: str) -> None:
    """Whatever zone the database thinks it is in, a deadline is the instant that was given."""
    engine = create_engine(f"{driven(database_url)}?options=-ctimezone%3D{zone}")
    deadline = datetime(2031, 3, 30, 2, 30, tzinfo=timezone.utc)
    found = Shop(engine).pending(deadline=deadline).deadline
    engine.dispose()
    assert found == deadline
    assert found.utcoffset() == deadline.astimezone(ZoneInfo(zone)).utcoffset()


def apart(one: datetime | None, other: datetime | None) -> timedelta:
    """How long from one instant to another: of two in one zone Python would tell what the clocks on the wall say."""
    assert one is not None
    assert other is not None
    return other.astimezone(timezone.utc) - one.astimezone(timezone.utc)


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_s45_a_day_is_86400_seconds_whatever_the_clocks_do(database_url: str, zone: str) -> None:
    """A time given as a length is as long as it says, though the database's zone changes its clocks meanwhile."""
    engine = create_engine(f"{driven(database_url)}?options=-ctimezone%3D{zone}")
    shop, ann = Shop(engine), "user:ann"
    for days in (100, 200, 300):  # whatever the season, one of them ends on the other side of a change
        length = timedelta(days=days)
        job, asked = shop.pending(deadline=length), shop.supervisor.question(shop.asked(ttl=length).id)
        assert apart(job.created_at, job.deadline) == length
        assert apart(asked.asked_at, asked.expires_at) == length
        shop.supervisor.extend(job.id, by=length, actor=ann)
        assert apart(job.deadline, shop.job(job.id).deadline) == length
        shop.supervisor.extend_question(asked.id, by=length, actor=ann)
        assert apart(asked.expires_at, shop.supervisor.question(asked.id).expires_at) == length
        again = shop.job(shop.supervisor.rerun(shop.ended(State.FAILED, deadline=length).id, actor=ann).job_id)
        assert apart(again.created_at, again.deadline) == length
    left = shop.job_of(shop.asked(max_active=timedelta(days=9)))
    with engine.connect() as connection:  # what is to be added to a time has hours alone
        query = "SELECT extract(day FROM active_left) FROM supervise.jobs WHERE id = %(id)s"
        assert connection.exec_driver_sql(query, {"id": left.id}).scalar() == 0
    engine.dispose()


@pytest.mark.parametrize("actor", ["", "a\0b", "x" * 256])
def test_an_actor_is_a_name(shop: Shop, actor: str) -> None:
    """Who acts stands in the log for ever: a name that cannot is refused by every operation."""
    job, question = shop.pending(), shop.asked()
    supervisor = shop.supervisor
    calls: list[Callable[[], object]] = [
        lambda: supervisor.submit(new_job(), actor=actor),
        lambda: supervisor.pause(job.id, actor=actor),
        lambda: supervisor.resume(job.id, actor=actor),
        lambda: supervisor.cancel(job.id, actor=actor),
        lambda: supervisor.answer(question.id, value=True, actor=actor),
    ]
    for call in calls:
        with unchanged(shop, job.id), pytest.raises(InvalidInput) as refused:
            call()
        assert refused.value.field == "actor"


@pytest.mark.parametrize("job_id", ["nobody", "", "a\0b", "\ud800", "x" * 9999])
def test_s86_an_unknown_id_is_not_found(shop: Shop, job_id: str) -> None:
    """An id that nobody has, however it looks, is one and the same error."""
    with pytest.raises(JobNotFound) as refused:
        shop.supervisor.job(job_id)
    assert refused.value.job_id == job_id


def test_s86_a_job_can_be_read_when_submit_returns(shop: Shop) -> None:
    """What submit said is what a read finds, at once and with no older generation."""
    job = new_job()
    made = shop.supervisor.submit(job)
    assert shop.supervisor.job(job.id).generation >= made.generation
    question = shop.asked()
    answered = shop.supervisor.answer(question.id, value=True, actor="user:ann")
    assert shop.job_of(question).generation >= answered.generation


def test_s47_a_deadline_never_moves(open_shop: Callable[..., Shop]) -> None:
    """Loss, hand-over, pause, resume and answer leave the deadline where submit put it; then it is over."""
    shop = open_shop(lease=timedelta(0))
    job = shop.pending(deadline=HOUR)
    assert isinstance(shop.hold(job.id).hand_over(), Moved)
    shop.supervisor.pause(job.id, actor="user:ann")
    assert isinstance(shop.claim(job.id), Moved)
    shop.supervisor.resume(job.id, actor="user:ann")
    shop.hold(job.id)
    shop.reap()
    assert shop.job(job.id).deadline == job.deadline
    backdate(shop, job.id, "expires_at")
    assert isinstance(shop.claim(job.id), Moved)
    assert shop.job(job.id).state is State.EXPIRED
