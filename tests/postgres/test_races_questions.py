"""Votes, answers, reassigns and withdrawals of one question at once, in both orders, under every plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import Conflict, NotAllowed, QuestionClosed
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved
from tests.postgres import racing
from tests.postgres.looking import last_entry, wait_until
from tests.postgres.races import Call, at_once, in_order, row_held, waiter
from tests.postgres.shop import Shop, new_question
from tests.postgres.test_votes import ANN, BOB, CARL, asked, said, vote

planned, engine, shop = racing.planned, racing.engine, racing.shop


# --- votes -----------------------------------------------------------------------------------------------


def test_of_two_deciding_votes_at_once_one_is_the_answer(shop: Shop) -> None:
    """The one that waited is counted anew, and told that the question is answered, and by whom."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    vote(shop, question, ANN)
    first, second = in_order(shop.engine, job_id, lambda: vote(shop, question, BOB), lambda: vote(shop, question, CARL))
    assert first.stop_reason == "answered:approve"
    assert (second.code, second.answered_by) == ("already_answered", BOB)
    assert shop.events(job_id)[3:] == ["voted", "answered"]
    assert said(shop, question) == {"ann": b"true", "bob": b"true"}


def test_of_two_first_votes_at_once_the_second_decides(shop: Shop) -> None:
    """Neither saw the other when it was counted: the one that waited is counted again, so that none waits for ever."""
    question = asked(shop)
    first, second = in_order(
        shop.engine, shop.job_of(question).id, lambda: vote(shop, question, ANN), lambda: vote(shop, question, BOB)
    )
    assert (first.question_id, second.question_id) == (question.id, None)
    assert shop.supervisor.question(question.id).answered_by == BOB


def test_two_ways_of_one_person_at_once_are_one_vote(shop: Shop) -> None:
    """The second finds the first, and changes nothing."""
    question = asked(shop)
    first, second = in_order(
        shop.engine,
        shop.job_of(question).id,
        lambda: vote(shop, question, ANN),
        lambda: vote(shop, question, "cli:ann"),
    )
    assert (first.changed, second.changed) == (True, False)
    assert said(shop, question) == {"ann": b"true"}


def test_many_votes_at_once(shop: Shop) -> None:
    """Of fifteen people with two opinions, as many as are needed decide; the others are told so."""
    question = asked(shop, 5)
    outcomes = at_once(
        [lambda n=n: vote(shop, question, f"user:{n}", value=bool(n % 3)) for n in range(15)]  # type: ignore[misc]  # mypy knows no defaults in lambdas
    )
    decided = [one for one in outcomes if isinstance(one, Moved) and one.question_id is None]
    late = [one for one in outcomes if isinstance(one, QuestionClosed)]
    counted = [one for one in outcomes if isinstance(one, Moved) and one.question_id is not None]
    assert (len(decided), len(decided) + len(late) + len(counted)) == (1, 15)
    found = shop.supervisor.question(question.id)
    assert found.answer is not None
    agreeing = [value for value in said(shop, question).values() if value == found.answer.data]
    assert len(agreeing) == 5
    assert len(said(shop, question)) == len(counted) + 1
    assert last_entry(shop, shop.job_of(question).id).event == "answered"


def test_s07_a_vote_that_waited_past_its_time_is_late(shop: Shop) -> None:
    """The clock is read once the job is locked, not before."""
    question = new_question(approvals=2)
    job_id = shop.job_of(shop.asked(question=question, ttl=timedelta(seconds=2))).id
    vote(shop, question, ANN)
    with row_held(shop.engine, "jobs", "id", job_id) as gate:
        call = Call(lambda: vote(shop, question, BOB))
        waiter(shop.engine, gate)
        wait_until(shop, shop.supervisor.question(question.id).expires_at)
    assert (call.outcome().code, shop.job(job_id).state) == ("expired", State.EXPIRED)
    assert said(shop, question) == {"ann": b"true"}


@pytest.mark.parametrize("vote_first", [True, False])
def test_a_deciding_vote_and_the_sweep(shop: Shop, *, vote_first: bool) -> None:
    """One of the two, whoever has the row first; the other finds it done."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    vote(shop, question, ANN)
    calls = [lambda: vote(shop, question, BOB), lambda: shop.supervisor.cancel(job_id, actor=CARL)]
    one, other = in_order(shop.engine, job_id, *(calls if vote_first else calls[::-1]))
    if vote_first:
        assert (one.stop_reason, other.state) == ("answered:approve", State.CANCELLED)
    else:
        assert (one.state, other.code) == (State.CANCELLED, "already_final")
        assert shop.supervisor.question(question.id).status == "closed"


# --- reassign and withdraw -------------------------------------------------------------------------------


def outcome(found: Any) -> str:
    """What came of a call."""
    return found.code if isinstance(found, (Conflict, NotAllowed)) else str(found.stop_reason)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("answer", "reassign", ("answered:approve", "already_answered")),
        ("reassign", "answer", ("awaiting_user_answer:approve", "not_assigned")),
        ("answer", "withdraw", ("answered:approve", "already_answered")),
        ("withdraw", "answer", ("withdrawn:approve", "question_closed")),
        ("reassign", "withdraw", ("awaiting_user_answer:approve", "withdrawn:approve")),
        ("withdraw", "reassign", ("withdrawn:approve", "question_closed")),
        ("withdraw", "withdraw", ("withdrawn:approve", "question_closed")),
        ("reassign", "elsewhere", ("awaiting_user_answer:approve", "busy")),
        ("cancel", "withdraw", ("None", "already_final")),
        ("withdraw", "cancel", ("withdrawn:approve", "None")),
        ("cancel", "reassign", ("None", "already_final")),
    ],
)
def test_who_has_the_row_first_wins(shop: Shop, first: str, second: str, expected: tuple[str, str]) -> None:
    """Both had read the question when it was open and asked `ann`; the one that waits is judged by what is then."""
    question = asked(shop, 1, to=("ann",))
    job_id = shop.job_of(question).id
    service = shop.supervisor
    calls: dict[str, Callable[[], Any]] = {
        "answer": lambda: service.answer(question.id, value=True, actor=ANN),
        "reassign": lambda: service.reassign(question.id, to="bob", actor=CARL),
        "elsewhere": lambda: service.reassign(question.id, to="dora", actor=CARL),
        "withdraw": lambda: service.withdraw(question.id, actor=CARL),
        "cancel": lambda: service.cancel(job_id, actor=CARL),
    }
    found = in_order(shop.engine, job_id, calls[first], calls[second])
    assert tuple(map(outcome, found)) == expected


@pytest.mark.parametrize("vote_first", [True, False])
def test_a_vote_and_a_reassign(shop: Shop, *, vote_first: bool) -> None:
    """A vote that was cast while the question was given to others is void; one that comes after is not allowed."""
    question = asked(shop, 2, to=("ann", "bob"))
    service = shop.supervisor
    service.answer(question.id, value=True, actor=BOB)
    calls = [
        lambda: service.answer(question.id, value=False, actor=ANN),
        lambda: service.reassign(question.id, to=["carl", "dora"], actor="user:emil"),
    ]
    found = in_order(shop.engine, shop.job_of(question).id, *(calls if vote_first else calls[::-1]))
    assert outcome(found[1]) == ("awaiting_user_answer:approve" if vote_first else "not_assigned")
    assert (service.votes(question.id), service.question(question.id).to) == ([], ("carl", "dora"))
