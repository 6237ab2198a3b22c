"""Results and exceptions of jobs: how they are stored, read back, and shown in Celery's result backend again."""

from __future__ import annotations

import json
import traceback
from typing import Any
from uuid import uuid4

from celery.exceptions import TaskRevokedError

from . import queries, results
from .errors import JobEnded, JobFailed, SuperviseError
from .events import events_of
from .lifecycle import TERMINAL, State
from .model import Failure, Settlement, Stored
from .relay import settlement_of
from .runtime import AnyTask, Runtime

logger = events_of(__name__)

MAX_TRACEBACK = 20_000  # characters
POOLS = frozenset({"billiard", "celery", "gevent"})  # whose code raises in the middle of a task


def pack_result(runtime: Runtime, value: Any) -> Stored:
    """A result as it is stored: by Celery's own result serialiser. Raises what Celery would, and `TooLarge`."""
    return results.pack(
        value,
        serializer=runtime.app.conf.result_serializer,
        codec=runtime.codec,
        limit=runtime.settings.max_value_bytes,
    )


def unpack_result(runtime: Runtime, stored: Stored) -> Any:
    """A stored result, in a worker of its task."""
    return results.unpack(stored, codec=runtime.codec, trusted=True)


def failure_of(runtime: Runtime, task: AnyTask, error: BaseException) -> Failure:
    """What is kept of an exception: as Celery's result backend stores it, so that it can be raised again."""
    told = task.backend.prepare_exception(error, "json")
    kept, key_id = runtime.codec.encode(json.dumps(told, default=str).encode("utf-8"))
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(
        type=f"{type(error).__module__}.{type(error).__qualname__}",
        message=printable(str(error)),
        stored=Stored(kept, "exception", key_id),
        traceback=printable(text)[-MAX_TRACEBACK:],
    )


def tellable(error: Exception) -> Exception:
    """An error as Celery is told it: ours have attributes, which neither a pipe nor a result backend could rebuild."""
    if not isinstance(error, SuperviseError) or isinstance(error, JobEnded):
        return error
    told = JobFailed(f"{type(error).__name__}: {error}")
    told.__cause__ = error  # with its traceback: given to both, it would be printed twice
    return told


def printable(text: str) -> str:
    """Text that a text column takes: no NUL, no lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def show_again(runtime: Runtime, task: AnyTask, request: Any) -> None:
    """Store a terminal outcome in the result backend again, without calling anything.

    What is away, database or result backend, costs nothing but what people see.
    """
    try:
        job = queries.job(runtime.door, request.id)
        if job is None or job.state not in TERMINAL or job.ignore_result:
            return
        settlement = settlement_of(runtime.door, job.id, job.settle_id or uuid4())
        if settlement is not None:
            _store(runtime, task, request, settlement)
    except Exception as error:  # noqa: BLE001  # each backend raises errors of its own
        logger.warning("supervise.state_not_shown", extra={"job_id": request.id, "why": str(error)})


def _store(runtime: Runtime, task: AnyTask, request: Any, settlement: Settlement) -> None:
    job = settlement.job
    if job.state is State.COMPLETED:
        value = unpack_result(runtime, settlement.outcome) if settlement.outcome else None
        task.backend.store_result(job.id, value, "SUCCESS", request=request)
    elif job.state is State.CANCELLED:
        task.backend.store_result(job.id, TaskRevokedError("cancelled"), "REVOKED", request=request)
    else:
        task.backend.store_result(job.id, runtime.publisher.error_of(settlement), "FAILURE", request=request)


def raised_by_signal(error: BaseException) -> bool:
    """Whether a SystemExit and its like was raised by a signal handler of Celery's, not by the task's code."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    origin = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return origin.partition(".")[0] in POOLS
