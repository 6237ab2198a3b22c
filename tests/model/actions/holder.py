"""What the holder of an attempt does in its body: run and save a step, ask, raise. Endings are in `endings`."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State, awaiting

from ..context import Model
from ..machine import Clock, Phase, Question, Worker, World
from ..statements import log, park, save, vow
from ..steps import NAMES, Step, advanced, busy, leave
from .endings import Effect, complete, fail, hand_over, holds, overruled, publish_retry, retry, stale
from .replacing import go_on_elsewhere, publish_replacement, replace, replace_plainly, send_on

_COMMITS = frozenset({"checkpoint", "ask", "complete", "fail", "retry", "hand_over", "replace", "replace_plainly"})


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every move of every worker in the middle of a body, with and without the reply to its commit."""
    for index, worker in busy(world):
        for effect in _effects(model, world, worker):
            certain = world.chances == effect.world.chances
            after = effect.world.with_worker(index, effect.worker)
            yield Step(NAMES[index], effect.verb, after, effect.event, effect.note, system=certain)
            if world.faults.unknown and effect.verb in _COMMITS:
                yield from _no_reply(world, index, worker, effect)


def _no_reply(world: World, index: int, worker: Worker, effect: Effect) -> Iterator[Step]:
    """COMMIT was sent and the connection broke: it happened, or it did not, and nobody was told."""
    waits = worker._replace(phase=Phase.UNKNOWN, sent=effect.verb)
    fewer = world.faults._replace(unknown=world.faults.unknown - 1)
    done = effect.world.with_worker(index, waits._replace(teller=effect.worker.teller))._replace(faults=fewer)
    lost = world.with_worker(index, waits)._replace(faults=fewer)
    name, verb = NAMES[index], effect.verb
    yield Step(name, verb, done, effect.event, "no reply, committed", system=False)
    yield Step(name, verb, lost, None, "no reply, not committed", system=False)


def _effects(model: Model, world: World, worker: Worker) -> Iterator[Effect]:
    if worker.phase is Phase.BODY:
        if model.scenario.program[worker.pc : worker.pc + 1] != ("make",):
            yield _next(model, world, worker)
        yield from _raises(model, world, worker)
        yield from _is_replaced(model, world, worker)
    elif worker.phase is Phase.ASKING:
        yield ask(model, world, worker)
    elif worker.phase is Phase.HANDING:
        yield hand_over(model, world, worker)
    elif worker.phase is Phase.REPLACED:
        yield go_on_elsewhere(model, world, worker)
    elif worker.phase is Phase.RETRYING and worker.sent == "replace":
        yield replace(model, world, worker)
    elif worker.phase is Phase.RETRYING:
        yield retry(model, world, worker, args=worker.args)


def _next(model: Model, world: World, worker: Worker) -> Effect:
    program = model.scenario.program
    if worker.pc == len(program):
        return complete(model, world, worker)
    if program[worker.pc] == "step":
        return checkpoint(model, world, worker)
    if model.scenario.results:
        return store_parked(world, worker)
    return ask(model, world, worker)


def _raises(model: Model, world: World, worker: Worker) -> Iterator[Effect]:
    """The body raises, or retries, as often as the scenario allows."""
    chances = world.chances
    if chances.fails:
        yield fail(model, world._replace(chances=chances._replace(fails=chances.fails - 1)), worker)
    if chances.retries:
        fewer = world._replace(chances=chances._replace(retries=chances.retries - 1))
        if model.rules.retry_commits_first:
            yield retry(model, fewer, worker, args=worker.args)
        else:
            yield publish_retry(fewer, worker)
    if chances.other_args:
        fewer = world._replace(chances=chances._replace(other_args=chances.other_args - 1))
        yield retry(model, fewer, worker, args=worker.args + 1)


def _is_replaced(model: Model, world: World, worker: Worker) -> Iterator[Effect]:
    """The body names another task, or a canvas, that is to go on in its place."""
    rules, chances = model.rules, world.chances
    if chances.replaces:
        fewer = world._replace(chances=chances._replace(replaces=chances.replaces - 1))
        first = rules.replacement_commits_first
        yield replace(model, fewer, worker) if first else publish_replacement(fewer, worker)
    if chances.replaces_plainly:
        fewer = world._replace(chances=chances._replace(replaces_plainly=chances.replaces_plainly - 1))
        yield send_on(fewer, worker) if rules.sent_on_first else replace_plainly(model, fewer, worker)


def checkpoint(model: Model, world: World, worker: Worker) -> Effect:
    """Run the step, save it, renew the lease; whatever the judgement says, the step is saved."""
    if not holds(world, worker, fenced=model.rules.fence_checkpoint):
        return stale(model, world, worker, "checkpoint")
    attempt = world.current
    assert attempt is not None
    verdict = model.verdict(Event.CHECKPOINT, world.row, hand_over=attempt.hand_over)
    goes_on = verdict in (Event.CHECKPOINT, Event.HAND_OVER)
    world = vow(world, worker.pc)
    if goes_on or model.rules.judged_checkpoint_saved:
        world = save(world, worker.pc, worker.args)
    if not goes_on:
        return overruled(model, world, worker, "checkpoint", verdict, entries=2)
    world = log(model, world.with_attempt(attempt._replace(live=True)))
    done = advanced(model, worker, worker.pc + 1)
    if verdict is Event.HAND_OVER:
        done = done._replace(phase=Phase.HANDING)
    return Effect("checkpoint", world, done, Event.CHECKPOINT)


def store_parked(world: World, worker: Worker) -> Effect:
    """PARKED goes to the result backend before the commit that parks (protocol 26)."""
    backend = world.backend if world.backend == State.COMPLETED.value else "PARKED"
    return Effect("store PARKED", world._replace(backend=backend), worker._replace(phase=Phase.ASKING))


def ask(model: Model, world: World, worker: Worker) -> Effect:
    """Return the answer, or park on the question."""
    if not holds(world, worker, fenced=model.rules.fence_ask):
        return stale(model, world, worker, "ask")
    verdict = model.verdict(Event.ASK, world.row)
    if verdict is not Event.ASK:
        return overruled(model, world, worker, "ask", verdict)
    question = _known(model, world, worker)
    if question is None or question.status == "open":
        return _asked(model, world, worker, question)
    if question.content != world.content and model.rules.digest:
        return fail(model, world, worker, verb="ask")
    return Effect("ask", world, advanced(model, worker, worker.pc + 1), None, "answered")


def _known(model: Model, world: World, worker: Worker) -> Question | None:
    if not model.rules.ask_reuses_question:
        return None
    job = world.row
    return next((each for each in job.questions if (each.key, each.run) == (worker.pc, job.run)), None)


def _asked(model: Model, world: World, worker: Worker, question: Question | None) -> Effect:
    """Question, park and reason in one transaction; a question that is open already is the one."""
    if question is None:
        job = world.row
        question = Question(worker.pc, job.run, worker.args, world.content, "open")
        others = [each for each in job.questions if (each.key, each.run) != (worker.pc, job.run)]
        wait = Clock.AHEAD if model.scenario.ttl else Clock.NEVER
        world = world._replace(job=job._replace(questions=tuple(sorted([*others, question])), wait=wait))
    world = park(model, world, awaiting(str(worker.pc)))
    return Effect("ask", world, leave(model, worker), Event.ASK)
