"""Whether a statement is given what it names: a misspelt parameter would be NULL, and mean something. Runs nothing."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

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


def check_given(statement: str, names: Collection[str], given: Collection[str], everywhere: Collection[str]) -> None:
    """Raise `TypeError` unless a statement of these `names` is given all of them, and nothing else.

    `everywhere`: what each statement has without being given it.
    """
    if unknown := [name for name in given if name not in names and name not in SHARED]:
        raise TypeError(f"{statement} has no parameter {unknown[0]!r}{nearest(unknown[0], names)}")
    if missing := [name for name in names if name not in given and name not in everywhere and name not in OPTIONAL]:
        raise TypeError(f"{statement} needs the parameters {', '.join(missing)}")
