"""Lengths of time as people type them: `30d`, `12h`, `1d12h`. A parameter type; knows no job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import click

_UNITS: Final[Mapping[str, timedelta]] = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
}
_PART: Final = re.compile(r"([0-9]{1,6})\s*(w|d|h|min|m|s)\s*")


class Duration(click.ParamType[timedelta]):
    """A length of time: numbers with their units, w, d, h, min and s."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The length."""
        if isinstance(value, timedelta):
            return value
        text = str(value).strip()
        parts = _PART.findall(text)
        if not parts or _PART.sub("", text):
            self.fail(f"{text!r} is no length of time; write 30d, 12h, 90min or 45s", param, ctx)
        return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta(0))


DURATION: Final = Duration()
