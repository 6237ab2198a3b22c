"""Submit: from the arguments of `apply_async` to a row, then to a message. The broker cannot refuse a job."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID, uuid4

from celery import Celery
from celery.result import AsyncResult
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu.utils.uuid import uuid

from .calling import check_call
from .envelope import Envelope, input_digest, of_call
from .errors import InvalidInput, JobExists, TooLarge
from .intake import LONGEST
from .model import NewJob, Stored, When
from .options import CallOptions, Options
from .runtime import AnyTask, Runtime, attempt_of, in_worker, is_supervised
from .telling import is_telling
from .values import check_name

ENVELOPE = "envelope"


class Gathered(Protocol):
    """What gathers the members of a group."""

    def add(self, job: NewJob, *, limited: bool) -> None:
        """Take a job, to have it accepted with others; `limited` as of `Supervisor.submit`."""


def submit(
    runtime: Runtime,
    task: AnyTask,
    args: Any,
    kwargs: Any,
    *,
    task_id: str | None,
    options: Mapping[str, Any],
    call: CallOptions,
    group: Gathered | None = None,
) -> AsyncResult[Any]:
    """Accept a job and publish it; the result is that of Celery's own `apply_async`.

    `group`: it is a member of one, accepted together with the others, except where another job may be found for it.
    """
    job_id = check_name("task_id", task_id or uuid())
    job = new_job(runtime, task, job_id, args, kwargs, options=options, call=call)
    limited = not follows(runtime.app, job_id, options)
    if group is not None and job.idempotency_key is None and call.session is None and call.using is None:
        group.add(job, limited=limited)
        return _result(runtime.app, task, job.id, job, options)
    made = runtime.supervisor.submit(job, actor="producer", limited=limited, session=call.session, using=call.using)
    return _result(runtime.app, task, made.job_id, job, options)


def follows(app: Celery, job_id: str, options: Mapping[str, Any]) -> bool:
    """Whether Celery makes this call of what came with a task that has ended: link, chain, chord, errbacks.

    It was accepted with that task. Refused, it would be lost, or the end of that task be told as a failure (5.4-5.7).
    """
    if is_telling():
        return True
    task: Any = app.current_worker_task if in_worker(app) else None
    if task is None or task.request.is_eager:
        return False
    if is_supervised(task.name, task):
        return attempt_of(task.request) is None  # its body has been left
    return task.name.startswith("celery.") or _is_named_by(task.request, job_id, options)


def _is_named_by(request: Any, job_id: str, options: Mapping[str, Any]) -> bool:
    """Whether Celery calls this for a plain task: it names the parent (5.4-5.7), as callers do not, or the chord."""
    chord = (request.chord or {}).get("options") or {}
    return options.get("parent_id") == request.id or chord.get("task_id") == job_id


def accept_message(runtime: Runtime, task: AnyTask, message: Envelope) -> None:
    """Accept a job from a finished message; where there is one of its id already, nothing. Raises as `submit`."""
    job_id = str(message.headers["id"])
    digest = hashlib.sha256(message.body).hexdigest()
    with suppress(JobExists):  # made by a worker, of the same message
        runtime.supervisor.submit(row_of(runtime, task, job_id, message, digest=digest), actor="cleanup", limited=False)


def new_job(
    runtime: Runtime,
    task: AnyTask,
    job_id: str,
    args: Any,
    kwargs: Any,
    *,
    options: Mapping[str, Any],
    call: CallOptions,
) -> NewJob:
    """The row that this call will be."""
    rest = dict(options)
    check_call(rest)
    due = due_time(runtime.app, rest.pop("countdown", None), rest.pop("eta", None))
    start_by = when(runtime.app, rest.pop("expires", None))
    envelope = checked(runtime, of_call(runtime.app, task, job_id, args, kwargs, rest))
    return row_of(
        runtime,
        task,
        job_id,
        envelope,
        digest=input_digest(task.name, args, kwargs),
        due=due,
        start_by=start_by,
        call=call,
    )


def row_of(
    runtime: Runtime,
    task: AnyTask,
    job_id: str,
    envelope: Envelope,
    *,
    digest: str,
    due: When | None = None,
    start_by: When | None = None,
    call: CallOptions = CallOptions(),  # noqa: B008  # frozen
    ticket_id: UUID | None = None,
) -> NewJob:
    """A new job for an envelope."""
    said: Options = task.supervise
    settings = runtime.settings
    stored = pack(runtime, envelope)
    default = timedelta(seconds=settings.deadline_seconds) if settings.deadline_seconds else None
    return NewJob(
        id=job_id,
        task=task.name,
        queue=envelope.queue,
        envelope=stored,
        input_digest=digest,
        ticket_id=ticket_id or uuid4(),
        run_id=uuid4(),
        owner_id=call.owner if call.owner is not None else runtime.owner(),
        idempotency_key=call.idempotency_key,
        input_version=call.input_version,
        task_version=said.version,
        priority=envelope.properties.get("priority"),
        due=due,
        deadline=call.deadline or said.deadline or default,
        start_by=start_by,
        max_active=call.max_active or said.max_active,
        stall_after=said.stall_after or timedelta(seconds=settings.stall_seconds),
        on_stall=said.on_stall,
        lost_limit=said.lost_attempts or settings.lost_attempts,
        ignore_result=bool(envelope.headers.get("ignore_result")),
        stored_bytes=len(stored.data),
    )


def checked(runtime: Runtime, envelope: Envelope) -> Envelope:
    """The envelope of a call. Raises `TooLarge` for arguments (with callbacks) over the limit of one value."""
    limit = runtime.settings.max_value_bytes
    if len(envelope.body) > limit:
        raise TooLarge("arguments", size=len(envelope.body), limit=limit)
    return envelope


def pack(runtime: Runtime, envelope: Envelope) -> Stored:
    """An envelope as it is stored."""
    data, key_id = runtime.codec.encode(envelope.pack())
    return Stored(data, ENVELOPE, key_id)


def due_time(app: Celery, countdown: float | None, eta: Any) -> When | None:
    """When a call wants its job to start; None: now."""
    if countdown is not None:
        return timedelta(seconds=_bounded(countdown))
    return when(app, eta)


def _bounded(countdown: float) -> float:
    """Seconds that a time can hold: a backoff that doubles for ever is some day too large for a float, too."""
    if countdown != countdown:  # noqa: PLR0124  # not a number
        raise InvalidInput("countdown", "must be a number of seconds")
    return float(max(0, min(countdown, LONGEST.total_seconds())))


def when(app: Celery, value: Any) -> When | None:
    """A time as Celery's callers give it: seconds from now, a datetime (Celery reads a naive one as UTC), ISO text."""
    if value is None or isinstance(value, timedelta):
        return value
    if isinstance(value, (int, float)):
        return timedelta(seconds=float(value))
    moment: Any = maybe_iso8601(value)
    aware: datetime = maybe_make_aware(moment, app.timezone)
    return aware


def _result(app: Celery, task: AnyTask, job_id: str, job: NewJob, options: Mapping[str, Any]) -> AsyncResult[Any]:
    result: AsyncResult[Any] = (options.get("result_cls") or task.AsyncResult)(job_id)
    result.ignored = job.ignore_result
    parent = app.current_worker_task
    if parent and options.get("add_to_parent", True):
        parent.add_trail(result)
    return result
