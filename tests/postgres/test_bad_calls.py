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


def test_a_state_that_is_misspelt(shop: Shop) -> None:
    """The nearest is named."""
    with pytest.raises(InvalidInput, match="did you mean 'parked'"):
        shop.supervisor.jobs(states=["paused"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("answred", "did you mean 'answered'?"),
        ("lease lost", "did you mean 'lease_lost'?"),
        ("zzz", "'zzz' is none; there are answered, "),
        (["answered"], "['answered'] is none"),
    ],
)
def test_events_that_are_none(shop: Shop, bad: Any, said: str) -> None:
    """No log has them: told with the nearest, and not as a log without entries."""
    job = shop.pending()
    with pytest.raises(InvalidInput) as refused:
        shop.supervisor.log(job.id, events=["submitted", bad])
    assert refused.value.field == "events"
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("bad", "said"),
    [("user_pause", "did you mean 'user_paused'?"), ("awaiting_user_anwser:approve", "did you mean 'awaiting_user_")],
)
def test_a_stop_reason_that_is_none(shop: Shop, bad: str, said: str) -> None:
    """No job stands still for it: told with the nearest, and not as a choice of nothing."""
    with pytest.raises(InvalidInput) as refused:
        shop.supervisor.choose("resume", reason=bad)
    assert refused.value.field == "reason"
    assert said in str(refused.value)


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


LONG = "x" * 10_000_000
TOO_LONG: Mapping[str, Callable[[Shop], object]] = {
    "page": lambda shop: shop.supervisor.jobs(page=LONG),  # type: ignore[arg-type]
    "skip": lambda shop: shop.supervisor.jobs(skip=10**10_000),
    "states": lambda shop: shop.supervisor.jobs(states=[LONG]),  # type: ignore[list-item]
    "before": lambda shop: shop.supervisor.log("x", before=[LONG]),  # type: ignore[arg-type]
    "events": lambda shop: shop.supervisor.log("x", events=[LONG]),
    "no events": lambda shop: shop.supervisor.log("x", events=LONG),
    "generation": lambda shop: shop.supervisor.pause("x", actor=ANN, expected_generation=10**10_000),
    "action": lambda shop: shop.supervisor.choose(LONG, everything=True),
    "reason": lambda shop: shop.supervisor.choose("resume", reason=LONG[:200]),
    "limit": lambda shop: shop.supervisor.choose("resume", everything=True, limit=LONG),  # type: ignore[arg-type]
    "older_than": lambda shop: shop.supervisor.prune(older_than=LONG, actor=ANN),  # type: ignore[arg-type]
    "actor": lambda shop: shop.supervisor.pause("x", actor=LONG),
}


@pytest.mark.parametrize("call", TOO_LONG)
def test_what_is_far_too_long(shop: Shop, call: str) -> None:
    """It is named and repeated, but cut with a mark; a number that Python will not write, too."""
    with pytest.raises(InvalidInput) as refused:
        TOO_LONG[call](shop)
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
