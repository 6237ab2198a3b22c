"""People, scripted: they answer when a job asks, at once or days later. Time passes by moving the job's deadlines.

The one statement here is the test kit's: nothing in production can move a time into the past.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery.result import AsyncResult

from ..model import Moved, Question
from ..store.sql import OURS, Statement
from ..supervisor import Supervisor
from ..wording import shown

POLL_SECONDS = 0.02
NO_TIME = timedelta(0)

PASS_TIME = Statement(
    "pass_time",
    f"""
WITH j AS (
    UPDATE {{s}}.jobs AS jobs
    SET expires_at = expires_at - CAST(:passed AS interval), wait_until = wait_until - CAST(:passed AS interval)
    WHERE jobs.id = :job_id AND {OURS} AND jobs.question_id = CAST(:question_id AS uuid)
    RETURNING jobs.question_id
)
UPDATE {{s}}.questions AS questions
SET expires_at = expires_at - CAST(:passed AS interval), remind_at = remind_at - CAST(:passed AS interval)
FROM j WHERE questions.id = j.question_id AND questions.status = 'pending'
RETURNING questions.id""",
)
"""The deadline of a job, and of the question that it is parked on, as they will be when so much time has passed."""


class NeverAsked(AssertionError):
    """Nobody asked for this key. `open`: the keys of the questions that were open instead."""

    def __init__(self, key: str, *, waited: timedelta, others: tuple[str, ...]) -> None:
        there = f"open were {', '.join(map(shown, others))}" if others else "no question was open"
        super().__init__(f"nothing asked {shown(key)} within {waited.total_seconds():g} s; {there}")
        self.key = key
        self.open = others


@dataclass(frozen=True)
class Human:
    """Whoever answers in a test. `patience`: how long a test waits for a question, in real time."""

    supervise: Supervisor
    patience: timedelta = timedelta(seconds=60)

    def answers(
        self,
        key: str,
        value: Any,
        *,
        after: timedelta = NO_TIME,
        job: AsyncResult[Any] | str | None = None,
        actor: str = "user:human",
    ) -> Moved:
        """Wait for the question `key` (of `job`, else of any), let `after` pass, and answer it as `actor`.

        Raises `NeverAsked`, and what `Supervisor.answer` raises: `QuestionClosed` where `after` was too long.
        """
        question = self.let_pass(after, key, job=job)
        return self.supervise.answer(question.id, value, actor=actor, seen=question.digest)

    def let_pass(self, passed: timedelta, key: str, *, job: AsyncResult[Any] | str | None = None) -> Question:
        """Wait for the question `key` and let time pass in which nobody answers it: its deadlines come nearer.

        What is over then, the worker's sweep ends. Raises `NeverAsked`.
        """
        question = self.asked(key, job=job)
        if passed > NO_TIME:
            self.supervise.door.one(PASS_TIME, job_id=question.job_id, question_id=question.id, passed=passed)
        return question

    def asked(self, key: str, *, job: AsyncResult[Any] | str | None = None) -> Question:
        """Wait until a job is parked on the question `key`. Raises `NeverAsked`."""
        until = time.monotonic() + self.patience.total_seconds()
        while True:
            pending = self._open(job)
            for question in pending:
                if question.key == key:
                    return question
            if time.monotonic() > until:
                raise NeverAsked(key, waited=self.patience, others=tuple(one.key for one in pending))
            time.sleep(POLL_SECONDS)

    def _open(self, job: AsyncResult[Any] | str | None) -> list[Question]:
        job_id = job if job is None or isinstance(job, str) else str(job.id)
        return [one for one in self.supervise.questions(job_id=job_id, page=1000) if one.status == "pending"]
