"""The example project, as a person runs it: its story comes true, and is the one that the README shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import README, ROOT, blocks

ID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
VARIABLE = re.compile(rf"({ID}|\d+|…)")
SECONDS = 280


@pytest.mark.slow
def test_the_readme_shows_what_the_example_prints(tmp_path: Path) -> None:
    """It ends well and leaves nothing; the README's lines are its output's, in order, but for numbers and ids."""
    story = [sys.executable, "-m", "example_project", "--auto"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        story, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    (shown,) = [block.text for block in blocks(README, "text")]
    printed = iter(map(spaced, done.stdout.splitlines()))
    for line in shown.splitlines():
        assert any(pattern(spaced(line)).fullmatch(one) for one in printed), f"not printed, or not here: {line}"


def spaced(line: str) -> str:
    """The line without the widths of its columns."""
    return " ".join(line.split())


def pattern(line: str) -> re.Pattern[str]:
    """The lines that this one stands for: with other numbers and ids, and anything for an ellipsis."""
    return re.compile("".join(part(piece) for piece in VARIABLE.split(line)))


def part(piece: str) -> str:
    """A piece of a line as a regular expression."""
    if piece == "…":
        return ".*"
    if piece.isdigit():
        return r"\d+"
    return ID if re.fullmatch(ID, piece) else re.escape(piece)
