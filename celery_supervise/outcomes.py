"""Results and exceptions of jobs: how they are stored, read back, and shown in Celery's result backend again."""

from __future__ import annotations

import json
import traceback
from types import FrameType
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
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(
        type=f"{type(error).__module__}.{type(error).__qualname__}",
        message=printable(text_of(error)),
        stored=_kept(runtime, task, error),
        traceback=printable(text)[-MAX_TRACEBACK:],
    )


def _kept(runtime: Runtime, task: AnyTask, error: BaseException) -> Stored | None:
    """The exception, to be raised again; None where it cannot be: an error that cannot be told must not be another."""
    try:
        told = task.backend.prepare_exception(error, "json")
        kept, key_id = runtime.codec.encode(json.dumps(told, default=str).encode("utf-8"))
    except Exception as why:  # noqa: BLE001  # the exception's own code, the backend's and the shop's codec run here
        logger.warning("supervise.error_not_kept", extra={"error": type(error).__name__, "why": text_of(why)})
        return None
    return Stored(kept, "exception", key_id)


def text_of(error: BaseException) -> str:
    """What an exception says; one that cannot say it is named."""
    try:
        return str(error)
    except Exception as why:  # noqa: BLE001  # the exception's own code
        return f"it has no text: its __str__ raises {type(why).__name__}"


def tellable(error: Exception) -> Exception:
    """An error as Celery is told it: ours have attributes, which neither a pipe nor a result backend could rebuild.

    A MemoryError of a body would end the worker's main process (5.4-5.7), and all that it runs.
    """
    if isinstance(error, MemoryError):
        return JobFailed(f"{type(error).__name__}: {text_of(error)}")
    if not isinstance(error, SuperviseError) or isinstance(error, JobEnded):
        return error if _is_told_whole(error) else JobFailed(f"{type(error).__name__}: {text_of(error)}")
    told = JobFailed(f"{type(error).__name__}: {error}")
    told.__cause__ = error  # with its traceback: given to both, it would be printed twice
    return told


def _is_told_whole(error: Exception) -> bool:
    """Whether Celery could tell of it: it makes texts of it in several places."""
    try:
        str(error), repr(error)
    except Exception:  # noqa: BLE001  # the exception's own code
        return False
    return True


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
    while frames and _is_exit(frames[-1]):
        frames.pop()
    origin = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return origin.partition(".")[0] in POOLS


def _is_exit(frame: FrameType) -> bool:
    """The pool puts a function of its own in the place of `sys.exit` (5.4-5.7): whoever called that raised it."""
    return frame.f_code.co_name == "exit" and frame.f_globals.get("__name__") == "billiard.pool"
