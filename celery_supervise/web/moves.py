"""The routes that ask something of a job: whose it is, what they may, the body, what they have seen, in this order."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter
from pydantic import Field

from celery_supervise.intake import MAX_WHY_BYTES
from celery_supervise.policy import Scope
from celery_supervise.steering import GRACE
from celery_supervise.views import job_view
from celery_supervise.words import cancelled, paused, resumed

from .jobs import JobId
from .login import need
from .reading import Body, Call, Post, described
from .shapes import JobShape, MovedShape

Generation = Annotated[int | None, Field(ge=1, le=2**31 - 1, description="As it was when you looked.")]
WhyText = Annotated[str | None, Field(max_length=MAX_WHY_BYTES, description="For the log.")]
Seconds = Annotated[float, Field(gt=0, le=1e10)]

GENERATION: Final = ("expected_generation",)

router = APIRouter(tags=["jobs"])


class Steer(Body):
    """What was seen of a job."""

    expected_generation: Generation


class Cancel(Steer):
    """How to cancel."""

    why: WhyText = None
    terminate: Annotated[bool, Field(description="End its process if it has not left by itself.")] = False
    grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = GRACE.total_seconds()


class Extend(Steer):
    """Until when: one of the two."""

    deadline: datetime | None = None
    by_seconds: Seconds | None = None

    @property
    def by(self) -> timedelta | None:
        """The span that is added."""
        return None if self.by_seconds is None else timedelta(seconds=self.by_seconds)


class Rerun(Steer):
    """How to run it again."""

    from_checkpoints: bool = False
    with_callbacks: bool = False


def owned(call: Call, job_id: str) -> None:
    """First of all: whose job it is, then what they may. Raises `JobNotFound`, `Problem`."""
    call.service.job(job_id, owner=call.who.owner)
    need(call.who, Scope.OWNER)


@router.post("/jobs/{job_id}/pause", status_code=202, response_model=MovedShape, openapi_extra=described(Steer))
def pause(job_id: JobId, call: Post) -> Any:
    """Ask it to pause: a running job goes on to the end of its current step first."""
    owned(call, job_id)
    given = call.raw.read(Steer, seen=GENERATION)
    done = call.service.pause(job_id, **call.by, expected_generation=given.expected_generation)
    return call.moved(done, paused)


@router.post("/jobs/{job_id}/resume", status_code=202, response_model=MovedShape, openapi_extra=described(Steer))
def resume(job_id: JobId, call: Post) -> Any:
    """Let a paused job go on, or take back a pause that was only asked for."""
    owned(call, job_id)
    given = call.raw.read(Steer, seen=GENERATION)
    done = call.service.resume(job_id, **call.by, expected_generation=given.expected_generation)
    return call.moved(done, resumed)


@router.post("/jobs/{job_id}/cancel", status_code=202, response_model=MovedShape, openapi_extra=described(Cancel))
def cancel(job_id: JobId, call: Post) -> Any:
    """Cancel it: at once where no worker runs it, else at its next step; from now on no other end is possible."""
    owned(call, job_id)
    given = call.raw.read(Cancel, seen=GENERATION)
    done = call.service.cancel(
        job_id,
        **call.by,
        why=given.why,
        terminate=given.terminate,
        grace=timedelta(seconds=given.grace_seconds),
        expected_generation=given.expected_generation,
    )
    return call.moved(done, lambda one: cancelled(one, terminate=given.terminate))


@router.post("/jobs/{job_id}/extend", status_code=202, response_model=MovedShape, openapi_extra=described(Extend))
def extend(job_id: JobId, call: Post) -> Any:
    """Move its deadline, before it is over."""
    owned(call, job_id)
    given = call.raw.read(Extend, seen=GENERATION)
    done = call.service.extend(
        job_id,
        deadline=given.deadline,
        by=given.by,
        **call.by,
        expected_generation=given.expected_generation,
    )
    return call.moved(done, lambda one: "the deadline is moved" if one.changed else "it is that already")


@router.post("/jobs/{job_id}/rerun", status_code=202, response_model=JobShape, openapi_extra=described(Rerun))
def rerun(job_id: JobId, call: Post) -> Any:
    """Run an ended job again, once: a new job, which is the answer."""
    owned(call, job_id)
    given = call.raw.read(Rerun, seen=GENERATION)
    made = call.service.rerun(
        job_id,
        **call.by,
        from_checkpoints=given.from_checkpoints,
        with_callbacks=given.with_callbacks,
        expected_generation=given.expected_generation,
    )
    call.accepted(made.job_id)
    return job_view(call.service.job(made.job_id, owner=call.who.owner))
