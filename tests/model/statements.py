"""What one transaction does to the rows, given the verdict. Decides nothing about who may call it."""

from __future__ import annotations

from celery_supervise.lifecycle import USER_PAUSED, Event, State, expired

from .context import Model
from .machine import NEW, Clock, Intent, Job, Node, Published, Question, Settle, World


def log(model: Model, world: World, entries: int = 1) -> World:
    """Append to the job's log, in the statement that holds its lock."""
    counted = entries if model.rules.log_counts_entries else 1
    if entries != counted:
        world = world._replace(ghost=world.ghost._replace(log_gap=entries - counted))
    if Intent("remind", 0) in world.intents:
        world = world._replace(intents=(Intent("remind", 1),))
    return world


def issue(model: Model, job: Job, *, due: bool = True) -> Job:
    """Give the job a new ticket."""
    free = not model.scenario.window_full and not (job.held and model.rules.issued_under_hold)
    return job._replace(ticket=NEW, due=due, released=free, published=Published.NO)


def ensure(model: Model, job: Job) -> Job:
    """Give the job a ticket if none is out: ``coalesce(ticket_id, :new)``."""
    return job if job.ticket and model.rules.ticket_kept else issue(model, job)


def cleared(job: Job) -> Job:
    """Take the job's ticket away."""
    return job._replace(ticket=0, due=True, released=True, published=Published.NO)


def taken_back(model: Model, job: Job) -> Job:
    """The job whose ticket may not be used for now: as if its message had never been sent."""
    published = Published.NO if model.rules.taken_back_unsent else job.published
    return job._replace(released=not job.ticket, published=published)


def end_attempt(world: World, outcome: str) -> World:
    """Write the outcome into the row of the attempt that runs, if one does."""
    current = world.current
    if current is None:
        return world
    return world.with_attempt(current._replace(live=False, hand_over=False, outcome=outcome))


def end(model: Model, world: World, state: State, *, teller: bool = False) -> World:
    """Move the job to a terminal state. `teller`: by a worker, who will tell Celery itself."""
    rules, job = model.rules, world.row
    world = end_attempt(world, state.value)
    held = teller and rules.settle_taken_at_end
    job = job if not rules.end_clears_ticket else cleared(job)
    job = job._replace(
        state=state,
        reason=_last_reason(model, job) if state is State.EXPIRED else None,
        token=0,
        pause=False,
        deadline=Clock.NEVER,
        start_by=Clock.NEVER,
        wait=Clock.NEVER,
        settle=Settle.HELD if held else Settle.DUE,
    )
    if rules.end_closes_question:
        job = job._replace(questions=tuple(_closed(question) for question in job.questions))
    ghost = world.ghost._replace(ends=min(2, world.ghost.ends + 1), pause=False)
    return log(model, world._replace(job=job, ghost=ghost))


def _closed(question: Question) -> Question:
    return question._replace(status="closed") if question.status == "open" else question


def _last_reason(model: Model, job: Job) -> str | None:
    """`'expired:' || prior` is NULL where there is no prior reason: the obvious form."""
    if job.reason is None and not model.rules.expired_keeps_reason:
        return None
    return expired(job.reason)


def park(model: Model, world: World, reason: str, *, entries: int = 1) -> World:
    """Move the job to parked, from a claim or from its running attempt."""
    world = end_attempt(world, "parked")
    job = cleared(world.row)._replace(state=State.PARKED, reason=reason, token=0)
    if reason == USER_PAUSED:
        job = job._replace(pause=job.pause and not model.rules.park_clears_pause)
        world = world._replace(ghost=world.ghost._replace(pause=False))
    return log(model, world._replace(job=job), entries)


def pend(model: Model, world: World, outcome: str, *, due: bool = True) -> World:
    """Move the job from running back to pending with a new ticket."""
    world = end_attempt(world, outcome)
    job = world.row._replace(state=State.PENDING, reason=None, token=0)
    if model.rules.pend_issues_ticket:
        job = issue(model, job, due=due)
    return log(model, world._replace(job=job))


def lose(model: Model, world: World) -> tuple[World, Event]:
    """The running attempt is lost: its job is judged, goes back, or fails if it was lost too often."""
    job, ghost = world.row, world.ghost
    verdict = model.verdict(Event.LOSE, job)
    if verdict is not Event.LOSE:
        return overrule(model, world, verdict), verdict
    if model.rules.losses_bounded and job.losses >= model.scenario.lost_limit:
        return end(model, world, State.FAILED), Event.GIVE_UP
    world = pend(model, world, "lost")
    job = world.row._replace(losses=job.losses + 1)
    return world._replace(job=job, ghost=ghost._replace(losses=ghost.losses + 1)), Event.LOSE


_ENDS = {Event.CANCEL: State.CANCELLED, Event.EXPIRE: State.EXPIRED}


def overrule(model: Model, world: World, verdict: Event, *, teller: bool = False, entries: int = 1) -> World:
    """What the judgement says instead of the event that was attempted."""
    if verdict is Event.PARK:
        return park(model, world, USER_PAUSED, entries=entries)
    return end(model, world, _ENDS[verdict], teller=teller)


def save(world: World, step: int, args: int) -> World:
    """Save the checkpoint of a step under the job's run id; the same node replaces its row."""
    job = world.row
    others = [node for node in job.nodes if (node.step, node.run) != (step, job.run)]
    return world._replace(job=job._replace(nodes=tuple(sorted([*others, Node(step, job.run, args)]))))


def vow(world: World, step: int) -> World:
    """Remember that the holder was told that its checkpoint is safe."""
    accepted = tuple(sorted({*world.ghost.accepted, step}))
    return world._replace(ghost=world.ghost._replace(accepted=accepted))
