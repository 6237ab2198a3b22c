"""What an attempt brings after somebody else has ended it: kept for operators, logged, never the job's result."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa

from celery_supervise import queries
from celery_supervise.errors import Conflict, JobNotFound, LeaseLost
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NodeKind
from tests.postgres.looking import backdate, last_entry, unchanged, watching
from tests.postgres.races import in_order
from tests.postgres.shop import Shop, failure, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
EXCEPTION = '{"exc_type": "Broken", "exc_message": ["no"]}'


def kept(shop: Shop, holding: Holding) -> list[tuple[int, bytes | None]]:
    """What the operator finds."""
    found = shop.supervisor.rejected(holding.lease.job_id)
    return [(one.number, one.stored.data if one.stored else None) for one in found]


def expired(shop: Shop) -> Holding:
    """An attempt whose job the sweep has expired."""
    holding = shop.running(deadline=HOUR)
    backdate(shop, holding.lease.job_id, "expires_at")
    assert len(shop.expire().moved) == 1
    return holding


def cancelled(shop: Shop) -> Holding:
    """An attempt that was reaped after a cancel request: the sweep has cancelled its job."""
    holding = shop.running()
    shop.supervisor.cancel(holding.lease.job_id, actor=ANN)
    assert shop.reap_now(holding.lease.job_id).state is State.CANCELLED
    return holding


@pytest.mark.parametrize(("ended", "state"), [(expired, State.EXPIRED), (cancelled, State.CANCELLED)])
def test_a_result_after_a_sweep_is_kept(shop: Shop, ended: Callable[[Shop], Holding], state: State) -> None:
    """The sweep ended the job first: the attempt is told that, its result is kept and is not the job's."""
    holding = ended(shop)
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = holding.complete(stored('"late"'))
    assert (moved.state, moved.changed, seen.generation, seen.events) == (state, False, 0, ["refused"])
    assert seen.entries[0].data == {
        "why": "stale_attempt",
        "call": "complete",
        "state": str(state),
        "rejected_result": 6,
    }
    assert kept(shop, holding) == [(1, b'"late"')]
    assert queries.payload(shop.door, job_id, "result") is None
    with pytest.raises(Conflict):
        shop.supervisor.result(job_id)


@pytest.mark.parametrize("ended", [expired, cancelled])
def test_it_is_kept_and_logged_once(shop: Shop, ended: Callable[[Shop], Holding]) -> None:
    """A caller whose reply was lost calls again: nothing changes."""
    holding = ended(shop)
    holding.complete(stored('"late"'))
    with unchanged(shop, holding.lease.job_id):
        holding.complete(stored('"late"'))


def test_a_late_error_is_kept_as_well(shop: Shop) -> None:
    """An attempt that fails after its job was expired: what it failed with can be read."""
    holding = expired(shop)
    holding.fail(failure("no"))
    assert kept(shop, holding) == [(1, b'"no"')]


def test_a_call_that_brings_nothing_is_not_logged(shop: Shop) -> None:
    """A result that nobody wants, and a checkpoint, leave the ended job as it is."""
    holding = expired(shop)
    with unchanged(shop, holding.lease.job_id):
        holding.complete(None)
        holding.checkpoint("late", NodeKind.STEP, stored("1"))


def test_a_result_of_a_lost_attempt_is_kept(shop: Shop) -> None:
    """It lost its lease and another attempt won: refused, and kept beside the result that counts."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.reap_now(job_id)
    shop.hold(job_id).complete(stored('"won"'))
    with pytest.raises(LeaseLost):
        holding.complete(stored('"lost"'))
    assert last_entry(shop, job_id).data["rejected_result"] == 6
    assert kept(shop, holding) == [(1, b'"lost"')]
    assert queries.payload(shop.door, job_id, "result") == stored('"won"')


def test_what_left_by_itself_keeps_nothing(shop: Shop) -> None:
    """An attempt that gave its job back has no result to bring."""
    holding = shop.running()
    holding.hand_over()
    with pytest.raises(LeaseLost):
        holding.complete(stored('"late"'))
    assert kept(shop, holding) == []


def test_an_erased_job_takes_no_value(shop: Shop) -> None:
    """Its values were taken away: a result that comes then is not stored, only that it came."""
    holding = expired(shop)
    with shop.engine.begin() as connection:
        erased = connection.execute(
            sa.text("SELECT supervise.erase_job(:id, 'user:ann')"), {"id": holding.lease.job_id}
        )
        assert erased.scalar_one()
    with unchanged(shop, holding.lease.job_id):
        assert holding.complete(stored('"late"')).state is State.EXPIRED


def test_what_was_kept_is_erased_with_the_job(shop: Shop) -> None:
    """Erase takes it away; that it was there stays visible."""
    holding = expired(shop)
    holding.complete(stored('"late"'))
    with shop.engine.begin() as connection:
        connection.execute(sa.text("SELECT supervise.erase_job(:id, 'user:ann')"), {"id": holding.lease.job_id})
    (one,) = shop.supervisor.rejected(holding.lease.job_id)
    assert (one.size, one.stored, shop.supervisor.rejected_value(one)) == (0, None, None)


def test_it_is_read_by_operators(shop: Shop) -> None:
    """The value, or the text of an error; a job that is not there is not found."""
    holding, broken = expired(shop), expired(shop)
    holding.complete(stored('"late"').__class__(b'"late"', "application/json;utf-8"))
    broken.fail(failure().__class__("shop.Broken", "no", stored("").__class__(EXCEPTION.encode(), "exception")))
    (one,) = shop.supervisor.rejected(holding.lease.job_id)
    assert shop.supervisor.rejected_value(one) == "late"
    (other,) = shop.supervisor.rejected(broken.lease.job_id)
    assert shop.supervisor.rejected_value(other) == "Broken: ['no']"
    with pytest.raises(JobNotFound):
        shop.supervisor.rejected("nobody")


def test_complete_behind_the_sweep_is_kept(shop: Shop) -> None:
    """The worker waited for the sweep, which expired the job: the result is not lost, and does not count."""
    holding = shop.running(deadline=HOUR)
    job_id = holding.lease.job_id

    def sweep() -> Moved:
        return shop.reap_now(job_id)

    shop.supervisor.cancel(job_id, actor=ANN)
    swept, moved = in_order(shop.engine, job_id, sweep, lambda: holding.complete(stored('"late"')))
    assert (swept.state, moved.state) == (State.CANCELLED, State.CANCELLED)
    assert kept(shop, holding) == [(1, b'"late"')]
