"""The verbs `pause`, `resume`, `cancel`: what a person asks of a job, or of many. The service decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click

from celery_supervise.bulk import Outcome, Target
from celery_supervise.lookup import find_job
from celery_supervise.model import Moved
from celery_supervise.steering import GRACE
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import moved_view
from celery_supervise.words import cancelled, paused, resumed

from .many import or_many
from .render import escape, to_json
from .verb import NAME, as_option, generation_option, json_option, runtime, say, verb


@verb("pause 3f2a", "pause 3f2a --expected-generation 7 --as ann", "pause --task shop.pay --dry-run")
@click.argument("job_id", metavar="[JOB]", type=NAME, required=False)
@generation_option
@as_option
@json_option
@or_many("pause", lambda s, jobs, given: s.pause_each(jobs, actor=given["actor"]), paused)
@click.pass_context
def pause(ctx: click.Context, *, job_id: str, expected_generation: int | None, actor: str, as_json: bool) -> None:
    """Ask a job to pause.

    One that runs goes on to the end of its current step first.
    """
    supervisor = runtime(ctx).supervisor
    job = find_job(supervisor, job_id)
    moved = supervisor.pause(job.id, actor=actor, expected_generation=expected_generation)
    _say(ctx, moved, paused(moved), as_json=as_json)


@verb("resume 3f2a", "resume 3f2a --as ann", "resume --reason user_paused --owner acme")
@click.argument("job_id", metavar="[JOB]", type=NAME, required=False)
@generation_option
@as_option
@json_option
@or_many("resume", lambda s, jobs, given: s.resume_each(jobs, actor=given["actor"]), resumed)
@click.pass_context
def resume(ctx: click.Context, *, job_id: str, expected_generation: int | None, actor: str, as_json: bool) -> None:
    """Let a paused job go on.

    A pause that is only asked for is taken back.
    """
    supervisor = runtime(ctx).supervisor
    job = find_job(supervisor, job_id)
    moved = supervisor.resume(job.id, actor=actor, expected_generation=expected_generation)
    _say(ctx, moved, resumed(moved), as_json=as_json)


def _cancel_each(supervisor: Supervisor, jobs: Sequence[Target], given: Mapping[str, Any]) -> Sequence[Outcome]:
    if given["terminate"] or given["grace"] is not None:
        raise click.UsageError("--terminate and --grace are of one JOB.")
    return supervisor.cancel_each(jobs, actor=given["actor"], why=given["why"])


@verb(
    "cancel 3f2a",
    'cancel 3f2a --why "ordered twice"',
    "cancel 3f2a --terminate --grace 60",
    "cancel --task shop.pay --state pending --dry-run",
)
@click.argument("job_id", metavar="[JOB]", type=NAME, required=False)
@click.option("--why", type=NAME, metavar="TEXT", help="The reason, for the log.")
@click.option("--terminate", is_flag=True, help="End its process if it has not stopped by itself after --grace.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0, max=86_400),
    metavar="SECONDS",
    help=f"How long to wait for that; {GRACE.total_seconds():g} if not said.",
)
@generation_option
@as_option
@json_option
@or_many("cancel", _cancel_each, cancelled)
@click.pass_context
def cancel(
    ctx: click.Context,
    *,
    job_id: str,
    why: str | None,
    terminate: bool,
    grace: float | None,
    expected_generation: int | None,
    actor: str,
    as_json: bool,
) -> None:
    """Cancel a job.

    At once where no worker runs it, else at its next step. No worker needs to be up. A job that has already
    ended stays as it is, and the exit code is 1.
    """
    if grace is not None and not math.isfinite(grace):
        raise click.UsageError("--grace must be a finite number of seconds.")
    if grace is not None and not terminate:
        raise click.UsageError("--grace goes with --terminate.")
    supervisor = runtime(ctx).supervisor
    job = find_job(supervisor, job_id)
    moved = supervisor.cancel(
        job.id,
        actor=actor,
        why=why,
        terminate=terminate,
        grace=GRACE if grace is None else timedelta(seconds=grace),
        expected_generation=expected_generation,
    )
    _say(ctx, moved, cancelled(moved, terminate=terminate), as_json=as_json)


def _say(ctx: click.Context, moved: Moved, said: str, *, as_json: bool) -> None:
    if as_json:
        say(ctx, to_json(moved_view(moved, said)))
    else:
        say(ctx, f"{escape(moved.job_id)}: {said} (generation {moved.generation})")
