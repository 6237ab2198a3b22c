"""The verbs `hold`, `release`, `holds`: tasks and owners of which nothing starts for now. The service decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from celery_supervise.model import Hold
from celery_supervise.moments import near
from celery_supervise.wording import count

from .render import cell, escape, table, to_json
from .verb import NAME, REFUSED, as_option, clock, json_option, note, runtime, say, verb

F = TypeVar("F", bound=Callable[..., Any])


def _which(function: F) -> F:
    task = click.option("--task", type=NAME, help="All jobs of this task.")
    owner = click.option("--owner", type=NAME, help="All jobs of this owner.")
    return task(owner(function))


def _check(task: str | None, owner: str | None) -> None:
    if (task is None) is (owner is None):
        raise click.UsageError("Give --task or --owner, one of the two.")


@verb('hold --task shop.pay --reason "the bank is down"', 'hold --owner acme --reason "unpaid" --as ann')
@_which
@click.option("--reason", type=NAME, required=True, metavar="TEXT", help="Why, for the others.")
@as_option
@json_option
@click.pass_context
def hold(ctx: click.Context, *, task: str | None, owner: str | None, reason: str, actor: str, as_json: bool) -> None:
    """Let no job of a task, or of an owner, start.

    Those that run go on until they park or end. Calls are accepted, questions can be answered, deadlines count on.
    """
    _check(task, owner)
    parts = runtime(ctx)
    held = parts.supervisor.hold(task=task, owner=owner, reason=reason, actor=actor)
    if task is not None and task not in parts.app.tasks and not parts.supervisor.jobs(task=task, page=1)[1]:
        note(f"there is no job of {escape(task)}, and this app has no task of that name; see that it is written right")
    said = f"{held.kind} {escape(held.name)}: held; none of its jobs starts until it is released"
    say(ctx, to_json(vars(held)) if as_json else said)


@verb("release --task shop.pay", "release --owner acme --as ann")
@_which
@as_option
@json_option
@click.pass_context
def release(ctx: click.Context, *, task: str | None, owner: str | None, actor: str, as_json: bool) -> None:
    """Let the jobs of a task, or of an owner, start again."""
    _check(task, owner)
    let_go = runtime(ctx).supervisor.release(task=task, owner=owner, actor=actor)
    if as_json:
        say(ctx, to_json({"released": None if let_go is None else vars(let_go)}))
    else:
        say(ctx, _released(let_go, task, owner))
    ctx.exit(REFUSED if let_go is None else 0)


def _released(let_go: Hold | None, task: str | None, owner: str | None) -> str:
    if let_go is None:
        return f"{'task' if task else 'owner'} {escape(task or owner or '')}: was not held"
    return f"{let_go.kind} {escape(let_go.name)}: released; its jobs start as workers take them"


@verb("holds", "holds --json")
@json_option
@click.pass_context
def holds(ctx: click.Context, *, as_json: bool) -> None:
    """List what is held."""
    supervisor = runtime(ctx).supervisor
    found = supervisor.holds()
    if as_json:
        say(ctx, to_json({"holds": [vars(one) for one in found]}))
        return
    now = clock(supervisor.door)
    rows = [(one.kind, one.name, near(one.held_at, now), one.actor, cell(one.reason)) for one in found]
    lines = [table(("WHAT", "NAME", "SINCE", "BY", "WHY"), rows)] if rows else []
    say(ctx, "\n".join([*lines, count(len(found), "hold")]))
