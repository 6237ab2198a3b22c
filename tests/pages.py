"""The project's pages as tests read them: headings, links, code blocks. Runs nothing, judges nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
CHANGELOG = ROOT / "CHANGELOG.md"
DOCS = ROOT / "docs"
PAGES = (README, CONTRIBUTING, CHANGELOG, *sorted(DOCS.glob("*.md")))

FENCED = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
INLINE_CODE = re.compile(r"`[^`\n]+`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line before its first, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    def compiled(self) -> object:
        """The block as code of its own, whose tracebacks name the page and its line."""
        return compile("\n" * self.line + self.text, str(self.page), "exec", dont_inherit=True)


def read(page: Path) -> str:
    """All of it."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[Block]:
    """Its fenced blocks in one language, in order."""
    return [block for block in every_block(page) if block.language == language]


def every_block(page: Path) -> Iterator[Block]:
    """Its fenced blocks."""
    text = read(page)
    for found in FENCED.finditer(text):
        line = text.count("\n", 0, found.start("text"))
        yield Block(page, line, found["language"], dedent(found["text"]))


def prose(page: Path) -> str:
    """It, without its fenced blocks."""
    return FENCED.sub("", read(page))


def links(page: Path) -> list[str]:
    """Where it links to."""
    return LINK.findall(INLINE_CODE.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """What can be linked to in it, as code hosts and MyST name it."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(prose(page)):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def rows(page: Path) -> list[list[str]]:
    """The rows of all its tables, without their heads."""
    lines = prose(page).splitlines()
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    return [row for row, after in pairwise([*cells, [""]]) if not any(one[0].startswith("---") for one in (row, after))]


def defined_tests() -> dict[str, set[str]]:
    """The names of the tests in each file, by its path below tests/; a project's own are run by one of ours."""
    files = sorted([*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "tests").rglob("suite.py")])
    names = {file: re.findall(r"^def (test_\w+)", read(file), re.MULTILINE) for file in files}
    return {str(file.relative_to(ROOT / "tests")): set(found) for file, found in names.items()}
