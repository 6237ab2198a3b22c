"""Jobs of older code that newer code takes over: what they remember changes with their version, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise import queries, versions
from celery_supervise.errors import DatabaseUnavailable, InvalidInput, LeaseLost
from celery_supervise.lifecycle import State
from celery_supervise.migrating import Memories, OldJob, claim_migrated
from celery_supervise.model import Job, Lease, Moved, NodeKind
from celery_supervise.options import Options
from celery_supervise.relay import Told, mark_settled
from celery_supervise.remembered import Migration, Remembered
from celery_supervise.reports import TIME_LIMIT
from celery_supervise.sweeps import SHELVING
from tests.postgres.looking import backdate, execute, unchanged
from tests.postgres.shop import Shop, failure, new_question, stored

LONG = timedelta(days=1)
ACTOR = "worker:w"


def begun(shop: Shop) -> Job:
    """A job of version 1 that has come some way, waiting for a worker."""
    holding = shop.running()
    for node, value in (("load", "[1, 2]"), ("sum", "3"), ("old", '"x"')):
        holding.checkpoint(node, NodeKind.STEP, stored(value))
    return shop.job(holding.hand_over().job_id)


def old(job: Job) -> OldJob:
    """The job as code of another version finds it."""
    return OldJob(job.id, job.task_version, job.run_id, job.node)


def taken_over(shop: Shop, job: Job, migration: Migration, *, version: int = 2) -> Lease | Moved | None:
    """Newer code has the job's message: the migration, then the claim."""
    assert job.ticket_id is not None
    changed = Memories(shop.door).migrated(old(job), migration)
    return claim_migrated(shop.door, old(job), job.ticket_id, shop.claimer, version=version, changed=changed)


def rearrange(memory: Remembered) -> None:
    """What newer code calls otherwise, has no more, and computes from what there is."""
    memory.rename("load", "rows")
    memory.write("sum", memory.read("sum") * 10)
    memory.forget("old")
    memory.write("count", len(memory.read("rows")))


def remembers(shop: Shop, job: Job) -> dict[str, bytes]:
    """What the job's run remembers, in order."""
    names = list(queries.nodes(shop.door, job.id, job.run_id))
    found = queries.values(shop.door, job.id, job.run_id, names)
    return {name: value.data for name in names if (value := found[name])}


def test_the_job_goes_on_as_one_of_the_new_version(shop: Shop) -> None:
    """Names, values, the place reached, the size and the version, in the row, the attempt and the log."""
    job = begun(shop)
    lease = taken_over(shop, job, rearrange)
    assert isinstance(lease, Lease)
    assert remembers(shop, job) == {"rows": b"[1, 2]", "sum": b"30", "count": b"2"}
    now = shop.job(job.id)
    assert (now.state, now.task_version, now.node, now.run_id) == (State.RUNNING, 2, "sum", job.run_id)
    (row,) = execute(
        shop,
        "SELECT j.stored_bytes, a.task_version, a.checkpoint_ref FROM supervise.jobs AS j"
        " JOIN supervise.attempts AS a ON a.token = j.current_token WHERE j.id = :id",
        id=job.id,
    )
    size = len(b"[1, 2]") + len(b"30") + len(b"2")
    assert row == {"stored_bytes": size, "task_version": 2, "checkpoint_ref": "sum"}
    assert lease.stored_bytes == size
    entry = next(entry for entry in queries.entries(shop.door, job.id) if entry.event == "migrated")
    assert entry.data == {"from": 1, "to": 2, "renamed": {"load": "rows"}, "written": ["sum", "count"], "gone": ["old"]}
    shop.supervisor.holding(lease, worker="w").complete(stored("1"))


def test_names_may_be_exchanged(shop: Shop) -> None:
    """No order of renaming gets in the way."""

    def exchange(memory: Remembered) -> None:
        memory.rename("load", "?")
        memory.rename("sum", "load")
        memory.rename("?", "sum")

    job = begun(shop)
    assert isinstance(taken_over(shop, job, exchange), Lease)
    assert remembers(shop, job) == {"sum": b"[1, 2]", "load": b"3", "old": b'"x"'}


def test_what_is_new_comes_last_as_it_was_written(shop: Shop) -> None:
    """In this order a later migration finds it, before what the job itself saves next."""

    def writes(memory: Remembered) -> None:
        for name in ("zero", "one", "two"):
            memory.write(name, name)

    lease = taken_over(shop, begun(shop), writes)
    assert isinstance(lease, Lease)
    shop.supervisor.holding(lease, worker="w").checkpoint("again", NodeKind.STEP, stored("1"))
    assert list(remembers(shop, shop.job(lease.job_id))) == ["load", "sum", "old", "zero", "one", "two", "again"]


def test_answers_are_not_touched(shop: Shop) -> None:
    """What people said counts for the run, whatever its version."""
    question = shop.asked()
    shop.supervisor.answer(question.id, True, actor="user:ann")
    job = shop.job_of(question)
    assert isinstance(taken_over(shop, job, rearrange_nothing), Lease)
    assert list(shop.supervisor.answers(job.id)) == ["approve"]


def rearrange_nothing(_: Remembered) -> None:
    """As it was."""


def test_what_is_gone_is_kept_aside_and_erased_with_the_rest(shop: Shop) -> None:
    """Operators find what the older code had saved, until it is erased."""
    job = begun(shop)
    lease = taken_over(shop, job, rearrange)
    assert isinstance(lease, Lease)
    aside = "SELECT node, data FROM supervise.checkpoints WHERE job_id = :id AND run_id <> :run ORDER BY node"
    kept = {row["node"]: bytes(row["data"]) for row in execute(shop, aside, id=job.id, run=job.run_id)}
    assert kept == {"old": b'"x"', "sum": b"3"}
    shop.supervisor.holding(lease, worker="w").complete(stored("1"))
    mark_settled(shop.door, [Told(job.id, shop.job(job.id).settle_id)], actor="relay")
    shop.supervisor.erase(job.id, actor="user:ann")
    assert {row["data"] for row in execute(shop, aside, id=job.id, run=job.run_id)} == {None}


@pytest.mark.parametrize("call", ["pause", "cancel"])
def test_a_job_that_does_not_start_is_not_migrated(shop: Shop, call: str) -> None:
    """It is judged as at any claim, and stays what it was."""
    job = begun(shop)
    getattr(shop.supervisor, call)(job.id, actor="user:ann")
    moved = taken_over(shop, job, rearrange)
    assert not isinstance(moved, Lease)
    assert shop.job(job.id).task_version == 1
    assert list(remembers(shop, job)) == ["load", "sum", "old"]


def test_of_two_workers_one_takes_it_over(shop: Shop) -> None:
    """Both have run the migration; what the slower one has made of it is nothing."""
    job = begun(shop)
    assert job.ticket_id is not None
    slower = Memories(shop.door).migrated(old(job), rearrange_nothing)
    assert isinstance(taken_over(shop, job, rearrange), Lease)
    assert claim_migrated(shop.door, old(job), job.ticket_id, shop.claimer, version=2, changed=slower) is None
    assert list(remembers(shop, job)) == ["rows", "sum", "count"]


def test_what_was_saved_since_the_migration_read_it_refuses_its_claim(shop: Shop) -> None:
    """An attempt that came between has used the ticket up."""
    job = begun(shop)
    assert job.ticket_id is not None
    stale = Memories(shop.door).migrated(old(job), rearrange)
    holding = shop.hold(job.id)
    holding.checkpoint("more", NodeKind.STEP, stored("4"))
    holding.hand_over()
    assert claim_migrated(shop.door, old(job), job.ticket_id, shop.claimer, version=2, changed=stale) is None
    assert list(remembers(shop, job)) == ["load", "sum", "old", "more"]


def test_a_late_attempt_of_older_code_is_refused(shop: Shop) -> None:
    """Fenced by its token as ever: it cannot save under the old names what the new code has renamed."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, stored("[1, 2]"))
    shop.reap_now(holding.lease.job_id)
    assert isinstance(taken_over(shop, shop.job(holding.lease.job_id), rearrange_nothing), Lease)
    with pytest.raises(LeaseLost):
        holding.checkpoint("load", NodeKind.STEP, stored("[]"))


def refused(shop: Shop, *, by: int = 2) -> Job:
    """A job of version 1 whose migration by this code raised, for longer than the grace."""
    job = begun(shop)
    assert job.ticket_id is not None
    assert versions.leave(shop.door, job.id, job.ticket_id, versions=(by,), version=by, why="ValueError")
    backdate(shop, job.id, "incompatible_since", by=LONG)
    assert len(shop.sweep(SHELVING).moved) == 1
    return shop.job(job.id)


def test_a_refusal_is_told_and_not_tried_for_ever(shop: Shop) -> None:
    """Parked with what its migration raised; the same version does not take it up again by itself, another does."""
    job = refused(shop)
    assert job.stop_reason == "incompatible_version:1->2:ValueError"
    assert "its migration raised ValueError" in shop.supervisor.why(job.id).sentence
    migrate = {1: rearrange_nothing}
    assert versions.take_up(shop.door, {"shop.task": Options(version=2, migrate=migrate)}) == []
    (taken,) = versions.take_up(shop.door, {"shop.task": Options(version=3, migrate=migrate)})
    assert taken.job_id == job.id


async def asynchronously(memory: Remembered) -> None:
    """Does nothing where it is called."""
    memory.forget("load")


def instead(memory: Remembered) -> Any:
    """Gives back what it should have written."""
    return {"rows": memory.names}


@pytest.mark.parametrize("migration", [asynchronously, instead], ids=lambda function: function.__name__)
def test_a_function_that_gives_something_back_has_changed_nothing(shop: Shop, migration: Callable[..., Any]) -> None:
    """It is refused: the job would go on as one of the new version, with nothing migrated, and do its steps again."""
    job = begun(shop)
    with pytest.raises(InvalidInput, match="must return None"):
        Memories(shop.door).migrated(old(job), migration)
    (stranded,) = versions.preflight(
        shop.door, {"shop.task": Options(version=2, migrate={1: migration})}, [], Memories(shop.door)
    )
    assert "must return None" in stranded.why


def leaves(_: Remembered) -> None:
    """As a script's main function might."""
    raise SystemExit(0)


def test_preflight_outlives_a_function_that_exits(shop: Shop) -> None:
    """Its exit code is not the function's: a rollout would go on."""
    begun(shop)
    options = Options(version=2, migrate={1: leaves})
    (stranded,) = versions.preflight(shop.door, {"shop.task": options}, [], Memories(shop.door))
    assert stranded.why == "its migration raises SystemExit: 0"


def test_preflight_blames_no_function_for_the_database(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, as with any other read."""
    begun(shop)

    def away(*_: Any) -> Any:
        raise DatabaseUnavailable("connection refused")

    monkeypatch.setattr("celery_supervise.migrating.queries.nodes", away)
    with pytest.raises(DatabaseUnavailable):
        versions.preflight(
            shop.door, {"shop.task": Options(version=2, migrate={1: rearrange})}, [], Memories(shop.door)
        )


def test_a_time_limit_during_a_migration_fails_no_job(shop: Shop) -> None:
    """The job is left already, and is parked after the grace, with what became of its migration."""
    job = begun(shop)
    assert job.ticket_id is not None
    assert versions.leave(shop.door, job.id, job.ticket_id, versions=(2,), version=2, migrates=(1,))
    with unchanged(shop, job.id):
        assert not shop.supervisor.fail_waiting(job.id, job.ticket_id, failure(), reason=TIME_LIMIT, actor=ACTOR)
    backdate(shop, job.id, "incompatible_since", by=LONG)
    shop.sweep(SHELVING)
    assert shop.job(job.id).stop_reason == "incompatible_version:1->2:tried"


def test_a_version_without_a_function_is_not_called_tried(shop: Shop) -> None:
    """Only those whose migration was begun are; this one any code that can run it may take up."""
    job = begun(shop)
    assert job.ticket_id is not None
    assert versions.leave(shop.door, job.id, job.ticket_id, versions=(3,), version=3, migrates=(2,))
    backdate(shop, job.id, "incompatible_since", by=LONG)
    shop.sweep(SHELVING)
    assert shop.job(job.id).stop_reason == "incompatible_version:1->3"


def test_a_person_may_have_it_tried_again(shop: Shop) -> None:
    """Once its function is put right: resume, and the next worker of that version takes it over."""
    job = refused(shop)
    shop.supervisor.resume(job.id, actor="user:ann")
    assert isinstance(taken_over(shop, shop.job(job.id), rearrange), Lease)


def test_a_job_left_by_code_without_a_migration_is_taken_up_once_it_has_one(shop: Shop) -> None:
    """The reason then names no error."""
    job = begun(shop)
    assert job.ticket_id is not None
    assert versions.leave(shop.door, job.id, job.ticket_id, versions=(2,), version=2)
    backdate(shop, job.id, "incompatible_since", by=LONG)
    shop.sweep(SHELVING)
    (taken,) = versions.take_up(shop.door, {"shop.task": Options(version=2, migrate={1: rearrange})})
    assert taken.job_id == job.id


def needs_rows(memory: Remembered) -> None:
    """Cannot do without."""
    memory.read("load")


@pytest.mark.parametrize(("migration", "strands"), [(rearrange_nothing, 0), (needs_rows, 2)])
def test_preflight_tries_each_migration(shop: Shop, migration: Callable[[Remembered], None], strands: int) -> None:
    """Those that raise are listed with what they raise, by state; nothing is changed."""
    begun(shop)
    empty, waiting = shop.pending(), shop.asked(question=new_question())
    found = versions.preflight(
        shop.door, {"shop.task": Options(version=2, migrate={1: migration})}, [], Memories(shop.door)
    )
    assert len(found) == strands
    if strands:
        assert {one.unfinished.ids for one in found} == {(empty.id,), (shop.job_of(waiting).id,)}
        assert all(one.why.startswith("its migration raises InvalidInput: ") for one in found)
    assert shop.job(empty.id).task_version == 1


def test_code_of_the_old_version_leaves_what_is_migrated(shop: Shop) -> None:
    """After a roll-back it waits for code that can run it, or for one with a way back."""
    lease = taken_over(shop, begun(shop), rearrange)
    assert isinstance(lease, Lease)
    shop.supervisor.holding(lease, worker="w").hand_over()
    job = shop.job(lease.job_id)
    assert job.ticket_id is not None
    assert shop.supervisor.claim(job.id, job.ticket_id, replace(shop.claimer, versions=(1,))) is None
    back = taken_over(shop, job, lambda memory: memory.rename("rows", "load"), version=1)
    assert isinstance(back, Lease)
    assert shop.job(job.id).task_version == 1
