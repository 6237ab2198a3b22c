"""How many open jobs an owner may have: counted under the owner's lock, refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_supervise.errors import AlreadyRerun, Conflict, QuotaExceeded
from celery_supervise.lifecycle import State
from celery_supervise.store.births import LOCK_OWNER
from tests.postgres.looking import execute
from tests.postgres.races import Call
from tests.postgres.shop import Shop, new_job, new_question
from tests.tools import wait_for

HOUR = timedelta(hours=1)
LIMITS = {"acme": 2, "gone": 0, "big": None}
ACTOR = "user:ann"


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """Two open jobs for acme, none for who is gone, no limit for big."""
    return open_shop(open_limit=LIMITS.__getitem__)


def jobs(shop: Shop) -> int:
    """How many rows there are."""
    return int(execute(shop, "SELECT count(*) AS jobs FROM supervise.jobs")[0]["jobs"])


def test_one_too_many_is_refused(shop: Shop) -> None:
    """The error says whose limit it is, and nothing of the job is there."""
    for _ in range(2):
        shop.pending(owner_id="acme")
    with pytest.raises(QuotaExceeded) as refused:
        shop.supervisor.submit(new_job(owner_id="acme"))
    assert (refused.value.owner, refused.value.limit) == ("acme", 2)
    assert "try again when one ends" in str(refused.value)
    assert jobs(shop) == 2
    assert execute(shop, "SELECT FROM supervise.payloads WHERE job_id NOT IN (SELECT id FROM supervise.jobs)") == []


def test_every_open_state_counts_and_no_other(shop: Shop) -> None:
    """Waiting, running and parked jobs are open; one that ended makes room."""
    holding = shop.running(owner_id="acme")
    parked = shop.running(owner_id="acme")
    parked.ask(new_question(), ttl=HOUR)
    with pytest.raises(QuotaExceeded):
        shop.pending(owner_id="acme")
    shop.supervisor.cancel(parked.lease.job_id, actor=ACTOR)
    assert shop.pending(owner_id="acme").state is State.PENDING
    with pytest.raises(QuotaExceeded):
        shop.pending(owner_id="acme")
    holding.complete(None)
    assert shop.pending(owner_id="acme").state is State.PENDING


def test_limits_are_of_one_owner(shop: Shop) -> None:
    """Others, those without a limit and jobs without an owner are counted by nobody."""
    for owner in ("acme", "acme", "big", "big", "big", None, None, None):
        shop.pending(owner_id=owner)
    with pytest.raises(QuotaExceeded):
        shop.pending(owner_id="gone")


def test_other_namespaces_have_their_own(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """An app beside this one counts its own jobs."""
    for _ in range(2):
        shop.pending(owner_id="acme")
    beside = open_shop(namespace="beside", open_limit=LIMITS.__getitem__)
    assert beside.pending(owner_id="acme").state is State.PENDING


def test_a_repeated_call_is_no_new_job(shop: Shop) -> None:
    """With the limit reached, the same id or key still finds the job that it made."""
    job = new_job(owner_id="acme", idempotency_key="order-7")
    shop.supervisor.submit(job)
    shop.pending(owner_id="acme")
    assert not shop.supervisor.submit(job).created
    again = shop.supervisor.submit(new_job(owner_id="acme", idempotency_key="order-7"))
    assert (again.job_id, again.created) == (job.id, False)


def test_what_a_worker_received_is_not_refused(shop: Shop) -> None:
    """Its producer was told that it is accepted; refusing it now would lose it."""
    for _ in range(2):
        shop.pending(owner_id="acme")
    assert shop.supervisor.submit(new_job(owner_id="acme"), received=True).created
    assert shop.supervisor.submit(new_job(owner_id="acme"), limited=False).created


def test_of_two_at_once_one_is_refused(shop: Shop) -> None:
    """The second waits for the owner's lock and counts what the first has committed."""
    shop.pending(owner_id="acme")
    with shop.door.batch() as run:
        run(LOCK_OWNER, owner="acme")
        calls = [Call(lambda: shop.supervisor.submit(new_job(owner_id="acme"))) for _ in range(2)]
        waits = "SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_for(lambda: execute(shop, waits)[0]["n"] == 2, what="both to wait for the lock")
    outcomes = [type(call.outcome()).__name__ for call in calls]
    assert sorted(outcomes) == ["QuotaExceeded", "Submitted"]
    assert jobs(shop) == 2


def test_many_at_once(shop: Shop) -> None:
    """However they meet, two are accepted."""
    calls = [Call(lambda: shop.supervisor.submit(new_job(owner_id="acme"))) for _ in range(12)]
    outcomes = [call.outcome() for call in calls]
    assert sum(not isinstance(outcome, Exception) for outcome in outcomes) == 2 == jobs(shop)
    assert {type(outcome).__name__ for outcome in outcomes} == {"QuotaExceeded", "Submitted"}


def test_in_a_callers_transaction(shop: Shop) -> None:
    """It counts with the transaction, holds the owner until its end, and waits for nobody."""
    with shop.engine.begin() as connection:
        for _ in range(2):
            shop.supervisor.submit(new_job(owner_id="acme"), session=connection)
        with pytest.raises(QuotaExceeded):
            shop.supervisor.submit(new_job(owner_id="acme"), session=connection)
        with shop.engine.begin() as other, pytest.raises(Conflict) as busy:
            shop.supervisor.submit(new_job(owner_id="acme"), session=other)
        assert busy.value.code == "busy"
    assert jobs(shop) == 2


def test_a_rerun_is_a_job_of_its_owner(shop: Shop) -> None:
    """It is refused like a submit, and can be made when there is room."""
    done = shop.ended(State.CANCELLED, owner_id="acme")
    first = shop.pending(owner_id="acme")
    shop.pending(owner_id="acme")
    with pytest.raises(QuotaExceeded):
        shop.supervisor.rerun(done.id, actor=ACTOR)
    assert jobs(shop) == 3
    shop.supervisor.cancel(first.id, actor=ACTOR)
    made = shop.supervisor.rerun(done.id, actor=ACTOR)
    assert made.created
    with pytest.raises(AlreadyRerun):
        shop.supervisor.rerun(done.id, actor=ACTOR)
