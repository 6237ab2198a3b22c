"""What makes a verb on one job one on many: filters, `--dry-run`, `--from`, a result a job. No verb itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TextIO, TypeVar

import click

from celery_supervise.bulk import Choice, Outcome, Target
from celery_supervise.errors import InvalidInput
from celery_supervise.intake import MAX_PAGE
from celery_supervise.lifecycle import OPEN, TERMINAL, State
from celery_supervise.model import Moved, Submitted
from celery_supervise.supervisor import Supervisor
from celery_supervise.views import View, moved_view
from celery_supervise.wording import count

from .render import cell, escape, table, to_json
from .verb import NAME, REFUSED, runtime, say

F = TypeVar("F", bound=Callable[..., Any])
Came = Moved | Submitted
Act = Callable[[Supervisor, Sequence[Target], Mapping[str, Any]], Sequence[Outcome]]

_FILTERS = ("task", "owner", "states", "queue", "reason")
_OPTIONS = (
    click.option("--from", "source", type=click.File(), metavar="FILE", help="The jobs of a --dry-run --json."),
    click.option(
        "--limit", type=click.IntRange(1, MAX_PAGE), default=1000, show_default=True, help="Of many, so many."
    ),
    click.option("--dry-run", is_flag=True, is_eager=True, help="Only show which jobs are meant."),
    click.option("--all", "everything", is_flag=True, help="All jobs."),
    click.option("--reason", type=NAME, help="Jobs that stand still for this: user_paused, awaiting_user_answer, …"),
    click.option("--queue", type=NAME, help="Jobs of this queue."),
    click.option("--owner", type=NAME, help="Jobs of this owner."),
    click.option("--task", type=NAME, help="Jobs of this task."),
)


def _state_option(action: str) -> Callable[[F], F]:
    states = sorted(map(str, TERMINAL if action == "rerun" else OPEN))
    text = "Jobs in this state. Repeatable."
    return click.option("--state", "states", multiple=True, type=click.Choice(states), help=text)


def or_many(action: str, act: Act, said: Callable[[Any], str], *, named: str = "job_id") -> Callable[[F], F]:
    """Let a verb take filters in place of a JOB.

    `act` does it to many; `said` tells what came of one; `named`: the verb's parameter that is the JOB.
    """

    def decorate(verb: F) -> F:
        @wraps(verb)
        def run(**given: Any) -> None:
            many = {name: given.pop(name) for name in (*_FILTERS, "everything", "source", "dry_run", "limit")}
            chosen = [name for name in (*_FILTERS, "everything", "source") if many[name]]
            if given[named] is None:
                _on_many(action, act, said, many, given)
            elif chosen or many["dry_run"]:
                raise click.UsageError("Give a JOB or say which jobs, not both.")
            else:
                verb(**given)

        for option in (*_OPTIONS, _state_option(action)):
            run = option(run)
        return run  # type: ignore[return-value]  # wraps keeps its parameters

    return decorate


def _on_many(action: str, act: Act, said: Callable[[Any], str], many: Mapping[str, Any], given: dict[str, Any]) -> None:
    ctx, as_json = click.get_current_context(), given["as_json"]
    if given.get("expected_generation") is not None:
        raise click.UsageError("--expected-generation is of one JOB; for many, each has its own.")
    supervisor = runtime(ctx).supervisor
    choice = _given(many) if many["source"] else _chosen(supervisor, action, many)
    if many["dry_run"]:
        say(ctx, to_json(_choice_view(choice)) if as_json else _choice_text(choice))
        return
    outcomes = act(supervisor, choice.targets, given)
    view, text = _outcomes_view(outcomes, choice, said), _outcomes_text(outcomes, choice, said)
    say(ctx, to_json(view) if as_json else text)
    ctx.exit(REFUSED if any(one.error for one in outcomes) else 0)


def _chosen(supervisor: Supervisor, action: str, many: Mapping[str, Any]) -> Choice:
    states = [State(state) for state in many["states"]] or None
    filters = {name: many[name] for name in _FILTERS if name != "states"}
    if not many["everything"] and states is None and not any(filters.values()):
        raise click.UsageError("Give a JOB, or say which jobs: --task, --owner, --state, --queue, --reason; or --all.")
    return supervisor.choose(action, **filters, states=states, everything=many["everything"], limit=many["limit"])


def _given(many: Mapping[str, Any]) -> Choice:
    if many["everything"] or any(many[name] for name in _FILTERS):
        raise click.UsageError("--from names the jobs; no filter goes with it.")
    targets = _targets(many["source"])
    return Choice(targets, len(targets))


def _targets(source: TextIO) -> Sequence[Target]:
    try:
        found = json.load(source)["jobs"]
        return [Target(_typed(one["job_id"], str), _typed(one["generation"], int)) for one in found]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        problem = "is not what --dry-run --json prints: jobs with their job_id and generation"
        raise InvalidInput("--from", problem) from error


def _typed(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise TypeError(wanted)
    return value


# --- what is shown ---------------------------------------------------------------------------------------


def _choice_view(choice: Choice) -> View:
    jobs = [vars(target) for target in choice.targets]
    return {"dry_run": True, "jobs": jobs, **_counts(choice)}


def _counts(choice: Choice) -> dict[str, int]:
    chosen = len(choice.targets)
    return {"chosen_count": chosen, "total_count": choice.total_count, "withheld_count": choice.total_count - chosen}


def _choice_text(choice: Choice) -> str:
    rows = [(one.job_id, str(one.state), str(one.generation), cell(one.task or "")) for one in choice.targets]
    lines = [table(("JOB", "STATE", "GENERATION", "TASK"), rows)] if rows else []
    return "\n".join([*lines, f"{count(len(rows), 'job')} would be tried{_left(choice)}"])


def _left(choice: Choice) -> str:
    left = choice.total_count - len(choice.targets)
    return f"; {left:,} more: --limit takes more at once" if left else ""


def _outcomes_view(outcomes: Sequence[Outcome], choice: Choice, said: Callable[[Any], str]) -> View:
    refused = sum(one.error is not None for one in outcomes)
    counts = {"done_count": len(outcomes) - refused, "refused_count": refused, **_counts(choice)}
    return {"dry_run": False, "results": [_outcome_view(one, said) for one in outcomes], **counts}


def _outcome_view(one: Outcome, said: Callable[[Any], str]) -> View:
    if one.moved is not None:
        return _came_view(one.job_id, one.moved, said(one.moved))
    error = {"type": type(one.error).__name__, "detail": str(one.error), "tried": one.tried, **vars(one.error)}
    return {"job_id": one.job_id, "error": error}


def _came_view(job_id: str, came: Came, said: str) -> View:
    if isinstance(came, Moved):
        return moved_view(came, said)
    return {"job_id": job_id, "made": came.job_id, "state": came.state, "said": said}


def _outcomes_text(outcomes: Sequence[Outcome], choice: Choice, said: Callable[[Any], str]) -> str:
    refused = sum(one.error is not None for one in outcomes)
    not_done = f", {refused:,} not done" if refused else ""
    lines = [_line(one, said) for one in outcomes]
    return "\n".join([*lines, f"{count(len(outcomes) - refused, 'job')} done{not_done}{_left(choice)}"])


def _line(one: Outcome, said: Callable[[Any], str]) -> str:
    if one.moved is not None:
        generation = f" (generation {one.moved.generation})" if isinstance(one.moved, Moved) else ""
        return f"{escape(one.job_id)}: {said(one.moved)}{generation}"
    return f"{escape(one.job_id)}: {'not done' if one.tried else 'not tried'}: {escape(str(one.error))}"
