"""What a worker does when COMMIT was sent and no reply came: it reads its own ids back. Moves no job."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import State

from ..context import Model
from ..machine import Phase, Worker, World
from ..steps import NAMES, Step, advanced, busy, leave, tell


def moves(model: Model, world: World) -> Iterator[Step]:
    """Read back, or give up because the database stays away."""
    for index, worker in busy(world):
        if worker.phase is Phase.UNKNOWN:
            back = _read_back(model, world, worker)
            yield Step(NAMES[index], "reads back", world.with_worker(index, back))
            gone = world.with_worker(index, _give_up(model, worker))
            yield Step(NAMES[index], "gives up", gone, system=False)


def _give_up(model: Model, worker: Worker) -> Worker:
    """The database stays away: leave it to the lease and to the settlement's time."""
    if model.rules.unknown_tells_nothing:
        return leave(model, worker)
    return tell(worker, State.FAILED.value)._replace(teller=False)


def _assume_nothing_happened(model: Model, worker: Worker) -> Worker:
    if worker.sent == "claim":
        return leave(model, worker)
    return worker._replace(phase=Phase.BODY, sent="")


def _read_back(model: Model, world: World, worker: Worker) -> Worker:
    """By token the attempt, by settle id the end: both were made before the statement."""
    if not model.rules.read_back:
        return _assume_nothing_happened(model, worker)
    job = world.job
    if job is not None and job.state is State.RUNNING and job.token == worker.token:
        return _still_runs(model, world, worker)
    if worker.sent == "complete" and not model.rules.complete_again:
        return leave(model, worker)
    if worker.teller and job is not None:
        return tell(worker, job.state.value)
    return leave(model, worker)


def _still_runs(model: Model, world: World, worker: Worker) -> Worker:
    job, attempt = world.row, world.current
    if worker.sent == "claim":
        return advanced(model, worker, worker.pc)
    if worker.sent == "hand_over":
        return worker._replace(phase=Phase.HANDING, sent="")
    if worker.sent == "replace_plainly":
        return worker._replace(phase=Phase.REPLACED, sent="")
    if worker.sent == "checkpoint" and any((n.step, n.run) == (worker.pc, job.run) for n in job.nodes):
        done = advanced(model, worker, worker.pc + 1)
        handing = attempt is not None and attempt.hand_over
        return done._replace(phase=Phase.HANDING) if handing else done
    return worker._replace(phase=Phase.BODY, sent="")
