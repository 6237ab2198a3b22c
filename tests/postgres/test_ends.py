"""The ends of an attempt: complete, fail, retry, hand over; each once, each with its payload and its ticket."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from celery_supervise import queries
from celery_supervise.errors import LeaseLost
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Failure, Moved, NodeKind
from tests.postgres.looking import backdate, last_entry, row, rows, unchanged, watching
from tests.postgres.shop import LEASE, Shop, failure, retry, stored

HOUR = timedelta(hours=1)


# --- complete --------------------------------------------------------------------------------------------


def test_complete_publishes_the_result(shop: Shop) -> None:
    """Result, state, end of the attempt and the debt to tell Celery are one commit."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = holding.complete(stored('"done"'))
    assert (moved.state, moved.settle_id, moved.stop_reason) == (State.COMPLETED, holding.lease.token, None)
    assert (seen.generation, seen.events) == (1, ["completed"])
    assert (seen.entries[0].actor, seen.entries[0].data["size"]) == ("worker:worker@test", 6)
    job, (attempt,) = shop.job(job_id), shop.supervisor.attempts(job_id)
    assert (job.finished_at, job.current_token, job.ticket_id) == (seen.entries[0].at, None, None)
    assert (attempt.outcome, attempt.ended_at) == ("completed", job.finished_at)
    assert queries.payload(shop.door, job_id, "result") == stored('"done"')
    assert row(shop, job_id)["settle_due_at"] == seen.entries[0].at + LEASE


def test_complete_without_a_result(shop: Shop) -> None:
    """A result that nobody wants is not stored."""
    holding = shop.running(ignore_result=True)
    holding.complete(None)
    assert queries.payload(shop.door, holding.lease.job_id, "result") is None
    assert shop.supervisor.result(holding.lease.job_id) is None


def test_a_repeated_complete_is_told_the_outcome(shop: Shop) -> None:
    """The same attempt completes again, its first reply lost: nothing changes, the outcome is the same."""
    holding = shop.running()
    first = holding.complete(stored('"done"'))
    with unchanged(shop, holding.lease.job_id):
        again = holding.complete(stored('"done"'))
    assert (again.state, again.settle_id, again.generation) == (State.COMPLETED, first.settle_id, first.generation)
    assert (first.changed, again.changed) == (True, False)


def test_a_repeated_complete_after_a_judgement_is_told_that(shop: Shop) -> None:
    """What the first call was judged to be is what the second one hears."""
    holding = shop.running()
    shop.supervisor.cancel(holding.lease.job_id, actor="user:ann")
    holding.complete(stored('"done"'))
    with unchanged(shop, holding.lease.job_id):
        assert holding.complete(stored('"done"')).state is State.CANCELLED


@pytest.mark.parametrize(("column", "reason"), [("expires_at", "deadline"), ("active_until", "max_active")])
def test_a_result_after_its_time_is_rejected(shop: Shop, column: str, reason: str) -> None:
    """The job's time was over: expired, with the reason; the result is kept apart, under the attempt."""
    holding = shop.running(deadline=HOUR, max_active=HOUR)
    job_id = holding.lease.job_id
    backdate(shop, job_id, column)
    moved = holding.complete(stored('"late"'))
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, f"expired:{reason}")
    (kept,) = [one for one in rows(shop, "payloads", job_id) if one["kind"] != "envelope"]
    assert (kept["kind"], kept["ref"], bytes(kept["data"])) == ("rejected", holding.lease.token, b'"late"')


def test_a_pause_does_not_stop_a_finish(shop: Shop) -> None:
    """Only claim, checkpoint and ask obey a pause: a body that is done is done."""
    holding = shop.running()
    shop.supervisor.pause(holding.lease.job_id, actor="user:ann")
    assert holding.complete(None).state is State.COMPLETED


# --- fail ------------------------------------------------------------------------------------------------


def test_fail_keeps_the_diagnosis(shop: Shop) -> None:
    """Error, cause, traceback and reason are kept where an operator finds them; the log has the type only."""
    holding = shop.running()
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = holding.fail(failure("no money"), reason="permanent")
    assert (moved.state, moved.stop_reason) == (State.FAILED, "permanent")
    assert (seen.generation, seen.events) == (1, ["failed"])
    assert seen.entries[0].data["error"] == "shop.Broken"
    (attempt,) = shop.supervisor.attempts(job_id)
    assert (attempt.outcome, attempt.cause) == ("failed", "shop.Broken: no money")
    assert rows(shop, "attempts", job_id)[0]["traceback"] == "Traceback …"
    assert queries.payload(shop.door, job_id, "error") == stored('"no money"')


def test_a_long_error_is_cut(shop: Shop) -> None:
    """A message of megabytes does not go into the attempt's row."""
    holding = shop.running()
    holding.fail(Failure("shop.Broken", "x" * 100_000))
    cause = shop.supervisor.attempts(holding.lease.job_id)[0].cause
    assert cause is not None
    assert len(cause) == 2000


def test_s66_an_error_with_nul_is_kept(shop: Shop) -> None:
    """A message that Postgres cannot keep as it is still fails the job, and nothing else."""
    holding = shop.running()
    moved = holding.fail(Failure("shop.Broken", "a\0b \ud800", None, "trace\0back"))
    assert moved.state is State.FAILED
    (attempt,) = rows(shop, "attempts", holding.lease.job_id)
    assert (attempt["cause"], attempt["traceback"]) == (r"shop.Broken: a\x00b \ud800", r"trace\x00back")


# --- retry -----------------------------------------------------------------------------------------------


def test_retry_waits_in_the_row(shop: Shop) -> None:
    """Back to pending with a ticket that is due later: no countdown sits in the broker."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.broker.flush()
    with watching(shop, job_id) as seen:
        moved = holding.retry(retry(HOUR), failure("busy"))
    assert (moved.state, moved.ticket_id, moved.stop_reason) == (State.PENDING, None, None)
    assert (seen.generation, seen.events) == (1, ["retry_scheduled"])
    at = seen.entries[0].at
    job = shop.job(job_id)
    assert job.starts_at == at + HOUR
    assert datetime.fromisoformat(seen.entries[0].data["due"]) == job.starts_at
    assert row(shop, job_id)["ticket_released_at"] is None
    assert queries.payload(shop.door, job_id, "envelope") == retry().envelope
    assert shop.supervisor.attempts(job_id)[0].outcome == "retried"
    assert shop.broker.messages == []
    assert shop.claim(job_id) is None


def test_a_retry_that_is_due_now_can_be_sent_now(shop: Shop) -> None:
    """A ticket that is due at once is given to the caller to publish."""
    holding = shop.running()
    moved = holding.retry(retry(), failure())
    assert moved.ticket_id == shop.job(holding.lease.job_id).ticket_id is not None
    assert shop.hold(holding.lease.job_id).lease.number == 2


def test_a_retry_at_a_moment(shop: Shop) -> None:
    """An absolute time is that instant; one in the past is now."""
    holding = shop.running()
    moment = datetime(2031, 1, 1, tzinfo=timezone.utc)
    holding.retry(retry(moment), None)
    assert shop.job(holding.lease.job_id).starts_at == moment
    other = shop.running()
    assert other.retry(retry(datetime(2020, 1, 1, tzinfo=timezone.utc)), None).ticket_id is not None


def test_a_retry_keeps_what_was_decided(shop: Shop) -> None:
    """With the same input it is the same run: checkpoints and answers hold."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    holding = shop.hold(job_id)
    holding.checkpoint("load", NodeKind.STEP, stored("1"))
    holding.retry(retry(), failure())
    again = shop.hold(job_id)
    assert again.lease.run_id == holding.lease.run_id
    assert list(queries.nodes(shop.door, job_id, again.lease.run_id)) == ["load"]
    assert list(shop.supervisor.answers(job_id)) == ["approve"]
    assert shop.job(job_id).node == "load"


def test_a_retry_with_other_input_is_a_new_run(shop: Shop) -> None:
    """What was approved for the old arguments is not approved for the new ones: all is asked again."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor="user:ann")
    holding = shop.hold(job_id)
    holding.retry(retry(digest="other"), failure())
    again = shop.hold(job_id)
    assert again.lease.run_id != holding.lease.run_id
    assert shop.supervisor.answers(job_id) == {}
    assert row(shop, job_id)["input_digest"] == "other"
    holding_again = again.ask(question.__class__(**{**vars(question), "id": again.lease.run_id}), ttl=HOUR)
    assert holding_again.state is State.PARKED


def test_a_retry_after_the_deadline_expires(shop: Shop) -> None:
    """No retry is scheduled for a job whose time is over."""
    holding = shop.running(deadline=HOUR)
    backdate(shop, holding.lease.job_id, "expires_at")
    assert holding.retry(retry(HOUR), failure()).stop_reason == "expired:deadline"
    assert queries.payload(shop.door, holding.lease.job_id, "envelope") == stored()


# --- hand over -------------------------------------------------------------------------------------------


def test_hand_over_gives_the_job_to_another_worker(shop: Shop) -> None:
    """Back to pending, due at once; the next attempt goes on at the last checkpoint."""
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.checkpoint("half", NodeKind.STEP, stored("1"))
    with watching(shop, job_id) as seen:
        moved = holding.hand_over()
    assert (moved.state, moved.ticket_id) == (State.PENDING, shop.job(job_id).ticket_id)
    assert (seen.generation, seen.events) == (1, ["handed_over"])
    assert seen.entries[0].data["node"] == "half"
    assert shop.supervisor.attempts(job_id)[0].outcome == "handed_over"
    assert shop.job(job_id).lost_count == 0
    assert shop.hold(job_id).lease.number == 2


# --- all of them -----------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Holding], Moved]] = {
    "complete": lambda h: h.complete(stored('"x"')),
    "fail": lambda h: h.fail(failure()),
    "retry": lambda h: h.retry(retry(HOUR), failure()),
    "hand_over": lambda h: h.hand_over(),
}


@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("first", ENDS)
def test_an_attempt_ends_once(shop: Shop, first: str, second: str) -> None:
    """After an end the same call is told it, any other is refused as stale: the first end stands."""
    holding = shop.running()
    job_id = holding.lease.job_id
    ended = ENDS[first](holding)
    before = row(shop, job_id)
    if first == second:
        again = ENDS[second](holding)
        assert (again.state, again.changed) == (ended.state, False)
        assert row(shop, job_id) == before
    else:
        with watching(shop, job_id) as seen, pytest.raises(LeaseLost) as refused:
            ENDS[second](holding)
        assert (seen.events, refused.value.state) == (["refused"], ended.state)
        assert row(shop, job_id) == {**before, "log_seq": before["log_seq"] + 1}
    assert last_entry(shop, job_id).event in ("refused", *shop.events(job_id))


@pytest.mark.parametrize("call", ENDS)
def test_a_stale_attempt_ends_nothing(shop: Shop, call: str) -> None:
    """An attempt whose lease was taken cannot end the job that another one runs."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.reap_now(job_id)
    current = shop.hold(job_id)
    with watching(shop, job_id) as seen, pytest.raises(LeaseLost):
        ENDS[call](holding)
    assert (seen.generation, seen.events) == (0, ["refused"])
    assert current.complete(stored('"won"')).state is State.COMPLETED
    assert queries.payload(shop.door, job_id, "result") == stored('"won"')


# --- reports from the parent side ------------------------------------------------------------------------


def test_a_report_by_ticket_fails_a_job_that_waits(shop: Shop) -> None:
    """Celery refused a message that was never claimed: its ticket is the right to say so, once."""
    job = shop.pending()
    assert job.ticket_id is not None
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.fail_waiting(job.id, job.ticket_id, failure(), reason="undecodable", actor="worker:w")
    assert moved is not None
    assert (moved.state, moved.stop_reason) == (State.FAILED, "undecodable")
    assert (seen.generation, seen.events) == (1, ["failed"])
    assert queries.payload(shop.door, job.id, "error") == failure().stored
    with unchanged(shop, job.id):
        again = shop.supervisor.fail_waiting(job.id, job.ticket_id, failure(), reason="x", actor="worker:w")
    assert again is None


def test_a_report_by_an_old_ticket_does_nothing(shop: Shop) -> None:
    """A report about an earlier message does not touch the job that goes on."""
    job = shop.pending()
    assert job.ticket_id is not None
    shop.hold(job.id).hand_over()
    with unchanged(shop, job.id):
        assert shop.supervisor.fail_waiting(job.id, job.ticket_id, failure(), reason="x", actor="worker:w") is None


def test_a_report_after_the_deadline_is_an_expiry(shop: Shop) -> None:
    """Judged like every end: the time was over first, and the error is kept as a rejected one."""
    job = shop.pending(deadline=HOUR)
    assert job.ticket_id is not None
    backdate(shop, job.id, "expires_at")
    moved = shop.supervisor.fail_waiting(job.id, job.ticket_id, failure(), reason="x", actor="worker:w")
    assert moved is not None
    assert (moved.state, moved.stop_reason) == (State.EXPIRED, "expired:deadline")
    assert queries.payload(shop.door, job.id, "error") is None
    assert queries.payload(shop.door, job.id, "rejected") == failure().stored
