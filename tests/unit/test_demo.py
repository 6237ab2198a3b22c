"""What the demo does with what is typed at its question."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from example_project.demo import NobodyHere, asked_here


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Types at the demo's terminal: a pipe in its place."""
    read, write = os.pipe()
    with os.fdopen(read, encoding="utf-8") as stdin, os.fdopen(write, "w", encoding="utf-8", buffering=1) as keyboard:
        monkeypatch.setattr(sys, "stdin", stdin)

        def type_(text: str) -> None:
            keyboard.write(text)

        yield type_


@pytest.mark.parametrize(
    ("line", "said"), [("y\n", True), ("YES\n", True), ("n\n", False), ("maybe\n\nyep\nno\n", False)]
)
def test_only_yes_and_no_count(typed: Callable[[str], None], line: str, said: bool) -> None:  # noqa: FBT001
    """A mistyped key pays nobody and refuses nothing: it is asked again."""
    typed(line)
    assert asked_here("? ", lambda: False) is said


def test_an_answer_from_another_terminal() -> None:
    """Then nothing is waited for here."""
    assert asked_here("? ", lambda: True) is None


def test_nobody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the input is no refusal: it is said what to do."""
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(NobodyHere, match="--auto"):
            asked_here("? ", lambda: False)
