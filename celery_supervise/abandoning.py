"""Cleanups as messages: what Celery would send for a signature, kept until it is sent. Moves no job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery.canvas import Signature
from celery.exceptions import NotRegistered

from .envelope import Envelope, of_call
from .errors import InvalidInput
from .model import Stored
from .runtime import Runtime
from .submitting import checked, pack
from .wording import shown

TIMES = ("countdown", "eta", "expires")


def packed(runtime: Runtime, signature: Any) -> Stored:
    """The message of a signature, as it is stored. Raises `InvalidInput`, `TooLarge`, what Celery raises."""
    if not isinstance(signature, Signature) or signature.get("subtask_type"):
        raise InvalidInput("signature", "must be a signature of one task: task.s(…) or task.si(…)")
    for name in TIMES:
        if signature.options.get(name) is not None:
            raise InvalidInput("signature", f"cannot have {name}: it is sent when the job is over")
    return pack(runtime, checked(runtime, _message(runtime, signature)))


def _message(runtime: Runtime, signature: Any) -> Envelope:
    try:
        task = runtime.app.tasks[signature.task]
    except NotRegistered as error:
        raise InvalidInput("signature", f"the task {shown(signature.task)} is not registered in this worker") from error
    options = {name: value for name, value in signature.options.items() if name not in {"task_id", "supervise"}}
    args, kwargs, options = _prepared(task, signature, options)
    return of_call(runtime.app, task, "", args, kwargs, options)


def _prepared(task: Any, signature: Any, options: Mapping[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """What `Task.apply_async` does before it sends (5.4-5.7): typing, the task's own options."""
    args, kwargs = tuple(signature.args), dict(signature.kwargs)
    header = getattr(task, "__header__", None)
    if task.typing and header is not None:
        header(*args, **kwargs)
    merged = {**task._get_exec_options(), **options}  # noqa: SLF001  # no public name for them (5.4-5.7)
    merged.setdefault("ignore_result", task.ignore_result)
    return args, kwargs, merged
