"""What answers look like: the same views as the CLI's, as models, so that the API's description is of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, get_type_hints

from pydantic import BaseModel, Field, create_model

from celery_supervise.lifecycle import State
from celery_supervise.listing import Listed
from celery_supervise.model import Attempt, Job, LogEntry, Moved, Question
from celery_supervise.views import ATTEMPT, JOB, MOVED, QUESTION


def _shape(name: str, of: type, names: Sequence[str], **more: Any) -> type[BaseModel]:
    """A model with these fields of a dataclass (or properties), and some more."""
    hints = get_type_hints(of)
    known = {field.name for field in fields(of)}
    typed: dict[str, Any] = {
        one: (hints[one] if one in known else get_type_hints(getattr(of, one).fget)["return"], ...) for one in names
    }
    if "schema" in typed:  # which a model has a method of
        hint, _ = typed.pop("schema")
        typed["schema_"] = (hint, Field(alias="schema"))
    return create_model(name, __doc__=of.__doc__, **typed, **more)


JobShape = _shape("Job", Job, JOB)
AttemptShape = _shape("Attempt", Attempt, ATTEMPT)
QuestionShape = _shape(
    "Question", Question, QUESTION, content=(Any, None), answer=(Any, None), votes=(list[dict[str, Any]], [])
)
MovedShape = _shape("Moved", Moved, MOVED, said=(str, ...))
EntryShape = _shape("LogEntry", LogEntry, ("sequence_num", "event", "actor", "at", "data"))


class JobsShape(BaseModel):
    """A page of jobs, newest first, and exactly how many match. `next`: the cursor of the page after it."""

    jobs: list[JobShape]  # type: ignore[valid-type]  # made above
    returned_count: int
    total_count: int
    next: str | None

    @staticmethod
    def of(page: Listed, views: Sequence[Any]) -> dict[str, Any]:
        """The page."""
        return {
            "jobs": views,
            "returned_count": len(views),
            "total_count": page.total_count,
            "next": page.next,
        }


class LogShape(BaseModel):
    """The newest page of a log, in chronological order, and exactly how much it withholds."""

    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    entries: list[EntryShape]  # type: ignore[valid-type]  # made above


class AttemptsShape(BaseModel):
    """Every execution of a job, first to last."""

    attempts: list[AttemptShape]  # type: ignore[valid-type]  # made above


class CheckpointShape(BaseModel):
    """A place that the job has passed. `size` in bytes, as stored."""

    name: str
    kind: str
    size: int
    saved_at: datetime | None


class CheckpointsShape(BaseModel):
    """What the present run of a job has passed, in order."""

    checkpoints: list[CheckpointShape]


class QuestionsShape(BaseModel):
    """Questions, the oldest first."""

    questions: list[QuestionShape]  # type: ignore[valid-type]  # made above
    returned_count: int
    total_count: int


class WhyShape(BaseModel):
    """Why a job does not move."""

    state: State
    sentence: str


class ResultShape(BaseModel):
    """What a completed job has returned. `unreadable`: why it cannot be told here; then `result` is null."""

    result: Any
    unreadable: str | None


class TargetShape(BaseModel):
    """A job to operate on, as it was when it was chosen."""

    job_id: str
    expected_generation: int
    state: State | None = None
    task: str | None = None


class ChoiceShape(BaseModel):
    """The jobs that an operation would be done to, and how many there are in all."""

    targets: list[TargetShape]
    returned_count: int
    total_count: int


class OutcomeShape(BaseModel):
    """What came of one job. `tried`: False where the database had gone away before."""

    job_id: str
    status: int
    tried: bool
    moved: MovedShape | None = None  # type: ignore[valid-type]  # made above
    successor: str | None = None
    problem: dict[str, Any] | None = None


class OutcomesShape(BaseModel):
    """What came of each."""

    outcomes: list[OutcomeShape]


class HealthShape(BaseModel):
    """Whether jobs can be accepted and looked after."""

    status: str
    checks: dict[str, str]


class ProblemShape(BaseModel):
    """RFC 9457, with a code of a closed list; some have more."""

    type: str
    title: str
    status: int
    code: str
    detail: str | None = None
