"""Times as a person types them: a span (`2h`, `1d12h`), or a moment with its zone. Reads no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import click

from celery_supervise.wording import shown

_UNITS: Final[Mapping[str, timedelta]] = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_PART: Final = re.compile(r"(\d{1,9})\s*(w|d|h|min|s)\s*")
_WANTED: Final = "a span such as 90s, 30min, 2h, 1d12h or 2w"


def parse_span(text: str) -> timedelta:
    """A span of time. Raises `ValueError` with what is wanted.

    >>> parse_span("1d 12h"), parse_span("90min")
    (datetime.timedelta(days=1, seconds=43200), datetime.timedelta(seconds=5400))
    """
    parts = list(_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError(f"is not {_WANTED}")
    try:
        return sum((int(part[1]) * _UNITS[part[2]] for part in parts), timedelta(0))
    except OverflowError:
        raise ValueError("is longer than any calendar") from None


def parse_moment(text: str) -> datetime:
    """A moment in ISO 8601, with its zone. Raises `ValueError` with what is wanted.

    >>> parse_moment("2026-12-01T18:00Z").isoformat()
    '2026-12-01T18:00:00+00:00'
    """
    try:
        # fromisoformat knows no Z before Python 3.11
        moment = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise ValueError("is not a date and time such as 2026-12-01T18:00Z") from None
    if moment.utcoffset() is None:
        raise ValueError("has no zone: write 2026-12-01T18:00Z or 2026-12-01T18:00+01:00")
    return moment


class Span(click.ParamType[timedelta]):
    """A length of time."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The span."""
        try:
            return parse_span(value)
        except ValueError as error:
            self.fail(f"{shown(value)} {error}", param, ctx)


class Time(click.ParamType["datetime | timedelta"]):
    """A moment, or a span from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | timedelta:
        """The moment, or the span."""
        if _PART.match(value):
            try:
                return parse_span(value)
            except ValueError as error:
                if "-" not in value:
                    self.fail(f"{shown(value)} {error}", param, ctx)
        try:
            return parse_moment(value)
        except ValueError as error:
            self.fail(f"{shown(value)} {error}", param, ctx)


SPAN: Final = Span()
TIME: Final = Time()
