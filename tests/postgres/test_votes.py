"""Questions that several people decide: one vote a person, enough that agree are the answer, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise import queries
from celery_supervise.errors import (
    Conflict,
    InvalidAnswer,
    InvalidInput,
    NotAllowed,
    QuestionAsked,
    QuestionClosed,
)
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved, NewQuestion
from tests.postgres.looking import backdate, row, unchanged, watching
from tests.postgres.shop import Shop, new_question, stored
from tests.postgres.test_journal import journal

HOUR = timedelta(hours=1)
ANN, BOB, CARL = "user:ann", "user:bob", "user:carl"
YES = True


def asked(shop: Shop, approvals: int = 2, **changes: Any) -> NewQuestion:
    """A job that waits for several people to agree."""
    return shop.asked(question=new_question(approvals=approvals, **changes))


def vote(shop: Shop, question: NewQuestion, actor: str, value: Any = YES, **options: Any) -> Moved:
    """Somebody says something."""
    return shop.supervisor.answer(question.id, value, actor=actor, **options)


def said(shop: Shop, question: NewQuestion) -> dict[str, bytes]:
    """What each person has said."""
    return {one.person: one.value.data for one in shop.supervisor.votes(question.id) if one.value}


def test_a_vote_that_is_not_enough_changes_nothing_but_itself(shop: Shop) -> None:
    """It is kept and logged, clients see a change; the job waits on, without a ticket, as long as before."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    before = row(shop, job_id)
    with watching(shop, job_id) as seen:
        moved = vote(shop, question, ANN)
    assert (moved.state, moved.stop_reason, moved.question_id) == (
        State.PARKED,
        "awaiting_user_answer:approve",
        question.id,
    )
    assert (seen.generation, seen.events) == (1, ["voted"])
    assert (seen.entries[0].actor, seen.entries[0].data["needed"]) == (ANN, 2)
    after = row(shop, job_id)
    assert {name for name in after if after[name] != before[name]} == {"generation", "log_seq"}
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer, found.voted) == ("pending", None, ("ann",))
    assert (said(shop, question), shop.broker.messages[1:]) == ({"ann": b"true"}, [])


def test_the_vote_that_makes_enough_is_the_answer(shop: Shop) -> None:
    """Answer, actor, time and ticket are one commit, and the body gets the value."""
    question = asked(shop, 3)
    job_id = shop.job_of(question).id
    for actor in (ANN, BOB):
        vote(shop, question, actor)
    with watching(shop, job_id) as seen:
        moved = vote(shop, question, CARL)
    assert (moved.stop_reason, moved.question_id) == ("answered:approve", None)
    assert (seen.generation, seen.events) == (1, ["answered"])
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer, found.answered_by) == ("answered", stored("true"), CARL)
    assert found.voted == ("ann", "bob", "carl")
    holding = shop.hold(job_id)
    assert queries.answers(shop.door, job_id, holding.lease.run_id)["approve"].value == stored("true")
    with pytest.raises(QuestionClosed) as late:
        vote(shop, question, "user:dora")
    assert (late.value.code, late.value.answered_by) == ("already_answered", CARL)


def test_only_votes_that_agree_count_together(shop: Shop) -> None:
    """Two of three is two who say the same; false decides as true does; 1, 1.0 and true are three answers."""
    question = asked(shop, schema={})
    for actor, value in ((ANN, True), (BOB, 1), (CARL, "true"), ("user:dora", None)):
        assert vote(shop, question, actor, value).question_id == question.id
    assert vote(shop, question, "user:emil", 1).stop_reason == "answered:approve"
    assert shop.supervisor.question(question.id).answer == stored("1")


def test_fields_in_another_order_are_the_same_answer(shop: Shop) -> None:
    """Values are compared, not their spelling."""
    question = asked(shop, schema={"type": "object"})
    vote(shop, question, ANN, {"approved": True, "amount": 7})
    assert vote(shop, question, BOB, {"amount": 7, "approved": True}).question_id is None


def test_a_person_has_one_vote(shop: Shop) -> None:
    """By whatever way they come in: the same again changes nothing, another one replaces theirs."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    vote(shop, question, ANN)
    for actor in (ANN, "cli:ann", "ann"):
        with unchanged(shop, job_id):
            again = vote(shop, question, actor)
        assert (again.changed, again.question_id) == (False, question.id)
    vote(shop, question, BOB, False)
    assert vote(shop, question, "cli:ann", False).stop_reason == "answered:approve"
    assert said(shop, question) == {"ann": b"false", "bob": b"false"}
    assert shop.events(job_id)[3:] == ["voted", "voted", "answered"]


def test_each_vote_is_judged_as_an_answer_is(shop: Shop) -> None:
    """What does not fit, is not theirs, or is to another page, is refused, and no vote."""
    question = asked(shop, to=("ann", "bob"))
    job = shop.job_of(question)
    for error, actor, value, options in (
        (InvalidAnswer, ANN, "yes", {}),
        (NotAllowed, CARL, True, {}),
        (Conflict, ANN, True, {"seen": "other"}),
        (Conflict, ANN, True, {"expected_generation": job.generation - 1}),
    ):
        with unchanged(shop, job.id), pytest.raises(error):
            vote(shop, question, actor, value, **options)
    assert shop.supervisor.votes(question.id) == []
    assert vote(shop, question, ANN, seen=question.digest, expected_generation=job.generation).changed
    with pytest.raises(Conflict) as old:
        vote(shop, question, BOB, expected_generation=job.generation)
    assert (old.value.code, old.value.actual) == ("stale_generation", job.generation + 1)


def test_the_owner_has_no_vote(shop: Shop) -> None:
    """Unless the question says so."""
    question = new_question(approvals=2)
    shop.asked(question=question, owner_id="ann")
    with pytest.raises(NotAllowed):
        vote(shop, question, ANN)
    vote(shop, question, BOB)
    assert vote(shop, question, CARL).question_id is None


@pytest.mark.parametrize("column", ["wait_until", "expires_at"])
def test_s07_a_vote_after_the_time_is_none(shop: Shop, column: str) -> None:
    """The one that would have decided ends the job as any late answer does; nothing is counted."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    vote(shop, question, ANN)
    backdate(shop, job_id, column)
    with watching(shop, job_id) as seen, pytest.raises(QuestionClosed) as late:
        vote(shop, question, BOB)
    assert (late.value.code, seen.events) == ("expired", ["expired"])
    assert (shop.job(job_id).stop_reason, said(shop, question)) == (
        "expired:awaiting_user_answer:approve",
        {"ann": b"true"},
    )


def test_a_vote_joins_a_transaction(shop: Shop) -> None:
    """Votes of a caller's own transaction count with its commit, together with each other; nothing after a rollback."""
    question = asked(shop)
    with shop.engine.connect() as connection:
        with connection.begin() as transaction:
            assert vote(shop, question, ANN, session=connection).question_id == question.id
            transaction.rollback()
        assert said(shop, question) == {}
        with connection.begin():
            vote(shop, question, ANN, session=connection)
            assert vote(shop, question, BOB, session=connection).question_id is None
    assert shop.job_of(question).stop_reason == "answered:approve"


def test_a_joined_vote_does_not_wait(shop: Shop) -> None:
    """While somebody else's transaction holds the job it is busy, and nothing was written."""
    question = asked(shop)
    with shop.engine.connect() as one, shop.engine.connect() as other, one.begin(), other.begin():
        vote(shop, question, ANN, session=one)
        with pytest.raises(Conflict) as busy:
            vote(shop, question, BOB, session=other)
    assert (busy.value.code, said(shop, question)) == ("busy", {"ann": b"true"})


def test_votes_under_a_codec_are_compared_in_the_open(open_shop: Callable[..., Shop]) -> None:
    """Encryption gives each vote other bytes: they agree all the same."""

    class Salted:
        """Other bytes each time."""

        count = 0

        def encode(self, data: bytes) -> tuple[bytes, str | None]:
            Salted.count += 1
            return f"{Salted.count:04}".encode() + data[::-1], "salt"

        def decode(self, data: bytes, key_id: str | None) -> bytes:
            assert key_id == "salt"
            return data[4:][::-1]

    shop = open_shop()
    shop.supervisor.codec = Salted()
    question = asked(shop)
    vote(shop, question, ANN)
    assert vote(shop, question, BOB).question_id is None
    assert len(set(said(shop, question).values())) == 2


# --- asking ----------------------------------------------------------------------------------------------


def test_a_body_asks_for_several(shop: Shop) -> None:
    """More than one approval is kept; more than there are recipients is a mistake of the body."""
    holding = shop.running()
    with pytest.raises(InvalidInput, match="approvals=3"):
        journal(shop, holding).ask(new_question(approvals=3, to=("ann", "bob")))
    with pytest.raises(QuestionAsked):
        journal(shop, holding).ask(new_question(approvals=2, to=("ann", "bob")))
