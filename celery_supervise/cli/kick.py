"""The verb `kick`: a job's message is sent now. The service decides."""

from __future__ import annotations

import click

from celery_supervise.lookup import find_job
from celery_supervise.operating import Kicked

from .render import escape, to_json
from .verb import NAME, as_option, json_option, runtime, say, verb


@verb("kick 3f2a", "kick 3f2a --as ann")
@click.argument("job_id", metavar="JOB", type=NAME)
@as_option
@json_option
@click.pass_context
def kick(ctx: click.Context, *, job_id: str, actor: str, as_json: bool) -> None:
    """Send the message that starts a job, now.

    Also where it was sent before. It starts no job before its time, nor one that is paused, and does no harm: a
    message too many runs nothing.
    """
    supervisor = runtime(ctx).supervisor
    done = supervisor.kick(find_job(supervisor, job_id).id, actor=actor)
    say(ctx, to_json(vars(done)) if as_json else _text(done))


def _text(done: Kicked) -> str:
    said = "its message was sent to" if done.sent else "its message is sent within moments to"
    return f"{escape(done.job_id)}: {said} queue {escape(done.queue)}"
