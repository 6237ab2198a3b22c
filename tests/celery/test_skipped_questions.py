"""S34: a question that the body does not come to, or comes to no more, keeps no job waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery

from celery_supervise import State, SupervisedTask
from celery_supervise.model import Question
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("skipped", set_as_current=False)
gates: set[str] = set()
"""The questions that the code asks, as it is deployed just now."""


@app.task(base=SupervisedTask, bind=True, shared=False)
def ships(self: SupervisedTask, order: str) -> list[str]:
    """Asks where there is a gate, and goes on where there is none."""
    packed = self.step("pack", str.upper, order)
    asked = [gate for gate in ("customs", "insurance") if gate in gates]
    return [packed, *(self.ask(gate, f"Is {gate} done?", choices=["yes", "no"]) for gate in asked)]


@pytest.fixture(autouse=True)
def _deployed() -> None:
    gates.clear()
    gates.add("customs")


def only(shop: Site) -> Question:
    """The one question that is open."""
    return wait_for(lambda: list(shop.supervise.questions()), what="the question")[0]


def test_s34_a_gate_that_is_skipped(shop: Site) -> None:
    """A question that is not asked is none: no row of it, nothing to wait for."""
    gates.clear()
    result = ships.delay("book")
    assert result.get(timeout=20) == ["BOOK"]
    assert shop.supervise.questions(job_id=str(result.id)) == []


def answer(shop: Site, question: Question) -> None:
    """A person answers what was asked before the deploy."""
    shop.supervise.answer(question.id, "yes", actor="user:ann")


def withdraw(shop: Site, question: Question) -> None:
    """An operator takes back what nobody asks any more."""
    shop.supervise.withdraw(question.id, actor="user:ops", why="no customs any more")


@pytest.mark.parametrize("close", [answer, withdraw])
def test_s34_a_question_that_the_code_does_not_come_to_any_more(
    shop: Site, close: Callable[[Site, Question], None]
) -> None:
    """The job stays parked on it, open in the inbox; once it is closed the new code goes on to its end."""
    result = ships.delay("book")
    shop.parked(result)
    question = only(shop)
    gates.clear()
    close(shop, question)
    assert result.get(timeout=20) == ["BOOK"]
    assert shop.job(result).state is State.COMPLETED
    assert shop.supervise.questions() == []


@pytest.mark.parametrize("close", [answer, withdraw])
def test_s34_another_question_in_its_place(shop: Site, close: Callable[[Site, Question], None]) -> None:
    """What the new code asks instead is a question of its own, which an answer to the old one does not answer."""
    result = ships.delay("book")
    shop.parked(result)
    question = only(shop)
    gates.clear()
    gates.add("insurance")
    close(shop, question)
    shop.wait(result, State.PARKED)
    new = only(shop)
    assert (new.key, new.id != question.id) == ("insurance", True)
    shop.supervise.answer(new.id, "no", actor="user:ann")
    assert result.get(timeout=20) == ["BOOK", "no"]
