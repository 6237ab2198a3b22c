"""The verb `stats`: how the installation is doing, in numbers. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click

from celery_supervise.moments import span
from celery_supervise.stats import Stats
from celery_supervise.wording import count

from .render import escape, pairs, table, to_json
from .verb import json_option, runtime, say, verb

STAGES: Final = 20
"""So many stages are shown."""


@verb("stats", "stats --json")
@json_option
@click.pass_context
def stats(ctx: click.Context, *, as_json: bool) -> None:
    """Show how it goes, in numbers.

    Jobs by state, what waits and for how long, what runs and where it stands, what was lost. At most 100,000 jobs a
    state are counted.
    """
    now = runtime(ctx).supervisor.stats()
    say(ctx, to_json(_view(now)) if as_json else _text(now))


def _view(now: Stats) -> dict[str, Any]:
    return {**vars(now), "jobs": {str(state): jobs for state, jobs in now.jobs.items()}}


def _text(now: Stats) -> str:
    parts = [pairs(_states(now)), pairs(_numbers(now)), *_runnable(now), *_parked(now), *_stages(now)]
    return "\n\n".join(part for part in parts if part)


def _states(now: Stats) -> list[tuple[str, str | None]]:
    return [(str(state), f"{jobs:,}" + (" or more" if state in now.capped else "")) for state, jobs in now.jobs.items()]


def _numbers(now: Stats) -> list[tuple[str, str | None]]:
    return [
        ("oldest pending", _age(now.oldest_pending)),
        ("last heard of a running one", _age(now.heartbeat_age)),
        ("last progress of a running one", _age(now.progress_age)),
        ("without progress for too long", count(now.stalled, "job")),
        ("workers lost under open jobs", f"{now.lost_leases:,}"),
        ("refused writes of lost workers", f"{now.refused_writes:,}"),
        ("messages sent again", f"{now.republished:,}"),
        ("parked for no reason", count(now.parked_without_reason, "job") if now.parked_without_reason else None),
    ]


def _age(age: timedelta | None) -> str | None:
    return None if age is None else f"{span(age)} ago"


def _runnable(now: Stats) -> Sequence[str]:
    if not now.runnable:
        return ()
    rows = [(one.queue, f"{one.runnable:,}", span(one.oldest)) for one in now.runnable]
    return [table(("QUEUE", "WAIT FOR A WORKER", "THE FIRST FOR"), rows)]


def _parked(now: Stats) -> Sequence[str]:
    if not now.parked:
        return ()
    rows = [(one.reason or "(none)", f"{one.jobs:,}", span(one.oldest)) for one in now.parked]
    return [table(("PARKED", "JOBS", "THE OLDEST FOR"), rows)]


def _stages(now: Stats) -> Sequence[str]:
    if not now.stages:
        return ()
    shown = now.stages[:STAGES]
    rows = [(one.task, one.after or "(start)", f"{one.jobs:,}", span(one.mean), span(one.longest)) for one in shown]
    left = len(now.stages) - len(shown)
    more = f"\n{escape(count(left, 'more stage'))}; --json shows all" if left else ""
    return [table(("TASK", "AFTER", "RUNNING", "FOR, ON AVERAGE", "AT LONGEST"), rows) + more]
