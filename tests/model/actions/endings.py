"""How the holder's attempt ends: complete, fail, retry, hand over, or an overruled call. One statement each."""

from __future__ import annotations

from typing import NamedTuple

from celery_supervise.lifecycle import Event, State

from ..context import Model
from ..machine import NEW, Message, Phase, Published, Worker, World
from ..statements import end, overrule, pend
from ..steps import leave, tell
from .cleaning import rejected


class Effect(NamedTuple):
    """A statement's effect on the rows, and on the worker that gets its reply."""

    verb: str
    world: World
    worker: Worker
    event: Event | None = None
    note: str = ""


def holds(world: World, worker: Worker, *, fenced: bool) -> bool:
    """Whether the worker's attempt is the current one; without the fence, whether anything runs at all."""
    job = world.job
    return job is not None and job.state is State.RUNNING and (job.token == worker.token or not fenced)


def stale(model: Model, world: World, worker: Worker, verb: str) -> Effect:
    """Zero rows: the attempt is no longer the current one."""
    return Effect(verb, rejected(model, world), leave(model, worker), None, "stale")


def overruled(model: Model, world: World, worker: Worker, verb: str, verdict: Event, *, entries: int = 1) -> Effect:
    """The judgement says something else than what was attempted."""
    after = overrule(model, world, verdict, teller=True, entries=entries)
    parked = verdict is Event.PARK
    done = leave(model, worker, "PARKED") if parked else tell(worker, after.row.state.value)
    return Effect(verb, after, done, verdict, verdict.value)


def complete(model: Model, world: World, worker: Worker) -> Effect:
    """Publish the result."""
    if not holds(world, worker, fenced=model.rules.fence_complete):
        return stale(model, world, worker, "complete")
    verdict = model.verdict(Event.COMPLETE, world.row)
    if verdict is not Event.COMPLETE:
        return overruled(model, world, worker, "complete", verdict)
    return _ended(model, world, worker, "complete", Event.COMPLETE)


def fail(model: Model, world: World, worker: Worker, *, verb: str = "fail") -> Effect:
    """The body raised, and no retry is wanted."""
    if not holds(world, worker, fenced=model.rules.fence_fail):
        return stale(model, world, worker, verb)
    verdict = model.verdict(Event.FAIL, world.row)
    if verdict is not Event.FAIL:
        return overruled(model, world, worker, verb, verdict)
    return _ended(model, world, worker, verb, Event.FAIL)


def _ended(model: Model, world: World, worker: Worker, verb: str, event: Event) -> Effect:
    state = State.COMPLETED if event is Event.COMPLETE else State.FAILED
    return Effect(verb, end(model, world, state, teller=True), tell(worker, state.value), event)


def publish_retry(world: World, worker: Worker) -> Effect:
    """Celery's own order: the message first, the row later (only without `retry_commits_first`)."""
    early = world.plus(Message(NEW, worker.args))
    return Effect("publish retry", early, worker._replace(phase=Phase.RETRYING, next=NEW))


def retry(model: Model, world: World, worker: Worker, *, args: int) -> Effect:
    """Back to pending with a later ticket, under a new run id if the arguments are other ones."""
    if not holds(world, worker, fenced=model.rules.fence_retry):
        return stale(model, world, worker, "retry")
    job = world.row
    verdict = model.verdict(Event.RETRY, job)
    if verdict is not Event.RETRY:
        return overruled(model, world, worker, "retry", verdict)
    if model.rules.retries_bounded and job.retries >= model.scenario.retry_limit:
        return _ended(model, world, worker, "retry", Event.FAIL)
    after = _again(model, world, worker.next, args)
    return Effect("retry", after, leave(model, worker, "RETRY"), Event.RETRY)


def _again(model: Model, world: World, ticket: int, args: int) -> World:
    """`ticket`: the one that was published already, or 0."""
    world = _with_args(model, pend(model, world, "retried", due=bool(ticket)), args)
    job, ghost = world.row, world.ghost
    if ticket:
        job = job._replace(ticket=ticket, published=Published.SENT)
    return world._replace(job=job._replace(retries=job.retries + 1), ghost=ghost._replace(retries=ghost.retries + 1))


def _with_args(model: Model, world: World, args: int) -> World:
    job = world.row
    if args == job.args:
        return world
    ghost = world.ghost._replace(accepted=(), answers=())
    if model.rules.new_run:
        job = job._replace(run=job.run + 1, nodes=(), questions=())
    return world._replace(job=job._replace(args=args), ghost=ghost)


def hand_over(model: Model, world: World, worker: Worker) -> Effect:
    """Back to pending with a new ticket, because the worker shuts down; no attempt is used up."""
    if not holds(world, worker, fenced=model.rules.fence_hand_over):
        return stale(model, world, worker, "hand_over")
    verdict = model.verdict(Event.HAND_OVER, world.row)
    if verdict is not Event.HAND_OVER:
        return overruled(model, world, worker, "hand_over", verdict)
    world = pend(model, world, "handed_over")
    if not model.rules.hand_over_is_free:
        world = world._replace(job=world.row._replace(retries=world.row.retries + 1))
    return Effect("hand_over", world, leave(model, worker), Event.HAND_OVER)
