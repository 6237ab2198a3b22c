"""Who may answer a question: a rule of the service, decided on the question as it is when it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise import answering
from celery_supervise.errors import InvalidInput, NotAllowed, QuestionAsked, QuestionClosed, QuestionNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import NewQuestion
from tests.postgres.looking import execute, rows, unchanged
from tests.postgres.shop import Shop, new_question
from tests.postgres.test_journal import journal

ANN = "user:ann"
MEMBERS = {"finance": {ANN, "user:bob"}, "it": {"user:carl"}}
HOUR = timedelta(hours=1)


def groups_of(actor: str) -> list[str]:
    """What `supervise_groups` names in a shop."""
    return [group for group, members in MEMBERS.items() if actor in members]


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """A shop that knows who is in which group."""
    return open_shop(groups=groups_of)


def not_allowed(shop: Shop, question: NewQuestion, actor: str, **options: Any) -> str:
    """The code of the refusal, which must change nothing."""
    with unchanged(shop, shop.job_of(question).id), pytest.raises(NotAllowed) as refused:
        shop.supervisor.answer(question.id, value=True, actor=actor, **options)
    assert actor in str(refused.value)
    return refused.value.code


@pytest.mark.parametrize(
    ("to", "stranger", "recipient"),
    [
        (("ann",), "user:bob", ANN),
        (("user:ann",), "user:anna", "cli:ann"),
        (("ann", "bob"), "user:carl", "user:bob"),
        (("group:finance",), "user:carl", "user:bob"),
        (("group:finance", "carl"), "user:dora", "user:carl"),
        (("group:finance",), "cli:group:finance", ANN),
    ],
)
def test_only_those_who_are_asked_may_answer(shop: Shop, to: tuple[str, ...], stranger: str, recipient: str) -> None:
    """Anybody else is refused, and the question stays open for those who are."""
    question = shop.asked(question=new_question(to=to))
    assert not_allowed(shop, question, stranger) == "not_assigned"
    assert shop.supervisor.answer(question.id, value=True, actor=recipient).changed
    assert shop.supervisor.question(question.id).answered_by == recipient


def test_s21_nobody_approves_for_themselves(shop: Shop) -> None:
    """The job's owner is refused by whatever way they come in, even where they are named or call as the owner."""
    question = shop.asked(owner_id="ann", question=new_question(to=("ann", "bob")))
    for actor, owner in ((ANN, None), ("cli:ann", None), ("ann", "ann"), ("cli:user:ann", "ann")):
        assert not_allowed(shop, question, actor, owner=owner) == "self_approval"
    assert shop.job_of(question).state is State.PARKED
    assert shop.supervisor.answer(question.id, value=True, actor="user:bob").changed


def test_who_may_approve_for_themselves(shop: Shop) -> None:
    """`self_approval=True` lets the owner answer, if the question is for them."""
    own, others = (new_question(self_approval=True, to=to) for to in ((), ("bob",)))
    for question in (own, others):
        shop.asked(owner_id="ann", question=question)
    assert shop.supervisor.answer(own.id, value=True, actor=ANN, owner="ann").changed
    assert not_allowed(shop, others, ANN, owner="ann") == "not_assigned"


def test_a_stranger_is_told_nothing_of_rules(shop: Shop) -> None:
    """Whose job it is not, is told that there is no such question, before anything else."""
    question = shop.asked(owner_id="ann", question=new_question(to=("ann",)))
    with pytest.raises(QuestionNotFound):
        shop.supervisor.answer(question.id, value=True, actor="user:bob", owner="bob")


def test_who_may_not_answer_is_told_so_before_the_answer_is_judged(shop: Shop) -> None:
    """A bad answer, an old page: not the business of somebody who may not answer at all."""
    question = shop.asked(question=new_question(to=("ann",)))
    job_id = shop.job_of(question).id
    with unchanged(shop, job_id), pytest.raises(NotAllowed):
        shop.supervisor.answer(question.id, "no boolean", actor="user:bob", seen="other", expected_generation=1)


def test_what_is_answered_is_told_as_answered(shop: Shop) -> None:
    """Who comes too late hears that, whether or not they might have answered."""
    question = shop.asked(question=new_question(to=("ann",)))
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    with pytest.raises(QuestionClosed) as refused:
        shop.supervisor.answer(question.id, value=True, actor="user:bob")
    assert refused.value.code == "already_answered"


@pytest.mark.parametrize(
    ("column", "value", "code"),
    [("assignees", "'{bob}'", "not_assigned"), ("self_approval", "false", "self_approval")],
)
def test_the_statement_decides_not_what_was_read_before(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, column: str, value: str, code: str
) -> None:
    """A rule that changed after it was read is obeyed: the row is judged under the lock."""
    question = shop.asked(owner_id="ann", question=new_question(self_approval=True))
    read = answering.Answering._checked

    def changed_meanwhile(*args: Any) -> Any:
        execute(shop, f"UPDATE supervise.questions SET {column} = {value} WHERE id = :id", id=question.id)
        return read(*args)

    monkeypatch.setattr(answering.Answering, "_checked", changed_meanwhile)
    with pytest.raises(NotAllowed) as refused:
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert refused.value.code == code
    assert [row["status"] for row in rows(shop, "questions", shop.job_of(question).id)] == ["pending"]


def test_groups_are_asked_only_for_a_question_to_a_group(open_shop: Callable[..., Shop]) -> None:
    """The shop's function is called with the actor, once, and not where no group is asked."""
    asked: list[str] = []

    def noted(actor: str) -> list[str]:
        asked.append(actor)
        return ["finance"]

    shop = open_shop(groups=noted)
    for to in ((), ("ann",), ("group:finance", "it")):
        question = shop.asked(question=new_question(to=to))
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert asked == [ANN]


def test_without_the_setting_nobody_is_in_a_group(open_shop: Callable[..., Shop]) -> None:
    """A process that cannot tell who is a member lets nobody in as one."""
    shop = open_shop()
    question = shop.asked(question=new_question(to=("group:finance", "bob")))
    assert not_allowed(shop, question, ANN) == "not_assigned"
    assert shop.supervisor.answer(question.id, value=True, actor="user:bob").changed


# --- asking ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", [("ann",), ("user:ann", "cli:ann"), ("group:finance",)])
def test_a_question_that_nobody_could_answer_is_not_asked(shop: Shop, to: tuple[str, ...]) -> None:
    """To the owner alone, or to a group where none is known: a mistake of the body, told at once."""
    holding = shop.running(owner_id="ann")
    with pytest.raises(InvalidInput) as refused:
        journal(shop, holding).ask(new_question(to=to))
    assert refused.value.field == "to"
    assert (shop.job(holding.lease.job_id).state, shop.supervisor.questions()) == (State.RUNNING, [])
    allowed = replace(new_question(to=("ann",)), self_approval=True)
    with pytest.raises(QuestionAsked):
        journal(shop, holding).ask(allowed)
