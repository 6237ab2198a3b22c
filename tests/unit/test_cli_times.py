"""Times as people type them: exact, or refused with what is wanted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise.cli.times import SPAN, TIME, parse_moment, parse_span

UTC = timezone.utc


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", timedelta(seconds=90)),
        ("30min", timedelta(minutes=30)),
        ("1d12h", timedelta(hours=36)),
        ("1 d 12 h", timedelta(hours=36)),
        ("2w", timedelta(days=14)),
        ("0s", timedelta(0)),
    ],
)
def test_spans(text: str, span: timedelta) -> None:
    """Numbers with units, one after the other."""
    assert parse_span(text) == span


@pytest.mark.parametrize("text", ["", "2", "h", "2m", "2 months", "-2h", "2h!", "1.5h", "x2h", "999999999w", "2h-"])
def test_what_is_no_span(text: str) -> None:
    """Anything else is refused, never guessed: 2m may mean minutes or months."""
    with pytest.raises(ValueError, match=r"is not a span|longer than"):
        parse_span(text)


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))  # noqa: DTZ001 - given a zone below
def test_moments_are_read_as_they_are_written(moment: datetime) -> None:
    """A moment of ISO 8601, its zone as an offset or as Z."""
    there = moment.replace(tzinfo=UTC)
    assert parse_moment(there.isoformat()) == there
    assert parse_moment(moment.isoformat() + "Z") == there


@pytest.mark.parametrize("text", ["2026-12-01T18:00", "2026-12-01", "tomorrow", "2026-13-01T18:00Z", ""])
def test_what_is_no_moment(text: str) -> None:
    """Without a zone it would be another moment for each reader."""
    with pytest.raises(ValueError, match=r"has no zone|is not a date"):
        parse_moment(text)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("2h", timedelta(hours=2)), ("2026-12-01T18:00Z", datetime(2026, 12, 1, 18, tzinfo=UTC))],
)
def test_either_of_the_two(given: str, wanted: Any) -> None:
    """Where a time is wanted, a span counts from now."""
    assert TIME.convert(given, None, None) == wanted


@pytest.mark.parametrize(("kind", "text"), [(SPAN, "2x"), (TIME, "2x"), (TIME, "2026-12-01T18:00"), (TIME, "soon")])
def test_a_wrong_one_is_wrong_usage(kind: click.ParamType[Any], text: str) -> None:
    """It is named, with what is wanted in its place."""
    with pytest.raises(click.BadParameter, match=text):
        kind.convert(text, None, None)
