"""Text for a terminal: escaping, tables, times, JSON. Knows no job, and writes nothing by itself."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from celery_supervise.wording import cut

CUT = 60
"""Longest cell of a table, in characters."""

# control, format (the bidirectional ones, zero width), lone surrogates, private, unassigned, line separators
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# letters and marks that show as nothing: fillers, and variation selectors, which can carry a hidden text
_BLANK: Final = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            0x2800,
            0x3164,
            0xFFA0,
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def escape(text: str) -> str:
    r"""`text` on one line, with nothing in it that moves the cursor, reorders or hides other text.

    >>> escape("red\x1b[31m \u202egpj.exe")
    'red\\x1b[31m \\u202egpj.exe'
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    if unicodedata.category(char) in _UNSEEN or char in _BLANK:
        return char.encode("unicode_escape").decode("ascii")
    return char


def block(text: str, indent: str = "") -> str:
    """`text` with its own lines kept, each escaped and indented."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(indent + escape(line) for line in lines)


def cell(text: str) -> str:
    """As much of `text` as a cell of a table has."""
    return cut(text, CUT)


def printable(text: str, encoding: str) -> str:
    """`text` as a terminal of this encoding can show it; what it cannot is escaped, never an error."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


# --- tables ----------------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under a head, in columns that line up. Cells are escaped here."""
    lines = [list(head), *([escape(cell) for cell in row] for row in rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(_padded, line, widths)).rstrip() for line in lines)


def pairs(named: Iterable[tuple[str, str | None]], indent: str = "") -> str:
    """Names and their values, one below the other; None is left out. Values must have been escaped."""
    given = [(name, value) for name, value in named if value is not None]
    width = max((_width(name) for name, _ in given), default=0)
    hanging = "\n" + indent + " " * (width + 2)
    return "\n".join(f"{indent}{_padded(name, width)}  {value.replace(chr(10), hanging)}" for name, value in given)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    """The columns that `text` takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# --- JSON ------------------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    """`value` as JSON, in ASCII: escapes stand for all that could harm a terminal."""
    # json leaves DEL as it is, which can only stand inside a string
    return json.dumps(value, default=_plain, indent=2, allow_nan=False).replace("\x7f", "\\u007f")


def value_text(value: Any) -> str:
    """A JSON value on one line: an empty text is `""`, and not nothing."""
    return escape(json.dumps(value, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """What json knows nothing of; an enum of ours is a str to it."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)
