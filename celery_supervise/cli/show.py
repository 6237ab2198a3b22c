"""The verb `show`: all that a person needs to know of one job. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from celery_supervise import queries
from celery_supervise.asked import asked
from celery_supervise.errors import Unreadable
from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.lookup import find_job
from celery_supervise.model import Attempt, Cleanup, Job, Node, Question, Rejected
from celery_supervise.moments import instant, near
from celery_supervise.rejected import is_error
from celery_supervise.standing import Standing, standing
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import View, attempt_view, job_view, jsonable
from celery_supervise.why import explain
from celery_supervise.wording import count, cut
from celery_supervise.words import fate, outcome, over, why

from .asked import question_text
from .commands import command
from .render import block, escape, pairs, to_json, value_text
from .verb import NAME, clock, json_option, runtime, say, verb

LAST = 10
"""So many attempts are shown."""
LONGEST = 500
"""Of a result, so many characters are shown."""


@dataclass(frozen=True)
class Seen:
    """A job and what belongs to it."""

    job: Job
    now: datetime
    nodes: Sequence[Node]
    attempts: Sequence[Attempt]
    questions: Sequence[Question]
    result: tuple[Any, str | None] | None
    """The value, or (None and) why it cannot be read here. None: the job did not complete."""
    rejected: Sequence[tuple[Rejected, Any, str | None]] = ()
    """What came too late, with its value, or why it cannot be read here."""
    successor: str | None = None
    cleanups: Sequence[Cleanup] = ()
    stands: Standing | None = None
    """None: it was pruned meanwhile."""


@verb("show 3f2a", "show 3f2a --json", "show 3f2a --rejected")
@click.argument("job_id", metavar="JOB", type=NAME)
@click.option("--rejected", is_flag=True, help="Also show the results that came too late to count.")
@json_option
@click.pass_context
def show(ctx: click.Context, *, job_id: str, rejected: bool, as_json: bool) -> None:
    """Show one job in full.

    Its state and why, when it starts again, its questions, progress, checkpoints and attempts.
    """
    supervisor = runtime(ctx).supervisor
    seen = _look(supervisor, find_job(supervisor, job_id))
    if as_json:
        say(ctx, to_json(_view(supervisor, seen, rejected=rejected)))
    else:
        say(ctx, _text(ctx, supervisor, seen, rejected=rejected))


def _look(supervisor: Supervisor, job: Job) -> Seen:
    return Seen(
        job=job,
        now=clock(supervisor.door),
        nodes=list(queries.nodes(supervisor.door, job.id, job.run_id).values()),
        attempts=supervisor.attempts(job.id),
        questions=supervisor.questions(job_id=job.id),
        result=_result(supervisor, job) if job.state is State.COMPLETED else None,
        successor=supervisor.successor(job.id) if job.state in TERMINAL else None,
        cleanups=supervisor.cleanups(job.id),
        rejected=[(one, *_late(supervisor, one)) for one in supervisor.rejected(job.id)],
        stands=standing(supervisor.door, job.id),
    )


def _late(supervisor: Supervisor, one: Rejected) -> tuple[Any, str | None]:
    try:
        return supervisor.rejected_value(one), None
    except Unreadable as error:
        return None, error.problem


def _result(supervisor: Supervisor, job: Job) -> tuple[Any, str | None]:
    try:
        return supervisor.result(job.id), None
    except Unreadable as error:
        return None, error.problem


def _view(supervisor: Supervisor, seen: Seen, *, rejected: bool) -> View:
    result = {} if seen.result is None else {"result": jsonable(seen.result[0]), "result_unreadable": seen.result[1]}
    return {
        **job_view(seen.job),
        "why": _why(seen),
        "rerun_as": seen.successor,
        "checkpoints": [{"name": node.name, "kind": node.kind, "size": node.size} for node in seen.nodes],
        "questions": [asked(supervisor, question).view for question in seen.questions],
        "attempts_made": [attempt_view(attempt) for attempt in seen.attempts],
        "cleanups": seen.cleanups,
        "rejected": [_rejected_view(*one, shown=rejected) for one in seen.rejected],
        **result,
    }


def _rejected_view(one: Rejected, value: Any, unreadable: str | None, *, shown: bool) -> View:
    content = {"value": jsonable(value), "unreadable": unreadable} if shown else {}
    return {"attempt": one.number, "kept_at": one.kept_at, "size": one.size, "is_error": is_error(one), **content}


def _why(seen: Seen) -> str:
    """What the row alone says, but where it does not know: what keeps the job from its start, who cancelled it."""
    job, stands = seen.job, seen.stands
    if stands is not None and _is_kept(stands):
        return explain(stands).sentence
    if stands is not None and stands.cancelled_by is not None and job.state is State.CANCELLED:
        return f"by {stands.cancelled_by}" + (f" ({stands.cancelled_why})" if stands.cancelled_why else "")
    return why(job, seen.now)


def _is_kept(stands: Standing) -> bool:
    """Whether the job could start, but for a hold, or its turn."""
    job = stands.job
    if job.ticket_id is None or job.state is State.RUNNING:
        return False
    due = job.starts_at is None or job.starts_at <= stands.at
    return stands.held is not None or (due and not stands.released)


# --- for people ------------------------------------------------------------------------------------------


def _text(ctx: click.Context, supervisor: Supervisor, seen: Seen, *, rejected: bool) -> str:
    job, now = seen.job, seen.now
    said = escape(_why(seen))
    return pairs(
        [
            ("job", escape(job.id)),
            ("task", escape(job.task)),
            ("owner", escape(job.owner_id) if job.owner_id else None),
            ("rerun of", escape(job.rerun_of) if job.rerun_of else None),
            ("state", f"{job.state}: {said}" if said else str(job.state)),
            ("generation", str(job.generation)),
            ("queue", escape(job.queue)),
            ("created", near(job.created_at, now)),
            ("started", near(job.started_at, now) if job.started_at else None),
            ("deadline", near(job.deadline, now) if job.deadline and job.state not in TERMINAL else None),
            ("ended", _ended(job, now)),
            ("values", f"erased at {near(job.erased_at, now)}" if job.erased_at else None),
            ("rerun as", escape(seen.successor) if seen.successor else None),
            ("progress", _progress(job)),
            ("checkpoint", _checkpoint(job, seen.nodes, now)),
            ("stage", _stage(job, now)),
            *(("question", question_text(ctx, asked(supervisor, one), now)) for one in seen.questions),
            ("result", _told(seen.result)),
            *(("rejected", _too_late(*one, shown=rejected)) for one in seen.rejected),
            *(("cleanup", f"{escape(one.name)}: {fate(one)}") for one in seen.cleanups),
            ("attempts", _attempts(seen.attempts)),
            ("error", _error(seen)),
            ("log", _log(ctx, job)),
        ]
    )


def _ended(job: Job, now: datetime) -> str | None:
    if job.finished_at is None:
        return None
    untold = "" if job.settled_at else "; Celery and whoever waits for the result have not been told yet"
    return near(job.finished_at, now) + untold


def _progress(job: Job) -> str | None:
    if job.progress_current is None and job.progress_message is None:
        return None
    of = f" of {job.progress_total:,}" if job.progress_total is not None else ""
    number = f"{job.progress_current:,}{of}" if job.progress_current is not None else ""
    return ": ".join(part for part in (number, escape(job.progress_message or "")) if part)


def _checkpoint(job: Job, nodes: Sequence[Node], now: datetime) -> str | None:
    if not nodes:
        return None
    last = next((node for node in nodes if node.name == job.node), nodes[-1])
    at = f", {near(last.saved_at, now)}" if last.saved_at else ""
    return f"{escape(last.name)}{at}; {count(len(nodes), 'checkpoint')} in all"


def _stage(job: Job, now: datetime) -> str | None:
    """How long it has been at it, whatever its heartbeat says."""
    if job.state is not State.RUNNING or job.stage_at is None:
        return None
    told = f"; last progress {near(job.progress_at, now)}" if job.progress_at and job.progress_at > job.stage_at else ""
    return f"since {near(job.stage_at, now)}{told}"


def _told(result: tuple[Any, str | None] | None) -> str | None:
    if result is None:
        return None
    value, unreadable = result
    if unreadable is not None:
        return f"cannot be shown here: {escape(unreadable)}"
    told = jsonable(value)
    text = escape(told) if isinstance(told, str) and told != value else value_text(told)
    return cut(text, LONGEST) + ("" if len(text) <= LONGEST else " (--json shows all)")


def _too_late(one: Rejected, value: Any, unreadable: str | None, *, shown: bool) -> str:
    what = "error" if is_error(one) else "result"
    said = f"the {what} of attempt {one.number} came too late and does not count ({count(one.size, 'byte')})"
    if not shown:
        return f"{said}; --rejected shows it"
    return f"{said}: {'erased' if one.stored is None else _told((value, unreadable))}"


def _attempts(attempts: Sequence[Attempt]) -> str | None:
    if not attempts:
        return None
    left = len(attempts) - LAST
    earlier = [f"{count(left, 'earlier one')} not shown; --json shows all"] if left > 0 else []
    return "\n".join([*earlier, *map(_attempt, attempts[-LAST:])])


def _attempt(attempt: Attempt) -> str:
    times = f"{instant(attempt.started_at)} {over(attempt.ended_at)}"
    where = f"{escape(attempt.worker)} (process {attempt.pid})"
    at = f", at {escape(attempt.checkpoint_ref)}" if attempt.checkpoint_ref else ""
    return f"{attempt.number}. {where}, {times}{at}: {escape(outcome(attempt))}"


def _error(seen: Seen) -> str | None:
    """What the last attempt of a failed job failed with, where that is known."""
    if seen.job.state is not State.FAILED or not seen.attempts or not seen.attempts[-1].traceback:
        return None
    return block(seen.attempts[-1].traceback.rstrip())


def _log(ctx: click.Context, job: Job) -> str:
    said = count(job.log_seq, "entry", "entries")
    by = command(ctx, "log", job.id)
    return f"{said}: {by}" if by else said
