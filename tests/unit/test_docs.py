"""The pages tell the truth: what they name is there, what is generated is fresh, what they link to exists.

That the code in them runs is shown in tests/postgres/test_docs_code.py.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import celery_supervise
from celery_supervise import Supervisor, lifecycle
from celery_supervise.cli import EXIT_CODES, VERBS, supervise
from celery_supervise.config import PREFIX, Settings
from celery_supervise.doctor import CHECKS
from celery_supervise.lifecycle import JUDGEMENT, Event
from celery_supervise.metrics import METRICS
from celery_supervise.reasons import STOP_REASONS
from celery_supervise.version import VERSION
from pytest_celery_supervise import FIXTURES, URL
from tests import pages
from tests.pages import CHANGELOG, DOCS, PAGES, README, ROOT

PACKAGE = ROOT / "celery_supervise"
FOLDERS = "tests|celery_supervise|docs|migrations|example_project|benchmarks"
VERB = re.compile(r"(?:celery -A \S+ |`)supervise ([a-z]+)\b([^`|>\n]*)")
TEST = re.compile(r"(?:\b([\w/]+\.py)::)?\b(test_\w+)(…|\.py|/)?")
SCENARIO = re.compile(r"^S(\d\d)$")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/generate.py."""
    monkeypatch.syspath_prepend(DOCS)
    found = pkgutil.resolve_name("generate")
    assert isinstance(found, ModuleType)
    return found


def source(*, without: str = "") -> str:
    """The library's code."""
    return "".join(pages.read(file) for file in sorted(PACKAGE.rglob("*.py")) if file.name != without)


# --- what is generated -----------------------------------------------------------------------------------


def test_generated_parts_are_fresh(generate: ModuleType) -> None:
    """The committed pages have what the code says now; else: python docs/generate.py."""
    stale = [name for name in generate.PARTS if generate.rendered(name) != pages.read(DOCS / name)]
    assert stale == [], "run: python docs/generate.py"


def test_every_generated_part_is_made(generate: ModuleType) -> None:
    """No page has the marks of a part that nothing makes."""
    marked = {
        (page.name, part) for page in PAGES for part in re.findall(r"<!-- generated: (.+?) -->", pages.read(page))
    }
    assert marked == {(name, part) for name, parts in generate.PARTS.items() for part in parts}


def test_every_event_of_the_table_is_caused_by_something() -> None:
    """A statement moves jobs by each; two have statements of another kind."""
    statements = "".join(pages.read(file) for file in (PACKAGE / "store").glob("*.py") if file.name != "sql.py")
    used = {event for event in Event if re.search(rf"\bEvent\.{event.name}\b", statements)}
    caused = used | {instead for _, instead, _ in JUDGEMENT} | {Event.SETTLE, Event.ERASE}
    assert set(Event) - caused == set()


def test_every_stop_reason_is_explained() -> None:
    """The page on the lifecycle names each that a job can have."""
    page = pages.read(DOCS / "lifecycle.md")
    assert [name for name in STOP_REASONS if not re.search(rf"`{name}\b", page)] == []


def test_every_error_is_raised_by_something() -> None:
    """The table of errors has none that nobody will ever see."""
    found = [one for one in vars(celery_supervise.errors).values() if inspect.isclass(one)]
    ours = [one for one in found if one.__module__ == celery_supervise.errors.__name__ and not one.__subclasses__()]
    code = source(without="errors.py")
    assert [one.__name__ for one in ours if not re.search(rf"\b{one.__name__}\b", code)] == []
    assert ours


# --- what is linked --------------------------------------------------------------------------------------


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Every page and every heading that is linked to exists; nothing is linked outside of the project."""
    assert [link for link in pages.links(page) if not leads(page, link)] == []


def leads(page: Path, link: str) -> bool:
    """Whether a link's page and heading exist."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.is_relative_to(ROOT) and target.is_file() and (not anchor or anchor in pages.anchors(target))


def test_every_page_is_in_the_contents() -> None:
    """A page of docs/ that no table of contents has is a page that nobody finds."""
    index = pages.read(DOCS / "index.md")
    names = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert set(re.search(r"```{toctree}.*?\n\n(.*?)\n```", index, re.DOTALL)[1].split()) == names  # type: ignore[index]


# --- what is named ---------------------------------------------------------------------------------------


@every_page
def test_files_that_are_named_exist(page: Path) -> None:
    """A path names something in the project, or in its tests."""
    named = re.findall(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]+\w", pages.read(page))
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "tests"))] == []


@every_page
def test_tests_that_are_named_exist(page: Path) -> None:
    """A test is named by its file, by its whole name, or by its beginning and an ellipsis."""
    defined = pages.defined_tests()
    everywhere = set().union(*defined.values())
    wrong = []
    for file, name, rest in TEST.findall(pages.prose(page)):
        if file:
            there = name in defined.get(file.removeprefix("tests/"), set())
        elif rest == ".py":
            there = any(Path(known).name == f"{name}.py" for known in defined)
        else:
            there = any(known.startswith(name) for known in everywhere) if rest == "…" else name in everywhere
        wrong += [] if there else [name]
    assert wrong == []


@every_page
def test_settings_that_are_named_exist(page: Path) -> None:
    """Whatever begins like a setting is one, or a metric, or of the pytest plugin."""
    named = re.findall(rf"\b(?:CELERY_)?({PREFIX}[a-z]\w*)", pages.read(page), re.IGNORECASE)
    known = {PREFIX + name for name in Settings.__dataclass_fields__} | {*FIXTURES, URL}
    assert {name.lower() for name in named} - known - set(METRICS) == set()


@every_page
def test_python_names_exist(page: Path) -> None:
    """A dotted name of ours can be imported."""
    for name in re.findall(r"\bcelery_supervise(?:\.\w+)+", pages.prose(page)):
        pkgutil.resolve_name(name)


@every_page
def test_log_events_that_are_named_exist(page: Path) -> None:
    """`supervise.something` in prose is an event of the log, an entry of beat, or a method of the service."""
    code = source()
    named = set(re.findall(r"`supervise\.(\w+)", pages.prose(page)))
    assert [name for name in named if f'"supervise.{name}"' not in code and not hasattr(Supervisor, name)] == []


def commands(page: Path) -> Iterator[tuple[str, list[str]]]:
    """The verbs that a page types, each with its options."""
    for verb, rest in VERB.findall(pages.read(page)):
        yield verb, re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)


@every_page
def test_commands_that_are_typed_work(page: Path) -> None:
    """Every verb exists, has the options it is given, and `--help` runs."""
    wrong = [(verb, option) for verb, options in commands(page) for option in unknown(verb, options)]
    assert wrong == []


def unknown(verb: str, options: list[str]) -> list[str]:
    """The options that a verb does not have; the verb itself where there is none of that name."""
    if verb not in VERBS:
        return [verb]
    command: Any = supervise.get_command(None, verb)  # type: ignore[arg-type]  # it looks at no context
    assert CliRunner().invoke(command, ["--help"]).exit_code == 0
    known = {name for parameter in command.params for name in parameter.opts}
    return [option for option in options if option not in known]


def test_every_verb_is_typed_somewhere() -> None:
    """No verb of the command line is a secret."""
    assert set(VERBS) - {verb for page in PAGES for verb, _ in commands(page)} == set()


# --- what is said ----------------------------------------------------------------------------------------


def test_the_changelog_has_this_version() -> None:
    """A version that is released has said what is new."""
    assert re.search(rf"^## {re.escape(VERSION)}\b.*\n\n- ", pages.read(CHANGELOG), re.MULTILINE)


def test_the_readme_is_short() -> None:
    """It is read in five minutes."""
    assert len(pages.read(README).splitlines()) <= 150


def test_the_diff_is_the_one_that_the_example_has() -> None:
    """The line that the README adds is the decorator of its example, and differs by `base=` alone."""
    (diff,) = pages.blocks(README, "diff")
    before, after = (line[1:] for line in diff.text.splitlines())
    assert after.replace("base=SupervisedTask, ", "") == before
    assert pages.blocks(README, "python")[0].text.startswith(after + "\n")


def test_every_promise_names_its_test() -> None:
    """No row of what is promised is without a test."""
    promised = pages.read(DOCS / "guarantees.md").partition("## What is promised\n")[2].partition("\n## ")[0]
    found = [line for line in promised.splitlines() if line.startswith("| ")][1:]
    assert len(found) > 20
    assert [row for row in found if "::test_" not in row] == []


def test_every_answer_names_its_tests() -> None:
    """No question of a reader is answered without a test."""
    asked = pages.read(DOCS / "guarantees.md").partition("## What a reader may ask\n")[2].partition("\n## ")[0]
    found = [line for line in asked.splitlines() if line.startswith("| ")][1:]
    assert len(found) >= 14
    assert [row for row in found if "?" not in row.split("|")[1] or "::test_" not in row] == []


def test_every_loss_of_celerys_names_its_test() -> None:
    """No row of the README's table is without a test."""
    table = pages.read(README).partition("## What Celery loses")[2].partition("\n## ")[0]
    found = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(found) >= 8
    assert [row for row in found if "`test_" not in row] == []


def test_what_doctor_checks() -> None:
    """The page lists the checks that there are, in their order; and the exit codes as the CLI says them."""
    page = DOCS / "operating.md"
    names = [check.name for check in CHECKS]
    listed = [row[0].strip("`") for row in pages.rows(page)]
    assert [name for name in listed if name in names] == names
    assert EXIT_CODES in pages.read(page).replace("\n", " ")


def test_states_are_those_of_the_lifecycle() -> None:
    """The page says that there are seven, four of them terminal: so it is."""
    assert "one of seven; the last four are terminal" in pages.read(DOCS / "lifecycle.md")
    assert (len(lifecycle.State), len(lifecycle.TERMINAL)) == (7, 4)


# --- scenarios -------------------------------------------------------------------------------------------


def scenarios() -> dict[str, str]:
    """By number, what the page says shows each."""
    found = [row for row in pages.rows(DOCS / "scenarios.md") if SCENARIO.match(row[0])]
    numbers = [row[0][1:] for row in found]
    assert len(numbers) == len(set(numbers)) > 70
    return dict(zip(numbers, (row[2] for row in found), strict=True))


def numbered() -> set[str]:
    """The scenarios that the names of tests are numbered by."""
    names = set().union(*pages.defined_tests().values())
    prefixes = [re.match(r"test((?:_s\d\d)+)_", name) for name in names]
    return {number for found in prefixes if found for number in re.findall(r"\d\d", found[1])}


def test_scenarios_with_a_test_name_it() -> None:
    """A scenario that some test is numbered by says so on its page."""
    page = scenarios()
    assert [number for number in sorted(numbered()) if f"s{number}_" not in page.get(number, "")] == []


def test_scenarios_without_a_test_say_when() -> None:
    """A scenario without a test names the part that it comes with."""
    assert [
        number for number, shown in scenarios().items() if number not in numbered() and "later: " not in shown
    ] == []
