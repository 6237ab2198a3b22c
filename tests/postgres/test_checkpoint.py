"""Checkpoints: saved once, judged at the same moment, fenced by the attempt's token; progress beside them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy as sa

from celery_supervise import queries
from celery_supervise.errors import LeaseLost
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import NodeKind
from celery_supervise.store.leases import ask_hand_over
from tests.postgres.looking import backdate, execute, last_entry, row, rows, unchanged, watching
from tests.postgres.shop import Shop, retry, stored

HOUR = timedelta(hours=1)


def saved(shop: Shop, holding: Holding, node: str) -> str | None:
    """What the journal has for a node."""
    value = queries.values(shop.door, holding.lease.job_id, holding.lease.run_id, [node])[node]
    return value.data.decode() if value else None


def test_a_checkpoint_is_durable(shop: Shop) -> None:
    """Value, node, progress and log entry are there when it returns; the generation has not moved."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = holding.checkpoint("load", NodeKind.STEP, stored("[1, 2]"))
    assert (moved.state, moved.changed, moved.hand_over) == (State.RUNNING, True, False)
    assert (seen.generation, seen.events) == (0, ["checkpoint"])
    assert seen.entries[0].data == {"node": "load", "size": 6}
    assert saved(shop, holding, "load") == "[1, 2]"
    job = shop.job(job_id)
    assert (job.node, job.progress_seq) == ("load", 1)
    assert job.progress_at == seen.entries[0].at
    assert row(shop, job_id)["stored_bytes"] == 6


def test_a_checkpoint_without_a_value(shop: Shop) -> None:
    """A place passed without bindings is remembered as such."""
    holding = shop.running()
    holding.checkpoint("here", NodeKind.CHECKPOINT, None)
    assert saved(shop, holding, "here") is None
    node = queries.nodes(shop.door, holding.lease.job_id, holding.lease.run_id)["here"]
    assert (node.kind, node.size, node.attempt_token) == (NodeKind.CHECKPOINT, 0, holding.lease.token)


def test_the_same_node_replaces_its_row(shop: Shop) -> None:
    """A durable loop has one row, whose place in the order is where it first came."""
    holding = shop.running()
    holding.checkpoint("loop", NodeKind.EACH, stored("1"))
    holding.checkpoint("after", NodeKind.STEP, stored("x"))
    holding.checkpoint("loop", NodeKind.EACH, stored("12345"))
    assert saved(shop, holding, "loop") == "12345"
    assert list(queries.nodes(shop.door, holding.lease.job_id, holding.lease.run_id)) == ["loop", "after"]
    assert row(shop, holding.lease.job_id)["stored_bytes"] == 6


def test_a_repeated_node_is_logged_seldom(shop: Shop) -> None:
    """A loop over thousands of items logs its node at most once in ten seconds, and saves each time."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        for number in range(5):
            holding.checkpoint("loop", NodeKind.EACH, stored(str(number)))
    assert seen.events == ["checkpoint"]
    assert saved(shop, holding, "loop") == "4"
    assert shop.job(job_id).progress_seq == 5
    execute(
        shop,
        "UPDATE supervise.checkpoints SET logged_at = logged_at - interval '10 s' WHERE job_id = :id",
        id=job_id,
    )
    with watching(shop, job_id) as seen:
        holding.checkpoint("loop", NodeKind.EACH, stored("5"))
        holding.checkpoint("loop", NodeKind.EACH, stored("6"))
    assert seen.events == ["checkpoint"]


def test_a_checkpoint_renews_the_lease(shop: Shop) -> None:
    """Whoever saves is alive."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, None)
    (attempt,) = shop.supervisor.attempts(holding.lease.job_id)
    assert attempt.lease_until > holding.lease.lease_until
    assert attempt.heartbeat_at > attempt.started_at
    assert attempt.checkpoint_ref == "load"


def test_a_stage_begins_with_its_node(shop: Shop) -> None:
    """Saving the same node again is progress within a stage; another node is the next one."""
    holding = shop.running()
    job_id = holding.lease.job_id
    begun = []
    for node in ("load", "load", "pay"):
        holding.checkpoint(node, NodeKind.EACH, None)
        begun.append(row(shop, job_id)["stage_at"])
    assert begun[0] == begun[1] < begun[2] == shop.job(job_id).progress_at
    holding.hand_over()
    shop.hold(job_id)
    assert row(shop, job_id)["stage_at"] > begun[2]


# --- judged ----------------------------------------------------------------------------------------------


def test_a_pause_is_obeyed_at_a_checkpoint(shop: Shop) -> None:
    """The step that was running is saved, then the job is parked, in one commit; its log has both, in order."""
    holding = shop.running()
    job_id = holding.lease.job_id
    asked = shop.supervisor.pause(job_id, actor="user:ann")
    assert (asked.state, asked.pause_requested) == (State.RUNNING, True)
    with watching(shop, job_id) as seen:
        moved = holding.checkpoint("third", NodeKind.STEP, stored("3"))
    assert (moved.state, moved.stop_reason) == (State.PARKED, "user_paused")
    assert (seen.generation, seen.events) == (1, ["checkpoint", "parked"])
    assert saved(shop, holding, "third") == "3"
    job = shop.job(job_id)
    assert (job.pause_requested_at, job.current_token, job.ticket_id) == (None, None, None)
    (attempt,) = shop.supervisor.attempts(job_id)
    assert (attempt.outcome, attempt.ended_at) == ("parked", seen.entries[1].at)


def test_a_cancel_is_obeyed_at_a_checkpoint(shop: Shop) -> None:
    """What was done is saved and readable; the job is cancelled, and somebody owes Celery the news."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor="user:ann")
    with watching(shop, job_id) as seen:
        moved = holding.checkpoint("third", NodeKind.STEP, stored("3"))
    assert (moved.state, moved.settle_id) == (State.CANCELLED, holding.lease.token)
    assert (seen.generation, seen.events) == (1, ["checkpoint", "cancelled"])
    assert saved(shop, holding, "third") == "3"
    assert shop.supervisor.attempts(job_id)[0].outcome == "cancelled"


@pytest.mark.parametrize(("column", "reason"), [("expires_at", "deadline"), ("active_until", "max_active")])
def test_time_is_obeyed_at_a_checkpoint(shop: Shop, column: str, reason: str) -> None:
    """Deadline and running time are judged at each checkpoint; the reason tells them apart."""
    holding = shop.running(deadline=HOUR, max_active=HOUR)
    job_id = holding.lease.job_id
    backdate(shop, job_id, column)
    with watching(shop, job_id) as seen:
        moved = holding.checkpoint("third", NodeKind.STEP, stored("3"))
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, f"expired:{reason}")
    assert (seen.generation, seen.events) == (1, ["checkpoint", "expired"])
    assert saved(shop, holding, "third") == "3"


def test_the_order_of_judgement(shop: Shop) -> None:
    """All at once: the cancel wins over the time, as everywhere."""
    holding = shop.running(deadline=HOUR)
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor="user:ann")
    shop.supervisor.cancel(job_id, actor="user:ann")
    backdate(shop, job_id, "expires_at")
    assert holding.checkpoint("x", NodeKind.STEP, None).state is State.CANCELLED


def test_a_judged_checkpoint_that_is_not_logged_again(shop: Shop) -> None:
    """A loop's node that was logged a moment ago, at which a pause is seen: one entry, and no gap."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.checkpoint("loop", NodeKind.EACH, stored("1"))
    shop.supervisor.pause(job_id, actor="user:ann")
    with watching(shop, job_id) as seen:
        holding.checkpoint("loop", NodeKind.EACH, stored("2"))
    assert seen.events == ["parked"]
    assert saved(shop, holding, "loop") == "2"


def test_a_checkpoint_tells_that_the_worker_is_leaving(shop: Shop) -> None:
    """The flag of the hand-over is on the attempt; the checkpoint returns it and moves nothing itself."""
    holding = shop.running()
    ask_hand_over(shop.door, shop.claimer.incarnation)
    with watching(shop, holding.lease.job_id) as seen:
        moved = holding.checkpoint("x", NodeKind.STEP, None)
    assert (moved.state, moved.hand_over) == (State.RUNNING, True)
    assert seen.events == ["checkpoint"]


def test_a_pause_goes_before_a_hand_over(shop: Shop) -> None:
    """A job that is paused while its worker leaves is parked, not handed to another one."""
    holding = shop.running()
    ask_hand_over(shop.door, shop.claimer.incarnation)
    shop.supervisor.pause(holding.lease.job_id, actor="user:ann")
    assert holding.checkpoint("x", NodeKind.STEP, None).state is State.PARKED


def test_judge_moves_without_saving(shop: Shop) -> None:
    """What is left after a joined transaction was rolled back: the job moves, no node is there."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        assert holding.judge().state is State.RUNNING
    assert (seen.generation, seen.events) == (0, [])
    shop.supervisor.pause(job_id, actor="user:ann")
    with watching(shop, job_id) as seen:
        assert holding.judge().state is State.PARKED
    assert (seen.generation, seen.events) == (1, ["parked"])
    assert rows(shop, "checkpoints", job_id) == []
    assert shop.job(job_id).node is None


# --- fenced ----------------------------------------------------------------------------------------------


def stale(shop: Shop) -> Holding:
    """An attempt whose job was lost and is now another's."""
    holding = shop.running()
    shop.reap_now(holding.lease.job_id)
    shop.hold(holding.lease.job_id)
    return holding


def test_s05_a_stale_checkpoint_changes_nothing(shop: Shop) -> None:
    """An attempt that lost its lease is refused: nothing is saved, the new attempt runs on, the log says so."""
    holding = stale(shop)
    job_id = holding.lease.job_id
    before = row(shop, job_id)
    with watching(shop, job_id) as seen, pytest.raises(LeaseLost) as lost:
        holding.checkpoint("late", NodeKind.STEP, stored("1"))
    assert lost.value.state == State.RUNNING
    assert (seen.generation, seen.events) == (0, ["refused"])
    assert seen.entries[0].data == {"why": "stale_attempt", "call": "checkpoint", "state": "running"}
    assert {**before, "log_seq": before["log_seq"] + 1} == row(shop, job_id)
    assert rows(shop, "checkpoints", job_id) == []


def test_a_refused_call_is_logged_after_the_end_too(shop: Shop) -> None:
    """A job that has ended logs the late attempt, and stays as it is."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.reap_now(job_id)
    shop.hold(job_id).complete(stored('"won"'))
    with watching(shop, job_id) as seen, pytest.raises(LeaseLost):
        holding.complete(stored('"lost"'))
    assert (seen.generation, seen.events) == (0, ["refused"])
    assert queries.payload(shop.door, job_id, "result") == stored('"won"')


def test_a_strangers_call_is_not_logged(shop: Shop) -> None:
    """A token that never was this job's is refused without a trace: only stale attempts are logged."""
    held, other = shop.running(), shop.running()
    forged = Holding(shop.door, held.lease.__class__(**{**vars(held.lease), "token": uuid4()}), worker="w")
    foreign = Holding(shop.door, held.lease.__class__(**{**vars(held.lease), "token": other.lease.token}), worker="w")
    for holding in (forged, foreign):
        with unchanged(shop, held.lease.job_id), pytest.raises(LeaseLost):
            holding.checkpoint("x", NodeKind.STEP, None)


def test_an_attempt_of_another_namespace_is_a_stranger(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """The token alone opens nothing: the statements are of one namespace."""
    holding = shop.running()
    second = Holding(open_shop(namespace="second").door, holding.lease, worker="w")
    with unchanged(shop, holding.lease.job_id), pytest.raises(LeaseLost):
        second.checkpoint("x", NodeKind.STEP, None)


# --- progress --------------------------------------------------------------------------------------------


def test_progress_is_shown(shop: Shop) -> None:
    """Numbers and words for people: no log entry, no generation, not judged; each part may be left out."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor="user:ann")
    with watching(shop, job_id) as seen:
        holding.progress(3, 10, "paying")
    job = shop.job(job_id)
    assert (job.progress_current, job.progress_total, job.progress_message) == (3, 10, "paying")
    assert (job.state, job.progress_seq) == (State.RUNNING, 1)
    assert (seen.generation, seen.events) == (0, [])
    holding.progress(None, None, None)
    assert shop.job(job_id).progress_current is None


def test_progress_of_a_stale_attempt_is_refused(shop: Shop) -> None:
    """A late attempt cannot show its own progress as the job's."""
    holding = stale(shop)
    with watching(shop, holding.lease.job_id) as seen, pytest.raises(LeaseLost):
        holding.progress(9, 9, "done")
    assert seen.events == ["refused"]
    assert last_entry(shop, holding.lease.job_id).data["call"] == "progress"
    assert shop.job(holding.lease.job_id).progress_message is None


# --- what it costs ---------------------------------------------------------------------------------------


def test_a_checkpoint_is_one_statement(shop: Shop) -> None:
    """The hot path is one round trip: no BEGIN, no COMMIT, nothing else."""
    holding = shop.running()
    holding.checkpoint("first", NodeKind.STEP, None)
    statements: list[str] = []
    sa.event.listen(shop.engine, "before_cursor_execute", lambda _c, _cur, statement, *_: statements.append(statement))
    holding.checkpoint("second", NodeKind.STEP, None)
    holding.complete(None)
    assert len(statements) == 2


def test_s92_checkpoints_and_heartbeats_are_hot(shop: Shop) -> None:
    """Neither touches an index of the job's or the attempt's row: dead tuples stay on their page."""
    holding = shop.running(deadline=HOUR, max_active=HOUR)
    before = updates(shop)
    for number in range(20):
        holding.checkpoint(f"node {number}", NodeKind.STEP, stored("1"))
        shop.beat(holding)
    after = updates(shop)
    for table, count in (("jobs", 20), ("attempts", 40)):
        assert after[table][0] - before[table][0] == count
        assert after[table][1] - before[table][1] >= count - 2, "but for a page that was full once"


def updates(shop: Shop) -> dict[str, tuple[int, int]]:
    """Updates and HOT updates of each table so far, by the statistics of this database."""
    execute(shop, "SELECT pg_stat_clear_snapshot()")
    found = execute(
        shop,
        "SELECT c.relname, pg_stat_get_tuples_updated(c.oid) + pg_stat_get_xact_tuples_updated(c.oid) AS updated,"
        " pg_stat_get_tuples_hot_updated(c.oid) + pg_stat_get_xact_tuples_hot_updated(c.oid) AS hot"
        " FROM pg_class AS c WHERE c.relnamespace = 'supervise'::regnamespace AND c.relname IN ('jobs', 'attempts')",
    )
    return {one["relname"]: (one["updated"], one["hot"]) for one in found}


def test_a_new_run_begins_with_nothing(shop: Shop) -> None:
    """A retry with other arguments is a new run: what was remembered for the old ones is not found."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    holding.retry(retry(digest="other input"), None)
    again = shop.hold(job_id)
    assert again.lease.run_id != holding.lease.run_id
    assert queries.nodes(shop.door, job_id, again.lease.run_id) == {}
    assert shop.job(job_id).node is None
    again.checkpoint("load", NodeKind.STEP, stored("2"))
    assert saved(shop, holding, "load") == "1"
    assert saved(shop, again, "load") == "2"
