"""`python manage.py supervise …`: our command with Django set up. Has no verb of its own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

from celery.bin.base import CLIContext
from django.conf import settings
from django.core.management.base import BaseCommand

from celery_supervise.cli import supervise
from celery_supervise.contrib.django.app import app

NAME: Final = "manage.py supervise"
OURS: Final = ("python", "manage.py", "supervise")
DJANGOS: Final = ("--settings", "--pythonpath")
"""What `manage.py` has read already, wherever it stands."""


class Context(CLIContext):
    """What a verb gets of `celery`, and how its commands are typed here."""

    program = OURS

    @property
    def app_name(self) -> str:
        """What `celery -A` takes: the project loads its app with its settings."""
        return str(settings.SETTINGS_MODULE).split(".", maxsplit=1)[0]


class Command(BaseCommand):
    """Hands its words on."""

    help = "Look at supervised jobs, answer their questions, keep them going."
    requires_system_checks: Sequence[str] = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """From the shell: `--help` and all else are ours to read."""
        run(_without_djangos(argv[2:]))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """For `call_command("supervise", "jobs", "--json")`."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, words: list[str], **__: Any) -> None:
        """From Python. Raises what click raises: a `ClickException` where it was refused."""
        run(words, standalone_mode=False)


def run(words: Sequence[str], *, standalone_mode: bool = True) -> None:
    """Run a verb of the project's app."""
    context = Context(app=app(), no_color=False, workdir=None)
    supervise.main(args=list(words), prog_name=NAME, obj=context, standalone_mode=standalone_mode)


def _without_djangos(words: Sequence[str]) -> list[str]:
    kept, given = [], iter(words)
    for word in given:
        if word in DJANGOS:
            next(given, None)
        elif not word.startswith(tuple(f"{name}=" for name in DJANGOS)):
            kept.append(word)
    return kept
