"""What a person does: request a pause, resume or withdraw, cancel, answer. The reply is the step's note."""

from __future__ import annotations

from collections.abc import Iterator

from celery_supervise.lifecycle import Event, State, answered, resume_requested

from ..context import Model, time_over
from ..machine import Clock, Intent, Person, World
from ..statements import end, ensure, log
from ..steps import Step


def moves(model: Model, world: World) -> Iterator[Step]:
    """Every request that the person may still make."""
    job, person = world.job, world.person
    if job is None:
        return
    if person.pause and not job.terminal:
        yield _pause(model, _spent(world, person._replace(pause=person.pause - 1)))
    if person.resume and (job.pause or job.state is State.PARKED):
        yield _resume(model, _spent(world, person._replace(resume=person.resume - 1)))
    if person.cancel:
        yield _cancel(model, _spent(world, person._replace(cancel=person.cancel - 1)))
    if person.answer and job.questions:
        yield _answer(model, _spent(world, person._replace(answer=person.answer - 1)), person.answer)
    if person.extend and not job.terminal:
        yield _extend(model, _spent(world, person._replace(extend=person.extend - 1)))
    yield from _late(model, world)


def _spent(world: World, person: Person) -> World:
    return world._replace(person=person)


def _step(world: World, verb: str, event: Event | None, note: str) -> Step:
    return Step("person", verb, world, event, note, system=False)


def _refused(world: World, verb: str, reason: str) -> Step:
    return _step(world, verb, None, f"409 {reason}")


def _reads(world: World, intent: Intent) -> Step:
    return _step(world._replace(intents=(*world.intents, intent)), f"reads, to {intent.kind}", None, "")


def _pause(model: Model, world: World) -> Step:
    """A request, never a flip of the state."""
    ghost = world.ghost._replace(pause=True)
    after = log(model, world._replace(job=world.row._replace(pause=True), ghost=ghost))
    return _step(after, "requests a pause", Event.REQUEST_PAUSE, "202")


def _resume(model: Model, world: World) -> Step:
    """Issue a ticket, or take a pause request back where the job goes on or waits for something else."""
    job = world.row
    asks = job.open_question is not None and model.rules.resume_needs_answer
    if job.state is not State.PARKED or asks or (job.ticket and model.rules.resume_once):
        return _withdraw(model, world)
    return _resumed(model, world)


def _withdraw(model: Model, world: World) -> Step:
    job = world.row
    if not job.pause or not model.rules.resume_withdraws_pause:
        why = "not_parked" if job.state is not State.PARKED else "ticket_out" if job.ticket else "question_open"
        return _refused(world, "resumes", why)
    ghost = world.ghost._replace(pause=False)
    after = log(model, world._replace(job=job._replace(pause=False), ghost=ghost))
    return _step(after, "withdraws the pause", Event.WITHDRAW_PAUSE, "202")


def _resumed(model: Model, world: World) -> Step:
    job = ensure(model, world.row)
    pause = job.pause and not model.rules.resume_clears_pause
    reason = resume_requested(job.reason or "") if model.rules.resume_sets_reason else None
    left = Clock.NEVER if model.rules.resume_ends_grace else job.left
    job = job._replace(reason=reason, pause=pause, left=left, refused=False)
    after = log(model, world._replace(job=job, ghost=world.ghost._replace(pause=False, left=False)))
    return _step(after, "resumes", Event.RESUME, "202")


def _cancel(model: Model, world: World) -> Step:
    job = world.row
    if job.terminal and model.rules.terminal_is_final:
        return _refused(world, "cancels", "already_final")
    if not model.rules.cancel_locks_job:
        return _reads(world, Intent("cancel", int(job.state is State.RUNNING)))
    return _cancelled(model, world)


def _cancelled(model: Model, world: World) -> Step:
    job, ghost = world.row, world.ghost._replace(cancel=True)
    world = world._replace(ghost=ghost)
    if job.state is State.RUNNING:
        after = log(model, world._replace(job=job._replace(cancel=True)))
        return _step(after, "cancels", Event.REQUEST_CANCEL, "202")
    return _step(end(model, world, State.CANCELLED), "cancels", Event.REQUEST_CANCEL, "202")


def _again(clock: Clock) -> Clock:
    return clock if clock is Clock.NEVER else Clock.AHEAD


def _extend(model: Model, world: World) -> Step:
    """More time for the job and for its question, unless one of the two is over already."""
    job = world.row
    if time_over(job) and model.rules.extend_by_clock:
        return _refused(world, "extends", "expired")
    job = job._replace(deadline=_again(job.deadline), wait=_again(job.wait))
    after = log(model, world._replace(job=job))
    return _step(after, "extends", Event.EXTEND, "202")


def _answer(model: Model, world: World, value: int) -> Step:
    """Lock the job; then the clock; then the question."""
    job = world.row
    question = job.open_question
    if question is None:
        return _refused(world, "answers", "question_closed")
    if job.state is not State.PARKED:
        return _refused(world, "answers", "not_parked")
    if time_over(job) and model.rules.answer_by_clock:
        return _step(end(model, world, State.EXPIRED), "answers", Event.EXPIRE, "409 expired")
    if not model.rules.answer_locks_job:
        return _reads(world, Intent("answer", value))
    return _answered(model, world, value)


def _answered(model: Model, world: World, value: int) -> Step:
    """The newest question of the job gets the value, the job gets a ticket, its time stops."""
    job = world.row
    question = job.open_question or job.questions[-1]
    given = question._replace(status="answered", answer=value)
    job = job._replace(questions=tuple(given if each == question else each for each in job.questions))
    if model.rules.answer_clears_wait:
        job = job._replace(wait=Clock.NEVER)
    if model.rules.answer_sets_reason:
        job = job._replace(reason=answered(str(question.key)))
    ghost = world.ghost._replace(answers=(*world.ghost.answers, (question.key, value)))
    if model.rules.answer_issues_ticket:
        job = ensure(model, job)
    after = log(model, world._replace(job=job, ghost=ghost))
    return _step(after, "answers", Event.ANSWER, "202")


def _late(model: Model, world: World) -> Iterator[Step]:
    """What was decided from an earlier read is now done (only where the lock is taken out)."""
    for index, intent in enumerate(world.intents):
        rest = world._replace(intents=(*world.intents[:index], *world.intents[index + 1 :]))
        if intent.kind == "answer" and not rest.row.terminal:
            yield _answered(model, rest, intent.value)
        elif intent.kind == "cancel":
            yield _cancelled_as_read(model, rest, running=bool(intent.value))


def _cancelled_as_read(model: Model, world: World, *, running: bool) -> Step:
    """`UPDATE … WHERE current_state = <what was read>`, and 202 whatever it found."""
    if (world.row.state is State.RUNNING) is running and not world.row.terminal:
        return _cancelled(model, world)
    return _step(world._replace(ghost=world.ghost._replace(cancel=True)), "cancels", None, "202")
