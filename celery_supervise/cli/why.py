"""The verb `why`: why a job does not move. Changes nothing."""

from __future__ import annotations

import click

from celery_supervise.lookup import find_job
from celery_supervise.views import View
from celery_supervise.why import Why

from .commands import celery_command
from .render import escape, to_json
from .verb import NAME, json_option, runtime, say, verb


@verb("why 3f2a", "why 3f2a --json")
@click.argument("job_id", metavar="JOB", type=NAME)
@json_option
@click.pass_context
def why(ctx: click.Context, *, job_id: str, as_json: bool) -> None:
    """Say why a job does not move.

    In one sentence, with the command that would move it, where there is one.
    """
    supervisor = runtime(ctx).supervisor
    told = supervisor.why(find_job(supervisor, job_id).id)
    by = celery_command(ctx, *told.command) if told.command else None
    say(ctx, to_json(_view(told, by)) if as_json else _text(told, by))


def _view(told: Why, by: str | None) -> View:
    return {"job_id": told.job_id, "state": told.state, "why": told.sentence, "command": by}


def _text(told: Why, by: str | None) -> str:
    said = f"{escape(told.job_id)} ({told.state}): {escape(told.sentence)}"
    return f"{said}\n  {by}" if by else said
