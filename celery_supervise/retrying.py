"""Celery's retry, as a move of the row: committed before anything is published (5.4-5.7 publish first)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from celery.exceptions import Retry as CeleryRetry
from celery.result import AsyncResult

from .envelope import input_digest, of_call, of_request
from .holding import Retry
from .outcomes import failure_of
from .runtime import AnyTask, Runtime, attempt_of
from .submitting import checked, due_time, pack, when


def resubmit(
    runtime: Runtime, task: AnyTask, args: Any, kwargs: Any, *, options: Mapping[str, Any]
) -> AsyncResult[Any]:
    """What `retry()` sends: the same job, back to pending, with a later ticket.

    Called by Celery's own `retry()` inside the running body. Raises control flow where the attempt is over.
    """
    attempt = attempt_of(task.request)
    rest = dict(options)
    due = due_time(runtime.app, rest.pop("countdown", None), rest.pop("eta", None))
    rest.pop("expires", None)  # `start_by` is for the first start only
    digest = input_digest(task.name, args, kwargs)
    rest |= _kept(task, digest)
    envelope = checked(runtime, of_call(runtime.app, task, task.request.id, args, kwargs, rest, again=True))
    error = attempt.spent or sys.exc_info()[1]
    failure = failure_of(runtime, task, error) if error is not None else None
    attempt.spent = error if isinstance(error, Exception) else not_again(task)
    spent = failure_of(runtime, task, attempt.spent).stored
    retry = Retry(
        due,
        pack(runtime, envelope),
        digest,
        retry_for=task.supervise.retry_for,
        out_of_tries=out_of_tries(attempt, rest.get("retries") or 0),
        spent=spent,
    )
    attempt.retried = attempt.holding.retry(retry, failure)
    attempt.publish(attempt.retried)
    result: AsyncResult[Any] = task.AsyncResult(task.request.id)
    return result


def _kept(task: AnyTask, digest: str) -> dict[str, Any]:
    """What Celery's retry forgets of a call: what hides its arguments (5.4-5.7), that no result is wanted (5.4-5.6)."""
    said = task.request.__dict__
    names = ["ignore_result"]
    if digest == input_digest(task.name, task.request.args, task.request.kwargs):
        names += ["argsrepr", "kwargsrepr"]
    return {name: said[name] for name in names if said.get(name) is not None}


def not_again(task: AnyTask) -> Exception:
    """What a job fails with that was to be retried without an error of its own, and is not."""
    error: Exception = task.MaxRetriesExceededError(
        f"Can't retry {task.name}[{task.request.id}]: it is not tried again"
    )
    return error


def out_of_tries(attempt: Any, retries: int) -> bool:
    """Whether this is one retry too many, the attempts that were lost up to this claim being tries as well.

    `retries` itself, which bodies see, stays Celery's own.
    """
    limit = attempt.max_retries
    return limit is not None and retries + attempt.lease.lost_count > limit


def retry_of(runtime: Runtime, task: AnyTask, request: Any, error: CeleryRetry) -> Retry:
    """The retry that a body asked for by raising `Retry` itself, without `self.retry()`."""
    due = when(runtime.app, error.when if error.when is not None else task.default_retry_delay)
    envelope = of_request(runtime.app, task, request)
    digest = input_digest(task.name, request.args, request.kwargs)
    spent = failure_of(runtime, task, not_again(task)).stored
    return Retry(due, pack(runtime, envelope), digest, retry_for=task.supervise.retry_for, spent=spent)
