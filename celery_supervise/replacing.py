"""Celery's replace, as a move of the row: another supervised task takes the job over, with its id.

What is not one supervised task (a plain task, a chain, a group, a chord) goes on under that id as Celery has it, and
the job is over. There the last task must be no job, since there is one of this id already: `ended_plainly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.exceptions import NotRegistered
from celery.result import AsyncResult

from . import queries
from .calling import check_call
from .envelope import input_digest, of_call
from .errors import InvalidInput
from .holding import Replacement
from .runtime import AnyTask, Runtime, attempt_of, is_supervised
from .submitting import checked, due_time, row_of

LAST = {"chain": lambda signature: signature.tasks[-1], "chord": lambda signature: signature.body}


def replaced_by(app: Celery, task_id: str | None) -> Any:
    """The attempt in this thread that is being replaced by a call with its own job's id; None where there is none."""
    current: Any = app.current_worker_task
    attempt = attempt_of(current.request) if current else None
    return attempt if attempt is not None and attempt.replacing and attempt.lease.job_id == task_id else None


def take_over(
    runtime: Runtime, attempt: Any, task: AnyTask, args: Any, kwargs: Any, *, said: Any, options: Mapping[str, Any]
) -> AsyncResult[Any]:
    """Let `task` take over the job of `attempt`. Raises what a submit does; control flow where the attempt is over."""
    if said:
        raise InvalidInput("supervise", "cannot be given to a replacement: it goes on as the job that it replaces")
    rest = dict(options)
    check_call(rest)
    due = due_time(runtime.app, rest.pop("countdown", None), rest.pop("eta", None))
    rest.pop("expires", None)  # `start_by` is for the first start only
    rest["parent_id"] = attempt.request.parent_id  # Celery's is the job's own id (5.4-5.7)
    job_id = attempt.lease.job_id
    envelope = checked(runtime, of_call(runtime.app, task, job_id, args, kwargs, rest, again=True))
    digest = input_digest(task.name, args, kwargs)
    row = row_of(runtime, task, job_id, envelope, digest=digest)
    attempt.retried = attempt.holding.replace(
        Replacement(
            **{name: getattr(row, name) for name in Replacement.OF_JOB},
            due=due,
        )
    )
    attempt.publish(attempt.retried)
    result: AsyncResult[Any] = task.AsyncResult(job_id)
    return result


def ended_plainly(runtime: Runtime, attempt: Any, signature: Any) -> Any:
    """The signature of a replacement, whose last task is no job, or else is one that can take this one over."""
    if signature.get("subtask_type") is None and _can_take_over(runtime, attempt, signature):
        return signature
    if _is_plain(runtime.app, _last(signature)):
        return signature
    return signature | runtime.app.tasks["celery.accumulate"].s(index=0)  # what Celery itself ends a group with


def _can_take_over(runtime: Runtime, attempt: Any, signature: Any) -> bool:
    task: Any = _known(runtime.app, signature)
    if task is None or not is_supervised(task.name, task) or runtime.settings.submit != "row":
        return False
    job = queries.job(runtime.door, attempt.lease.job_id)
    return job is not None and job.idempotency_key is None  # a key is found by the task that it was given to


def _last(signature: Any) -> Any:
    """The task that will have the id; None for a group, which Celery ends by itself."""
    while (kind := signature.get("subtask_type")) in LAST:
        signature = LAST[kind](signature)
    return None if kind == "group" else signature


def _is_plain(app: Celery, signature: Any) -> bool:
    if signature is None:
        return True
    task = _known(app, signature)
    return task is not None and not is_supervised(task.name, task)


def _known(app: Celery, signature: Any) -> Any:
    try:
        return app.tasks[signature.task]
    except NotRegistered:
        return None
