"""From the arrival of a message to the claim, or to its quick acknowledgement. No user code runs here."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State

from ..context import Model, time_over
from ..machine import NEW, Attempt, Clock, Job, Message, Phase, Published, Report, Worker, World
from ..statements import cleared, issue, log, overrule
from ..steps import NAMES, Step, advanced, busy, idle, leave, tell
from .versions import codes, left, migrated

_WAITING = (State.PENDING, State.PARKED)


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every message to every idle worker; every claim of what a worker has in hand."""
    for message in dict.fromkeys(world.messages):
        for index, _ in idle(world):
            yield from _delivered(model, world.without(message), index, message)
    for index, worker in busy(world):
        if worker.phase is Phase.HELD:
            yield from _claims(model, world, index, worker)
        elif worker.phase is Phase.MIGRATING and world.job is not None:
            yield from _migrates(model, world, index, worker)
        elif worker.phase is Phase.CHECKED:
            yield _claim_without_looking(model, world, index, worker)


def _delivered(model: Model, world: World, index: int, message: Message) -> Iterator[Step]:
    if world.faults.away:
        yield _database_away(model, world, index, message)
    if world.faults.crash and model.scenario.early_deaths:
        yield _dies_early(model, world, index, message)
    if world.chances.fails_early:
        yield _fails_early(world, index, message)
    job = world.job
    if message.expires and job is not None and job.start_by is Clock.PASSED:
        yield _discarded_by_celery(world, index)
    elif message.ticket:
        yield from _with_header(model, world, index, message)
    else:
        yield _headerless(model, world, index, message)


def _database_away(model: Model, world: World, index: int, message: Message) -> Step:
    """With the header the row heals it; without, the message is all there is and goes back."""
    if not message.ticket and model.rules.headerless_requeued:
        world = world.plus(message)
    fewer = world.faults._replace(away=world.faults.away - 1)
    return Step(NAMES[index], "database away at claim", world._replace(faults=fewer), system=False)


def _dies_early(model: Model, world: World, index: int, message: Message) -> Step:
    """The child dies before the claim; its parent requeues the message and reports the request's ticket."""
    ticket = message.ticket or (NEW if model.rules.fresh_ticket else 0)
    fewer = world.faults._replace(crash=world.faults.crash - 1)
    after = world.plus(message)._replace(faults=fewer, reports=(*world.reports, Report(ticket, 0)))
    return Step(NAMES[index], "child dies before the claim", after, system=False)


def _fails_early(world: World, index: int, message: Message) -> Step:
    """Celery ends the request before our code runs; its parent side says so, some time."""
    fewer = world.chances._replace(fails_early=world.chances.fails_early - 1)
    after = world._replace(chances=fewer, reports=(*world.reports, Report(message.ticket, 0, failed=True)))
    return Step(NAMES[index], "fails before the claim", after, system=False)


def _discarded_by_celery(world: World, index: int) -> Step:
    """Celery finds its `expires` in the past, stores REVOKED and never calls us."""
    ghost = world.ghost._replace(told=1, told_as="revoked")
    return Step(NAMES[index], "discards as expired", world._replace(ghost=ghost, backend="revoked"))


def _with_header(model: Model, world: World, index: int, message: Message) -> Iterator[Step]:
    if world.job is None and not model.rules.header_never_creates:
        yield _born(model, world, index, message)
    elif world.fleet is not None:
        yield from _with_some_code(model, world, index, Worker(Phase.HELD, message, message.ticket))
    else:
        yield from _claims(model, world, index, Worker(Phase.HELD, message, message.ticket))


def _headerless(model: Model, world: World, index: int, message: Message) -> Step:
    if world.job is not None:
        if model.rules.headerless_never_claims or _refusal(model, world, world.job.ticket):
            return _dropped(model, world, index, "the row sends its own")
        return _claim(model, world, index, Worker(Phase.HELD, message, NEW))
    if world.tombstone and model.rules.tombstone:
        return _dropped(model, world, index, "pruned")
    return _born(model, world, index, message)


def _born(model: Model, world: World, index: int, message: Message) -> Step:
    """The row is made from the message; what this worker has in hand is the message of its ticket."""
    job = issue(model, Job(args=message.args))._replace(published=Published.SENT)
    held = Worker(Phase.HELD, message, NEW)
    born = log(model, world._replace(job=job)).with_worker(index, held)
    return Step(NAMES[index], "makes the row", born, note="header" if message.ticket else "")


def _dropped(model: Model, world: World, index: int, note: str) -> Step:
    """Acknowledged without running anything. An exit too: a terminal outcome is restored."""
    job, results = world.job, model.scenario.results and model.rules.restore_after_drop
    if job is not None and job.terminal and results:
        world = world._replace(backend=job.state.value)
    return Step(NAMES[index], "drops", world.with_worker(index, Worker()), note=note)


def _claims(model: Model, world: World, index: int, worker: Worker) -> Iterator[Step]:
    refusal = _refusal(model, world, worker.ticket)
    if refusal:
        yield _dropped(model, world, index, refusal)
    elif not model.rules.ticket_in_row:
        checked = world.with_worker(index, worker._replace(phase=Phase.CHECKED))
        yield Step(NAMES[index], "finds its ticket in another table", checked)
    else:
        step = _claim(model, world, index, worker)
        yield step
        if world.faults.unknown:
            yield from _no_reply(world, index, worker, step)


def _with_some_code(model: Model, world: World, index: int, worker: Worker) -> Iterator[Step]:
    """A claim by code of either version that workers have; what it cannot run it leaves, or migrates first."""
    refusal = _refusal(model, world, worker.ticket)
    if refusal:
        yield _dropped(model, world, index, refusal)
        return
    for code in codes(world):
        if code == world.row.version or not model.rules.claim_by_version:
            yield _claim(model, world, index, worker)._replace(note=f"version {code}")
        elif time_over(world.row):
            yield _dropped(model, world, index, "the sweep ends it")
        elif code and model.scenario.migrates:
            known = tuple(node.step for node in world.row.nodes if node.run == world.row.run)
            at_work = left(model, world).with_worker(index, worker._replace(phase=Phase.MIGRATING, seen=known))
            yield Step(NAMES[index], "begins to migrate", at_work)
        else:
            yield Step(NAMES[index], "leaves it to others", left(model, world).with_worker(index, Worker()))


def _migrates(model: Model, world: World, index: int, worker: Worker) -> Iterator[Step]:
    """The shop's function has returned, or raises; then the claim, with what it made of what it had read."""
    if world.chances.refuse:
        fewer = world.chances._replace(refuse=world.chances.refuse - 1)
        job = world.job and world.job._replace(refused=world.job.ticket == worker.ticket or world.job.refused)
        raised = world._replace(job=job, chances=fewer).with_worker(index, Worker())
        yield Step(NAMES[index], "refuses to migrate", raised, system=False)
    if not model.rules.migration_with_claim:
        stored = world._replace(job=migrated(world.row, worker))
        yield Step(
            NAMES[index], "stores what it migrated", stored.with_worker(index, worker._replace(phase=Phase.HELD))
        )
        return
    refusal = _refusal(model, world, worker.ticket if model.rules.migration_by_ticket else world.row.ticket)
    if refusal or world.row.version == 1:
        yield _dropped(model, world, index, refusal or "another version")
        return
    judged = model.verdict(Event.CLAIM, world.row) is Event.CLAIM
    ready = world._replace(job=migrated(world.row, worker)) if judged else world
    yield _claim(model, ready, index, worker)._replace(note="version 1")


def _refusal(model: Model, world: World, ticket: int) -> str:
    """Why the compare-and-swap finds no row; empty where it does."""
    rules, job = model.rules, world.job
    if job is None:
        return "no row"
    if job.state not in _WAITING or not job.ticket or (job.ticket != ticket and rules.claim_by_ticket):
        return "no such ticket"
    if (rules.claim_when_due and not job.due) or (rules.claim_when_released and not job.released):
        return "too early"
    if not rules.publish_unlocked and any(relay.sent and relay.ticket == ticket for relay in world.relays):
        return "lock timeout"
    return ""


def _claim_without_looking(model: Model, world: World, index: int, worker: Worker) -> Step:
    """The job row alone is rechecked after the wait: its state, not the ticket."""
    if world.job is None or world.job.state not in _WAITING:
        return _dropped(model, world, index, "not waiting")
    return _claim(model, world, index, worker)


def _claim(model: Model, world: World, index: int, worker: Worker) -> Step:
    """The compare-and-swap has found its row under the lock; now it is judged."""
    verdict = model.verdict(Event.CLAIM, world.row)
    if verdict is Event.CLAIM:
        return _claimed(model, world, index, worker)
    after = overrule(model, world, verdict, teller=True)
    done = leave(model, worker, "PARKED") if verdict is Event.PARK else tell(worker, after.row.state.value)
    return Step(NAMES[index], "claim", after.with_worker(index, done), verdict, verdict.value)


def _claimed(model: Model, world: World, index: int, worker: Worker) -> Step:
    job = world.row
    ticket = worker.ticket if model.rules.fresh_ticket else worker.message.ticket
    attempt = Attempt(NEW, ticket)
    row = cleared(job) if model.rules.claim_clears_ticket else job
    row = row._replace(state=State.RUNNING, reason=None, token=NEW, start_by=Clock.NEVER)
    row = row._replace(left=Clock.NEVER if model.rules.claim_ends_grace else row.left, refused=False)
    world = world._replace(ghost=world.ghost._replace(left=False))
    seen = tuple(node.step for node in job.nodes if node.run == job.run)
    holder = worker._replace(token=NEW, seen=seen, args=worker.message.args)
    after = log(model, world._replace(job=row, attempts=(*world.attempts, attempt)))
    return Step(NAMES[index], "claim", after.with_worker(index, advanced(model, holder, 0)), Event.CLAIM)


def _no_reply(world: World, index: int, worker: Worker, step: Step) -> Iterator[Step]:
    fewer = world.faults._replace(unknown=world.faults.unknown - 1)
    claimed = step.world.workers[index]
    waits = claimed._replace(phase=Phase.UNKNOWN, sent="claim")
    done = step.world.with_worker(index, waits)._replace(faults=fewer)
    lost = world.with_worker(index, worker._replace(phase=Phase.UNKNOWN, sent="claim"))._replace(faults=fewer)
    yield step._replace(world=done, note="no reply, committed", system=False)
    yield Step(NAMES[index], "claim", lost, None, "no reply, not committed", system=False)
