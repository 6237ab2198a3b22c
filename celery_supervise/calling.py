"""What Celery's own options of a call must be for a message that can be sent, and taken by a worker. No I/O.

Celery takes nearly anything, and fails, or a worker does, when it is sent or received. A row would send it for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kombu import Exchange, Queue
from kombu.compression import get_encoder

from .errors import InvalidInput
from .wording import shown

MAX_SECONDS = 100 * 365 * 86_400  # a century: more than any timer of an operating system takes
MAX_NAME = 255  # bytes of a queue, an exchange or a routing key, in AMQP


def check_call(options: Mapping[str, Any]) -> None:
    """Raises `InvalidInput` for the option that cannot be. None is always possible."""
    for name, check in CHECKS.items():
        value = options.get(name)
        if value is not None and (problem := check(value)):
            raise InvalidInput(name, problem)


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"must be a number of seconds, not {type(value).__name__}"
    # an int may be too large for a float
    return None if isinstance(value, int) or math.isfinite(value) else f"must be a finite number, not {value}"


def _limit(value: Any) -> str | None:
    if problem := _number(value):
        return problem
    return None if 0 < value <= MAX_SECONDS else f"must be greater than 0 and at most {MAX_SECONDS}, not {shown(value)}"


def _priority(value: Any) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return None if whole and 0 <= value <= MAX_NAME else f"must be a whole number from 0 to 255, not {shown(value)}"


def _retries(value: Any) -> str | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if whole else f"must be a whole number, not negative, not {shown(value)}"


def _named(kind: Any) -> Callable[[Any], str | None]:
    def check(value: Any) -> str | None:
        name = value.name if isinstance(value, kind) else value
        if not isinstance(name, str):
            return f"must be a name or a kombu {kind.__name__}, not {type(value).__name__}"
        return _text(name)

    return check


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__name__}"
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "must be text that can be sent: it has lone surrogates"
    if "\0" in value:
        return "must not have NUL in it"
    return None if size <= MAX_NAME else f"must be at most {MAX_NAME} bytes long, not {size}"


def _compression(value: Any) -> str | None:
    try:
        get_encoder(value)
    except (KeyError, AttributeError, TypeError):
        return f"kombu knows no compression {shown(value)}"
    return None


CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "time_limit": _limit,
    "soft_time_limit": _limit,
    "countdown": _number,
    "priority": _priority,
    "retries": _retries,
    "queue": _named(Queue),
    "exchange": _named(Exchange),
    "routing_key": _text,
    "shadow": _text,
    "compression": _compression,
    "session": lambda _: "is for apply_async_on_commit(…, session=…); Celery would send it",
}
