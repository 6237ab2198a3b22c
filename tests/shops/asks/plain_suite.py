"""The plain shop's tests of its question."""

from __future__ import annotations

import time
from typing import Any

import pytest
from plain import tasks

from celery_supervise import Supervisor

pytestmark = pytest.mark.usefixtures("celery_session_worker")


def question_of(result: Any) -> Any:
    """What the job asks."""
    supervise, until = Supervisor.of(tasks.app), time.monotonic() + 20
    while not (found := supervise.questions(job_id=result.id)):
        assert time.monotonic() < until, result.state
        time.sleep(0.02)
    return found[0]


@pytest.mark.parametrize(("answer", "left"), [("yes", 1), ("no", 5)])
def test_a_large_reservation_is_approved(answer: str, left: int) -> None:
    result = tasks.reserve.delay("chair", 4)
    question = question_of(result)
    assert result.state == "PARKED"
    Supervisor.of(tasks.app).answer(question.id, answer, actor="user:bea")
    assert result.get(timeout=20) == left
    assert tasks.stock["chair"] == left
