"""What was given, as an error repeats it: in quotes, cut with a mark, beside the nearest that there is. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

REFUSALS: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a value's own code may raise while it is encoded, decoded, compared or written, meaning "not this one".

Not `Exception`: Celery's `SoftTimeLimitExceeded` is one, comes at any instruction, and must pass.
"""

LONGEST: Final = 300
"""Characters: more than any name or id that there can be, and a few lines of a terminal."""


def cut(text: str, most: int = LONGEST) -> str:
    """At most `most` characters of `text`, the last of which then is an ellipsis.

    >>> cut("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def shown(value: object) -> str:
    """`value` as Python writes it, cut; nothing that it is or does can fail here.

    >>> shown("odd"), shown(2.5), len(shown("x" * 10_000_000))
    ("'odd'", '2.5', 302)
    """
    if isinstance(value, str):
        return repr(cut(str.__str__(value)))  # of a str that is also an Enum, its value
    if isinstance(value, bytes):
        value = value[:LONGEST]
    try:
        return cut(repr(value))
    except REFUSALS:  # a repr of the shop's own; an int that is too long to be written
        return f"this {type(value).__name__}"


def count(number: int, one: str, many: str | None = None) -> str:
    """A number of things.

    >>> count(1, "job"), count(10423, "job"), count(2, "entry", "entries")
    ('1 job', '10,423 jobs', '2 entries')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def nearest(given: object, known: Iterable[str], *, quote: str = "'") -> str:
    """What could have been meant, as the end of a sentence; nothing where that is nowhere near.

    >>> nearest("ownr", ["owner", "deadline"]), nearest("x", ["owner"])
    ("; did you mean 'owner'?", '')
    """
    near = difflib.get_close_matches(given[:LONGEST], list(known), n=1) if isinstance(given, str) else ()
    return f"; did you mean {quote}{near[0]}{quote}?" if near else ""


def none_of(given: object, known: Iterable[str]) -> str:
    """The complaint about a word that is none of a closed list.

    >>> none_of("parkd", ["pending", "parked"])
    "'parkd' is none; did you mean 'parked'? There are pending, parked"
    """
    words = list(known)
    near = nearest(given, words)
    return (
        f"{shown(given)} is none{near} There are {', '.join(words)}"
        if near
        else (f"{shown(given)} is none; there are {', '.join(words)}")
    )
