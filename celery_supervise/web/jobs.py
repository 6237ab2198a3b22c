"""The routes of jobs: looking. Each first sees whose job it is; what may not be seen is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from celery_supervise import queries
from celery_supervise.asked import asked
from celery_supervise.errors import Unreadable
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.listing import listed
from celery_supervise.model import Job
from celery_supervise.policy import Identity
from celery_supervise.views import View, attempt_view, job_view, jsonable, log_view

from .encoding import encoded
from .problems import forbidden
from .reading import Jobs, Look, NoParameters, Parameters, Who
from .shapes import (
    AttemptsShape,
    CheckpointsShape,
    JobShape,
    JobsShape,
    LogShape,
    QuestionsShape,
    ResultShape,
    WhyShape,
)
from .tags import epoch, tag_of

LONGEST_WAIT: Final = 30.0
LOOK_EVERY: Final = 0.5
STREAM_SECONDS: Final = 300.0
"""Then a stream ends, its reader comes again, and is asked again who it is."""

JobId = Annotated[str, Path(description="The job's id: its Celery task id.")]
PageSize = Annotated[int, Field(ge=1, le=1000)]

router = APIRouter(tags=["jobs"])


class Filters(Parameters):
    """Which jobs. Each only narrows."""

    state: tuple[State, ...] = ()
    task: str | None = None
    owner: Annotated[str | None, Field(description="Of those who see everybody's jobs only.")] = None
    queue: str | None = None
    stop_reason: Annotated[str | None, Field(description="A stop reason, or its beginning up to a colon.")] = None
    older_than: Annotated[float | None, Field(ge=0, le=1e10, description="Seconds since the submit.")] = None
    text: Annotated[str | None, Field(description="In id, task, owner or message of progress.")] = None
    cursor: Annotated[str | None, Field(description="`next` of the page before.")] = None
    limit: PageSize = 50


class Waiting(Parameters):
    """How long to wait for a change, with `If-None-Match`."""

    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="Seconds.")] = 0


class LogFilters(Parameters):
    """Which part of a log."""

    limit: PageSize = 50
    before: Annotated[int | None, Field(ge=0, le=2**31 - 1, description="Only lower sequence numbers.")] = None
    event: tuple[str, ...] = ()


def whose(who: Identity, owner: str | None) -> str | None:
    """Whose jobs are meant. Raises `Problem` where others' are."""
    if who.owner is None or owner in {None, who.owner}:
        return owner if who.owner is None else who.owner
    raise forbidden("only who sees everybody's jobs may choose an owner")


@router.get("/jobs", response_model=JobsShape)
def jobs(who: Who, service: Jobs, given: Annotated[Filters, Query()]) -> Any:
    """Jobs, newest first, and exactly how many match."""
    page = listed(
        service.door,
        owner=whose(who, given.owner),
        states=given.state or None,
        task=given.task,
        queue=given.queue,
        reason=given.stop_reason,
        older_than=None if given.older_than is None else timedelta(seconds=given.older_than),
        text=given.text,
        cursor=given.cursor,
        page=given.limit,
    )
    return JobsShape.of(page, [job_view(job) for job in page.jobs])


@router.get("/jobs/{job_id}", response_model=JobShape, responses={304: {"description": "It has not changed."}})
async def job(job_id: JobId, given: Annotated[Waiting, Query()], call: Look) -> Any:
    """One job. With `If-None-Match` and `wait` the answer comes when it changes, or after that time."""
    known = call.request.headers.get("if-none-match")
    until = asyncio.get_running_loop().time() + given.wait
    since = await run_in_threadpool(epoch, call.service.door)
    while True:
        tag, view = await run_in_threadpool(_seen, call.service, job_id, call.who, since)
        if known is None or tag not in known:
            call.response.headers["ETag"] = tag
            return view
        if asyncio.get_running_loop().time() >= until or await call.request.is_disconnected():
            return Response(status_code=304, headers={"ETag": tag})
        await asyncio.sleep(LOOK_EVERY)


def _seen(service: Any, job_id: str, who: Identity, since: int) -> tuple[str, View]:
    """The job and its tag. `since`: the epoch, the same for as long as a request lasts."""
    found = service.job(job_id, owner=who.owner)
    return tag_of(found, since), job_view(found)


@router.get(
    "/jobs/{job_id}/events",
    response_class=StreamingResponse,
    responses={200: {"description": "The job, each time it has changed.", "content": {"text/event-stream": {}}}},
)
async def events(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """The job as a stream of server-sent events, until it ends, or for five minutes."""
    look = partial(_seen, service, job_id, who, await run_in_threadpool(epoch, service.door))
    first = await run_in_threadpool(look)
    return StreamingResponse(_stream(look, first), media_type="text/event-stream")


async def _stream(look: Callable[[], tuple[str, View]], first: tuple[str, View]) -> AsyncIterator[bytes]:
    clock = asyncio.get_running_loop().time
    until, told = clock() + STREAM_SECONDS, None
    tag, view = first
    while True:
        if tag != told:
            yield b"event: job\nid: " + tag.strip('"').encode() + b"\ndata: " + encoded(view) + b"\n\n"
            told = tag
        if view["state"] in TERMINAL or clock() > until:
            return
        await asyncio.sleep(LOOK_EVERY)
        tag, view = await run_in_threadpool(look)


@router.get("/jobs/{job_id}/log", response_model=LogShape)
def log(job_id: JobId, who: Who, service: Jobs, given: Annotated[LogFilters, Query()]) -> Any:
    """The newest page of the audit log, and exactly how much it withholds."""
    page = service.log(job_id, owner=who.owner, page=given.limit, before=given.before, events=given.event or None)
    return log_view(page)


@router.get("/jobs/{job_id}/attempts", response_model=AttemptsShape)
def attempts(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """Every execution."""
    return {"attempts": [attempt_view(one) for one in service.attempts(job_id, owner=who.owner)]}


@router.get("/jobs/{job_id}/checkpoints", response_model=CheckpointsShape)
def checkpoints(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """What the present run has passed, in order; never what it remembers there."""
    found: Job = service.job(job_id, owner=who.owner)
    nodes = queries.nodes(service.door, found.id, found.run_id)
    return {"checkpoints": [asdict(node) for node in nodes.values()]}


@router.get("/jobs/{job_id}/questions", response_model=QuestionsShape)
def questions(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """All that it has asked, with the answers."""
    service.job(job_id, owner=who.owner)
    return _questions(service, service.questions(job_id=job_id, owner=who.owner))


def _questions(service: Any, found: Sequence[Any]) -> Any:
    views = [asked(service, one).view for one in found]
    return {"questions": views, "returned_count": len(views), "total_count": len(views)}


@router.get("/jobs/{job_id}/why", response_model=WhyShape)
def why(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """Why it does not move, in one sentence."""
    return service.why(job_id, owner=who.owner)


@router.get("/jobs/{job_id}/result", response_model=ResultShape)
def result(job_id: JobId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """What it has returned, once it is completed."""
    try:
        return {"result": jsonable(service.result(job_id, owner=who.owner)), "unreadable": None}
    except Unreadable as error:
        return {"result": None, "unreadable": error.problem}
