"""What time does, and who finds it: leases end, tickets fall due, sweeps expire, reap, release, prune, remind."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State

from ..context import Model, time_over
from ..machine import Clock, Intent, Job, Settle, World
from ..statements import end, log, lose, overrule
from ..steps import Step, renewers


def moves(model: Model, world: World) -> Iterator[Step]:
    """Everything that time and the sweeps can do now."""
    if world.job is None:
        return
    yield from _time(world)
    yield from _leases(model, world)
    yield from _expiry(model, world)
    yield from _housekeeping(model, world)
    yield from _reminder(model, world)
    yield from _stall(model, world)


def _time(world: World) -> Iterator[Step]:
    job = world.row
    if job.ticket and not job.due:
        yield Step("clock", "the ticket falls due", world._replace(job=job._replace(due=True)))
    if job.deadline is Clock.AHEAD:
        yield _passes(world, "the deadline", job._replace(deadline=Clock.PASSED))
    if job.start_by is Clock.AHEAD:
        yield _passes(world, "start_by", job._replace(start_by=Clock.PASSED))
    if job.wait is Clock.AHEAD:
        yield _passes(world, "the question's time", job._replace(wait=Clock.PASSED))


def _passes(world: World, what: str, job: Job) -> Step:
    return Step("clock", f"{what} passes", world._replace(job=job), system=False)


def _leases(model: Model, world: World) -> Iterator[Step]:
    attempt = world.current
    if attempt is not None:
        if attempt.live and not attempt.kept and not any(renewers(model, world)):
            yield Step("clock", "the lease ends", world.with_attempt(attempt._replace(live=False)))
        if not attempt.live:
            yield _reap(model, world)
    if Intent("reap", 1) in world.intents:
        yield _reap_as_read(model, world)


def _reap(model: Model, world: World) -> Step:
    """`UPDATE attempts … WHERE token AND ended_at IS NULL AND lease_until < clock`, and only that token's job."""
    if not model.rules.reap_by_lease:
        return Step("sweep", "reads, to reap", world._replace(intents=(Intent("reap", 1),)))
    after, event = lose(model, world)
    return Step("sweep", "reaps", after, event)


def _reap_as_read(model: Model, world: World) -> Step:
    world = world._replace(intents=())
    if world.row.state is not State.RUNNING:
        return Step("sweep", "reaps nothing", world)
    after, event = lose(model, world)
    return Step("sweep", "reaps", after, event)


def _expiry(model: Model, world: World) -> Iterator[Step]:
    job = world.row
    if Intent("expire", 1) in world.intents:
        yield _expire_as_read(model, world._replace(intents=()))
    elif not job.terminal and (time_over(job) or _never_started(job)):
        if model.rules.expire_locks_job:
            yield _expire(model, world)
        else:
            yield Step("sweep", "reads, to expire", world._replace(intents=(Intent("expire", 1),)))


def _never_started(job: Job) -> bool:
    return job.state is State.PENDING and job.start_by is Clock.PASSED


def _expire(model: Model, world: World) -> Step:
    verdict = model.verdict(Event.EXPIRE, world.row)
    return Step("sweep", "expires", overrule(model, world, verdict), verdict)


def _expire_as_read(model: Model, world: World) -> Step:
    """`UPDATE … WHERE id = ANY(:ids)` with the ids of an earlier SELECT."""
    return Step("sweep", "expires", end(model, world, State.EXPIRED), Event.EXPIRE)


def _housekeeping(model: Model, world: World) -> Iterator[Step]:
    job, chances = world.row, world.chances
    held = job.held and model.rules.released_under_hold
    if job.ticket and not job.released and not held and model.rules.relay_releases:
        yield Step("relay", "releases the ticket", world._replace(job=job._replace(released=True)))
    settled = job.settle is Settle.DONE or not model.rules.prune_when_settled
    if chances.prune and job.terminal and settled:
        fewer, ghost = chances._replace(prune=chances.prune - 1), world.ghost._replace(pruned=True)
        gone = world._replace(job=None, tombstone=True, attempts=(), chances=fewer, ghost=ghost)
        yield Step("sweep", "prunes", gone, system=False)


def _reminder(model: Model, world: World) -> Iterator[Step]:
    """A log entry without a move."""
    chances = world.chances
    if chances.remind and world.row.open_question is not None:
        fewer = world._replace(chances=chances._replace(remind=chances.remind - 1))
        if model.rules.log_under_lock:
            yield Step("sweep", "reminds", log(model, fewer), system=False)
        else:
            read = fewer._replace(intents=(Intent("remind", 0),))
            yield Step("sweep", "reads max(seq), to remind", read, system=False)
    for intent in world.intents:
        if intent.kind == "remind":
            ghost = world.ghost._replace(log_gap=intent.value)
            yield Step("sweep", "reminds", world._replace(intents=(), ghost=ghost), system=False)


def _stall(model: Model, world: World) -> Iterator[Step]:
    """A body makes no progress for longer than it may, and its task asks for one end or the other."""
    if not (world.chances.stall and world.row.state is State.RUNNING):
        return
    fewer = world._replace(chances=world.chances._replace(stall=world.chances.stall - 1))
    for event, state in ((Event.STALL_CANCEL, State.CANCELLED), (Event.STALL_FAIL, State.FAILED)):
        verdict = model.verdict(event, world.row)
        after = end(model, fewer, state) if verdict is event else overrule(model, fewer, verdict)
        yield Step("sweep", "ends what stands still", after, verdict, system=False)
