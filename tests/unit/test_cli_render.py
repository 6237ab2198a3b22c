"""What the command line prints: nothing of it can act on a terminal, and nothing is silently left out."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import MappingProxyType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise.cli.render import (
    block,
    escape,
    pairs,
    printable,
    table,
    to_json,
    value_text,
)
from celery_supervise.lifecycle import State
from celery_supervise.moments import exact, instant, near, span
from celery_supervise.wording import count, cut

NOON = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
ANY_TEXT = st.text(st.characters())  # lone surrogates, too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, even ü and 世界", "plain, even ü and 世界"),
        ("red\x1b[31m", r"red\x1b[31m"),
        ("two\nlines\r\t", r"two\nlines\r\t"),
        ("\x9b31m", r"\x9b31m"),
        ("exe.\u202egpj", r"exe.\u202egpj"),
        ("\u2066a\u2069", r"\u2066a\u2069"),
        ("pay\u200bpal", r"pay\u200bpal"),
        ("soft\u00adhyphen", r"soft\xadhyphen"),
        ("tag\U000e0041", r"tag\U000e0041"),
        ("filler\u3164", r"filler\u3164"),
        ("carries\U000e0101", r"carries\U000e0101"),
        ("line\u2028end", r"line\u2028end"),
        ("half\ud800", r"half\ud800"),
        ("bell\x07\x7f", r"bell\x07\x7f"),
    ],
)
def test_what_could_harm_is_made_visible(text: str, shown: str) -> None:
    """Control, bidirectional, hidden and broken characters show as their escapes, readable text as it is."""
    assert escape(text) == shown


@given(ANY_TEXT)
def test_no_text_reaches_a_terminal_raw(text: str) -> None:
    """Whatever the text, what is left of it is visible and can be written in UTF-8."""
    shown = escape(text)
    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    shown.encode()


@given(ANY_TEXT)
def test_json_is_ascii_and_brings_the_text_back(text: str) -> None:
    """JSON output holds no byte that could harm a terminal, and a program reads what was there."""
    printed = to_json({"text": text})
    assert printed.replace("\n", " ").isprintable()
    assert printed.isascii()
    assert json.loads(printed) == {"text": text}


def test_json_knows_our_values() -> None:
    """Times are ISO with their offset, lengths are seconds, ids and states are texts."""

    @dataclass(frozen=True)
    class Thing:
        at: datetime
        lasts: timedelta
        state: State
        id: UUID

    printed = json.loads(
        to_json(MappingProxyType({"one": Thing(NOON, timedelta(seconds=1.5), State.PARKED, UUID(int=7))}))
    )
    assert list(printed.values()) == [
        {
            "at": "2026-11-30T12:00:00+00:00",
            "lasts": 1.5,
            "state": "parked",
            "id": "00000000-0000-0000-0000-000000000007",
        }
    ]


def test_columns_line_up() -> None:
    """Cells of wide and of combining characters take the columns that a terminal gives them, and are escaped."""
    printed = table(("A", "B"), [("世界", "x"), ("e\u0301", "y"), ("a\x1b", "z")])
    assert printed.split("\n") == ["A      B", "世界   x", "e\u0301      y", "a\\x1b  z"]


def test_names_and_values_line_up() -> None:
    """Values stand below each other, their further lines too; what is not there is left out."""
    assert pairs([("a", "1\n2"), ("none", None), ("long", "3")], " ") == " a     1\n       2\n long  3"


def test_a_text_of_several_lines_keeps_them() -> None:
    """A prompt keeps its lines, and nothing else that moves the cursor."""
    assert block("one\r\ntwo\x1b[A\rx", "  ") == "  one\n  two\\x1b[A\\rx"


def test_nothing_is_cut_without_a_mark() -> None:
    """A text that is too long ends in an ellipsis, one that fits stays whole."""
    assert [cut("12345", 5), cut("123456", 5)] == ["12345", "1234…"]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_terminal_can_show_it(encoding: str) -> None:
    """What a terminal's encoding lacks is escaped, and is no error."""
    printed = printable("naïve …", encoding)
    assert printed.encode(encoding).decode(encoding) == printed


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (timedelta(0), "0 s"),
        (timedelta(seconds=59.9), "59 s"),
        (timedelta(seconds=61), "1 min 1 s"),
        (timedelta(hours=1), "1 h"),
        (timedelta(days=2, minutes=5), "2 d"),
        (timedelta(days=400, hours=3), "400 d 3 h"),
    ],
)
def test_a_length_of_time_in_words(time: timedelta, words: str) -> None:
    """The two largest units say enough."""
    assert span(time) == words


def test_times_are_told_in_utc() -> None:
    """A time of any zone is shown in UTC, and says so."""
    in_berlin = NOON.astimezone(timezone(timedelta(hours=1)))
    assert instant(in_berlin) == "2026-11-30 12:00:00Z"
    assert near(in_berlin, NOON + timedelta(seconds=3)) == "2026-11-30 12:00:00Z (3 s ago)"
    assert near(in_berlin, NOON - timedelta(hours=2)) == "2026-11-30 12:00:00Z (in 2 h)"


@given(st.datetimes(timezones=st.timezones()), st.datetimes(timezones=st.timezones()))
def test_s45_two_instants_never_look_the_same(one: datetime, other: datetime) -> None:
    """The log prints two times alike only if they are the same instant, in whatever zones they come."""
    utc = [at.astimezone(timezone.utc) for at in (one, other)]
    assert (exact(one) == exact(other)) == (utc[0] == utc[1])


def test_s45_how_far_it_is_over_a_change_of_clocks() -> None:
    """Of two times in one zone (psycopg 3 reads them so) it is told how long it takes, not how far clocks go."""
    berlin = ZoneInfo("Europe/Berlin")
    before, after = datetime(2027, 3, 27, 12, tzinfo=berlin), datetime(2027, 3, 28, 12, tzinfo=berlin)
    assert near(after, before).endswith("(in 23 h)")
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=berlin)
    assert near(twice, twice.replace(fold=1)).endswith("(1 h ago)")


def test_things_are_counted_in_words() -> None:
    """One is singular; large numbers have separators."""
    assert [count(1, "job"), count(0, "job"), count(10_423, "entry", "entries")] == [
        "1 job",
        "0 jobs",
        "10,423 entries",
    ]


@pytest.mark.parametrize(
    ("value", "shown"), [(False, "false"), (0, "0"), ("", '""'), ([], "[]"), ({}, "{}"), (None, "null")]
)
def test_s13_an_empty_value_is_shown(value: object, shown: str) -> None:
    """False, zero, an empty text, list or object, and null each show as themselves, never as nothing."""
    assert value_text(value) == shown
