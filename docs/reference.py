"""The Python API as Markdown, from signatures and docstrings. Used by `generate.py`; decides what is shown."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import celery_supervise
from celery_supervise import errors, journal, testing
from celery_supervise.aio import Aio
from celery_supervise.asking import Terms
from celery_supervise.body import Body
from celery_supervise.bulk import Choice, Outcome, Target
from celery_supervise.getting import JobParked
from celery_supervise.install import Supervisor
from celery_supervise.ledger import Decisions
from celery_supervise.lifecycle import State
from celery_supervise.loop import Loop
from celery_supervise.model import (
    Answer,
    Attempt,
    Cleanup,
    Hold,
    Job,
    LogEntry,
    LogPage,
    Moved,
    Question,
    Rejected,
    Submitted,
    Vote,
)
from celery_supervise.operating import Kicked
from celery_supervise.options import CallOptions, Options
from celery_supervise.remembered import Remembered
from celery_supervise.retention import Erased, Pruned
from celery_supervise.stats import ParkedFor, QueueLoad, Stage, Stats
from celery_supervise.task import SupervisedTask
from celery_supervise.why import Why

WIDTH = 110
IN_A_MIGRATION = ("names", "kind", "read", "rename", "write", "forget")
IN_A_BODY = ("step", "options", "checkpoint", "ask", "each", "progress", "effect_key", "transaction", "decisions")
OF_PEOPLE = ("answer", "reassign", "withdraw", "pause", "resume", "cancel", "extend", "extend_question", "rerun")
OF_OPERATORS = (
    "choose",
    "each",
    "cancel_each",
    "pause_each",
    "resume_each",
    "extend_each",
    "rerun_each",
    "hold",
    "release",
    "kick",
    "prune",
    "prunable",
    "erase",
    "erase_owner",
)
READS = (
    "job",
    "jobs",
    "question",
    "questions",
    "content",
    "votes",
    "answers",
    "value_of",
    "attempts",
    "log",
    "why",
    "holds",
    "stats",
    "result",
    "successor",
    "rejected",
    "rejected_value",
    "cleanups",
)
VALUES = (
    Job,
    Submitted,
    Moved,
    Question,
    Vote,
    Answer,
    Attempt,
    Rejected,
    Cleanup,
    LogPage,
    LogEntry,
    Target,
    Choice,
    Outcome,
    Why,
    Kicked,
    Hold,
    Stats,
    Stage,
    ParkedFor,
    QueueLoad,
    Pruned,
    Erased,
)
INSIDE = frozenset({"ticket_id", "settle_id", "token", "current_token", "incarnation", "handing_over"})
"""Fields that only the library's own code has a use for."""
TERMS = "Who may answer: see [operating](operating.md#who-may-answer)."


def reference() -> str:
    """All of it."""
    return "\n\n".join([*_task(), *_body(), *_service(), *_tests(), *_errors()])


def _task() -> Iterator[str]:
    yield "## Tasks"
    yield from _class(SupervisedTask, "SupervisedTask")
    for name in ("apply_async", "apply_async_on_commit", "delay_on_commit"):
        yield from _function(getattr(SupervisedTask, name), name, level=4)
    yield from _class(Options, "Options")
    yield from _class(CallOptions, "supervise={…}")
    yield from _function(celery_supervise.install, "install")


def _body() -> Iterator[str]:
    yield "## In a body"
    for name in IN_A_BODY:
        found = inspect.getattr_static(Body, name)
        if isinstance(found, property):
            yield from (f"### self.{name}", _text(found))
        else:
            yield from _function(found, f"self.{name}")
        if name == "ask":
            yield from _fields(Terms, "The other options of `ask`:")
            yield TERMS
    yield from _class(Loop, "Loop")
    yield from _class(Decisions, "Decisions")
    yield "## In a migration"
    yield f"### Remembered\n\n{_text(Remembered)}"
    for name in IN_A_MIGRATION:
        found = inspect.getattr_static(Remembered, name)
        if isinstance(found, property):
            yield from (f"#### remembered.{name}", _text(found))
        else:
            yield from _function(found, f"remembered.{name}", level=4)


def _service() -> Iterator[str]:
    yield "## The service"
    yield from _function(Supervisor.of, "Supervisor.of")
    for name in (*OF_PEOPLE, *OF_OPERATORS, *READS):
        yield from _function(getattr(Supervisor, name), f"supervise.{name}")
    yield f"### supervise.aio\n\n{_text(Aio)}"
    yield from _function(Aio.run, "supervise.aio.run", level=4)
    yield "## What the service gives"
    yield f"### State\n\n{_text(State)} " + ", ".join(f"`State.{state.name}`" for state in State) + "."
    for value in VALUES:
        yield from _fields(value, f"### {value.__name__}\n\n{_text(value)}")


def _tests() -> Iterator[str]:
    yield "## In tests"
    yield "From `celery_supervise.testing`."
    yield from _function(testing.rehearse, "rehearse")
    yield from _fields(testing.Rehearsal, f"### Rehearsal\n\n{_text(testing.Rehearsal)}")
    yield from _function(testing.redeploy, "redeploy")
    yield from _class(testing.Diverged, "Diverged")
    yield from _function(testing.answers, "answers")
    yield from _fields(journal.Asked, f"### Asked\n\n{_text(journal.Asked)}")


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield "In `celery_supervise` where marked with a star, all but the last in `celery_supervise.errors`."
    ours = [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]
    ours.append(JobParked)  # Celery's, too
    rows = [f"| `{one.__name__}`{_star(one)} | {_bases(one)} | {_first(one)} | {_attributes(one)} |" for one in ours]
    yield "\n".join(["| error | is a | when | attributes |", "|---|---|---|---|", *rows])


def _star(error: type) -> str:
    return " \\*" if error.__name__ in celery_supervise.__all__ else ""


def _bases(error: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in error.__bases__)


def _attributes(error: type) -> str:
    names = re.findall(r"self\.(\w+) =", inspect.getsource(error))
    return ", ".join(f"`{name}`" for name in names)


def _first(shown: Any) -> str:
    """The first paragraph of a docstring, on one line of a table."""
    return _doc(shown).split("\n\n")[0].replace("\n", " ").replace("|", "\\|")


# --- pieces ------------------------------------------------------------------------------------------------


def _class(shown: type, name: str) -> Iterator[str]:
    if dataclasses.is_dataclass(shown):
        return _fields(shown, f"### {name}\n\n{_text(shown)}")
    return iter([f"### {name}", _text(shown)])


def _function(shown: Callable[..., Any], name: str, *, level: int = 3) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield f"```text\n{_signature(shown, name)}\n```"
    yield _text(shown)


def _fields(shown: Any, before: str) -> Iterator[str]:
    yield before
    fields = [field for field in dataclasses.fields(shown) if field.name not in INSIDE]
    yield "```text\n" + "\n".join(map(_field, fields)) + "\n```"


def _field(field: dataclasses.Field[Any]) -> str:
    default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
    return f"{field.name}: {field.type}{default}"


def _signature(shown: Callable[..., Any], name: str) -> str:
    signature = inspect.signature(inspect.unwrap(shown))
    parts = list(_parameters(signature.parameters.values()))
    returns = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){returns}"])


def _parameters(given: Iterable[inspect.Parameter]) -> Iterator[str]:
    """Parameters as they were written: annotations here are texts, which `str(signature)` would quote."""
    before = None
    for one in given:
        if one.name in {"self", "cls"}:
            continue
        if before is one.POSITIONAL_ONLY and one.kind is not one.POSITIONAL_ONLY:
            yield "/"
        if one.kind is one.KEYWORD_ONLY and before not in {one.KEYWORD_ONLY, one.VAR_POSITIONAL}:
            yield "*"
        before = one.kind
        yield _parameter(one)


def _parameter(one: inspect.Parameter) -> str:
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    annotation = "" if one.annotation is one.empty else f": {one.annotation}"
    default = "" if one.default is one.empty else f"{' = ' if annotation else '='}{one.default!r}"
    return f"{stars}{one.name}{annotation}{default}"


def _text(shown: Any) -> str:
    """A docstring as Markdown: its doctests are fenced, as consoles."""
    paragraphs = _doc(shown).split("\n\n")
    return "\n\n".join(f"```pycon\n{part}\n```" if part.startswith(">>>") else part for part in paragraphs)


def _doc(shown: Any) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", inspect.getdoc(shown) or "")
