"""What can be asked of the service: jobs, questions, logs, results. Changes nothing.

Foreign and absent look alike: both are `JobNotFound` or `QuestionNotFound`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from . import queries, results
from .cleanups import cleanups
from .errors import Conflict, JobNotFound, QuestionNotFound, Unreadable
from .intake import check_before, check_events, check_filters, check_page, check_states, is_name
from .lifecycle import State
from .model import Answer, Attempt, Cleanup, Job, LogPage, Question, Rejected, Vote
from .rejected import rejected, value_of
from .store.door import Door
from .store.joining import Joined
from .values import IDENTITY, Codec, decode


class Reader:
    """The reads of the service, in one namespace of one schema."""

    def __init__(self, door: Door, *, codec: Codec = IDENTITY) -> None:
        self.door = door
        self.codec = codec

    def job(self, job_id: str, *, owner: str | None = None) -> Job:
        """The job. Raises `JobNotFound` also where it belongs to somebody else."""
        return self._job(job_id, owner)

    def jobs(
        self,
        *,
        owner: str | None = None,
        states: Sequence[State] | None = None,
        task: str | None = None,
        prefix: str | None = None,
        page: int = 50,
        skip: int = 0,
    ) -> tuple[Sequence[Job], int]:
        """A page of jobs, newest first, and the exact number of all that match. Raises `InvalidInput`."""
        check_page(page, skip)
        check_filters(owner=owner, task=task, prefix=prefix)
        return queries.jobs(
            self.door, owner_id=owner, states=check_states(states), task=task, prefix=prefix, page=page, skip=skip
        )

    def question(self, question_id: UUID | str, *, owner: str | None = None) -> Question:
        """One question. Raises `QuestionNotFound`."""
        return self._question(question_id, owner, None)

    def questions(self, *, job_id: str | None = None, owner: str | None = None, page: int = 50) -> Sequence[Question]:
        """The open questions, oldest first; or all that one job asked. Raises `InvalidInput`."""
        check_page(page)
        check_filters(owner=owner, job_id=job_id)
        if job_id is not None:
            return queries.questions_of(self.door, job_id, owner_id=owner)
        return queries.open_questions(self.door, owner_id=owner, page=page)

    def votes(self, question_id: UUID | str, *, owner: str | None = None) -> Sequence[Vote]:
        """What each person has said to a question that needs several, first to last. Raises `QuestionNotFound`."""
        return queries.votes(self.door, self._question(question_id, owner, None).id)

    def attempts(self, job_id: str, *, owner: str | None = None) -> Sequence[Attempt]:
        """Every execution of the job. Raises `JobNotFound`."""
        self._job(job_id, owner)
        return queries.attempts(self.door, job_id)

    def log(
        self,
        job_id: str,
        *,
        owner: str | None = None,
        page: int = 50,
        before: int | None = None,
        events: Sequence[str] | None = None,
    ) -> LogPage:
        """The newest page of the audit log, and exactly how much it withholds.

        `before`: only entries with lower sequence numbers; `events`: only entries of these. The counts are of all
        entries, or of all of these events, wherever the page begins. Raises `JobNotFound`, `InvalidInput`.
        """
        check_page(page)
        check_before(before)
        check_events(events)
        self._job(job_id, owner)
        return queries.log(self.door, job_id, page=page, before=before, events=events)

    def answers(self, job_id: str) -> Mapping[str, Answer]:
        """The accepted answers of the job's current run, by question key."""
        return queries.answers(self.door, job_id, self._job(job_id, None).run_id)

    def value_of(self, answer: Answer) -> Any:
        """What was answered, as plain JSON."""
        return decode(answer.value, codec=self.codec, what=f"answer to {answer.key}")

    def result(self, job_id: str, *, owner: str | None = None) -> Any:
        """The value that a completed job returned.

        Raises `JobNotFound`, `Conflict` where it is not completed, `Unreadable` where it was erased.
        """
        job = self._job(job_id, owner)
        if job.state is not State.COMPLETED:
            raise Conflict("not_completed", state=job.state, actual=job.generation, detail=f"the job is {job.state}")
        stored = queries.payload(self.door, job_id, "result")
        if stored is None and job.erased_at is not None and not job.ignore_result:
            raise Unreadable("result", "it was erased")
        return results.unpack(stored, codec=self.codec) if stored else None

    def rejected(self, job_id: str) -> Sequence[Rejected]:
        """For operators: what attempts of the job brought too late to count. Raises `JobNotFound`."""
        self._job(job_id, None)
        return rejected(self.door, job_id)

    def rejected_value(self, one: Rejected) -> Any:
        """What was returned too late, or the text of the error; None once it is erased. Raises `Unreadable`."""
        return value_of(one, codec=self.codec)

    def cleanups(self, job_id: str, *, owner: str | None = None) -> Sequence[Cleanup]:
        """What is sent if the job does not complete, and what became of it. Raises `JobNotFound`."""
        self._job(job_id, owner)
        return cleanups(self.door, job_id)

    def content(self, question: Question) -> Any:
        """What a question shows: `{"prompt": …, "show": …}`; None once it is erased."""
        if question.content is None:
            return None
        return decode(question.content, codec=self.codec, what=f"question {question.key}")

    def _job(self, job_id: str, owner: str | None, joined: Joined | None = None) -> Job:
        known = is_name(job_id) and (owner is None or is_name(owner))
        job = queries.job(self.door, job_id, owner_id=owner, joined=joined) if known else None
        if job is None:
            raise JobNotFound(job_id)
        return job

    def _question(self, question_id: UUID | str, owner: str | None, joined: Joined | None) -> Question:
        identity = as_question_id(question_id) if owner is None or is_name(owner) else None
        question = queries.question(self.door, identity, owner_id=owner, joined=joined) if identity else None
        if question is None:
            raise QuestionNotFound(str(question_id))
        return question


def as_question_id(question_id: UUID | str) -> UUID | None:
    """A question's id, None where the text is none: an id nobody has is simply not found."""
    if isinstance(question_id, UUID):
        return question_id
    try:
        return UUID(question_id)
    except (ValueError, AttributeError, TypeError):
        return None
