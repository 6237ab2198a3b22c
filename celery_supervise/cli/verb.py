"""What all verbs share: options, the way to the service, errors as a line and an exit code. No verb itself."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, TypeVar

import click
from sqlalchemy.exc import DBAPIError

from celery_supervise import queries
from celery_supervise.engine import said
from celery_supervise.errors import (
    ConfigError,
    Conflict,
    DatabaseUnavailable,
    InvalidAnswer,
    InvalidInput,
    QuestionClosed,
    SuperviseError,
)
from celery_supervise.moments import instant
from celery_supervise.runtime import Runtime, runtime_of
from celery_supervise.store.door import Door
from celery_supervise.values import check_name
from celery_supervise.wording import LONGEST, cut, shown

from .commands import filled, is_app_named
from .render import escape, printable, to_json
from .who import login

F = TypeVar("F", bound=Callable[..., Any])

REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3

CELERYS_OWN: Final = "default"
"""The name of the app that Celery makes where none is named (5.4-5.7)."""

_WAY_OUT: Final = "Jobs are safe meanwhile, and go on when it is back."
_NOTES: Final = {
    "supervise.publish_deferred": "the broker does not answer just now; the job goes on as soon as it does",
    "supervise.publish_failed": "the broker did not take a message; it is sent again later",
    "supervise.settle_failed": "Celery could not be told how a job ended; it is tried again later",
    "supervise.broker_not_counted": "the broker's queue could not be counted",
}
"""What the service logs while a verb runs, in words for the one who typed it."""
_TOLD: Final = frozenset({"supervise.sweep_held", "supervise.republished", "supervise.stalled"})
"""What the verb itself tells."""


class Failed(click.ClickException):
    """A verb that did not do what was asked."""

    def __init__(self, error: Exception, ctx: click.Context) -> None:
        super().__init__(_as_json(error, ctx) if _for_programs(ctx) else filled(ctx, f"Error: {_as_text(error)}"))

    def show(self, file: Any = None) -> None:
        """Print it, to stderr."""
        click.echo(printable(self.message, sys.stderr.encoding), file=file, err=True)


class Refused(Failed):
    """The service said no, and why."""

    exit_code = REFUSED


class Misused(Failed):
    """What was typed or set cannot be used."""

    exit_code = USAGE


class Unreachable(Failed):
    """The database was away."""

    exit_code = UNREACHABLE


class Verb(click.Command):
    """A command that turns errors of ours into a line and an exit code; any other is a bug, and shows as such."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what was typed; a complaint about it repeats no more of it than anybody would read."""
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if max(map(len, typed), default=0) <= LONGEST:
                raise
            raise click.UsageError(_cut_out(error.format_message(), typed), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        with _noted():
            try:
                return super().invoke(ctx)
            except (SuperviseError, DBAPIError) as error:
                check_app_named(ctx, error)
                raise _failure(error)(error, ctx) from error


def check_app_named(ctx: click.Context, error: Exception) -> None:
    """Without -A there is Celery's own app, which has no settings. Raises `UsageError`."""
    unset = isinstance(error, ConfigError) and error.setting == "supervise_database_url"
    if unset and ctx.obj.app.main == CELERYS_OWN and not is_app_named(ctx):
        raise click.UsageError(f"No app was named: -A is missing, as in: celery -A proj supervise {ctx.info_name}")


def _cut_out(text: str, typed: Sequence[str]) -> str:
    """`text` with what was typed cut, as it was typed or as Python writes it."""
    for word in (part for one in typed for part in (one, one.partition("=")[2]) if len(part) > LONGEST):
        text = text.replace(word, cut(word)).replace(repr(word), shown(word))
    return text


def _for_programs(ctx: click.Context) -> bool:
    return bool(ctx.params.get("as_json")) or ctx.params.get("json_text") is not None


def _failure(error: Exception) -> type[Failed]:
    if isinstance(error, DatabaseUnavailable):
        return Unreachable
    return Misused if isinstance(error, (ConfigError, InvalidInput)) else Refused


def _as_text(error: Exception) -> str:
    match error:
        case InvalidAnswer():
            return "\n".join(["the answer was not accepted:", *map(_complaint, error.errors.items())])
        case DatabaseUnavailable():
            return f"{escape(str(error))} {_WAY_OUT}"
        case DBAPIError():
            return f"Postgres refused: {_said(error)}. To see why: celery -A proj supervise doctor"
        case Conflict(code="stale_generation"):
            return f"the job has changed since (generation {error.actual}, not {error.expected}); look again"
        case QuestionClosed():
            at = f", at {instant(error.answered_at)}" if error.answered_at else ""
            return f"{escape(str(error))}{at}; the job is {error.job_state} now"
    return escape(str(error))


def _complaint(of: tuple[str, Sequence[str]]) -> str:
    path, why = of
    return f"  {'it' if path == '$' else escape(path)} {escape(', '.join(why))}"


def _said(error: DBAPIError) -> str:
    return escape(said(error))


def _as_json(error: Exception, ctx: click.Context) -> str:
    detail = _said(error) if isinstance(error, DBAPIError) else str(error)
    facts = vars(error) if isinstance(error, SuperviseError) else {}
    return to_json({"error": {"type": type(error).__name__, "detail": filled(ctx, detail), **facts}})


class Notes(logging.Handler):
    """Tells the person what the service logs as a warning or worse, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one note."""
        event = getattr(record, "event", record.getMessage())
        if event in _TOLD:
            return
        why = getattr(record, "why", None)
        said = _NOTES.get(event, event) + (f" ({why})" if why else "")
        note(escape(said))


@contextmanager
def _noted() -> Iterator[None]:
    logger, notes = logging.getLogger("celery_supervise"), Notes(logging.WARNING)
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.WARNING))  # whatever level the shop gave its root logger
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(notes)


# --- options ---------------------------------------------------------------------------------------------


class Name(click.ParamType[str]):
    """A text that the database can hold as a name: not blank, at most 255 bytes, no NUL."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text."""
        try:
            return check_name("it", value)
        except InvalidInput as error:
            self.fail(error.problem, param, ctx)


NAME: Final = Name()


def verb(*examples: str) -> Callable[[Callable[..., None]], Verb]:
    """Make a command of a function. `examples` are what follows `celery -A proj supervise`."""
    lines = "\n".join(f"  celery -A proj supervise {example}" for example in examples)
    return click.command(cls=Verb, epilog=f"\b\nExamples:\n{lines}")


def json_option(function: F) -> F:
    """`--json`: for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, all fields, for programs.")(function)


def generation_option(function: F) -> F:
    """`--expected-generation`: refuse if the job has changed since it was looked at."""
    text = "Do it only if the job has not changed since `show` said this number."
    return click.option("--expected-generation", type=click.IntRange(min=1), metavar="N", help=text)(function)


def as_option(function: F) -> F:
    """`--as`: who does it, as the log will name them."""
    text = "Who you are, for the log. Needed where you are root; else your login name."
    return click.option("--as", "actor", type=NAME, metavar="USER", callback=_actor, help=text)(function)


def _actor(ctx: click.Context, _param: click.Parameter, value: str | None) -> str:
    if value is None and ctx.params.get("dry_run"):  # which does nothing, so that nobody has done it
        return "cli:nobody"
    return f"cli:{value or login()}"


# --- the way to the service ------------------------------------------------------------------------------


def runtime(ctx: click.Context) -> Runtime:
    """The parts of the library for the app that the command was started with. Raises `ConfigError`."""
    # Without importing the shop's task modules: an inbox must work when one of them is broken.
    return runtime_of(ctx.obj.app)


def clock(door: Door) -> datetime:
    """Now, by the database: the clock that all its times are of. Raises `DatabaseUnavailable`."""
    at: datetime = door.all(queries.CLOCK)[0]["at"]
    return at


def note(text: str) -> None:
    """Tell the person something beside the outcome, on stderr."""
    click.echo(printable(f"Note: {text}", sys.stderr.encoding), err=True)


def say(ctx: click.Context, text: str) -> None:
    """Print `text` to stdout."""
    ctx.obj.echo(printable(text, sys.stdout.encoding))
