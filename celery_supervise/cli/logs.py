"""The verb `log`: what happened to a job. Changes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from celery_supervise import queries
from celery_supervise.lifecycle import LOGGED
from celery_supervise.lookup import find_job
from celery_supervise.model import Job, LogEntry, LogPage
from celery_supervise.moments import exact
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import log_view
from celery_supervise.wording import count, none_of
from celery_supervise.words import event, event_name

from .render import table, to_json, value_text
from .verb import NAME, json_option, runtime, say, verb

PLAIN = re.compile(r"[\w.:@/+-]+")


class EventName(click.ParamType[str]):
    """An event of the log, by its name or in the words in which the log tells it."""

    name = "event"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Its name."""
        name = event_name(value)
        if name not in LOGGED:
            self.fail(none_of(value, sorted({event(one) for one in LOGGED})), param, ctx)
        return name


@verb("log 3f2a", "log 3f2a --all", "log 3f2a --before 120 --limit 20", "log 3f2a --event asked --event answered")
@click.argument("job_id", metavar="JOB", type=NAME)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="At most so many, the newest.",
)
@click.option("--before", type=click.IntRange(min=1), metavar="N", help="Only entries before this number.")
@click.option("--event", "events", multiple=True, type=EventName(), help="Only what is called so. Repeatable.")
@click.option("--all", "everything", is_flag=True, help="The whole log.")
@json_option
@click.pass_context
def log(
    ctx: click.Context,
    *,
    job_id: str,
    limit: int,
    before: int | None,
    events: tuple[str, ...],
    everything: bool,
    as_json: bool,
) -> None:
    """Print a job's log: who did what, and when.

    The newest page of it, in order. It holds names, sizes and reasons, never values. What is not shown is counted.
    """
    if everything and before is not None:
        raise click.UsageError("Give --all or --before, not both.")
    supervisor = runtime(ctx).supervisor
    job = find_job(supervisor, job_id)
    wanted = events or None
    if everything:
        page = _whole(supervisor, job, wanted)
    else:
        page = supervisor.log(job.id, page=limit, before=before, events=wanted)
    say(ctx, to_json(log_view(page)) if as_json else _text(page, events, newest=before is None))


def _whole(supervisor: Supervisor, job: Job, wanted: Sequence[str] | None) -> LogPage:
    entries = list(queries.entries(supervisor.door, job.id, events=wanted))
    return LogPage(entries, len(entries), len(entries), withheld_count=0, truncated=False)


def _text(page: LogPage, events: Sequence[str], *, newest: bool) -> str:
    lines = table(("#", "AT", "EVENT", "BY", "DETAILS"), [_row(entry) for entry in page.entries])
    only = f" of {', '.join(map(event, events))}" if events else ""
    total = count(page.total_count, "entry", "entries") + only
    if not page.truncated:
        return f"{lines}\n{total}"
    earlier = f"--before {page.entries[0].sequence_num} shows those before, " if newest else ""
    left = f"{page.withheld_count:,} withheld: {earlier}--all shows {'all of them' if events else 'the whole log'}"
    return f"{lines}\n{page.returned_count:,} of {total}; {left}"


def _row(entry: LogEntry) -> tuple[str, str, str, str, str]:
    return (str(entry.sequence_num), exact(entry.at), event(entry.event), entry.actor, _details(entry.data))


def _details(data: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_detail(value)}" for name, value in data.items())


def _detail(value: Any) -> str:
    """A plain word as it is; all else as JSON, so that no text can pass for another detail."""
    return value if isinstance(value, str) and PLAIN.fullmatch(value) else value_text(value)
