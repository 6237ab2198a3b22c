"""What is given to the service wrongly: an error of the library that names it, nothing written, no SQL shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.errors import InvalidInput, JobNotFound, QuestionNotFound
from tests.postgres.looking import unchanged
from tests.postgres.shop import Shop

HOUR = timedelta(hours=1)
ANN = "user:ann"
NO_GENERATIONS: tuple[Any, ...] = ("\0", "\ud800", "7", 2**40, float("nan"), [], 0, True)
WITH_GENERATION: Mapping[str, Callable[[Shop, str, Any], object]] = {
    "pause": lambda shop, job, bad: shop.supervisor.pause(job, actor=ANN, expected_generation=bad),
    "resume": lambda shop, job, bad: shop.supervisor.resume(job, actor=ANN, expected_generation=bad),
    "cancel": lambda shop, job, bad: shop.supervisor.cancel(job, actor=ANN, expected_generation=bad),
    "extend": lambda shop, job, bad: shop.supervisor.extend(job, by=HOUR, actor=ANN, expected_generation=bad),
    "rerun": lambda shop, job, bad: shop.supervisor.rerun(job, actor=ANN, expected_generation=bad),
}
ON_QUESTIONS: Mapping[str, Callable[[Shop, Any, Any], object]] = {
    "answer": lambda shop, question, bad: shop.supervisor.answer(
        question, value=True, actor=ANN, expected_generation=bad
    ),
    "extend": lambda shop, question, bad: shop.supervisor.extend_question(
        question, by=HOUR, actor=ANN, expected_generation=bad
    ),
    "withdraw": lambda shop, question, bad: shop.supervisor.withdraw(question, actor=ANN, expected_generation=bad),
    "reassign": lambda shop, question, bad: shop.supervisor.reassign(
        question, to="carl", actor=ANN, expected_generation=bad
    ),
}


@pytest.mark.parametrize("operation", WITH_GENERATION)
@pytest.mark.parametrize("bad", NO_GENERATIONS, ids=ascii)
def test_a_generation_that_is_none(shop: Shop, operation: str, bad: Any) -> None:
    """Named; the job stays as it is."""
    job = shop.pending(deadline=HOUR)
    with unchanged(shop, job.id), pytest.raises(InvalidInput) as refused:
        WITH_GENERATION[operation](shop, job.id, bad)
    assert refused.value.field == "expected_generation"


@pytest.mark.parametrize("operation", ON_QUESTIONS)
@pytest.mark.parametrize("bad", NO_GENERATIONS, ids=ascii)
def test_a_generation_that_is_none_with_a_question(shop: Shop, operation: str, bad: Any) -> None:
    """Likewise."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(InvalidInput) as refused:
        ON_QUESTIONS[operation](shop, question.id, bad)
    assert refused.value.field == "expected_generation"


@pytest.mark.parametrize("bad", [{"digest"}, 7, "\0"], ids=ascii)
def test_a_digest_that_is_none(shop: Shop, bad: Any) -> None:
    """Named; nothing is answered."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(InvalidInput, match="seen"):
        shop.supervisor.answer(question.id, value=True, actor=ANN, seen=bad)


@pytest.mark.parametrize("bad", ["parked", ["odd"], ["\0"], [float("nan")], [["parked"]], 7], ids=ascii)
def test_states_that_are_none(shop: Shop, bad: Any) -> None:
    """In lists and in bulk."""
    for look in (shop.supervisor.jobs, lambda **given: shop.supervisor.choose("cancel", **given)):
        with pytest.raises(InvalidInput, match="states"):
            look(states=bad)


def test_an_action_that_is_none(shop: Shop) -> None:
    """Also where it is no text."""
    for bad in ("odd", ["cancel"], None):
        with pytest.raises(InvalidInput, match="action"):
            shop.supervisor.choose(bad, everything=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("operation", ON_QUESTIONS)
@pytest.mark.parametrize("bad", [1.5, None, b"7", "\0", "x" * 10_000_000], ids=lambda bad: ascii(bad)[:20])
def test_a_question_that_nobody_has(shop: Shop, operation: str, bad: Any) -> None:
    """It is not found, whatever it is; and a long one is not repeated in full."""
    with pytest.raises(QuestionNotFound) as refused:
        ON_QUESTIONS[operation](shop, bad, None)
    assert len(str(refused.value)) < 1000


def test_a_job_that_nobody_has(shop: Shop) -> None:
    """A long id is not repeated in full."""
    with pytest.raises(JobNotFound) as refused:
        shop.supervisor.pause("x" * 10_000_000, actor=ANN)
    assert len(str(refused.value)) < 1000


def test_a_hold_without_a_reason(shop: Shop) -> None:
    """Others will want to know."""
    for bad in (None, "", "  "):
        with pytest.raises(InvalidInput, match="reason"):
            shop.supervisor.hold(task="shop.task", reason=bad, actor=ANN)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [object(), 7, "session"], ids=lambda bad: type(bad).__name__)
def test_a_session_that_is_none(shop: Shop, bad: Any) -> None:
    """Nothing is written in any transaction."""
    question = shop.asked()
    with unchanged(shop, shop.job_of(question).id), pytest.raises(InvalidInput, match="session"):
        shop.supervisor.answer(question.id, value=True, actor=ANN, session=bad)
