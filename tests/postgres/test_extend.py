"""More time, before it is over: a job's deadline, a question's time. On the database's clock, never into the past."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from celery_supervise.errors import Conflict, InvalidInput, JobNotFound, QuestionClosed, QuestionNotFound
from celery_supervise.intake import LATEST
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NodeKind
from tests.postgres.looking import backdate, now, rows, unchanged, wait_until, watching
from tests.postgres.races import Call, in_order, row_held, waiter
from tests.postgres.shop import Shop, new_question, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
NAIVE = datetime(2099, 1, 1)  # noqa: DTZ001 - what is refused


# --- a job's deadline ------------------------------------------------------------------------------------


def test_a_span_is_added_to_the_deadline(shop: Shop) -> None:
    """`by` moves the deadline on, counts as a change, and is logged with what it was."""
    job = shop.pending(deadline=HOUR)
    assert job.deadline is not None
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
    assert (moved.changed, moved.state, moved.generation) == (True, State.PENDING, 2)
    assert shop.job(job.id).deadline == job.deadline + HOUR
    assert (seen.generation, seen.events, seen.entries[0].actor) == (1, ["extended"], ANN)
    said = seen.entries[0].data
    assert datetime.fromisoformat(said["deadline"]) - datetime.fromisoformat(said["was"]) == HOUR


def test_a_deadline_is_set_from_the_databases_now(shop: Shop) -> None:
    """A timedelta counts from now, an aware datetime is taken as it is; a job without a deadline gets one."""
    job = shop.pending()
    before = now(shop)
    shop.supervisor.extend(job.id, deadline=HOUR, actor=ANN)
    deadline = shop.job(job.id).deadline
    assert deadline is not None
    assert before + HOUR <= deadline <= now(shop) + HOUR
    there = datetime(2099, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    shop.supervisor.extend(job.id, deadline=there, actor=ANN)
    assert shop.job(job.id).deadline == there


def test_a_deadline_may_come_sooner(shop: Shop) -> None:
    """Moved to an earlier time that is still to come, it ends the job then."""
    job = shop.pending(deadline=HOUR)
    shop.supervisor.extend(job.id, deadline=timedelta(seconds=0.2), actor=ANN)
    sooner = shop.job(job.id).deadline
    assert sooner is not None
    wait_until(shop, sooner)
    assert [moved.job_id for moved in shop.expire().moved] == [job.id]


def test_the_deadline_that_it_has_changes_nothing(shop: Shop) -> None:
    """Asked twice for the same moment, the second call finds nothing to do."""
    job = shop.pending(deadline=HOUR)
    with unchanged(shop, job.id):
        assert not shop.supervisor.extend(job.id, deadline=job.deadline, actor=ANN).changed


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "deadline"),
        ({"deadline": HOUR, "by": HOUR}, "deadline"),
        ({"deadline": NAIVE}, "deadline"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"deadline": -HOUR}, "deadline"),
        ({"deadline": datetime(2020, 1, 1, tzinfo=timezone.utc)}, "deadline"),
        ({"deadline": datetime(9999, 12, 31, tzinfo=timezone.utc)}, "deadline"),
        ({"by": timedelta(0)}, "by"),
        ({"by": -HOUR}, "by"),
        ({"by": 3600}, "by"),
        ({"by": HOUR, "actor": ""}, "actor"),
    ],
)
def test_s44_what_is_no_time_to_come_is_refused(shop: Shop, given: dict[str, Any], field: str) -> None:
    """Neither or both, without a zone, past, beyond all calendars: refused by name, nothing is written."""
    job = shop.pending(deadline=HOUR)
    with unchanged(shop, job.id), pytest.raises(InvalidInput) as refused:
        shop.supervisor.extend(job.id, **{"actor": ANN, **given})
    assert refused.value.field == field


def test_a_span_needs_something_to_be_added_to(shop: Shop) -> None:
    """A job without a deadline, and a deadline that would leave the calendar, are told what to give instead."""
    job = shop.pending()
    with unchanged(shop, job.id), pytest.raises(InvalidInput, match="no deadline to add it to; say until when"):
        shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
    shop.supervisor.extend(job.id, deadline=LATEST, actor=ANN)
    with unchanged(shop, job.id), pytest.raises(InvalidInput, match="must end before"):
        shop.supervisor.extend(job.id, by=HOUR, actor=ANN)


def test_what_is_over_stays_so(shop: Shop) -> None:
    """Past its deadline a job gets no more time, though no sweep has come by; nor does it after its end."""
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    with unchanged(shop, job.id), pytest.raises(Conflict) as refused:
        shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
    assert (refused.value.code, refused.value.state) == ("expired", State.PENDING)
    shop.expire()
    with unchanged(shop, job.id), pytest.raises(Conflict) as final:
        shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
    assert (final.value.code, final.value.state) == ("already_final", State.EXPIRED)


def test_running_time_is_not_given_more(shop: Shop) -> None:
    """A deadline is not moved for a job whose running time is used up."""
    holding = shop.running(deadline=HOUR, max_active=HOUR)
    backdate(shop, holding.lease.job_id, "active_until")
    with unchanged(shop, holding.lease.job_id), pytest.raises(Conflict) as refused:
        shop.supervisor.extend(holding.lease.job_id, by=HOUR, actor=ANN)
    assert refused.value.code == "expired"
    assert holding.complete(None).stop_reason == "expired:max_active"


def test_a_body_that_runs_gets_the_new_deadline(shop: Shop) -> None:
    """The attempt is judged by the deadline that the row has, not by the one of its claim."""
    holding = shop.running(deadline=timedelta(seconds=0.3))
    job = shop.job(holding.lease.job_id)
    shop.supervisor.extend(job.id, by=HOUR, actor=ANN)
    assert job.deadline is not None
    wait_until(shop, job.deadline)
    assert shop.expire().moved == []
    assert holding.checkpoint("x", NodeKind.STEP, stored("1")).state is State.RUNNING
    assert holding.complete(None).state is State.COMPLETED


def test_a_stale_or_foreign_call_changes_nothing(shop: Shop) -> None:
    """An old generation is a conflict; what belongs to somebody else is not there."""
    job = shop.pending(deadline=HOUR, owner_id="acme")
    with unchanged(shop, job.id), pytest.raises(Conflict) as stale:
        shop.supervisor.extend(job.id, by=HOUR, actor=ANN, expected_generation=7)
    assert (stale.value.code, stale.value.expected, stale.value.actual) == ("stale_generation", 7, 1)
    for job_id, owner in ((job.id, "other"), (str(uuid4()), None), ("", None)):
        with unchanged(shop, job.id), pytest.raises(JobNotFound):
            shop.supervisor.extend(job_id, by=HOUR, actor=ANN, owner=owner)
    assert shop.supervisor.extend(job.id, by=HOUR, actor=ANN, owner="acme", expected_generation=1).generation == 2


# --- a question's time -----------------------------------------------------------------------------------


def test_a_question_stays_open_longer(shop: Shop) -> None:
    """Its time, what the job waits for, and its reminder move together; it can be answered until then."""
    question = shop.asked(question=new_question(remind_before=HOUR / 4))
    job, found = shop.job_of(question), shop.supervisor.question(question.id)
    with watching(shop, job.id) as seen:
        moved = shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN)
    assert (moved.state, moved.question_id, moved.changed) == (State.PARKED, question.id, True)
    longer = shop.supervisor.question(question.id)
    assert longer.expires_at == shop.job(job.id).wait_until == found.expires_at + HOUR
    assert rows(shop, "questions", job.id)[0]["remind_at"] == longer.expires_at - HOUR / 4
    assert (seen.generation, seen.events, seen.entries[0].data["question"]) == (1, ["extended"], str(question.id))
    backdate(shop, job.id, "created_at", HOUR)
    assert shop.expire().moved == []
    assert shop.supervisor.answer(question.id, value=True, actor=ANN).stop_reason == "answered:approve"


def test_until_when_a_question_is_open(shop: Shop) -> None:
    """A moment, or a span from now, sooner or later; the same one again changes nothing."""
    question = shop.asked()
    before = now(shop)
    shop.supervisor.extend_question(question.id, until=2 * HOUR, actor=ANN)
    until = shop.supervisor.question(question.id).expires_at
    assert before + 2 * HOUR <= until <= now(shop) + 2 * HOUR
    with unchanged(shop, shop.job_of(question).id):
        assert not shop.supervisor.extend_question(question.id, until=until, actor=ANN).changed
    shop.supervisor.extend_question(question.id, until=until - HOUR, actor=ANN)
    assert shop.supervisor.question(question.id).expires_at == until - HOUR


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "until"),
        ({"until": HOUR, "by": HOUR}, "until"),
        ({"until": NAIVE}, "until"),
        ({"until": timedelta(0)}, "until"),
        ({"until": datetime(2020, 1, 1, tzinfo=timezone.utc)}, "until"),
        ({"by": -HOUR}, "by"),
    ],
)
def test_s44_what_is_no_time_for_a_question(shop: Shop, given: dict[str, Any], field: str) -> None:
    """As for a deadline."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(InvalidInput) as refused:
        shop.supervisor.extend_question(question.id, actor=ANN, **given)
    assert refused.value.field == field


def test_a_question_that_is_closed_gets_no_time(shop: Shop) -> None:
    """Answered, expired, cancelled with its job, of somebody else: each is told as to one who answers."""
    answered, cancelled, late = shop.asked(), shop.asked(), shop.asked()
    shop.supervisor.answer(answered.id, value=True, actor="user:bob")
    shop.supervisor.cancel(shop.job_of(cancelled).id, actor=ANN)
    backdate(shop, shop.job_of(late).id, "wait_until")
    codes = ((answered, "already_answered"), (cancelled, "already_final"), (late, "expired"))
    for question, code in codes:
        with unchanged(shop, shop.job_of(question).id), pytest.raises(QuestionClosed) as refused:
            shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN)
        assert refused.value.code == code
    with pytest.raises(QuestionNotFound):
        shop.supervisor.extend_question(late.id, by=HOUR, actor=ANN, owner="other")
    with pytest.raises(QuestionNotFound):
        shop.supervisor.extend_question("7fcc", by=HOUR, actor=ANN)


def test_a_stale_call_gives_a_question_no_time(shop: Shop) -> None:
    """The job's generation is what a client has seen."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(Conflict) as stale:
        shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN, expected_generation=1)
    assert stale.value.code == "stale_generation"


# --- two at once -----------------------------------------------------------------------------------------


def test_an_extension_behind_the_sweep_is_late(shop: Shop) -> None:
    """An extension that waited for the sweep is told that the job has expired."""
    job = shop.pending(deadline=HOUR)
    backdate(shop, job.id, "expires_at")
    swept, refused = in_order(
        shop.engine,
        job.id,
        lambda: claim_late(shop, job.id),
        lambda: shop.supervisor.extend(job.id, by=HOUR, actor=ANN),
    )
    assert swept.state is State.EXPIRED
    assert isinstance(refused, Conflict)
    assert (refused.code, refused.state) == ("already_final", State.EXPIRED)
    assert shop.events(job.id) == ["submitted", "expired"]


def claim_late(shop: Shop, job_id: str) -> Any:
    """A worker touches a job whose time is over: that ends it (a sweep would skip a row that is held)."""
    return shop.claim(job_id)


def test_a_claim_behind_an_extension_runs(shop: Shop) -> None:
    """The clock and the deadline are read when the row is held: what was given in time counts."""
    job = shop.pending(deadline=timedelta(seconds=1))
    assert job.deadline is not None
    extended, claimed = in_order(
        shop.engine, job.id, lambda: shop.supervisor.extend(job.id, by=HOUR, actor=ANN), lambda: shop.claim(job.id)
    )
    assert extended.changed
    assert claimed.deadline == job.deadline + HOUR


def test_an_extension_that_waited_past_the_deadline_is_late(shop: Shop) -> None:
    """It is the clock at the lock that judges, not the one at the call."""
    job = shop.pending(deadline=timedelta(seconds=0.5))
    assert job.deadline is not None
    with row_held(shop.engine, "jobs", "id", job.id) as gate:
        call = Call(lambda: shop.supervisor.extend(job.id, by=HOUR, actor=ANN))
        waiter(shop.engine, gate)
        wait_until(shop, job.deadline)
    refused = call.outcome()
    assert isinstance(refused, Conflict)
    assert refused.code == "expired"
    assert shop.events(job.id) == ["submitted"]


def test_an_answer_behind_an_extension_counts(shop: Shop) -> None:
    """An answer that waited for the extension, past the old end, is in time."""
    question = shop.asked(ttl=timedelta(seconds=1))
    job = shop.job_of(question)
    assert job.wait_until is not None
    extended, answered = in_order(
        shop.engine,
        job.id,
        lambda: shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN),
        lambda: shop.supervisor.answer(question.id, value=True, actor="user:bob"),
    )
    assert isinstance(extended, Moved)
    assert answered.stop_reason == "answered:approve"


def test_an_extension_behind_an_answer_is_told_so(shop: Shop) -> None:
    """An extension that waited for the answer finds the question closed, and changes nothing."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    answered, refused = in_order(
        shop.engine,
        job_id,
        lambda: shop.supervisor.answer(question.id, value=True, actor="user:bob"),
        lambda: shop.supervisor.extend_question(question.id, by=HOUR, actor=ANN),
    )
    assert isinstance(answered, Moved)
    assert (refused.code, refused.answered_by) == ("already_answered", "user:bob")
    assert "extended" not in shop.events(job_id)


def test_two_spans_are_both_added(shop: Shop) -> None:
    """Two who extend at once get two extensions: the second adds to what the first has made of it."""
    job = shop.pending(deadline=HOUR)
    assert job.deadline is not None
    in_order(
        shop.engine,
        job.id,
        lambda: shop.supervisor.extend(job.id, by=HOUR, actor=ANN),
        lambda: shop.supervisor.extend(job.id, by=2 * HOUR, actor="user:bob"),
    )
    assert shop.job(job.id).deadline == job.deadline + 3 * HOUR
