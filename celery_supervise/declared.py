"""What a supervised task may not say of itself: refused where it is declared, not in the middle of a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from celery.utils.imports import symbol_by_name

from .errors import ConfigError
from .options import Options
from .runtime import AnyTask
from .wording import shown

NEEDED: Mapping[str, Any] = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "acks_on_failure_or_timeout": True,
}
"""Without these Celery declares a failure that is none when a worker dies (celery-supervise decides that)."""

RETRIES = ("max_retries", "default_retry_delay", "retry_backoff", "retry_backoff_max")
"""What Celery takes as it comes, and fails on in the middle of a failure."""


def check_task(task: AnyTask, base: AnyTask) -> None:
    """Refuse a task class of the shop's; `base` is ours. Raises `ConfigError`."""
    for name, value in NEEDED.items():
        if getattr(task, name) != value:
            raise ConfigError(f"{task.name}: {name}", f"must stay {value} on a supervised task")
    for name in RETRIES:
        _check_retries(f"{task.name}: {name}", getattr(task, name, None))
    _check_call(task, base)
    _check_request(task, base)
    if not isinstance(task.supervise, Options):
        raise ConfigError(f"{task.name}: supervise", "must be a celery_supervise.Options")


def _check_retries(option: str, value: Any) -> None:
    """Refuse a number that no retry can be made of."""
    if value is None:
        return
    if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(option, f"must be a number, not negative, not {shown(value)}")


def _check_call(task: AnyTask, base: AnyTask) -> None:
    """A `__call__` that does not call what it replaces would run the body past the job, again and again."""
    own = task.__call__
    code = getattr(own, "__code__", None)
    if own is base.__call__ or code is None or {"super", "__call__"} & {*code.co_names}:
        return
    raise ConfigError(f"{task.name}: __call__", "must call super().__call__(…), not self.run(…): it runs the job")


def _check_request(task: AnyTask, base: AnyTask) -> None:
    """A request class that is none of ours would keep ends from the row."""
    if task.Request != base.Request and not hasattr(symbol_by_name(task.Request), "supervise_header"):
        raise ConfigError(f"{task.name}: Request", f"must derive from {base.Request}")
