"""A question is given to other people, or taken back: who may do so, what becomes of votes, who wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import Conflict, InvalidInput, NotAllowed, QuestionAsked, QuestionClosed, QuestionNotFound
from celery_supervise.lifecycle import State
from celery_supervise.model import NewQuestion
from tests.postgres.looking import backdate, unchanged, watching
from tests.postgres.shop import Shop, new_question
from tests.postgres.test_journal import journal

HOUR = timedelta(hours=1)
ANN, BOB, CARL, DORA = "user:ann", "user:bob", "user:carl", "user:dora"


def asked(shop: Shop, *to: str, owner_id: str | None = None, **changes: Any) -> NewQuestion:
    """A job that waits for the answer of these."""
    return shop.asked(question=new_question(to=to, **changes), owner_id=owner_id)


# --- reassign --------------------------------------------------------------------------------------------


def test_a_question_is_given_to_others(shop: Shop) -> None:
    """From then on they may answer and nobody else; the log says who gave it to whom, and why; all else stays."""
    question = asked(shop, "ann")
    job_id = shop.job_of(question).id
    before = shop.supervisor.question(question.id)
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.reassign(question.id, to="bob", actor=CARL, why="ann is ill")
    assert (moved.state, moved.stop_reason, moved.question_id) == (
        State.PARKED,
        "awaiting_user_answer:approve",
        question.id,
    )
    assert (seen.generation, seen.events, seen.entries[0].actor) == (1, ["reassigned"], CARL)
    data = seen.entries[0].data
    assert (data["before"], data["to"], data["why"]) == (["ann"], ["bob"], "ann is ill")
    after = shop.supervisor.question(question.id)
    assert (after.to, after.digest, after.expires_at) == (("bob",), before.digest, before.expires_at)
    with pytest.raises(NotAllowed):
        shop.supervisor.answer(question.id, value=True, actor=ANN)
    assert shop.supervisor.answer(question.id, value=True, actor=BOB, seen=question.digest).changed


def test_the_body_does_not_notice(shop: Shop) -> None:
    """It asked `ann`; the answer of `bob`, to whom it was given, is the answer to that question."""
    question = asked(shop, "ann")
    job_id = shop.job_of(question).id
    shop.supervisor.reassign(question.id, to="bob", actor=CARL)
    shop.supervisor.answer(question.id, value=True, actor=BOB)
    answer = journal(shop, shop.hold(job_id)).answer("approve")
    assert answer is not None
    assert (answer.digest, answer.actor) == (question.digest, BOB)


def test_votes_are_void(shop: Shop) -> None:
    """Who may no longer vote has not voted; who still may votes again; the log keeps that they did."""
    question = asked(shop, "ann", "bob", approvals=2)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    shop.supervisor.reassign(question.id, to=["bob", "dora"], actor=CARL)
    assert (shop.supervisor.votes(question.id), shop.supervisor.question(question.id).voted) == ([], ())
    assert shop.supervisor.answer(question.id, value=True, actor=BOB).question_id == question.id
    assert shop.supervisor.answer(question.id, value=True, actor=DORA).question_id is None
    assert shop.events(shop.job_of(question).id)[3:] == ["voted", "reassigned", "voted", "answered"]


def test_to_the_same_people_again_changes_nothing(shop: Shop) -> None:
    """In whatever order, and however often they are named: votes stay."""
    question = asked(shop, "ann", "bob", approvals=2)
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    with unchanged(shop, shop.job_of(question).id):
        moved = shop.supervisor.reassign(question.id, to=["bob", "ann", "bob"], actor=CARL)
    assert (moved.changed, moved.question_id) == (False, question.id)
    with pytest.raises(Conflict) as old:
        shop.supervisor.reassign(question.id, to=["ann", "bob"], actor=CARL, expected_generation=moved.generation - 1)
    assert old.value.code == "stale_generation"
    assert len(shop.supervisor.votes(question.id)) == 1


@pytest.mark.parametrize(
    ("to", "changes"),
    [
        ([], {}),
        ("", {}),
        ("x" * 256, {}),
        (7, {}),
        (["bob", None], {}),
        ("group:finance", {}),
        ("dora", {"approvals": 2}),
        ("emil", {"owner_id": "emil"}),
    ],
)
def test_people_who_could_never_decide(shop: Shop, to: Any, changes: dict[str, Any]) -> None:
    """Nobody, no names, too few, only the owner, a group where none is known: refused, and nothing changes."""
    question = asked(shop, "ann", "bob", **changes)
    with unchanged(shop, shop.job_of(question).id), pytest.raises(InvalidInput) as refused:
        shop.supervisor.reassign(question.id, to=to, actor=CARL)
    assert refused.value.field == "to"


def test_nobody_takes_a_question_for_themselves(open_shop: Callable[..., Shop]) -> None:
    """Who may not answer cannot make themselves one who may, by name or by group; who may, may pass it on."""
    shop = open_shop(groups=lambda actor: ["it"] if actor == CARL else [])
    question = asked(shop, "ann")
    for to in ("carl", "user:carl", ["ann", "carl"], "group:it"):
        with unchanged(shop, shop.job_of(question).id), pytest.raises(NotAllowed) as refused:
            shop.supervisor.reassign(question.id, to=to, actor=CARL)
        assert refused.value.code == "self_assignment"
    assert shop.supervisor.reassign(question.id, to=["ann", "bob"], actor=ANN).changed
    assert shop.supervisor.reassign(question.id, to="carl", actor=BOB).changed


@pytest.mark.parametrize("call", ["reassign", "withdraw"])
def test_refusals(shop: Shop, open_shop: Callable[..., Shop], call: str) -> None:
    """A foreign question is none, an old page is a conflict, what is over is closed, a bad actor or reason is told."""
    question = asked(shop, owner_id="emil")
    job = shop.job_of(question)
    given: dict[str, Any] = {"to": "bob"} if call == "reassign" else {}

    def refused(error: type[Exception], shop: Shop = shop, question_id: Any = question.id, **options: Any) -> Any:
        with unchanged(shop, job.id), pytest.raises(error) as caught:
            getattr(shop.supervisor, call)(question_id, **{"actor": CARL, **given, **options})
        return caught.value

    refused(QuestionNotFound, owner="dora")
    refused(QuestionNotFound, open_shop(namespace="second"))
    refused(QuestionNotFound, question_id="nonsense")
    assert refused(Conflict, expected_generation=job.generation - 1).code == "stale_generation"
    assert refused(InvalidInput, actor=" ").field == "actor"
    assert refused(InvalidInput, why="x\0").field == "why"
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    closed = refused(QuestionClosed)
    assert (closed.code, closed.answered_by) == ("already_answered", ANN)


@pytest.mark.parametrize("call", ["reassign", "withdraw"])
@pytest.mark.parametrize("column", ["wait_until", "expires_at"])
def test_after_its_time_a_question_is_neither_moved_nor_asked_anew(shop: Shop, call: str, column: str) -> None:
    """Whoever comes then ends the job: nothing brings a question back whose time is over."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    backdate(shop, job_id, column)
    with watching(shop, job_id) as seen, pytest.raises(QuestionClosed) as refused:
        getattr(shop.supervisor, call)(question.id, actor=CARL, **({"to": "bob"} if call == "reassign" else {}))
    assert (refused.value.code, seen.events) == ("expired", ["expired"])
    assert shop.job(job_id).state is State.EXPIRED
    assert shop.supervisor.question(question.id).to == ()


# --- withdraw --------------------------------------------------------------------------------------------


def test_a_question_is_taken_back_and_asked_anew(shop: Shop) -> None:
    """The job goes on at once; its body comes to the question again, and asks another one under the same key."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    shop.broker.flush()
    with watching(shop, job_id) as seen:
        moved = shop.supervisor.withdraw(question.id, actor=CARL, why="a typing error")
    assert (moved.state, moved.stop_reason, moved.question_id) == (State.PARKED, "withdrawn:approve", None)
    assert (seen.generation, seen.events) == (1, ["withdrawn"])
    assert (seen.entries[0].actor, seen.entries[0].data["why"]) == (CARL, "a typing error")
    assert [message.id for message in shop.broker.messages] == [moved.ticket_id] == [shop.job(job_id).ticket_id]
    found = shop.supervisor.question(question.id)
    assert (found.status, found.answer, found.answered_by) == ("withdrawn", None, None)
    again, new = journal(shop, shop.hold(job_id)), new_question()
    assert again.answer("approve") is None
    with pytest.raises(QuestionAsked):
        again.ask(new)
    assert [one.status for one in shop.supervisor.questions(job_id=job_id)] == ["withdrawn", "pending"]


def test_s32_an_answer_to_a_question_of_before_is_no_answer_to_the_one_of_now(shop: Shop) -> None:
    """The old question says that it is closed, whatever the answer; the new one stays open."""
    old, new = asked(shop), new_question(digest="another amount")
    job_id = shop.job_of(old).id
    shop.supervisor.withdraw(old.id, actor=CARL)
    shop.hold(job_id).ask(new, ttl=HOUR)
    for _ in range(2):
        with unchanged(shop, job_id), pytest.raises(QuestionClosed) as refused:
            shop.supervisor.answer(old.id, value=True, actor=ANN)
        assert refused.value.code == "question_closed"
    assert shop.job(job_id).question_id == new.id
    assert shop.events(job_id)[2:] == ["asked", "withdrawn", "claimed", "asked"]
    digests = [entry.data.get("digest") for entry in shop.supervisor.log(job_id).entries if entry.event == "asked"]
    assert digests == [old.digest, new.digest]


def test_a_pause_holds_up_what_was_withdrawn(shop: Shop) -> None:
    """As after an answer: the job parks when it is claimed, and asks once it is resumed."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    shop.supervisor.pause(job_id, actor=ANN)
    assert shop.supervisor.withdraw(question.id, actor=CARL).pause_requested
    shop.claim(job_id)
    assert shop.job(job_id).stop_reason == "user_paused"
