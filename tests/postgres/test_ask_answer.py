"""Ask and answer: the question, the park and the reason are one commit; an answer is accepted once, in time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from celery_supervise import queries
from celery_supervise.errors import Conflict, InvalidAnswer, QuestionChanged, QuestionClosed, QuestionNotFound, TooLarge
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NewQuestion
from tests.postgres.looking import backdate, row, rows, unchanged, watching
from tests.postgres.shop import Shop, failure, new_question, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"


def key_of(question: NewQuestion) -> str:
    """The stop reason of a job that waits for this answer."""
    return f"awaiting_user_answer:{question.key}"


# --- ask -------------------------------------------------------------------------------------------------


def test_ask_parks_the_job_in_one_commit(shop: Shop) -> None:
    """Question, state, reason, the end of the attempt and the log entry are of the same instant."""
    holding, question = shop.running(), new_question(to=("group:finance",), remind_before=timedelta(minutes=10))
    job_id = holding.lease.job_id
    with watching(shop, job_id) as seen:
        moved = holding.ask(question, ttl=HOUR)
    assert (moved.state, moved.stop_reason, moved.question_id) == (State.PARKED, key_of(question), question.id)
    assert (seen.generation, seen.events) == (1, ["asked"])
    job, found = shop.job(job_id), shop.supervisor.question(question.id)
    assert (job.state, job.question_id, job.ticket_id, job.current_token) == (State.PARKED, question.id, None, None)
    assert job.wait_until == found.expires_at == found.asked_at + HOUR
    (attempt,) = shop.supervisor.attempts(job_id)
    assert (attempt.outcome, attempt.ended_at) == ("parked", found.asked_at)
    assert seen.entries[0].at == found.asked_at
    assert seen.entries[0].data["digest"] == question.digest
    (stored_row,) = rows(shop, "questions", job_id)
    assert stored_row["remind_at"] == found.expires_at - timedelta(minutes=10)
    assert (found.key, found.status, found.to, found.schema) == (
        "approve",
        "pending",
        ("group:finance",),
        {"type": "boolean"},
    )
    assert found.content == question.content


def test_the_log_never_holds_what_was_asked_or_answered(shop: Shop) -> None:
    """Names, sizes, digests: the values can be erased without touching the log."""
    question = shop.asked(question=new_question(content=stored('{"prompt": "SECRET?"}'), schema={"type": "string"}))
    shop.supervisor.answer(question.id, "SECRET!", actor=ANN)
    for entry in queries.entries(shop.door, shop.job_of(question).id):
        assert "SECRET" not in str(dict(entry.data))


def test_a_pause_is_obeyed_before_the_question_is_asked(shop: Shop) -> None:
    """A pause request seen by ask parks the job as paused; nothing is asked, the request is granted."""
    holding, question = shop.running(), new_question()
    job_id = holding.lease.job_id
    shop.supervisor.pause(job_id, actor=ANN)
    with watching(shop, job_id) as seen:
        moved = holding.ask(question, ttl=HOUR)
    assert (moved.state, moved.stop_reason, moved.question_id) == (State.PARKED, "user_paused", None)
    assert (seen.generation, seen.events) == (1, ["parked"])
    assert shop.job(job_id).pause_requested_at is None
    assert rows(shop, "questions", job_id) == []
    shop.supervisor.resume(job_id, actor=ANN)
    assert shop.hold(job_id).ask(question, ttl=HOUR).question_id == question.id


@pytest.mark.parametrize(("column", "reason"), [("expires_at", "deadline"), ("active_until", "max_active")])
def test_time_is_obeyed_before_the_question_is_asked(shop: Shop, column: str, reason: str) -> None:
    """A job whose time is over expires at ask; nobody is bothered with its question."""
    holding = shop.running(deadline=HOUR, max_active=HOUR)
    backdate(shop, holding.lease.job_id, column)
    assert holding.ask(new_question(), ttl=HOUR).stop_reason == f"expired:{reason}"
    assert rows(shop, "questions", holding.lease.job_id) == []


def test_a_cancel_is_obeyed_before_the_question_is_asked(shop: Shop) -> None:
    """A cancelled job asks nobody."""
    holding = shop.running()
    shop.supervisor.cancel(holding.lease.job_id, actor=ANN)
    assert holding.ask(new_question(), ttl=HOUR).state is State.CANCELLED
    assert rows(shop, "questions", holding.lease.job_id) == []


def test_the_same_ask_again_tells_the_same(shop: Shop) -> None:
    """A repeated ask, whose first reply was lost, finds its own question and says so."""
    holding, question = shop.running(), new_question()
    holding.ask(question, ttl=HOUR)
    with unchanged(shop, holding.lease.job_id):
        again = holding.ask(question, ttl=HOUR)
    assert (again.state, again.question_id, again.changed) == (State.PARKED, question.id, False)


# --- answer ----------------------------------------------------------------------------------------------


def test_an_answer_is_durable_and_the_job_goes_on(shop: Shop) -> None:
    """Value, actor, time and ticket are one commit; after it the job's message is sent."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.broker.flush()
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert (moved.state, moved.stop_reason) == (State.PARKED, "answered:approve")
    assert (seen.generation, seen.events) == (1, ["answered"])
    assert (seen.entries[0].actor, seen.entries[0].data["size"]) == (ANN, 4)
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer, found.answered_by) == ("answered", stored_answer("true"), ANN)
    assert found.answered_at == seen.entries[0].at
    job = shop.job(job_id)
    assert (job.question_id, job.wait_until) == (None, None)
    assert [message.id for message in shop.broker.messages] == [job.ticket_id] == [moved.ticket_id]
    lease = shop.hold(job_id).lease
    answer = queries.answers(shop.door, job_id, lease.run_id)["approve"]
    assert (answer.question_id, answer.value, answer.digest) == (question.id, found.answer, question.digest)


def stored_answer(text: str) -> object:
    """An answer as it is stored: plain JSON."""
    return stored(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(False, "false"), (0, "0"), ("", '""'), ([], "[]"), ({}, "{}"), (None, "null"), (0.5, "0.5"), ("ü", '"ü"')],
)
def test_s13_falsy_values_are_answers(shop: Shop, value: Any, text: str) -> None:
    """false, 0, "", [], {} and null are answers with their type, each resumes the job once."""
    question = shop.asked(question=new_question(schema={}))
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value, actor=ANN)
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer) == ("answered", stored_answer(text))
    holding = shop.hold(job_id)
    answers = shop.supervisor.answers(job_id)
    assert answers["approve"].value == stored_answer(text)
    holding.complete(None)
    assert shop.events(job_id) == ["submitted", "claimed", "asked", "answered", "claimed", "completed"]


@pytest.mark.parametrize("value", ["7", 7, 3.0, 100.0, True, {"a": 1}, None, 0, float("nan")])
def test_s28_a_bad_answer_changes_nothing(shop: Shop, value: Any) -> None:
    """What does not fit the schema is refused with path and reason; the question stays open, then 3 is taken."""
    question = shop.asked(question=new_question(schema={"type": "integer", "minimum": 1, "maximum": 5}))
    job_id = shop.job_of(question).id
    with unchanged(shop, job_id), pytest.raises(InvalidAnswer) as refused:
        shop.supervisor.answer(question.id, value, actor=ANN)
    assert set(refused.value.errors) == {"$"}
    assert shop.supervisor.answer(question.id, 3, actor=ANN).changed


def test_s28_a_large_answer_changes_nothing(shop: Shop) -> None:
    """An answer over the limit is refused with its size."""
    question = shop.asked(question=new_question(schema={"type": "string"}))
    with unchanged(shop, shop.job_of(question).id), pytest.raises(TooLarge) as refused:
        shop.supervisor.answer(question.id, "x" * (2 << 20), actor=ANN)
    assert refused.value.limit == 1 << 20


def closed(shop: Shop, question: NewQuestion, **options: Any) -> QuestionClosed:
    """The refusal of an answer, which must change nothing."""
    with unchanged(shop, shop.job_of(question).id), pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(question.id, value=True, actor="user:bob", **options)
    return refused.value


def test_the_second_answer_is_told_who_was_first(shop: Shop) -> None:
    """One answer wins; the other is a conflict that names the winner and the time."""
    question = shop.asked()
    shop.supervisor.answer(question.id, value=False, actor=ANN)
    refused = closed(shop, question)
    assert (refused.code, refused.answered_by, refused.job_state) == ("already_answered", ANN, State.PARKED)
    assert refused.answered_at == shop.supervisor.question(question.id).answered_at


def test_s03_the_same_answer_again_is_a_conflict(shop: Shop) -> None:
    """A double click is told that the question is answered, even where person and value are the same."""
    question = shop.asked()
    shop.supervisor.answer(question.id, value=True, actor="user:bob")
    assert closed(shop, question).code == "already_answered"


def test_a_page_that_is_old_is_a_conflict(shop: Shop) -> None:
    """`expected_generation` of an earlier look is refused with both numbers; the right one is accepted."""
    question = shop.asked()
    job = shop.job_of(question)
    with unchanged(shop, job.id), pytest.raises(Conflict) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN, expected_generation=job.generation - 1)
    assert (refused.value.code, refused.value.expected, refused.value.actual) == (
        "stale_generation",
        job.generation - 1,
        job.generation,
    )
    assert shop.supervisor.answer(question.id, value=True, actor=ANN, expected_generation=job.generation).changed


def test_an_answer_is_to_what_was_shown(shop: Shop) -> None:
    """`seen=` with another digest than the question's is refused; with its own it is accepted."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(QuestionChanged) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN, seen="another")
    assert (refused.value.code, refused.value.state) == ("question_changed", State.PARKED)
    assert (refused.value.key, refused.value.stored, refused.value.now) == ("approve", question.digest, "another")
    assert shop.supervisor.answer(question.id, value=True, actor=ANN, seen=question.digest).changed


@pytest.mark.parametrize("question_id", [uuid4(), str(UUID(int=1)), "nonsense", "", "a\0b"])
def test_a_question_that_is_not_there(shop: Shop, question_id: UUID | str) -> None:
    """An unknown id, or a text that is none, is one and the same error."""
    shop.asked()
    with pytest.raises(QuestionNotFound) as refused:
        shop.supervisor.answer(question_id, value=True, actor=ANN)
    assert refused.value.question_id == str(question_id)


def test_a_foreign_question_is_not_there(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Another owner's question, and another namespace's, are answered as if they did not exist."""
    question = shop.asked(owner_id="ann", question=new_question(self_approval=True))
    job_id = shop.job_of(question).id
    second = open_shop(namespace="second")
    for call in (
        lambda: shop.supervisor.answer(question.id, value=True, actor="user:bob", owner="bob"),
        lambda: shop.supervisor.question(question.id, owner="bob"),
        lambda: second.supervisor.answer(question.id, value=True, actor=ANN),
    ):
        with unchanged(shop, job_id), pytest.raises(QuestionNotFound):
            call()
    assert shop.supervisor.answer(question.id, value=True, actor=ANN, owner="ann").changed


def test_what_is_not_ours_is_not_there_before_anything_else_is_judged(shop: Shop) -> None:
    """A stranger with a bad answer or an old generation learns nothing: the same error first."""
    question = shop.asked(owner_id="ann")
    for value, generation in (("no boolean", None), (True, 1)):
        with pytest.raises(QuestionNotFound):
            shop.supervisor.answer(question.id, value, actor="user:bob", owner="bob", expected_generation=generation)


# --- time ------------------------------------------------------------------------------------------------


def test_s07_an_answer_after_the_questions_time_expires_the_job(shop: Shop) -> None:
    """Whoever comes first after it ends the job: the answer is refused, not stored, and never decides."""
    question = shop.asked(ttl=timedelta(microseconds=1))
    job_id = shop.job_of(question).id
    with watching(shop, job_id) as seen, pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert (refused.value.code, refused.value.job_state) == ("expired", State.EXPIRED)
    assert (seen.generation, seen.events) == (1, ["expired"])
    assert shop.job(job_id).stop_reason == "expired:awaiting_user_answer:approve"
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer, found.answered_by) == ("expired", None, None)
    assert closed(shop, question).code == "expired"


def test_an_answer_after_the_deadline_expires_the_job(shop: Shop) -> None:
    """The job's deadline is judged by the answer, too."""
    question = shop.asked(deadline=HOUR)
    job_id = shop.job_of(question).id
    backdate(shop, job_id, "expires_at")
    with pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert refused.value.code == "expired"
    assert shop.job(job_id).stop_reason == "expired:awaiting_user_answer:approve"
    assert row(shop, job_id)["settle_due_at"] == shop.job(job_id).finished_at


def test_the_clock_of_a_question_ends_with_its_answer(shop: Shop) -> None:
    """Once answered, the question's time is nobody's: the job is not expired by it."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert list(shop.expire().moved) == []
    assert shop.hold(job_id).complete(None).state is State.COMPLETED


# --- several questions -----------------------------------------------------------------------------------


def test_s09_each_question_gets_its_own_answer(shop: Shop) -> None:
    """A yes, B no, C too late, in one job: each ask has its own answer; one not yet asked takes none."""
    a, b, c = (new_question(key) for key in "abc")
    holding = shop.running()
    job_id = holding.lease.job_id
    holding.ask(a, ttl=HOUR)
    with unchanged(shop, job_id), pytest.raises(QuestionNotFound):
        shop.supervisor.answer(b.id, value=True, actor=ANN)
    shop.supervisor.answer(a.id, value=True, actor=ANN)
    shop.hold(job_id).ask(b, ttl=HOUR)
    assert closed(shop, a).code == "already_answered"
    shop.supervisor.answer(b.id, value=False, actor=ANN)
    holding = shop.hold(job_id)
    answers = shop.supervisor.answers(job_id)
    assert {key: answer.value for key, answer in answers.items()} == {
        "a": stored_answer("true"),
        "b": stored_answer("false"),
    }
    holding.ask(c, ttl=timedelta(microseconds=1))
    with pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(c.id, value=True, actor=ANN)
    assert refused.value.code == "expired"
    assert set(shop.supervisor.answers(job_id)) == {"a", "b"}


def test_a_question_asked_anew_supersedes_its_answer(shop: Shop) -> None:
    """The old answer is kept but no longer counts; its question takes no other; the new one decides."""
    old = shop.asked()
    job_id = shop.job_of(old).id
    shop.supervisor.answer(old.id, value=True, actor=ANN)
    new = new_question(digest="other content")
    moved = shop.hold(job_id).ask(new, ttl=HOUR, supersedes=old.id)
    assert (moved.question_id, moved.stop_reason) == (new.id, key_of(new))
    assert shop.supervisor.answers(job_id) == {}
    found = shop.supervisor.question(old.id)
    assert (found.status, found.answer, found.answered_by) == ("superseded", stored_answer("true"), ANN)
    assert closed(shop, old).code == "already_answered"
    shop.supervisor.answer(new.id, value=False, actor="user:bob")
    assert shop.supervisor.answers(job_id)["approve"].question_id == new.id
    assert [one.id for one in shop.supervisor.questions(job_id=job_id)] == [old.id, new.id]


@pytest.mark.parametrize("verdict", ["pause", "cancel"])
def test_an_answer_is_superseded_only_by_a_question(shop: Shop, verdict: str) -> None:
    """Where the ask is judged to be something else, the accepted answer stays what it was."""
    old = shop.asked()
    job_id = shop.job_of(old).id
    shop.supervisor.answer(old.id, value=True, actor=ANN)
    holding = shop.hold(job_id)
    getattr(shop.supervisor, verdict)(job_id, actor=ANN)
    holding.ask(new_question(digest="other"), ttl=HOUR, supersedes=old.id)
    assert shop.supervisor.question(old.id).status == "answered"


def test_a_job_waits_for_one_question_at_a_time(shop: Shop) -> None:
    """While a question is open its job is parked: no attempt is there that could ask another."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    assert shop.claim(job_id) is None
    assert [one.id for one in shop.supervisor.questions()] == [question.id]


# --- the end closes questions ----------------------------------------------------------------------------


def test_s31_a_cancel_closes_the_question(shop: Shop) -> None:
    """The end takes the question out of the inbox in the same commit; a late answer is told that it is over."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.cancel(job_id, actor=ANN)
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer) == ("closed", None)
    assert rows(shop, "questions", job_id)[0]["closed_at"] == shop.job(job_id).finished_at
    assert shop.supervisor.questions() == []
    refused = closed(shop, question)
    assert (refused.code, refused.job_state) == ("already_final", State.CANCELLED)


def test_s31_an_expiry_closes_the_question(shop: Shop) -> None:
    """The job's deadline is over while it waits: its question is closed with it, and told apart from its own time."""
    question = shop.asked(deadline=HOUR)
    job_id = shop.job_of(question).id
    backdate(shop, job_id, "expires_at")
    assert [moved.job_id for moved in shop.expire().moved] == [job_id]
    assert shop.supervisor.question(question.id).status == "closed"
    assert shop.supervisor.questions() == []
    refused = closed(shop, question)
    assert (refused.code, refused.job_state) == ("already_final", State.EXPIRED)


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_s31_no_question_is_left_by_a_body_that_ends(shop: Shop, end: str) -> None:
    """When a body completes or fails its questions are all answered: none can stay open."""
    question = shop.asked()
    job_id = shop.job_of(question).id
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    holding = shop.hold(job_id)
    ends: dict[str, Callable[[Holding], Moved]] = {
        "complete": lambda h: h.complete(None),
        "fail": lambda h: h.fail(failure()),
    }
    ends[end](holding)
    assert shop.supervisor.questions() == []
    assert closed(shop, question).code == "already_answered"
