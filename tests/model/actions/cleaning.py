"""Cleanups of what the body makes outside: registered, made, sent, run (protocol 27). The job is moved by others.

All attempts make one output, and so have one cleanup: the names of what only one attempt makes are in `tests/postgres`.
"""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import State

from ..context import Model
from ..machine import Cleanup, Phase, Worker, World
from ..steps import NAMES, Step, advanced, busy, leave

_MOST = 2
"""So many messages of cleanups are told apart."""


def moves(model: Model, world: World) -> Iterator[Step]:
    """Register, then make; run what was sent."""
    for index, worker in busy(world):
        at = model.scenario.program[worker.pc] if worker.pc < len(model.scenario.program) else ""
        if worker.phase is Phase.BODY and at == "make":
            first = _register if model.rules.cleanup_before_effect else _make
            yield first(model, world, index, worker)
        elif worker.phase is Phase.MAKING:
            second = _make if model.rules.cleanup_before_effect else _register
            yield second(model, world, index, worker)
    if world.owed:
        yield Step("cleanup", "runs", world._replace(owed=world.owed - 1, output=False))


def _register(model: Model, world: World, index: int, worker: Worker) -> Step:
    """One statement, fenced by the token."""
    if not _holds(world, worker):
        return Step(
            NAMES[index], "registers", rejected(model, world).with_worker(index, leave(model, worker)), None, "stale"
        )
    after = world._replace(cleanup=Cleanup.OPEN)
    return Step(NAMES[index], "registers", after.with_worker(index, _on(model, worker, first=_comes_first(model))))


def _make(model: Model, world: World, index: int, worker: Worker) -> Step:
    """The effect: nobody outside asks who does it."""
    after = world._replace(output=True)
    return Step(NAMES[index], "makes", after.with_worker(index, _on(model, worker, first=not _comes_first(model))))


def _comes_first(model: Model) -> bool:
    return model.rules.cleanup_before_effect


def _on(model: Model, worker: Worker, *, first: bool) -> Worker:
    return worker._replace(phase=Phase.MAKING) if first else advanced(model, worker, worker.pc + 1)


def _holds(world: World, worker: Worker) -> bool:
    job = world.job
    return job is not None and job.state is State.RUNNING and job.token == worker.token


def settled(model: Model, world: World) -> World:
    """The end was told: dropped where the job completed, else sent."""
    if world.cleanup is not Cleanup.OPEN or world.job is None:
        return world
    if world.job.state is State.COMPLETED and model.rules.cleanup_dropped:
        return world._replace(cleanup=Cleanup.DROPPED)
    return _sent(world) if model.rules.cleanup_sent else world


def rejected(model: Model, world: World) -> World:
    """A stale attempt was refused: sent once more if the job has ended so, else only what is its own: nothing here."""
    if world.cleanup in (Cleanup.NONE, Cleanup.DROPPED) or world.job is None:
        return world
    ended = world.job.terminal and world.job.state is not State.COMPLETED
    if ended and model.rules.late_cleanup_sent:
        return _sent(world)
    return world if model.rules.cleanup_spares_winner or ended else _sent(world)


def _sent(world: World) -> World:
    return world._replace(cleanup=Cleanup.SENT, owed=min(_MOST, world.owed + 1))
