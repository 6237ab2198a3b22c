"""Commands that a verb tells a person to type: each works as it is printed, here and for this user. Runs none."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Final

import click

from .render import escape
from .who import names_somebody

_WRITTEN: Final = re.compile(r"\bcelery -A proj( supervise ([a-z]+))?(?= |$)")
"""A command in a text of the library, which knows neither the app's name nor who reads it."""


def command(ctx: click.Context, *words: str) -> str | None:
    """A verb with its words, to copy; None where an id in it cannot be shown as it is."""
    return celery_command(ctx, "supervise", *_guarded(words))


def celery_command(ctx: click.Context, *words: str) -> str | None:
    """Likewise, any command of Celery's."""
    if any(escape(word) != word for word in words):
        return None
    if words[0] == "supervise":
        return shlex.join([*_supervise(ctx), words[1], *_as(ctx, words[1]), *words[2:]])
    return shlex.join([*_celery(ctx), *words])


def filled(ctx: click.Context, text: str) -> str:
    """A text of the library with the commands in it as they work here."""

    def here(found: re.Match[str]) -> str:
        if found[1]:
            return shlex.join([*_supervise(ctx), found[2], *_as(ctx, found[2])])
        return shlex.join(_celery(ctx))

    return _WRITTEN.sub(here, text)


def _supervise(ctx: click.Context) -> Sequence[str]:
    """How our command was started: by another program than `celery` where that says so."""
    own: Sequence[str] | None = getattr(ctx.obj, "program", None)
    return own or [*_celery(ctx), "supervise"]


def _celery(ctx: click.Context) -> Sequence[str]:
    return ["celery", "-A", _app_name(ctx)]


def _as(ctx: click.Context, verb: str) -> Sequence[str]:
    """`--as USER` where the verb would refuse to go without it; USER is for the person to replace."""
    if names_somebody() or ctx.parent is None or not isinstance(ctx.parent.command, click.Group):
        return ()
    known = ctx.parent.command.get_command(ctx.parent, verb)
    return ("--as", "USER") if known and any(one.name == "actor" for one in known.params) else ()


def is_app_named(ctx: click.Context) -> bool:
    """Whether the person has said which app they mean."""
    return _named(ctx) is not None


def _app_name(ctx: click.Context) -> str:
    return _named(ctx) or "proj"


def _named(ctx: click.Context) -> str | None:
    """The app as it was named: click's parameter holds the app itself up to 5.4, the name from 5.5 on."""
    given = getattr(ctx.obj, "app_name", None) or ctx.find_root().params.get("app")
    if isinstance(given, str):
        return given
    words = iter(sys.argv)
    for word in words:
        if word in {"-A", "--app"}:
            return next(words, None)
        if word.startswith("--app="):
            return word.removeprefix("--app=")
    return os.environ.get("CELERY_APP")


def _guarded(words: Sequence[str]) -> Sequence[str]:
    """An id that begins with a dash must not be read as an option."""
    return [words[0], "--", *words[1:]] if any(word.startswith("-") for word in words[1:]) else words
