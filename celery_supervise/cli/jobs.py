"""The verb `jobs`: a list of jobs. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import click

from celery_supervise.lifecycle import State
from celery_supervise.model import Job
from celery_supervise.moments import instant
from celery_supervise.views import job_view
from celery_supervise.wording import count
from celery_supervise.words import why

from .render import cell, table, to_json
from .verb import NAME, clock, json_option, runtime, say, verb

PAGE = 50


@verb("jobs", "jobs --state parked --state running", "jobs --task shop.pay --limit 200 --json")
@click.option(
    "--state", "states", multiple=True, type=click.Choice([str(state) for state in State]), help="Repeatable."
)
@click.option("--task", type=NAME, help="The task's name.")
@click.option("--owner", type=NAME, help="Whose jobs.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=PAGE, show_default=True, help="At most so many.")
@json_option
@click.pass_context
def jobs(
    ctx: click.Context,
    *,
    states: tuple[str, ...],
    task: str | None,
    owner: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    supervisor = runtime(ctx).supervisor
    wanted = [State(state) for state in states] or None
    found, total = supervisor.jobs(states=wanted, task=task, owner=owner, page=limit)
    if as_json:
        say(ctx, to_json({"jobs": [job_view(job) for job in found], **counted(len(found), total)}))
        return
    if found:
        say(ctx, _table(found, clock(supervisor.door)))
    say(ctx, shown(len(found), total, "job"))


def _table(found: Sequence[Job], now: datetime) -> str:
    owned = any(job.owner_id is not None for job in found)
    head = ["JOB", "STATE", "TASK", *(["OWNER"] if owned else []), "CREATED", "WHY"]
    return table(head, [_row(job, now, owned=owned) for job in found])


def _row(job: Job, now: datetime, *, owned: bool) -> list[str]:
    owner = [cell(job.owner_id or "")] if owned else []
    return [job.id, str(job.state), cell(job.task), *owner, instant(job.created_at), cell(why(job, now))]


def counted(returned: int, total: int) -> dict[str, int]:
    """How many there are, and how many of them are not here."""
    return {"returned_count": returned, "total_count": total, "withheld_count": total - returned}


def shown(returned: int, total: int, one: str) -> str:
    """The same in a line: a list never keeps silent about what it leaves out."""
    if returned == total:
        return count(total, one)
    return f"{returned:,} of {count(total, one)}; --limit shows more"
