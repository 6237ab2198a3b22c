"""Times as people read them: moments on the database's clock, and lengths. Pure; reads no clock."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Final

_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def instant(at: datetime) -> str:
    """A moment, to the second, in UTC."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def exact(at: datetime) -> str:
    """A moment as the database keeps it: two different ones never look the same."""
    return at.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%fZ")


def near(at: datetime, now: datetime) -> str:
    """A moment, and how far it is from `now`, the database's clock.

    >>> at = datetime(2026, 3, 29, 2, 30, tzinfo=timezone.utc)
    >>> near(at, at + timedelta(minutes=61)), near(at, at - timedelta(seconds=9))
    ('2026-03-29 02:30:00Z (1 h 1 min ago)', '2026-03-29 02:30:00Z (in 9 s)')
    """
    ahead = apart(now, at)
    told = f"in {span(ahead)}" if ahead > timedelta(0) else f"{span(-ahead)} ago"
    return f"{instant(at)} ({told})"


def apart(earlier: datetime, later: datetime) -> timedelta:
    """How long from one moment to another.

    The bare difference of two in one zone is what the clocks on its walls say, which are changed twice a year.
    """
    return later.astimezone(timezone.utc) - earlier.astimezone(timezone.utc)


def span(time: timedelta) -> str:
    """A length of time in its two largest units.

    >>> span(timedelta(days=1, hours=2, minutes=3)), span(timedelta(milliseconds=20))
    ('1 d 2 h', '0 s')
    """
    rest, parts = int(time.total_seconds()), []
    for unit, seconds in _UNITS:
        amount, rest = divmod(rest, seconds)
        parts.append((amount, unit))
    first = next((index for index, (amount, _) in enumerate(parts) if amount), len(parts) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount) or "0 s"


def seconds(time: timedelta) -> str:
    """A length of time as it was given: a short or a negative one is not what Python would print.

    >>> seconds(timedelta(seconds=-5)), seconds(timedelta(milliseconds=20))
    ('-5 s', '0.02 s')
    """
    return f"{time.total_seconds():g} s"
