"""`celery -A proj supervise …`: the group of verbs. Loads none of them, nor anything else of ours.

Every celery command imports this module. A verb's own is loaded when it is used, so that none waits for SQLAlchemy,
pydantic or Alembic, and none fails where a setting of ours is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click
from celery.bin.base import handle_preload_options

VERBS: Mapping[str, str] = MappingProxyType(
    {
        "jobs": "jobs",
        "show": "show",
        "log": "logs",
        "why": "why",
        "questions": "questions",
        "answer": "questions",
        "reassign": "handing",
        "withdraw": "handing",
        "pause": "requests",
        "resume": "requests",
        "cancel": "requests",
        "rerun": "reruns",
        "extend": "extending",
        "kick": "kick",
        "hold": "holds",
        "release": "holds",
        "holds": "holds",
        "stats": "stats",
        "prune": "retention",
        "erase": "retention",
        "doctor": "upkeep",
        "sweep": "upkeep",
        "preflight": "preflight",
        "migrate": "migrating",
        "web": "serving",
        "token": "tokens",
        "tokens": "tokens",
        "revoke": "tokens",
    }
)
"""The verbs in the order in which help lists them, and the modules that have them."""

EXIT_CODES = "Exit codes: 0 done, 1 refused, 2 wrong usage or setting, 3 the database cannot be reached."


class Verbs(click.Group):
    """A group whose commands are imported at their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """All verbs."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, None where there is none of that name."""
        if cmd_name not in VERBS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f"{__name__}.{VERBS[cmd_name]}"), cmd_name)
        return command


# On the group only: Celery adds the shop's preload options to its own commands, not to those inside of ours,
# and up to 5.6 `handle_preload_options` fails on a command that was not given them.
@click.group(cls=Verbs, name="supervise", epilog=EXIT_CODES)
@click.pass_context
@handle_preload_options
def supervise(ctx: click.Context, **preload: Any) -> None:
    """Look at supervised jobs, answer their questions, keep them going.

    An id may be cut short as long as only one has such a beginning. Jobs and questions are read from the
    database: no worker and no broker needs to be up.
    """
