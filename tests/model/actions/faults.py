"""Deaths, freezes and stalls of processes, and the broker's faults. Each spends a budget."""

from __future__ import annotations

from collections.abc import Iterator

from ..context import Model
from ..machine import NO_MESSAGE, Faults, Phase, Relay, Report, Worker, World
from ..steps import NAMES, Step, busy


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every fault that may still happen, and a deploy."""
    faults = world.faults
    if faults.crash:
        yield from _crashes(model, world, faults._replace(crash=faults.crash - 1))
    if faults.freeze:
        yield from _freezes(world, faults._replace(freeze=faults.freeze - 1))
    if faults.stall:
        yield from _stalls(world, faults._replace(stall=faults.stall - 1))
    if world.chances.drift:
        yield _deploys(world)
    yield from _wakes(world)
    yield from _broker(world)


def _crashes(model: Model, world: World, fewer: Faults) -> Iterator[Step]:
    for index, worker in busy(world):
        requeued = world if worker.message == NO_MESSAGE else world.plus(worker.message)
        dead = _struck(requeued, worker)._replace(faults=fewer).with_worker(index, Worker())
        alone = _kept(dead, worker, kept=not model.rules.heartbeat_by_incarnation)
        yield Step(NAMES[index], "is killed", alone, system=False)
        if worker.token:
            seen = dead._replace(reports=(*dead.reports, Report(worker.ticket, worker.token)))
            seen = _kept(seen, worker, kept=not model.rules.heartbeat_if_active)
            yield Step(NAMES[index], "loses its child", seen, system=False)
    for index, relay in enumerate(world.relays):
        if relay.ticket:
            yield Step("relay", "is killed", world.with_relay(index, Relay())._replace(faults=fewer), system=False)


def _struck(world: World, worker: Worker) -> World:
    """Remember that a teller died or froze over it: only then Celery may be told twice."""
    unaware = worker.phase is Phase.UNKNOWN and worker.teller  # its end is committed, and it will read that
    tells = unaware or worker.phase in (Phase.TELL, Phase.MARK)
    return world._replace(ghost=world.ghost._replace(teller_died=True)) if tells else world


def _kept(world: World, worker: Worker, *, kept: bool) -> World:
    """Where the rule is taken out, somebody goes on renewing the dead attempt."""
    attempt = world.attempt(worker.token)
    runs = attempt is not None and not attempt.outcome
    return world.with_attempt(attempt._replace(kept=True)) if attempt is not None and runs and kept else world


def _freezes(world: World, fewer: Faults) -> Iterator[Step]:
    for index, worker in busy(world):
        frozen = _struck(world, worker).with_worker(index, worker._replace(frozen=True))
        yield Step(NAMES[index], "freezes", frozen._replace(faults=fewer), system=False)


def _wakes(world: World) -> Iterator[Step]:
    """A frozen worker wakes up, or the broker takes it for dead and delivers its message once more."""
    for index, worker in enumerate(world.workers):
        if worker.frozen and worker.message != NO_MESSAGE and worker.message not in world.messages:
            yield Step("broker", "delivers again what a frozen worker has", world.plus(worker.message))
        if worker.frozen:
            awake = world.with_worker(index, worker._replace(frozen=False))
            yield Step(NAMES[index], "wakes up", awake, system=False)


def _deploys(world: World) -> Step:
    """A deploy changes under a job's feet what its body asks."""
    fewer = world.chances._replace(drift=world.chances.drift - 1)
    return Step("deploy", "changes what is asked", world._replace(content=1, chances=fewer), system=False)


def _stalls(world: World, fewer: Faults) -> Iterator[Step]:
    """The lease ends although its process is alive: the database was away, the parent got no CPU."""
    attempt = world.current
    if attempt is not None and attempt.live:
        late = world.with_attempt(attempt._replace(live=False))._replace(faults=fewer)
        yield Step("clock", "the lease ends unrenewed", late, system=False)


def _broker(world: World) -> Iterator[Step]:
    faults = world.faults
    for message in dict.fromkeys(world.messages):
        if faults.lose:
            lost = world.without(message)._replace(faults=faults._replace(lose=faults.lose - 1))
            yield Step("broker", "loses a message", lost, system=False)
        if faults.double:
            double = world.plus(message)._replace(faults=faults._replace(double=faults.double - 1))
            yield Step("broker", "doubles a message", double, system=False)
    if faults.flush and world.messages:
        empty = world._replace(messages=(), faults=faults._replace(flush=faults.flush - 1))
        yield Step("broker", "is flushed", empty, system=False)
