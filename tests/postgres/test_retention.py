"""Retention and erasure through the service, as the application's role: only what ended goes, and nothing silently."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from celery_supervise import queries, retention
from celery_supervise.errors import Conflict, InvalidInput, JobNotFound, Unreadable
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import Job, NodeKind
from celery_supervise.relay import Told, mark_settled
from celery_supervise.retention import Erased, Pruned
from celery_supervise.sweeps import PRUNING, Sweeper
from tests.postgres.looking import execute, row, rows, unchanged, watching
from tests.postgres.races import row_held
from tests.postgres.shop import NO_TIME, Shop, new_job, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
ALL: Mapping[str, Any] = {"older_than": NO_TIME, "actor": ANN}


def done(shop: Shop, state: State = State.COMPLETED, **changes: Any) -> Job:
    """A job that has ended, and of which Celery was told."""
    job = shop.ended(state, **changes)
    assert mark_settled(shop.door, [Told(job.id, job.settle_id)], actor="relay") == [job.id]
    return shop.job(job.id)


def there(shop: Shop, job_id: str) -> bool:
    """Whether the job is."""
    return queries.job(shop.door, job_id) is not None


# --- prune -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_old_jobs_go_whole(shop: Shop, state: State) -> None:
    """A job in each terminal state goes with all that belongs to it, and leaves a tombstone."""
    job = done(shop, state)
    assert shop.supervisor.prunable(older_than=NO_TIME) == 1
    assert shop.supervisor.prune(**ALL) == Pruned(1)
    assert not there(shop, job.id)
    assert [found["job_id"] for found in execute(shop, "SELECT job_id FROM supervise.tombstones")] == [job.id]
    assert (shop.supervisor.prunable(older_than=NO_TIME), shop.supervisor.prune(**ALL)) == (0, Pruned(0))


def test_s50_what_has_not_ended_or_is_not_told_stays(shop: Shop) -> None:
    """Whatever waits, runs, asks or is paused, however old it is, and what Celery was not told of."""
    kept = [
        shop.pending().id,
        shop.pending(due=HOUR).id,
        shop.running().lease.job_id,
        shop.job_of(shop.asked()).id,
        shop.paused().id,
        shop.ended(State.FAILED).id,
    ]
    execute(shop, "UPDATE supervise.jobs SET created_at = created_at - interval '1 year' WHERE finished_at IS NULL")
    gone = done(shop)
    before = {job_id: row(shop, job_id) for job_id in kept}
    assert shop.supervisor.prune(**ALL) == Pruned(1)
    assert not there(shop, gone.id)
    assert {job_id: row(shop, job_id) for job_id in kept} == before


def test_young_jobs_stay(shop: Shop) -> None:
    """What ended less long ago than was said stays, whenever it was made."""
    job = done(shop)
    assert shop.supervisor.prune(older_than=HOUR, actor=ANN) == Pruned(0)
    assert there(shop, job.id)


def test_in_batches_oldest_first(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch is a transaction of its own; a limit stops it, and it says that there may be more."""
    monkeypatch.setattr(retention, "BATCH", 2)
    ids = [done(shop, sorted(TERMINAL)[number % 4]).id for number in range(5)]
    calls: list[object] = []
    sa.event.listen(
        shop.engine,
        "before_cursor_execute",
        lambda *given: calls.append(given[3]) if "prune_jobs" in given[2] else None,
    )
    assert shop.supervisor.prune(**ALL, limit=3) == Pruned(3, more=True)
    assert [there(shop, job_id) for job_id in ids] == [False, False, False, True, True]
    assert len(calls) == 2
    assert shop.supervisor.prune(**ALL) == Pruned(2)


def test_one_that_owes_something_does_not_keep_the_others(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted as left; what is younger goes all the same."""
    monkeypatch.setattr(retention, "BATCH", 1)
    owing, free = done(shop), done(shop)
    execute(
        shop,
        "INSERT INTO supervise.outbox (id, namespace, kind, job_id, queue, due_at)"
        " VALUES (gen_random_uuid(), 'default', 'notify', :id, 'celery', clock_timestamp())",
        id=owing.id,
    )
    assert shop.supervisor.prune(**ALL) == Pruned(1, left=1)
    assert (there(shop, owing.id), there(shop, free.id)) == (True, False)


def test_prune_waits_for_nobody(shop: Shop) -> None:
    """A job that somebody holds just now is left for the next time."""
    held, free = done(shop), done(shop)
    with row_held(shop.engine, "jobs", "id", held.id):
        assert shop.supervisor.prune(**ALL) == Pruned(1, left=1)
    assert (there(shop, held.id), there(shop, free.id)) == (True, False)
    assert shop.supervisor.prune(**ALL) == Pruned(1)


def test_prune_gives_up_on_a_batch_that_is_held(open_shop: Callable[..., Shop]) -> None:
    """Behind a session that holds a message of a job for too long, the batch is left, and nothing is half gone."""
    shop = open_shop(lock_timeout=timedelta(milliseconds=50))
    job = done(shop)
    execute(
        shop,
        "INSERT INTO supervise.outbox (id, namespace, kind, job_id, queue, due_at, published_at)"
        " VALUES (gen_random_uuid(), 'default', 'notify', :id, 'celery', clock_timestamp(), clock_timestamp())",
        id=job.id,
    )
    with row_held(shop.engine, "outbox", "job_id", job.id), unchanged(shop, job.id):
        assert shop.supervisor.prune(**ALL) == Pruned(0, left=1)
    assert shop.supervisor.prune(**ALL) == Pruned(1)


def test_prune_keeps_to_its_namespace(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Jobs of another app in the same schema are none of its business."""
    other = open_shop(namespace="second")
    job = done(other)
    assert (shop.supervisor.prunable(older_than=NO_TIME), shop.supervisor.prune(**ALL)) == (0, Pruned(0))
    assert there(other, job.id)


def test_prune_says_who_did_it(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """The rows are gone, and their log with them: the service's own log names actor, number and age."""
    done(shop)
    with caplog.at_level(logging.INFO, "celery_supervise"):
        shop.supervisor.prune(**ALL)
    (record,) = [record for record in caplog.records if record.__dict__.get("event") == "supervise.pruned"]
    assert (vars(record)["actor"], vars(record)["jobs"], vars(record)["older_than"]) == (ANN, 1, "0:00:00")


@pytest.mark.parametrize(
    "given",
    [
        {"older_than": -HOUR},
        {"older_than": 30},
        {"older_than": timedelta.max},
        {"actor": ""},
        {"limit": 0},
        {"limit": True},
    ],
)
def test_prune_refuses_what_it_cannot_use(shop: Shop, given: dict[str, Any]) -> None:
    """Before anything is removed."""
    job = done(shop)
    with pytest.raises(InvalidInput, match=next(iter(given))):
        shop.supervisor.prune(**{**ALL, **given})
    assert there(shop, job.id)


def test_a_pruned_id_does_not_come_back(shop: Shop) -> None:
    """A message that says nothing of a job's ticket does not make a pruned job anew."""
    job = done(shop)
    shop.supervisor.prune(**ALL)
    made = shop.supervisor.submit(new_job(job.id), received=True)
    assert not made.created
    assert not there(shop, job.id)


def test_the_sweep_removes_what_is_over_its_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process a period does, a bounded number at a time."""
    monkeypatch.setattr(retention, "A_PASS", 2)
    for _ in range(3):
        done(shop)
    sweeper, other = (Sweeper(shop.door, period=HOUR) for _ in range(2))
    assert [sweeper.prune(HOUR), other.prune(NO_TIME)] == [0, 0]
    assert other.prune(NO_TIME, force=True) == 2
    (noted,) = execute(shop, "SELECT last_count, last_ok_at FROM supervise.sweeps WHERE name = :name", name=PRUNING)
    assert (noted["last_count"], noted["last_ok_at"] is not None) == (2, True)
    assert other.prune(NO_TIME, force=True) == 1


# --- erase -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_erase_takes_the_values(shop: Shop, state: State) -> None:
    """They go; the row stays as it was, and the log says who did it."""
    job = done(shop, state)
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.erase(job.id, actor=ANN)
    assert (moved.state, moved.generation, moved.changed) == (state, job.generation, True)
    assert (seen.generation, seen.events, seen.entries[0].actor) == (0, ["erased"], ANN)
    assert all(found["data"] is None for found in rows(shop, "payloads", job.id))
    assert shop.job(job.id).erased_at == seen.entries[0].at


def test_an_erased_result_is_no_none(shop: Shop) -> None:
    """It is told that it was erased; None would be a lie."""
    job = done(shop)
    shop.supervisor.erase(job.id, actor=ANN)
    with pytest.raises(Unreadable, match="it was erased"):
        shop.supervisor.result(job.id)


def test_erase_twice(shop: Shop) -> None:
    """The second finds nothing, and logs nothing."""
    job = done(shop)
    shop.supervisor.erase(job.id, actor=ANN)
    with unchanged(shop, job.id):
        assert not shop.supervisor.erase(job.id, actor=ANN).changed


def test_erase_leaves_what_is_not_told(shop: Shop) -> None:
    """What Celery is to be told is among the values; once no teller tries any more, they may go."""
    job = shop.ended(State.COMPLETED)
    with unchanged(shop, job.id), pytest.raises(Conflict) as refused:
        shop.supervisor.erase(job.id, actor=ANN)
    assert (refused.value.code, refused.value.state) == ("not_told", State.COMPLETED)
    execute(shop, "UPDATE supervise.jobs SET settle_tries = 100 WHERE id = :id", id=job.id)
    assert shop.supervisor.erase(job.id, actor=ANN).changed


def test_erase_of_another(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """A foreign job is told as one that does not exist, and keeps its values."""
    job = done(shop, owner_id="ann")
    erasures: list[Callable[[], object]] = [
        lambda: shop.supervisor.erase(job.id, actor=ANN, owner="bob"),
        lambda: open_shop(namespace="second").supervisor.erase(job.id, actor=ANN),
        lambda: shop.supervisor.erase("a\0b", actor=ANN),
    ]
    for erase in erasures:
        with unchanged(shop, job.id), pytest.raises(JobNotFound):
            erase()


def test_erase_of_an_owner(shop: Shop, open_shop: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch) -> None:
    """All ended jobs of this owner, in batches; what has not ended is counted, what is of others stays."""
    monkeypatch.setattr(retention, "BATCH", 2)
    ended = [done(shop, sorted(TERMINAL)[number % 4], owner_id="ann").id for number in range(5)]
    others = [shop.running(owner_id="ann").lease.job_id, done(shop, owner_id="bob").id, done(shop).id]
    second = open_shop(namespace="second")
    foreign = done(second, owner_id="ann").id
    assert shop.supervisor.erase_owner("ann", actor=ANN) == Erased(5, left=1)
    assert [shop.job(job_id).erased_at is not None for job_id in (*ended, *others)] == [True] * 5 + [False] * 3
    assert second.job(foreign).erased_at is None
    assert shop.supervisor.erase_owner("nobody", actor=ANN) == Erased(0, left=0)


def test_erase_of_an_owner_goes_past_a_job_that_is_held(open_shop: Callable[..., Shop]) -> None:
    """It is counted as left."""
    shop = open_shop(lock_timeout=timedelta(milliseconds=50))
    held, free = done(shop, owner_id="ann"), done(shop, owner_id="ann")
    with row_held(shop.engine, "jobs", "id", held.id):
        assert shop.supervisor.erase_owner("ann", actor=ANN) == Erased(1, left=1)
    assert (shop.job(held.id).erased_at is None, shop.job(free.id).erased_at is None) == (True, False)


def test_checkpoints_and_answers_of_an_erased_job(shop: Shop) -> None:
    """What steps saved and people said is gone; what was asked and passed, by name, is still known."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, stored("[1]"))
    holding.complete(stored("1"))
    job = shop.job(holding.lease.job_id)
    mark_settled(shop.door, [Told(job.id, job.settle_id)], actor="relay")
    shop.supervisor.erase(job.id, actor=ANN)
    assert list(queries.nodes(shop.door, job.id, job.run_id)) == ["load"]
    assert queries.values(shop.door, job.id, job.run_id, ["load"]) == {"load": None}
