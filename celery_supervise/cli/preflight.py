"""The verb `preflight`: before a rollout, whether this code can go on with every job that is not over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from celery import Celery

from celery_supervise.runtime import is_supervised, known_tasks, memories_of
from celery_supervise.versions import Stranded
from celery_supervise.versions import preflight as stranded_by
from celery_supervise.wording import count

from .render import escape, to_json
from .verb import REFUSED, json_option, runtime, say, verb


@verb("preflight", "preflight --json")
@json_option
@click.pass_context
def preflight(ctx: click.Context, *, as_json: bool) -> None:
    """Check that this code can go on with all jobs.

    Run it with the new code, before its workers start: it imports the app's tasks, and compares them with the jobs that
    are not over. Exit code 1, and a list, where some would not go on: their task is gone, is not supervised any more,
    accepts other versions, or raises where it is to migrate them, which is tried on each job. Changes nothing; with
    workers of this code such jobs wait, then are parked.
    """
    app: Celery = ctx.obj.app
    app.loader.import_default_modules()
    app.finalize()
    plain = [name for name, task in app.tasks.items() if not is_supervised(name, task)]
    found = stranded_by(runtime(ctx).door, known_tasks(app), plain, memories_of(runtime(ctx)))
    say(ctx, to_json(_view(found)) if as_json else _text(found))
    ctx.exit(REFUSED if found else 0)


def _view(found: Sequence[Stranded]) -> dict[str, Any]:
    return {
        "ready": not found,
        "stranded": [
            {
                "task": one.unfinished.task,
                "version": one.unfinished.version,
                "state": one.unfinished.state,
                "jobs": one.unfinished.jobs,
                "oldest": list(one.unfinished.ids),
                "why": one.why,
            }
            for one in found
        ],
    }


def _text(found: Sequence[Stranded]) -> str:
    if not found:
        return "this code can go on with every job"
    lines = [f"{_jobs(one)}: {escape(one.why)}" for one in found]
    return "\n".join([*lines, "", "Give this code what they need, or let them end before you roll it out."])


def _jobs(one: Stranded) -> str:
    of = one.unfinished
    ids = ", ".join(escape(job_id) for job_id in of.ids) + (", …" if of.jobs > len(of.ids) else "")
    return f"{count(of.jobs, of.state + ' job')} of {escape(of.task)}, version {of.version} ({ids})"
