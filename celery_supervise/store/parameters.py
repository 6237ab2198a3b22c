"""What a statement is given: all that it names, lengths of time in a form that no zone can stretch. Runs nothing."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

from ..wording import nearest

OPTIONAL: Final = frozenset({"owner_id"})
"""NULL where it is not given: the holder of a job names no owner."""

SHARED: Final = frozenset(
    {
        *("actor", "cause", "data", "open_limit", "publish_hold", "settle_after", "ticket_id", "window"),
        *("began", "grace", "incarnation", "own"),  # of the sweeps
    }
)
"""What operations that have their parameters in common give to all of their statements, needed there or not."""


def timed(value: Any) -> Any:
    """A length of time in hours, other values as they are.

    The drivers write days, and to Postgres a day has 23 or 25 hours where the session's zone changes its clocks.

    >>> timed(timedelta(days=2, seconds=1)), timed(timedelta(milliseconds=-20)), timed(7)
    ('48:00:01.000000', '-0:00:00.020000', 7)
    """
    if not isinstance(value, timedelta):
        return value
    seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
    sign = "-" if value < timedelta(0) else ""
    return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"


def check_given(statement: str, names: Collection[str], given: Collection[str], everywhere: Collection[str]) -> None:
    """Raise `TypeError` unless a statement of these `names` is given all of them, and nothing else.

    `everywhere`: what each statement has without being given it.
    """
    if unknown := [name for name in given if name not in names and name not in SHARED]:
        raise TypeError(f"{statement} has no parameter {unknown[0]!r}{nearest(unknown[0], names)}")
    if missing := [name for name in names if name not in given and name not in everywhere and name not in OPTIONAL]:
        raise TypeError(f"{statement} needs the parameters {', '.join(missing)}")
