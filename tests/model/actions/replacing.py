"""How an attempt ends that something else replaces: another supervised task, or what is no job. One statement each.

Arguments stand for the task, too: a replacement has other ones.
"""

from __future__ import annotations

from celery_supervise.lifecycle import Event, State

from ..context import Model
from ..machine import NEW, Message, Phase, Published, Settle, Worker, World
from ..statements import end, pend
from ..steps import leave, tell
from .cleaning import settled
from .endings import Effect, holds, overruled, stale

_MOST = 2
"""So often is told apart how often something was sent."""


def publish_replacement(world: World, worker: Worker) -> Effect:
    """Celery's own order: the message first, the row later (only without `replacement_commits_first`)."""
    early = world.plus(Message(NEW, worker.args + 1))
    return Effect("publish replacement", early, worker._replace(phase=Phase.RETRYING, next=NEW, sent="replace"))


def replace(model: Model, world: World, worker: Worker) -> Effect:
    """Back to pending as a job of the other task."""
    if not holds(world, worker, fenced=model.rules.fence_replace):
        return stale(model, world, worker, "replace")
    verdict = model.verdict(Event.REPLACE, world.row)
    if verdict is not Event.REPLACE:
        return overruled(model, world, worker, "replace", verdict)
    after = _of_another(model, pend(model, world, "replaced"), worker)
    return Effect("replace", after, leave(model, worker), Event.REPLACE)


def _of_another(model: Model, world: World, worker: Worker) -> World:
    """Another run, with nothing remembered, and retries and losses before it."""
    rules, job = model.rules, world.row
    job = job._replace(args=worker.args + 1)
    if rules.replacement_is_new_run:
        job = job._replace(run=job.run + 1, nodes=(), questions=())
    if rules.replacement_has_its_retries:
        job = job._replace(retries=0, losses=0)
    if worker.next:
        job = job._replace(ticket=worker.next, published=Published.SENT)
    ghost = world.ghost._replace(accepted=(), answers=(), retries=0, losses=0)
    return world._replace(job=job, ghost=ghost)


def send_on(world: World, worker: Worker) -> Effect:
    """What is no job gets its message; the commit is next."""
    ghost = world.ghost
    ghost = ghost._replace(sent_on=min(_MOST, ghost.sent_on + 1))
    return Effect("sends on", world._replace(ghost=ghost), worker._replace(phase=Phase.REPLACED))


def go_on_elsewhere(model: Model, world: World, worker: Worker) -> Effect:
    """What comes after `send_on`: the commit. Without `sent_on_first` that was before, and this is the sending."""
    if model.rules.sent_on_first:
        return replace_plainly(model, world, worker)
    sent = send_on(world, worker)
    return sent._replace(worker=leave(model, worker))


def replace_plainly(model: Model, world: World, worker: Worker) -> Effect:
    """Completed, and settled at once: whoever goes on under this id is what Celery will hear."""
    if not holds(world, worker, fenced=model.rules.fence_replace_plainly):
        return stale(model, world, worker, "replace_plainly")
    verdict = model.verdict(Event.REPLACE_PLAIN, world.row)
    if verdict is not Event.REPLACE_PLAIN:
        return overruled(model, world, worker, "replace_plainly", verdict)
    after = end(model, world, State.COMPLETED, teller=True)
    after = after._replace(ghost=after.ghost._replace(elsewhere=True))
    if not model.rules.replaced_is_settled:
        return Effect("replace_plainly", after, tell(worker, State.COMPLETED.value), Event.REPLACE_PLAIN)
    after = after._replace(job=after.row._replace(settle=Settle.DONE))
    if model.rules.replaced_cleans_up:
        after = settled(model, after)
    done = leave(model, worker) if model.rules.sent_on_first else worker._replace(phase=Phase.REPLACED)
    return Effect("replace_plainly", after, done, Event.REPLACE_PLAIN)
