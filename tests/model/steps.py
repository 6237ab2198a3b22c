"""What a move is, and which workers can make one. No moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from celery_supervise.lifecycle import Event

from .context import Model
from .machine import Phase, Worker, World

NAMES = ("w0", "w1")


class Step(NamedTuple):
    """One atomic move: who does what, the event of the lifecycle it is, the world after it.

    `system`: it happens by itself, without a person, a fault or a chance; only such steps lead to quiescence.
    """

    actor: str
    verb: str
    world: World
    event: Event | None = None
    note: str = ""
    system: bool = True


def busy(world: World) -> Iterator[tuple[int, Worker]]:
    """The workers that have something in hand and are not frozen; of two equal ones the first."""
    for index, worker in enumerate(world.workers):
        if worker.phase is not Phase.IDLE and not worker.frozen and worker not in world.workers[:index]:
            yield index, worker


def idle(world: World) -> Iterator[tuple[int, Worker]]:
    """The workers that can take something; of two equal ones the first."""
    for index, worker in enumerate(world.workers):
        if worker.phase is Phase.IDLE and not worker.frozen and worker not in world.workers[:index]:
            yield index, worker


def renewers(model: Model, world: World) -> Iterator[tuple[int, Worker]]:
    """The workers whose parents keep the current attempt's lease alive."""
    current = world.current
    for index, worker in enumerate(world.workers):
        runs = current is not None and bool(worker.token) and not worker.frozen
        if runs and (worker.token == world.row.token or not model.rules.fence_heartbeat):
            yield index, worker


def leave(model: Model, worker: Worker, late: str = "") -> Worker:
    """The worker after an exit without an outcome; `late` is what Celery will store in the result backend."""
    if not model.scenario.results:
        return Worker()
    return Worker(phase=Phase.LEFT, message=worker.message, late=late)


def tell(worker: Worker, outcome: str) -> Worker:
    """The worker after its statement ended the job: it holds the settlement."""
    at_work = Worker(message=worker.message, ticket=worker.ticket, token=worker.token)
    return at_work._replace(phase=Phase.TELL, outcome=outcome, teller=True)


def advanced(model: Model, worker: Worker, pc: int) -> Worker:
    """The worker at the next place of its body that it does not already know to be done."""
    program = model.scenario.program
    while pc < len(program) and pc in worker.seen:
        pc += 1
    return worker._replace(phase=Phase.BODY, pc=pc, seen=tuple(step for step in worker.seen if step > pc), sent="")
