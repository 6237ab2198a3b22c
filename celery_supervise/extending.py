"""How a time is moved before it is over: a job's deadline, the time to answer a question. Brings nothing back to life.

Both are judged on the database's clock, under the job's lock: what is over by then stays so.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from . import refusals
from .errors import JobNotFound
from .holding import moved
from .intake import LATEST, check_actor, check_extension
from .model import Job, Moved, Question, When
from .service import Service, unchanged
from .store.births import when
from .store.door import repeated
from .store.extending import CLOCKS, EXTEND, EXTEND_QUESTION, EXTENDED
from .store.people import LOCK


class Extending(Service):
    """What owners and operators do with the clocks of a job."""

    def extend(
        self,
        job_id: str,
        *,
        deadline: When | None = None,
        by: timedelta | None = None,
        actor: str,
        owner: str | None = None,
        expected_generation: int | None = None,
    ) -> Moved:
        """Move a job's deadline, or give one to a job that has none; only before its time is over.

        `deadline`: an aware datetime, or a timedelta from the database's now; may be earlier than the present one.
        `by`: a timedelta that is added to the present one. Exactly one of the two. The deadline that the job has
        already changes nothing. Raises `JobNotFound`, `InvalidInput` (past, too far, no deadline to add to),
        `Conflict` (``expired``, ended, stale, busy).
        """
        check_extension("deadline", deadline, by)
        params = self._common(job_id, actor, owner, expected_generation) | _times(deadline, by)
        row, again = repeated(lambda: self.door.locked(LOCK, EXTEND, **params))
        if row is not None:
            return moved(row)
        job = self._job(job_id, owner)
        if again and self._has_extended(params):
            return replace(unchanged(job), changed=True)
        return self._not_extended(job, deadline, by, expected_generation)

    def extend_question(
        self,
        question_id: UUID | str,
        *,
        until: When | None = None,
        by: timedelta | None = None,
        actor: str,
        owner: str | None = None,
        expected_generation: int | None = None,
    ) -> Moved:
        """Move the time until which an open question can be answered; only before it is over.

        `until`: an aware datetime, or a timedelta from the database's now. `by`: a timedelta that is added to the
        present time. Exactly one of the two. A reminder moves along. Raises `QuestionNotFound`, `InvalidInput`,
        `QuestionClosed` (answered, expired, ended, withdrawn), `Conflict` (stale, busy).
        """
        check_extension("until", until, by)
        question = self._question(question_id, owner, None)
        params = {
            **self._common(question.job_id, check_actor(actor), owner, expected_generation),
            **_times(until, by),
            "question_id": question.id,
        }
        row, again = repeated(lambda: self.door.locked(LOCK, EXTEND_QUESTION, **params))
        if row is not None:
            return moved(row)
        if again and self._has_extended(params):
            return replace(unchanged(self._job(question.job_id, owner)), changed=True, question_id=question.id)
        return self._question_not_extended(self._question(question_id, owner, None), until, by, expected_generation)

    def _has_extended(self, params: dict[str, Any]) -> bool:
        found = self.door.one(EXTENDED, job_id=params["job_id"], operation=params["operation"])
        return found is not None

    def _not_extended(self, job: Job, deadline: When | None, by: timedelta | None, expected: int | None) -> Moved:
        now, over = self._clocks(job)
        error = refusals.cannot_extend(job, expected, over=over) or refusals.unusable_time(
            "deadline", job.deadline, deadline, by, now
        )
        if error is not None:
            raise error
        if deadline is not None and deadline == job.deadline:
            return unchanged(job)
        raise refusals.busy(job)

    def _question_not_extended(
        self, question: Question, until: When | None, by: timedelta | None, expected: int | None
    ) -> Moved:
        job = self._job(question.job_id, None)
        now, over = self._clocks(job)
        error = refusals.cannot_extend_question(question, job, expected, over=over) or refusals.unusable_time(
            "until", question.expires_at, until, by, now
        )
        if error is not None:
            raise error
        if until is not None and until == question.expires_at:
            return unchanged(job)
        raise refusals.busy(job)

    def _clocks(self, job: Job) -> tuple[datetime, bool]:
        row = self.door.one(CLOCKS, job_id=job.id)
        if row is None:  # pruned between two reads
            raise JobNotFound(job.id)
        return row["at"], row["over"]


def _times(to: When | None, by: timedelta | None) -> dict[str, Any]:
    return {**when("to", to), "by": by, "latest": LATEST, "operation": str(uuid4())}
