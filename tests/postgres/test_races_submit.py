"""Submits of one job by many: who comes second waits for the first, and gets its job, or makes it after all."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.engine import Connection

from celery_supervise.errors import JobExists
from celery_supervise.model import NewJob, Submitted
from tests.postgres.races import Call, at_once, pid_of, waiter
from tests.postgres.shop import Shop, new_job

MANY = 30


def again(job: NewJob, **changes: Any) -> NewJob:
    """The same call made once more: with a ticket and a run of its own, as each caller makes them."""
    return replace(job, **{"ticket_id": uuid4(), "run_id": uuid4(), **changes})


def second(shop: Shop, first: NewJob, then: NewJob, *, commit: bool) -> Any:
    """The outcome of submitting `then`, proven to have waited for an open transaction that submitted `first`."""
    with shop.engine.connect() as connection:
        assert shop.supervisor.submit(first, session=connection).created
        call = Call(lambda: shop.supervisor.submit(then))
        waiter(shop.engine, pid_of(connection))
        finish(connection, commit=commit)
    return call.outcome()


def finish(connection: Connection, *, commit: bool) -> None:
    """End the caller's transaction."""
    if commit:
        connection.commit()
    else:
        connection.rollback()


def test_a_second_submit_waits_for_the_first_and_finds_its_job(shop: Shop) -> None:
    """The same id and input, in a transaction that commits: there is one job, and nobody is told of an error."""
    job = new_job()
    found = second(shop, job, again(job), commit=True)
    assert (found.job_id, found.created) == (job.id, False)
    assert shop.job(job.id).ticket_id == job.ticket_id


def test_a_second_submit_makes_the_job_that_was_rolled_back(shop: Shop) -> None:
    """The first one's transaction is rolled back: the second, which waited, makes the job."""
    job, other = new_job(), new_job()
    then = again(job)
    assert second(shop, job, then, commit=False).created
    assert shop.job(job.id).ticket_id == then.ticket_id
    assert shop.events(job.id) == ["submitted"]
    assert shop.supervisor.submit(other).created


def test_a_second_submit_by_key_waits_for_the_first(shop: Shop) -> None:
    """The same idempotency key under another id is the first one's job."""
    job = new_job(idempotency_key="order-1", owner_id="acme")
    found = second(shop, job, again(job, id=f"job-{uuid4()}"), commit=True)
    assert (found.job_id, found.created) == (job.id, False)


def test_a_second_submit_with_other_input_waits_and_is_refused(shop: Shop) -> None:
    """Whether the input is the same is judged once the first has committed, and not before."""
    job = new_job()
    refused = second(shop, job, again(job, input_digest="other"), commit=True)
    assert isinstance(refused, JobExists)


@pytest.mark.parametrize("by", ["id", "key"])
def test_s20_of_many_submits_at_once_one_makes_the_job(shop: Shop, by: str) -> None:
    """Thirty callers with one id, or with one idempotency key: one job, one message, the same id for all."""
    job = new_job(idempotency_key="order-1" if by == "key" else None)
    ids = [job.id if by == "id" else f"job-{uuid4()}" for _ in range(MANY)]
    outcomes = at_once([partial(shop.supervisor.submit, again(job, id=job_id)) for job_id in ids])
    assert all(isinstance(outcome, Submitted) for outcome in outcomes)
    assert len({outcome.job_id for outcome in outcomes}) == 1
    assert [outcome.created for outcome in outcomes].count(True) == 1
    assert len(shop.broker.messages) == 1
    assert shop.events(outcomes[0].job_id) == ["submitted"]


def test_s20_many_submits_with_other_input_are_refused(shop: Shop) -> None:
    """Of thirty callers who give one key to different input, one gets its job and all others an error that names it."""
    jobs = [new_job(idempotency_key="order-1", input_digest=str(number)) for number in range(MANY)]
    outcomes = at_once([partial(shop.supervisor.submit, job) for job in jobs])
    made = [outcome for outcome in outcomes if isinstance(outcome, Submitted)]
    assert [outcome.created for outcome in made] == [True]
    refused = [outcome.job_id for outcome in outcomes if isinstance(outcome, JobExists)]
    assert refused == [made[0].job_id] * (MANY - 1)


def test_s20_a_key_is_each_owners_own(shop: Shop) -> None:
    """The same key of two owners, and of nobody, is three jobs."""
    owners = ["acme", "zenith", None] * 10
    outcomes = at_once(
        [partial(shop.supervisor.submit, new_job(idempotency_key="order-1", owner_id=owner)) for owner in owners]
    )
    made = Counter(owner for owner, outcome in zip(owners, outcomes, strict=True) if outcome.created)
    assert made == {"acme": 1, "zenith": 1, None: 1}
    assert len({outcome.job_id for outcome in outcomes}) == 3
