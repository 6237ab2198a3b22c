"""Processes that die at every step of every operation: it is done or not done, and the same call then works."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from celery_supervise.engine import create_engine
from celery_supervise.errors import Conflict
from celery_supervise.model import Lease
from celery_supervise.relay import Relay
from celery_supervise.sweeps import EXPIRY, REAPING, REMINDING, STALLING, Sweep, Sweeper
from tests.postgres.operations import HOUR, OPERATIONS, Operation, Subject, picture, undisturbed
from tests.postgres.races import Call
from tests.postgres.shop import NO_TIME, Shop, new_question

NOW = timedelta(milliseconds=1)
"""A lease so short that no sweep holds back for longer, and that what a dead process took is free at once."""


class Death(BaseException):
    """The process ends here: nothing of it runs on."""


@contextmanager
def dying(engine: Engine, at: int) -> Iterator[None]:
    """Whoever uses `engine` dies at its step `at`, from 1: before and after a statement, and before a commit."""
    steps = count(1)

    def step(*_: Any) -> None:
        if next(steps) == at:
            raise Death

    events = ("before_cursor_execute", "after_cursor_execute", "commit")
    for event in events:
        sa.event.listen(engine, event, step)
    try:
        yield
    finally:
        for event in events:
            sa.event.remove(engine, event, step)


def dies(engine: Engine, at: int, work: Callable[[], object]) -> bool:
    """Whether the process died in it: it has fewer steps if not."""
    with dying(engine, at):
        try:
            work()
        except Death:
            died = True
        else:
            died = False
    if died:  # a dead process holds no connection: SQLAlchemy 2.0 leaves one that it gave up to the collector
        gc.collect()
        engine.dispose()
    return died


@pytest.fixture
def mortal(database_url: str, shop: Shop) -> Iterator[Shop]:
    """The same shop in a process of its own, which dies."""
    engine = create_engine(database_url)
    mortal = Shop(engine, broker=shop.broker, publish_hold=NO_TIME)
    mortal.claimer = shop.claimer
    assert picture(mortal, "nobody") is None  # the first statement of a process is none of the operation's steps
    mortal.supervisor.jobs()
    yield mortal
    engine.dispose()


def sweeping(sweep: Sweep) -> Callable[[Shop, Subject], object]:
    """One pass of a sweep that holds back from nothing."""

    def call(shop: Shop, _: Subject) -> object:
        return Sweeper(Shop(shop.engine, lease=NOW).door, period=timedelta(minutes=1)).run_once(sweep, force=True)

    return call


def relaying(shop: Shop, _: Subject) -> object:
    """One pass of the relay."""
    door = Shop(shop.engine, lease=NO_TIME).door
    door.publish_hold = NO_TIME
    return Relay(door, shop.broker, settling=NO_TIME).run_once()


def lapsed(shop: Shop) -> Subject:
    """A job whose worker is gone, and its lease over."""
    return Subject(Shop(shop.engine, lease=NO_TIME, broker=shop.broker).running().lease.job_id)


def overdue(shop: Shop) -> Subject:
    """A job whose question nobody answered in time."""
    return Subject(shop.job_of(shop.asked(ttl=timedelta(microseconds=1))).id)


def standing_still(shop: Shop) -> Subject:
    """A job that makes no progress, and is to fail for it."""
    return Subject(shop.running(stall_after=timedelta(microseconds=1), on_stall="fail").lease.job_id)


def unreminded(shop: Shop) -> Subject:
    """A job whose question is to be reminded of."""
    question = new_question(remind_before=HOUR - timedelta(microseconds=1))
    return Subject(shop.job_of(shop.asked(question=question, ttl=HOUR)).id)


def unsettled(shop: Shop) -> Subject:
    """A job that ended where nobody was to tell Celery."""
    job = shop.pending()
    shop.supervisor.cancel(job.id, actor="user:ann")
    return Subject(job.id)


def unpublished(shop: Shop) -> Subject:
    """A job whose message the broker did not take."""
    shop.broker.down = True
    job = shop.pending()
    shop.broker.down = False
    return Subject(job.id)


LOOPS = (
    Operation("reap", lapsed, sweeping(REAPING), b""),
    Operation("expire", overdue, sweeping(EXPIRY), b""),
    Operation("stall", standing_still, sweeping(STALLING), b""),
    Operation("remind", unreminded, sweeping(REMINDING), b""),
    Operation("settle", unsettled, relaying, b""),
    Operation("publish", unpublished, relaying, b""),
)


TOLD_OF_IT = {
    "answer": "already_answered",
    "vote from a page": "stale_generation",
    "vote that decides": "already_answered",
    "withdraw": "question_closed",
    "resume": "already_resumed",
    "withdraw a pause": "not_parked",
    "cancel of a pending job": "already_final",
    "cancel of a parked job": "already_final",
    "rerun": "already_rerun",
    "extend by a span": "stale_generation",
    "extend a question": "stale_generation",
}
"""What a caller is told who comes again after the dead process had done it."""


@pytest.mark.parametrize("operation", [*OPERATIONS, *LOOPS], ids=str)
def test_it_is_all_or_nothing_and_the_same_call_then_works(shop: Shop, mortal: Shop, operation: Operation) -> None:
    """At each step at which its process may die, an operation is done or not done; called again, it is done."""
    wanted, _ = undisturbed(shop, operation)
    for at in count(1):
        subject = operation.prepare(shop)
        before = picture(shop, subject.job_id)
        died = dies(mortal.engine, at, partial(operation.call, mortal, subject))
        left = picture(shop, subject.job_id)
        assert left in (before, wanted)
        again(shop, operation, subject, done=left == wanted)
        assert picture(shop, subject.job_id) == wanted
        if not died:
            assert at > 2, "nothing was disturbed"
            return


ISSUING = [
    each
    for each in OPERATIONS
    if each.name in {"submit", "answer", "vote that decides", "withdraw", "resume", "hand over"}
]


@pytest.mark.parametrize("operation", ISSUING, ids=str)
def test_s02_what_is_committed_is_published_and_nothing_else(shop: Shop, mortal: Shop, operation: Operation) -> None:
    """Whichever step its process dies at: a ticket that is committed is sent by the relay, one that is not, never."""
    wanted, _ = undisturbed(shop, operation)
    for at in count(1):
        subject = operation.prepare(shop)
        shop.broker.flush()
        died = dies(mortal.engine, at, partial(operation.call, mortal, subject))
        committed = picture(shop, subject.job_id) == wanted
        assert committed or shop.broker.messages == []
        relaying(shop, subject)
        sent = {message.id for message in shop.broker.messages}
        assert sent == ({shop.job(subject.job_id).ticket_id} if committed else set())
        if not died:
            return
        if committed:
            assert isinstance(shop.claim(subject.job_id), Lease)


def again(shop: Shop, operation: Operation, subject: Subject, *, done: bool) -> None:
    """The same call from another process. It may be told that it is done, but only if it is."""
    outcome = Call(lambda: operation.call(shop, subject)).outcome()
    if isinstance(outcome, Exception):
        assert done
        assert isinstance(outcome, Conflict)
        assert outcome.code == TOLD_OF_IT[operation.name]
