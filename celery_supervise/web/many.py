"""One operation on many jobs: first which, with their generations; then that list comes back, and is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from celery_supervise.bulk import Outcome, Target
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved
from celery_supervise.policy import Scope
from celery_supervise.views import View, moved_view
from celery_supervise.words import cancelled, paused, resumed

from .jobs import whose
from .login import need
from .moves import Seconds, WhyText
from .problems import invalid, problem_of
from .reading import Body, Jobs, Parameters, Post, Who, described
from .shapes import ChoiceShape, OutcomesShape

MOST: Final = 1000

_SAY: Final[Mapping[str, Callable[[Moved], str]]] = {"cancel": cancelled, "pause": paused, "resume": resumed}

router = APIRouter(tags=["many jobs"])


class Action(str, Enum):
    """What is done to each."""

    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    EXTEND = "extend"
    RERUN = "rerun"

    __str__ = str.__str__


class Chosen(Parameters):
    """Which jobs: at least one of these, or `everything`."""

    state: tuple[State, ...] = ()
    task: str | None = None
    owner: Annotated[str | None, Field(description="Of those who see everybody's jobs only.")] = None
    queue: str | None = None
    stop_reason: str | None = None
    everything: bool = False
    limit: Annotated[int, Field(ge=1, le=MOST)] = MOST

    @property
    def narrows(self) -> bool:
        """Whether it says which jobs."""
        return bool(self.state) or any(one is not None for one in (self.task, self.owner, self.queue, self.stop_reason))


class OneOfMany(Body):
    """A job, as it was when it was chosen."""

    job_id: str
    expected_generation: Annotated[int, Field(ge=1, le=2**31 - 1)]


class Many(Body):
    """The list that was chosen, and what else the operation needs."""

    targets: Annotated[list[OneOfMany], Field(min_length=1, max_length=MOST)]
    why: WhyText = None
    deadline: datetime | None = None
    by_seconds: Seconds | None = None
    from_checkpoints: bool = False
    with_callbacks: bool = False


@router.get("/bulk/{action}", response_model=ChoiceShape)
def choose(action: Action, who: Who, service: Jobs, given: Annotated[Chosen, Query()]) -> Any:
    """The jobs on which it would do something, oldest first, with their generations. Changes nothing."""
    owner = whose(who, given.owner)
    if given.everything is given.narrows:
        raise invalid("filter", "say which jobs are meant, or that all are, one of the two")
    chosen = service.choose(
        str(action),
        task=given.task,
        owner=owner,
        states=given.state or None,
        queue=given.queue,
        reason=given.stop_reason,
        everything=given.everything and owner is None,  # all of one owner's are not all
        limit=given.limit,
    )
    targets = [
        {"job_id": one.job_id, "expected_generation": one.generation, "state": one.state, "task": one.task}
        for one in chosen.targets
    ]
    return {"targets": targets, "returned_count": len(targets), "total_count": chosen.total_count}


@router.post("/bulk/{action}", status_code=202, response_model=OutcomesShape, openapi_extra=described(Many))
def act(action: Action, call: Post) -> Any:
    """Do it to each, in the order of their ids; one that is refused does not keep the others."""
    need(call.who, Scope.OWNER)
    given = call.raw.read(Many)
    targets = [Target(one.job_id, one.expected_generation) for one in given.targets]
    outcomes = _acts(call.service, given, call.by)[action](targets)
    return {"outcomes": [_outcome(action, one) for one in outcomes]}


def _acts(service: Any, given: Many, by: dict[str, Any]) -> dict[Action, Callable[..., Sequence[Outcome]]]:
    span = None if given.by_seconds is None else timedelta(seconds=given.by_seconds)
    again = {"from_checkpoints": given.from_checkpoints, "with_callbacks": given.with_callbacks}
    return {
        Action.CANCEL: lambda jobs: service.cancel_each(jobs, why=given.why, **by),
        Action.PAUSE: lambda jobs: service.pause_each(jobs, **by),
        Action.RESUME: lambda jobs: service.resume_each(jobs, **by),
        Action.EXTEND: lambda jobs: service.extend_each(jobs, deadline=given.deadline, by=span, **by),
        Action.RERUN: lambda jobs: service.rerun_each(jobs, **again, **by),
    }


def _outcome(action: Action, one: Outcome) -> View:
    told: dict[str, Any] = {"job_id": one.job_id, "tried": one.tried}
    if one.error is not None:
        problem = problem_of(one.error)
        return {**told, "status": problem.status, "problem": {"code": problem.code, "detail": problem.detail}}
    if isinstance(one.moved, Moved):
        said = _SAY[action](one.moved) if action in _SAY else "done"
        return {**told, "status": 202, "moved": moved_view(one.moved, said)}
    return {**told, "status": 202, "successor": one.moved.job_id if one.moved else None}
