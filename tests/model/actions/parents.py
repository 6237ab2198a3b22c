"""What a worker's parent does: renew leases, report dead children and failed requests, ask children to hand over."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State

from ..context import Model
from ..machine import Attempt, Report, Settle, World
from ..statements import end, lose, overrule
from ..steps import NAMES, Step, busy, leave, renewers


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every heartbeat, every report on its way, every shutdown."""
    yield from _heartbeats(model, world)
    for report in dict.fromkeys(world.reports):
        reports = list(world.reports)
        reports.remove(report)
        rest = world._replace(reports=tuple(reports))
        yield _failed(model, rest, report) if report.failed else _died(model, rest, report)
        if world.faults.away:
            fewer = world.faults._replace(away=world.faults.away - 1)
            yield Step("parent", "cannot report: database away", rest._replace(faults=fewer), system=False)
    yield from _shutdowns(world)


def _heartbeats(model: Model, world: World) -> Iterator[Step]:
    attempt, chances = world.current, world.chances
    if attempt is None:
        return
    for index, worker in renewers(model, world):
        if not attempt.live:
            yield Step(NAMES[index], "renews the lease", world.with_attempt(attempt._replace(live=True)))
        if chances.skipped and not model.rules.skipped_is_unknown:
            fewer = world._replace(chances=chances._replace(skipped=chances.skipped - 1))
            ended = fewer.with_worker(index, leave(model, worker))
            yield Step(NAMES[index], "takes a locked lease for lost", ended, system=False)


def _died(model: Model, world: World, report: Report) -> Step:
    """A child is dead: its attempt is lost at once, whatever its lease says."""
    if not model.rules.hasten_by_own_process and _settles(world, report):
        due = world._replace(job=world.row._replace(settle=Settle.DUE))
        return Step("parent", "ends the teller's time", due)
    attempt = _of_the_dead(model, world, report)
    if attempt is not None and attempt.outcome:
        return Step("parent", "reports a death", world.with_attempt(attempt._replace(outcome="lost")))
    if attempt is None or world.job is None or world.job.state is not State.RUNNING:
        return Step("parent", "reports in vain", world)
    after, event = lose(model, world)
    return Step("parent", "reports a death", after, event)


def _settles(world: World, report: Report) -> bool:
    """Whether an attempt that began with that ticket holds the settlement, whichever process it belongs to."""
    held = world.job is not None and world.job.settle is Settle.HELD
    return held and any(attempt.ticket == report.ticket for attempt in world.attempts)


def _of_the_dead(model: Model, world: World, report: Report) -> Attempt | None:
    """The attempt of the very process that died, if it made one and that has not ended."""
    rules, current = model.rules, world.current
    if report.token:
        attempt = world.attempt(report.token) if rules.lose_by_token else current
        return attempt if attempt is None or not attempt.outcome or not rules.attempt_is_final else None
    if rules.report_by_own_process or current is None:
        return None
    return current if current.ticket == report.ticket else None


def _failed(model: Model, world: World, report: Report) -> Step:
    """Celery ended a request before its claim: the job whose ticket it carried fails, if it waits for it."""
    job = world.job
    if job is None or job.terminal or (job.ticket != report.ticket and model.rules.report_by_ticket):
        return Step("parent", "reports in vain", world)
    verdict = model.verdict(Event.FAIL, job)
    over = verdict is not Event.FAIL
    after = overrule(model, world, verdict) if over else end(model, world, State.FAILED)
    return Step("parent", "reports a failure", after, verdict)


def _shutdowns(world: World) -> Iterator[Step]:
    chances, attempt = world.chances, world.current
    if not chances.hand_over or attempt is None or attempt.hand_over:
        return
    for index, worker in busy(world):
        if worker.token == attempt.token:
            asked = world.with_attempt(attempt._replace(hand_over=True))
            fewer = chances._replace(hand_over=chances.hand_over - 1)
            yield Step(NAMES[index], "starts to shut down", asked._replace(chances=fewer), system=False)
