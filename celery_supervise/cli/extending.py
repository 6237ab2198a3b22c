"""The verb `extend`: more time for a job, or for the answer to a question. The service decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from celery_supervise.bulk import Outcome, Target
from celery_supervise.lookup import find_job, find_question
from celery_supervise.model import Moved
from celery_supervise.moments import near
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import moved_view

from .many import or_many
from .render import escape, to_json
from .times import SPAN, TIME
from .verb import NAME, as_option, clock, generation_option, json_option, runtime, say, verb


def _many(supervisor: Supervisor, jobs: Sequence[Target], given: Mapping[str, Any]) -> Sequence[Outcome]:
    if given["asks"] or (given["by"] is None) == (given["to"] is None):
        raise click.UsageError("Of many jobs: give --by or --to, one of the two; --question is of one.")
    return supervisor.extend_each(jobs, deadline=given["to"], by=given["by"], actor=given["actor"])


@verb(
    "extend 3f2a --by 2h",
    "extend 3f2a --to 2026-12-01T18:00Z --as ann",
    "extend --question 7c1e --by 1d",
    "extend --task shop.pay --by 1d",
)
@click.argument("identity", metavar="[JOB|QUESTION]", type=NAME, required=False)
@click.option("--question", "asks", is_flag=True, help="It is a question that gets more time to be answered.")
@click.option("--by", type=SPAN, help="So much is added to the present deadline: 30min, 2h, 1d12h.")
@click.option("--to", type=TIME, help="The new deadline: a moment with its zone, or a span from now.")
@generation_option
@as_option
@json_option
@or_many(
    "extend", _many, lambda moved: "has more time" if moved.changed else "has that deadline already", named="identity"
)
@click.pass_context
def extend(
    ctx: click.Context,
    *,
    identity: str,
    asks: bool,
    by: timedelta | None,
    to: datetime | timedelta | None,
    expected_generation: int | None,
    actor: str,
    as_json: bool,
) -> None:
    """Move the deadline of a job, or the time of a question.

    Only before it is over: what has expired stays so. A job that has no deadline gets one by --to.
    """
    if (by is None) == (to is None):
        raise click.UsageError("Give --by or --to, one of the two.")
    supervisor = runtime(ctx).supervisor
    if asks:
        question = find_question(supervisor, identity)
        moved = supervisor.extend_question(
            question.id, until=to, by=by, actor=actor, expected_generation=expected_generation
        )
        said = f"can be answered until {_near(supervisor, supervisor.question(question.id).open_until)}"
        _say(ctx, moved, str(question.id), said, as_json=as_json)
    else:
        job = find_job(supervisor, identity)
        moved = supervisor.extend(job.id, deadline=to, by=by, actor=actor, expected_generation=expected_generation)
        said = f"its deadline is {_near(supervisor, supervisor.job(job.id).deadline)}"
        _say(ctx, moved, job.id, said, as_json=as_json)


def _near(supervisor: Supervisor, at: datetime | None) -> str:
    return "no time any more" if at is None else near(at, clock(supervisor.door))


def _say(ctx: click.Context, moved: Moved, name: str, said: str, *, as_json: bool) -> None:
    unchanged = "" if moved.changed else "as before, "
    if as_json:
        say(ctx, to_json(moved_view(moved, unchanged + said)))
    else:
        say(ctx, f"{escape(name)}: {unchanged}{said} (generation {moved.generation})")
