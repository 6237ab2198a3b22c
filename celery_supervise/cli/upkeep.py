"""The verbs `sweep` and `doctor`: keeping the machinery alive by hand, and saying what ails it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import click
from celery import Celery

from celery_supervise.ailments import SWEEPS
from celery_supervise.doctor import Examined, Finding, Patient, Severity, Surroundings, examine, unconfigured
from celery_supervise.errors import ConfigError
from celery_supervise.moments import span
from celery_supervise.relay import Relayed
from celery_supervise.sweeps import Swept, run_all
from celery_supervise.wording import count

from .commands import filled
from .render import escape, pairs, to_json
from .verb import REFUSED, UNREACHABLE, check_app_named, json_option, runtime, say, verb

VISIBILITY: Final = timedelta(hours=1)
"""Kombu's default for Redis."""
CONSUMER: Final = timedelta(minutes=30)
"""RabbitMQ's default, from 3.8.17 on."""
_COLOURS: Final = {Severity.OK: "green", Severity.WARNING: "yellow", Severity.ERROR: "red"}


# --- sweep -----------------------------------------------------------------------------------------------


@verb("sweep", "sweep --json")
@click.option(
    "--move-broker",
    is_flag=True,
    help="First note that the jobs of this namespace have moved to the broker of this app's broker_url.",
)
@json_option
@click.pass_context
def sweep(ctx: click.Context, *, move_broker: bool, as_json: bool) -> None:
    """Do once what workers do all the time.

    End what is over, find lost workers, send what is due, tell Celery what ended. For a shop without a running
    worker or beat, and to see what there is to do. Does a bounded amount in one go: repeat it until it finds
    nothing more. Harmless beside running workers.
    """
    parts = runtime(ctx)
    if move_broker:
        parts.broker.move()
    swept = run_all(parts.sweeper, force=True)
    relayed = parts.relay.run_once()
    lost = parts.sweeper.find_lost(parts.relay, force=True)
    kept = parts.settings.retention
    pruned = None if kept is None else parts.sweeper.prune(kept, force=True)
    text = _swept_text(swept, relayed, lost, pruned, parts.settings.lease)
    say(ctx, to_json(_swept_view(swept, relayed, lost, pruned)) if as_json else text)


def _swept_view(swept: list[Swept], relayed: Relayed, lost: int, pruned: int | None) -> dict[str, Any]:
    passes = [
        {"name": SWEEPS[one.name], "ran": one.ran, "held": one.held, "jobs": [moved.job_id for moved in one.moved]}
        for one in swept
    ]
    sent = {"starts_due": relayed.released, "sent": relayed.published, "told": relayed.settled}
    return {"sweeps": passes, **sent, "lost_by_broker": lost, "pruned": pruned}


def _swept_text(swept: list[Swept], relayed: Relayed, lost: int, pruned: int | None, lease: timedelta) -> str:
    done = {one.name: _pass(one, lease) for one in swept}
    return pairs(
        [
            ("time over", done["expire"]),
            ("worker lost", done["reap"]),
            ("made no progress", done["stall"]),
            ("reminded", done["remind"]),
            ("no code can run it", done["shelve"]),
            ("starts due", count(relayed.released, "job")),
            ("sent to the broker", count(relayed.published, "message")),
            (
                "told to Celery",
                f"{count(relayed.settled, 'end')} of a job" if relayed.settled == 1 else count(relayed.settled, "job"),
            ),
            ("lost by the broker", f"{count(lost, 'message')} to be sent again"),
            ("removed after their time", None if pruned is None else count(pruned, "job")),
        ]
    )


def _pass(one: Swept, lease: timedelta) -> str:
    if one.held:
        return f"holds back, for {span(lease)} at most: {escape(one.held)}"
    if not one.ran:
        return "another process is at it"
    names = ", ".join(escape(moved.job_id) for moved in one.moved)
    return count(len(one.moved), "job") + (f": {names}" if names else "")


# --- doctor ----------------------------------------------------------------------------------------------


@verb("doctor", "doctor --json")
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Check that all is well, or say what helps.

    Settings, database, sweeps, broker, the rules that must always hold. Changes nothing. The exit code is 0
    also with warnings, 1 with an error, 3 where the database is away.
    """
    try:
        examined = examine(_patient(ctx))
    except ConfigError as error:
        check_app_named(ctx, error)
        examined = [unconfigured(error)]
    examined = [_typed_here(ctx, one) for one in examined]
    say(ctx, to_json(_examined_view(examined)) if as_json else _examined_text(ctx, examined))
    ctx.exit(_exit_code(examined))


def _typed_here(ctx: click.Context, one: Examined) -> Examined:
    """The same, with the commands in its advice as they work here."""
    findings = (replace(finding, advice=filled(ctx, finding.advice)) for finding in one.findings)
    return replace(one, findings=tuple(findings))


def _patient(ctx: click.Context) -> Patient:
    parts = runtime(ctx)
    around = _surroundings(ctx.obj.app, parts.settings.queue)
    return Patient(parts.settings, parts.door, parts.publisher, around, parts.broker)


def _surroundings(app: Celery, queue: str | None) -> Surroundings:
    ours = queue or app.conf.task_default_queue
    transport = app.connection_for_read().transport.driver_type
    return Surroundings(
        queue=ours,
        transport=transport,
        visibility=_consumer_timeout(app, ours) if transport == "amqp" else _visibility_timeout(app),
        prefetch=app.conf.worker_prefetch_multiplier,
    )


def _visibility_timeout(app: Celery) -> timedelta:
    seconds = (app.conf.broker_transport_options or {}).get("visibility_timeout")
    return VISIBILITY if seconds is None else timedelta(seconds=float(seconds))


def _consumer_timeout(app: Celery, queue: str) -> timedelta:
    """As the queue's arguments say. AMQP cannot ask the server for its own."""
    found = app.amqp.queues.get(queue)
    said = found and (found.queue_arguments or {}).get("x-consumer-timeout")
    return timedelta(milliseconds=float(said)) if said else CONSUMER


def _exit_code(examined: list[Examined]) -> int:
    if any(one.unreachable for one in examined):
        return UNREACHABLE
    return REFUSED if any(_bad(one) for one in examined) else 0


def _bad(one: Examined) -> bool:
    return any(finding.severity is Severity.ERROR for finding in one.findings)


def _examined_view(examined: list[Examined]) -> dict[str, Any]:
    return {"healthy": not any(map(_bad, examined)), "checks": examined}


def _examined_text(ctx: click.Context, examined: list[Examined]) -> str:
    lines = [_finding(ctx, one.check, finding) for one in examined for finding in one.findings]
    found = [finding.severity for one in examined for finding in one.findings]
    errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
    return "\n".join([*lines, f"{count(errors, 'error')}, {count(warnings, 'warning')}"])


def _finding(ctx: click.Context, check: str, finding: Finding) -> str:
    name = str(finding.severity)
    mark = ctx.obj.style(name, fg=_COLOURS.get(finding.severity)) + " " * (11 - len(name))
    more = [f"{'':25}{escape(text)}" for text in (finding.meaning, finding.advice) if text]
    return "\n".join([f"{mark} {check:12} {escape(finding.what)}", *more])
