"""The journal in memory: what eager mode, direct calls and rehearsals stand on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

from celery_supervise.errors import InvalidAnswer, NeedsAnswer
from celery_supervise.journal import Asked, Event, Journal, Killed, MemoryJournal
from celery_supervise.model import NewQuestion, Node, NodeKind, Stored
from celery_supervise.testing import answers
from celery_supervise.values import decode, encode_plain

ONE = Stored(b"1", "json+kombu")
TWO = Stored(b"22", "json+kombu")
YES_NO: dict[str, Any] = {"enum": ["yes", "no"]}


class Approval(BaseModel):
    """A form."""

    approved: bool


def question(key: str = "pay", schema: dict[str, Any] | None = None) -> NewQuestion:
    """A question, as a body composes it."""
    content = encode_plain({"prompt": "Pay?", "show": {"total": 7}}, limit=1000)
    return NewQuestion(uuid4(), key, content, schema or {}, digest="d", to=("group:finance",))


def test_it_is_a_journal() -> None:
    """It has what a body needs, and a run id of its own."""
    journal: Journal = MemoryJournal()
    assert isinstance(journal.run_id, UUID)
    assert journal.run_id != MemoryJournal().run_id
    assert not journal.hurry()


def test_nodes_come_in_the_order_of_first_arrival() -> None:
    """A node that is saved again keeps its place and has the new value and size."""
    journal = MemoryJournal()
    journal.save("a", NodeKind.STEP, ONE)
    journal.save("b", NodeKind.CHECKPOINT, None)
    journal.save("a", NodeKind.STEP, TWO)
    assert journal.nodes() == {"a": Node("a", NodeKind.STEP, 2), "b": Node("b", NodeKind.CHECKPOINT, 0)}
    assert list(journal.nodes()) == ["a", "b"]
    assert journal.read("a") == TWO
    assert journal.read("b") is None


@pytest.mark.parametrize("value", [False, 0, "", [], {}, None])
def test_s13_falsy_answers_are_answers(value: Any) -> None:
    """One that is given is found, whatever it is; the same afterwards."""
    journal = MemoryJournal({"pay": value})
    given = journal.ask(question())
    kept = journal.answer("pay")
    assert given == kept
    assert decode(given.value, what="answer") == value
    assert given.digest == "d"


def test_without_an_answer_it_says_how_to_give_one() -> None:
    """The error names the key, the way, and what there is: a misspelt key shows; nothing is remembered."""
    journal = MemoryJournal({"other": 1})
    with pytest.raises(NeedsAnswer, match="give one for 'pay' with answers=; there are answers for 'other'") as caught:
        journal.ask(question())
    assert caught.value.key == "pay"
    assert journal.answer("pay") is None
    assert journal.events == []


def test_a_function_answers_what_it_is_asked() -> None:
    """By key, or one function for all; it sees what a person would see."""
    seen: list[Asked] = []

    def yes(asked: Asked) -> str:
        seen.append(asked)
        return "yes"

    for given in ({"pay": yes}, yes):
        assert decode(MemoryJournal(given).ask(question(schema=YES_NO)).value, what="answer") == "yes"
    assert seen == [Asked("pay", "Pay?", {"total": 7}, YES_NO, ("group:finance",))] * 2


def test_an_answer_of_a_test_is_what_was_decided() -> None:
    """However many must agree, and whoever may: one answer is the decision, and the function sees the terms."""
    seen: list[Asked] = []

    def yes(asked: Asked) -> str:
        seen.append(asked)
        return "yes"

    several = replace(question(schema=YES_NO), to=("ann", "bob"), approvals=2, self_approval=True)
    journal = MemoryJournal(yes)
    assert decode(journal.ask(several).value, what="answer") == "yes"
    assert len(journal.events) == 1
    assert [(one.to, one.approvals, one.self_approval) for one in seen] == [(("ann", "bob"), 2, True)]


def test_a_model_is_an_answer() -> None:
    """An instance of the form is stored as the JSON a person would have sent."""
    journal = MemoryJournal({"pay": Approval(approved=False)})
    answer = journal.ask(question(schema=Approval.model_json_schema()))
    assert decode(answer.value, what="answer") == {"approved": False}


def test_an_answer_that_does_not_fit_is_refused() -> None:
    """A test cannot give what a person could not."""
    with pytest.raises(InvalidAnswer):
        MemoryJournal({"pay": "maybe"}).ask(question(schema=YES_NO))


def test_answers_nest() -> None:
    """An inner block adds to the outer one's answers and wins; a function replaces them all."""
    with answers({"a": 1, "b": 1}):
        with answers({"b": 2}):
            assert decode(MemoryJournal().ask(question("a")).value, what="answer") == 1
            assert decode(MemoryJournal().ask(question("b")).value, what="answer") == 2
        assert decode(MemoryJournal().ask(question("b")).value, what="answer") == 1
        with answers(lambda asked: asked.key), answers({"b": 3}):
            with pytest.raises(NeedsAnswer):
                MemoryJournal().ask(question("a"))
            assert decode(MemoryJournal().ask(question("b")).value, what="answer") == 3
    with pytest.raises(NeedsAnswer):
        MemoryJournal().ask(question("a"))


def test_a_journal_with_answers_of_its_own_takes_no_others() -> None:
    """A rehearsal knows only what it was given."""
    with answers({"pay": 1}), pytest.raises(NeedsAnswer):
        MemoryJournal({}).ask(question())


def test_it_kills_right_after_an_event_once() -> None:
    """What was saved or answered is there; the next entry goes on."""
    journal = MemoryJournal({"pay": 1}, kill_after=2)
    journal.save("a", NodeKind.STEP, ONE)
    with pytest.raises(Killed):
        journal.ask(question())
    assert journal.killed
    assert journal.answer("pay") is not None
    journal.save("b", NodeKind.STEP, ONE)
    assert journal.events == [Event("a"), Event("pay", question=True), Event("b")]


class Shop:
    """What a shop's own transaction does."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.said: list[str] = []

    @contextmanager
    def block(self) -> Iterator[None]:
        """A transaction."""
        try:
            yield
        except BaseException:
            self.said.append("rolled back")
            raise
        if self.fails:
            raise ConnectionError("commit")
        self.said.append("committed")


def test_a_save_in_a_transaction_counts_with_its_commit() -> None:
    """Not before; not at all if the block raises or its commit fails."""
    journal, shop = MemoryJournal(), Shop()
    with journal.transaction(shop.block()):
        journal.save("a", NodeKind.STEP, ONE)
        assert list(journal.nodes()) == []
    assert list(journal.nodes()) == ["a"]
    with pytest.raises(KeyError):
        _save_and_fail(journal, shop, "b")
    with pytest.raises(ConnectionError), journal.transaction(Shop(fails=True).block()):
        journal.save("c", NodeKind.STEP, ONE)
    journal.save("d", NodeKind.STEP, ONE)
    assert list(journal.nodes()) == ["a", "d"]
    assert shop.said == ["committed", "rolled back"]


def test_a_kill_in_a_transaction_comes_after_its_commit() -> None:
    """The event is the commit."""
    journal, shop = MemoryJournal(kill_after=1), Shop()
    with pytest.raises(Killed), journal.transaction(shop.block()):
        journal.save("a", NodeKind.STEP, ONE)
    assert shop.said == ["committed"]
    assert list(journal.nodes()) == ["a"]


def _save_and_fail(journal: MemoryJournal, shop: Shop, name: str) -> None:
    with journal.transaction(shop.block()):
        journal.save(name, NodeKind.STEP, ONE)
        raise KeyError(name)
