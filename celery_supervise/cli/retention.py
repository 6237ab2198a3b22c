"""The verbs `prune` and `erase`: what is taken away for good. The service says of what."""

from __future__ import annotations

from datetime import timedelta

import click

from celery_supervise.lookup import find_job
from celery_supervise.model import Moved
from celery_supervise.retention import Erased, Pruned
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import moved_view
from celery_supervise.wording import count

from .render import escape, to_json
from .times import SPAN
from .verb import NAME, as_option, json_option, runtime, say, verb

_OLDER = "How long ago they ended: 30d, 12h, 90min."


@verb("prune --older-than 30d --dry-run", "prune --older-than 30d --limit 10000 --as ann")
@click.option("--older-than", type=SPAN, required=True, metavar="TIME", help=_OLDER)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most so many jobs; else all.")
@click.option("--dry-run", is_flag=True, is_eager=True, help="Only count them.")
@as_option
@json_option
@click.pass_context
def prune(
    ctx: click.Context, *, older_than: timedelta, limit: int | None, dry_run: bool, actor: str, as_json: bool
) -> None:
    """Remove jobs that ended long ago.

    Row, values, questions and log, for good. Only jobs of which Celery was told. What has not ended, or still owes
    a message, stays.
    """
    supervisor = runtime(ctx).supervisor
    if dry_run:
        old = supervisor.prunable(older_than=older_than)
        say(ctx, to_json({"dry_run": True, "jobs": old}) if as_json else f"{count(old, 'job')} would be tried")
        return
    done = supervisor.prune(older_than=older_than, actor=actor, limit=limit)
    say(ctx, to_json({"dry_run": False, **vars(done)}) if as_json else _pruned(done))


def _pruned(done: Pruned) -> str:
    left = f"; {count(done.left, 'job')} left, since they still owe a message or are held just now" if done.left else ""
    more = "; there may be more: repeat it" if done.more else ""
    return f"{count(done.pruned, 'job')} removed{left}{more}"


@verb("erase 3f2a", "erase --owner acme --as ann")
@click.argument("job_id", metavar="[JOB]", type=NAME, required=False)
@click.option("--owner", type=NAME, help="All ended jobs of this owner.")
@as_option
@json_option
@click.pass_context
def erase(ctx: click.Context, *, job_id: str | None, owner: str | None, actor: str, as_json: bool) -> None:
    """Take the values of ended jobs away.

    Arguments, results, steps, questions and answers, for good. Ids, names, who did what and the log stay. Celery's
    own result backend keeps its copy of a result until that expires.
    """
    if (job_id is None) is (owner is None):
        raise click.UsageError("Give a JOB or --owner, one of them.")
    supervisor = runtime(ctx).supervisor
    if owner is not None:
        _say_owner(ctx, supervisor.erase_owner(owner, actor=actor), as_json=as_json)
    elif job_id is not None:
        _say_job(ctx, _erased(supervisor, job_id, actor), as_json=as_json)


def _erased(supervisor: Supervisor, job_id: str, actor: str) -> Moved:
    return supervisor.erase(find_job(supervisor, job_id).id, actor=actor)


def _say_job(ctx: click.Context, moved: Moved, *, as_json: bool) -> None:
    said = "its values are erased" if moved.changed else "nothing was left to erase"
    say(ctx, to_json(moved_view(moved, said)) if as_json else f"{escape(moved.job_id)}: {said}")


def _say_owner(ctx: click.Context, done: Erased, *, as_json: bool) -> None:
    left = f"; {count(done.left, 'job')} left: not ended, or Celery not told of it yet" if done.left else ""
    text = f"the values of {count(done.erased, 'job')} are erased{left}"
    say(ctx, to_json(vars(done)) if as_json else text)
