"""A task is held: none of its jobs starts until it is released. A hold moves no job."""

from __future__ import annotations

from collections.abc import Iterator

from ..context import Model
from ..machine import World
from ..statements import taken_back
from ..steps import Step


def moves(model: Model, world: World) -> Iterator[Step]:
    """Hold, release, what a statement under way lets out, and the relay's next pass."""
    job, person = world.job, world.person
    if job is None:
        return
    if person.hold and not job.held:
        yield _holds(model, world._replace(person=person._replace(hold=person.hold - 1)))
    if person.release and job.held:
        fewer = world._replace(person=person._replace(release=person.release - 1))
        yield Step("person", "releases the task", fewer._replace(job=job._replace(held=False)), system=False)
    if job.held:
        yield from _late(model, world)


def _holds(model: Model, world: World) -> Step:
    job = world.row._replace(held=True)
    if job.ticket and job.released and model.rules.hold_takes_back:
        job = taken_back(model, job)
    ghost = world.ghost._replace(looked=False)
    return Step("person", "holds the task", world._replace(job=job, ghost=ghost), system=False)


def _late(model: Model, world: World) -> Iterator[Step]:
    """A statement that began before the hold does not see it; the pass after it does."""
    job, chances = world.row, world.chances
    if world.ghost.looked:
        return
    if chances.let_out and job.ticket and not job.released:
        fewer = world._replace(chances=chances._replace(let_out=chances.let_out - 1))
        out = fewer._replace(job=job._replace(released=True))
        yield Step("clock", "a statement that began before the hold lets it out", out, system=False)
    back = job.ticket and job.released and model.rules.relay_takes_back
    looked = world._replace(job=taken_back(model, job) if back else job, ghost=world.ghost._replace(looked=True))
    yield Step("relay", "looks at what is held", looked)
