"""People answer: while the job parks, late, twice."""

from __future__ import annotations

import pytest
from celery.exceptions import TimeoutError as NotReady

from celery_supervise import QuestionClosed, State
from tests.acceptance.shop import Shop
from tests.tools import wait_for

JOBS = 100


def test_s01_answers_that_come_while_the_job_parks(shop: Shop) -> None:
    """A question is answered the moment it can be seen: every job ends with its own answer."""
    results = {str(result.id): (number, result) for number in range(JOBS) for result in [shop.send("hurried", number)]}
    answered: set[str] = set()

    def answer_all() -> bool:
        for question in shop.supervise.questions(page=JOBS):
            if question.job_id in results:
                shop.supervise.answer(question.id, results[question.job_id][0] + 1000, actor="user:ann")
                answered.add(question.job_id)
        return len(answered) == JOBS

    wait_for(answer_all, timeout=60, what="all questions")
    for number, result in results.values():
        assert result.get(timeout=30) == number + 1000
    assert sorted(shop.effects()) == sorted(f"answered {number}" for number in range(JOBS))
    for _, result in results.values():
        assert shop.events(result)[:6] == ["submitted", "claimed", "asked", "answered", "claimed", "completed"]


def test_get_waits_for_the_true_end(shop: Shop) -> None:
    """PARKED is to be seen in the result, with the question; `get()` waits on, and returns what the job returns."""
    result = shop.send("approve", 5)
    question = shop.parked(result)
    wait_for(lambda: result.state == "PARKED", what="PARKED")
    assert result.info == {"question": "approve", "question_id": str(question.id)}
    assert not result.ready()
    with pytest.raises(NotReady):
        result.get(timeout=0.5)
    shop.supervise.answer(question.id, "no", actor="user:ann")
    assert result.get(timeout=20) == "no"
    assert shop.effects() == ["load 5"]


def test_a_question_expires(shop: Shop) -> None:
    """Nobody answers in time: the job is expired, its reason kept; an answer that comes now is refused."""
    result = shop.send("impatient", 0.5)
    question = shop.parked(result)
    job = shop.wait(result, State.EXPIRED)
    assert job.stop_reason == "expired:awaiting_user_answer:approve"
    with pytest.raises(QuestionClosed) as refused:
        shop.supervise.answer(question.id, "yes", actor="user:ann")
    assert refused.value.code == "expired"


def test_parked_jobs_hold_no_worker(shop: Shop) -> None:
    """More questions open than children: others still run."""
    asked = [shop.send("approve", number) for number in range(8)]
    for result in asked:
        shop.parked(result)
    assert shop.send("add", 1, 2).get(timeout=20) == 3
    for result in asked:
        shop.supervise.cancel(result.id, actor="user:ann")
    shop.settled(*asked)
