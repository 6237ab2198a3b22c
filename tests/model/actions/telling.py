"""Telling Celery what the row holds: by the finisher, or by whoever wins the settlement. Moves no job."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import State

from ..context import Model
from ..machine import Phase, Settle, Worker, World
from ..steps import NAMES, Step, busy, idle
from .cleaning import settled


def moves(model: Model, world: World) -> Iterator[Step]:
    """Tell, then stamp; take a settlement that is due; let the time of a dead teller run out."""
    for index, worker in busy(world):
        if worker.phase is Phase.TELL:
            yield _tell(world, index, worker) if model.rules.settled_after_told else _mark(model, world, index, worker)
        elif worker.phase is Phase.MARK:
            yield _mark(model, world, index, worker)
        elif worker.phase is Phase.LEFT:
            yield _leave(model, world, index, worker)
    if world.job is not None:
        yield from _settlement(model, world, world.job.settle)


def _tell(world: World, index: int, worker: Worker) -> Step:
    """Result backend, callbacks, chord: to Celery the job is over now."""
    ghost = world.ghost
    ghost = ghost._replace(told=min(2, ghost.told + 1), told_as=worker.outcome)
    after = world._replace(ghost=ghost, backend=worker.outcome)
    return Step(NAMES[index], "tells Celery", after.with_worker(index, worker._replace(phase=Phase.MARK)))


def _mark(model: Model, world: World, index: int, worker: Worker) -> Step:
    """`settled_at`, where the settle id is still this teller's."""
    if worker.teller and world.job is not None:
        world = settled(model, world._replace(job=world.job._replace(settle=Settle.DONE)))
    return Step(NAMES[index], "marks settled", world.with_worker(index, Worker()))


def _leave(model: Model, world: World, index: int, worker: Worker) -> Step:
    """Celery stores what the exit means to it; then the row is read again and a terminal outcome restored."""
    job, rules = world.job, model.rules
    if worker.late:
        if world.backend != State.COMPLETED.value:
            world = world._replace(backend=worker.late)
        stored = world.with_worker(index, worker._replace(late="", sent=worker.late))
        return Step(NAMES[index], f"Celery stores {worker.late}", stored)
    restores = rules.restore_after_retry if worker.sent == "RETRY" else rules.restore_after_park
    if restores and job is not None and job.terminal:
        world = world._replace(backend=job.state.value)
    return Step(NAMES[index], "leaves", world.with_worker(index, Worker()))


def _settlement(model: Model, world: World, settle: Settle) -> Iterator[Step]:
    """A compare-and-swap on settle id, due time and `settled_at IS NULL`."""
    rules = model.rules
    free = settle is Settle.DUE or (settle is Settle.HELD and not rules.settle_by_swap)
    if free and rules.settle_sweep:
        for index, _ in idle(world):
            yield _take(world, index)
    if settle is Settle.HELD and not (rules.settle_renewed and _renewed(world)):
        over = world._replace(job=world.row._replace(settle=Settle.DUE))
        yield Step("clock", "the teller's time runs out", over)


def _renewed(world: World) -> bool:
    return any(worker.teller and not worker.frozen for worker in world.workers)


def _take(world: World, index: int) -> Step:
    others = tuple(worker._replace(teller=False) for worker in world.workers)
    world = world._replace(workers=others, job=world.row._replace(settle=Settle.HELD))
    teller = Worker(phase=Phase.TELL, outcome=world.row.state.value, teller=True)
    return Step(NAMES[index], "takes the settlement", world.with_worker(index, teller))
