"""Code of two versions: what it cannot run is left to others, parked after a grace, taken up by code that can."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State, resume_requested

from ..context import Model, time_over
from ..machine import Clock, Fleet, Job, Published, Worker, World
from ..statements import cleared, ensure, log, park
from ..steps import Step

_ORDER = tuple(Fleet)
_CODES = {Fleet.OLD: (0,), Fleet.BOTH: (0, 1), Fleet.NEW: (1,)}


def moves(model: Model, world: World) -> Iterator[Step]:
    """A deploy forth or back, the end of the grace, the sweep, the take-up."""
    if world.fleet is None:
        return
    if world.chances.deploy:
        yield from _deploys(world, world.fleet)
    job = world.job
    if job is None:
        return
    if job.left is Clock.AHEAD and all(message.ticket == job.ticket for message in world.messages):
        # it is long: what is older than the ticket has arrived by then
        yield Step("clock", "the grace passes", world._replace(job=job._replace(left=Clock.PASSED)))
    if _to_shelve(model, job):
        yield _shelves(model, world)
    if _to_take_up(model, world, job):
        yield _takes_up(model, world)


def codes(world: World) -> tuple[int, ...]:
    """The versions of the code that workers have."""
    return () if world.fleet is None else _CODES[world.fleet]


def can_run(model: Model, world: World) -> bool:
    """Whether some worker can go on with the job."""
    job = world.row
    return any(code == job.version or _migrates(model, code, job) for code in codes(world))


def _migrates(model: Model, code: int, job: Job) -> bool:
    return bool(code and model.scenario.migrates and not (job.refused and model.rules.refused_stays))


def left(model: Model, world: World) -> World:
    """Ticket and state stay, the message goes round again; since when stands in the row."""
    job = world.row
    job = job._replace(left=Clock.AHEAD if job.left is Clock.NEVER else job.left)
    if not model.rules.leave_keeps_ticket:
        job = cleared(job)
    elif model.rules.leave_sends_again:
        job = job._replace(published=Published.TAKEN)
    return world._replace(job=job, ghost=world.ghost._replace(left=True))


def migrated(job: Job, worker: Worker) -> Job:
    """The job as one of the next version: it remembers what the migration had read, and nothing else."""
    nodes = tuple(node for node in job.nodes if node.run != job.run or node.step in worker.seen)
    return job._replace(version=1, nodes=nodes)


def _deploys(world: World, fleet: Fleet) -> Iterator[Step]:
    at = _ORDER.index(fleet)
    fewer = world._replace(chances=world.chances._replace(deploy=world.chances.deploy - 1))
    for there in _ORDER[max(0, at - 1) : at + 2]:
        if there is not fleet:
            yield Step("deploy", f"{there.value} code from here on", fewer._replace(fleet=there), system=False)


def _to_shelve(model: Model, job: Job) -> bool:
    over = job.left is Clock.PASSED or (job.left is Clock.AHEAD and not model.rules.shelve_after_grace)
    waits = job.state in (State.PENDING, State.PARKED) and bool(job.ticket)
    return model.rules.shelve and over and waits and not (time_over(job) and model.rules.shelve_spares_the_late)


def _shelves(model: Model, world: World) -> Step:
    return Step("sweep", "parks what nobody can run", park(model, world, "incompatible_version:0->1"), Event.SHELVE)


def _to_take_up(model: Model, world: World, job: Job) -> bool:
    free = job.state is State.PARKED and not job.ticket and job.open_question is None
    able = can_run(model, world) or not model.rules.take_up_what_it_can
    return model.rules.take_up and free and job.left is not Clock.NEVER and able


def _takes_up(model: Model, world: World) -> Step:
    """A worker that can run it issues the ticket by itself."""
    job = world.row
    job = ensure(model, job)._replace(reason=resume_requested(job.reason or ""), left=Clock.NEVER, refused=False)
    after = log(model, world._replace(job=job, ghost=world.ghost._replace(left=False)))
    return Step("worker", "takes it up", after, Event.REISSUE)
