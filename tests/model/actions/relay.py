"""From the ticket in the row to the message in the broker. Publishing is only a hint: nothing here moves the job."""

from __future__ import annotations

from collections.abc import Iterator

from ..context import Model
from ..machine import Clock, Message, Published, Relay, World
from ..steps import Step


def moves(model: Model, world: World) -> Iterator[Step]:
    """Publish a released, due ticket: in one step, or take, publish, stamp where the scenario has relays."""
    job = world.job
    if job is not None and job.ticket and job.due and job.released:
        if job.published is Published.NO:
            yield from _takes(model, world) if world.relays else [_publishes(model, world, "publishes")]
        if job.published is Published.SENT and _lost(model, world):
            yield _publishes(model, world, "publishes again")
        taken = any(relay.ticket == job.ticket for relay in world.relays)
        # what was left to others goes round again later than it takes to arrive
        out = world.fleet is not None and any(message.ticket == job.ticket for message in world.messages)
        if job.published is Published.TAKEN and not taken and not out:
            yield Step("clock", "publish_until passes", world._replace(job=job._replace(published=Published.NO)))
    yield from _in_between(world)


def _message(model: Model, world: World) -> Message:
    job = world.row
    expires = not model.rules.no_expires and job.start_by is not Clock.NEVER
    return Message(job.ticket, job.args, expires)


def _publishes(model: Model, world: World, verb: str) -> Step:
    sent = world.row._replace(published=Published.SENT)
    return Step("relay", verb, world.plus(_message(model, world))._replace(job=sent))


def _lost(model: Model, world: World) -> bool:
    """Evidence, not age: neither the broker nor a worker's hands hold this ticket."""
    if not model.rules.republish_on_evidence:
        return len(world.messages) < 3
    ticket = world.row.ticket
    found = any(message.ticket == ticket for message in world.messages)
    held = any(worker.ticket == ticket for worker in world.workers)
    return model.rules.republish and not found and not held


def _takes(model: Model, world: World) -> Iterator[Step]:
    """Stamp `publish_until`, commit; only then publish."""
    job = world.row
    for index, relay in enumerate(world.relays):
        if not relay.ticket and relay not in world.relays[:index]:
            stamp = Published.TAKEN if model.rules.relay_takes_first else Published.NO
            taken = world.with_relay(index, Relay(job.ticket))
            yield Step("relay", "takes", taken._replace(job=job._replace(published=stamp)))


def _in_between(world: World) -> Iterator[Step]:
    for index, relay in enumerate(world.relays):
        if relay.ticket and not relay.sent:
            message = Message(relay.ticket, world.job.args if world.job else 0)
            sent = world.plus(message).with_relay(index, relay._replace(sent=True))
            yield Step("relay", "publishes", sent)
        elif relay.ticket:
            yield Step("relay", "stamps", _stamped(world.with_relay(index, Relay()), relay.ticket))


def _stamped(world: World, ticket: int) -> World:
    job = world.job
    if job is None or job.ticket != ticket:
        return world
    return world._replace(job=job._replace(published=Published.SENT))
