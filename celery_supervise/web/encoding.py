"""JSON, out and in. Strict: what two readers could read in two ways is not read at all."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID


class Ambiguous(ValueError):
    """A text that is JSON to some readers only, or not the same to all."""


def encoded(value: Any) -> bytes:
    """`value` as UTF-8 JSON; times are in UTC, durations in seconds."""
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


def _plain(value: object) -> Any:
    match value:
        case datetime():
            return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} is not for JSON")


def decoded(body: bytes) -> Any:
    """What a body says. Raises `Ambiguous`: no UTF-8, no JSON, a key twice, NaN, a number that no float holds."""
    try:
        return json.loads(
            body.decode(), object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole
        )
    except (ValueError, RecursionError) as error:
        raise Ambiguous(_said(error)) from error


def _said(error: Exception) -> str:
    match error:
        case Ambiguous():
            return str(error)
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case json.JSONDecodeError():
            return f"it is not JSON: {error.msg} at character {error.pos}"
    return "it is not JSON that can be read"


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Ambiguous("an object has the same key twice")
    return found


def _no_constant(name: str) -> Any:
    raise Ambiguous(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise Ambiguous("a number is too large")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # more digits than Python reads (4,300)
        raise Ambiguous("a number is too large") from None
