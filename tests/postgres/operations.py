"""Every operation on a job as data, for tests that disturb each in turn; and a picture of a job, to compare two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4, uuid5

from sqlalchemy.sql import text

from celery_supervise.holding import Holding, Retry
from celery_supervise.lifecycle import Event, State
from celery_supervise.migrating import Memories, OldJob, claim_migrated
from celery_supervise.model import Lease, Moved, NewJob, NewQuestion, NodeKind
from celery_supervise.operating import Kicked
from celery_supervise.relay import Told, mark_settled
from celery_supervise.remembered import Remembered
from tests.postgres.shop import Shop, failure, new_job, new_question, replacement, retry, stored

HOUR = timedelta(hours=1)
KICKS = b"publish_until = excluded.publish_until"
DAY = timedelta(days=1)
FAR = datetime(2099, 1, 1, tzinfo=timezone.utc)
COMMIT = b"COMMIT\0"  # READ COMMITTED is something else


@dataclass(frozen=True)
class Subject:
    """A job in the state that an operation wants, and what the operation is called with."""

    job_id: str
    lease: Lease | None = None
    ticket: UUID | None = None
    job: NewJob | None = None
    question: NewQuestion | None = None

    def held(self, shop: Shop) -> Holding:
        """The attempt that holds the job, by way of `shop`."""
        assert self.lease is not None
        return shop.supervisor.holding(self.lease, worker="worker@test")


@dataclass(frozen=True)
class Operation:
    """`call` may be called again with the same subject, as a caller does who did not get a reply.

    `marker`: bytes that only the request that commits it has.
    """

    name: str
    prepare: Callable[[Shop], Subject]
    call: Callable[[Shop, Subject], Any]
    marker: bytes

    def __str__(self) -> str:
        return self.name


def marker(event: Event) -> bytes:
    """The beginning of the event's row of the transition table, as its statement has it."""
    return f"('{event}', '".encode()


def unborn(_: Shop) -> Subject:
    """A job that is not there yet."""
    job = new_job()
    return Subject(job.id, job=job)


def pending(shop: Shop) -> Subject:
    """A job that waits for a worker."""
    job = shop.pending()
    return Subject(job.id, ticket=job.ticket_id)


def timed(shop: Shop) -> Subject:
    """A job that waits for a worker, with a deadline."""
    return Subject(shop.pending(deadline=HOUR).id)


def running(shop: Shop) -> Subject:
    """A job that a worker holds."""
    lease = shop.running().lease
    return Subject(lease.job_id, lease=lease, question=new_question())


def hurried(shop: Shop) -> Subject:
    """A job that a worker holds, and that has little time left."""
    lease = shop.running(deadline=HOUR / 2).lease
    return Subject(lease.job_id, lease=lease)


def pausing(shop: Shop) -> Subject:
    """A job that a worker holds, with a pause requested."""
    subject = running(shop)
    shop.supervisor.pause(subject.job_id, actor="user:ann")
    return subject


def cancelling(shop: Shop) -> Subject:
    """A job that a worker holds, with a cancel requested."""
    subject = running(shop)
    shop.supervisor.cancel(subject.job_id, actor="user:ann")
    return subject


def asked(shop: Shop) -> Subject:
    """A job that waits for an answer."""
    question = shop.asked()
    return Subject(shop.job_of(question).id, question=question)


def asked_of_two(shop: Shop) -> Subject:
    """A job that waits for two people to agree."""
    question = shop.asked(question=new_question(approvals=2))
    return Subject(shop.job_of(question).id, question=question)


def half_decided(shop: Shop) -> Subject:
    """The same, and somebody else has agreed already."""
    subject = asked_of_two(shop)
    assert subject.question is not None
    shop.supervisor.answer(subject.question.id, True, actor="user:bob")
    return subject


def paused(shop: Shop) -> Subject:
    """A job that a person paused."""
    return Subject(shop.paused().id)


def over(shop: Shop) -> Subject:
    """A job that failed after a checkpoint."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, stored("[1, 2]"))
    holding.fail(failure())
    return Subject(holding.lease.job_id)


def rerun(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.rerun."""
    return shop.supervisor.rerun(subject.job_id, actor="user:ann", from_checkpoints=True)


def told(shop: Shop, **changes: Any) -> Subject:
    """A job that has ended, and of which Celery was told."""
    job = shop.ended(State.COMPLETED, **changes)
    mark_settled(shop.door, [Told(job.id, job.settle_id)], actor="relay")
    return Subject(job.id)


def submit(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.submit."""
    assert subject.job is not None
    return shop.supervisor.submit(subject.job)


def submit_many(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.submit_many: this job, and another one beside it."""
    job = subject.job
    assert job is not None
    other = replace_fields(
        job, id=f"{job.id} too", ticket_id=uuid5(job.ticket_id, "too"), run_id=uuid5(job.run_id, "too")
    )
    return shop.supervisor.submit_many([other, job])[1]


def claim(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.claim."""
    return shop.supervisor.claim(subject.job_id, subject.ticket or uuid4(), shop.claimer)


def of_old_code(shop: Shop) -> Subject:
    """A job that older code began, with what it remembers, and that waits for a worker."""
    holding = shop.running()
    holding.checkpoint("load", NodeKind.STEP, stored("[1, 2]"))
    holding.checkpoint("old", NodeKind.STEP, stored("7"))
    moved = holding.hand_over()
    return Subject(moved.job_id, ticket=shop.job(moved.job_id).ticket_id)


def rearrange(remembered: Remembered) -> None:
    """What a shop makes of it."""
    remembered.rename("load", "load_rows")
    remembered.forget("old")
    remembered.write("total", 3)


def migrate(shop: Shop, subject: Subject) -> Any:
    """See migrating.claim_migrated: as a worker does it whose claim found nothing."""
    job = shop.job(subject.job_id)
    old = OldJob(job.id, 1, job.run_id, job.node)
    changed = Memories(shop.door).migrated(old, rearrange)
    return claim_migrated(shop.door, old, subject.ticket or uuid4(), shop.claimer, version=2, changed=changed)


def checkpoint(shop: Shop, subject: Subject) -> Any:
    """See Holding.checkpoint."""
    return subject.held(shop).checkpoint("load", NodeKind.STEP, stored("[1, 2]"))


def ask(shop: Shop, subject: Subject) -> Any:
    """See Holding.ask."""
    assert subject.question is not None
    return subject.held(shop).ask(subject.question, ttl=HOUR)


def answer(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.answer."""
    assert subject.question is not None
    return shop.supervisor.answer(subject.question.id, True, actor="user:ann")


def register(shop: Shop, subject: Subject) -> Any:
    """See Holding.register."""
    return subject.held(shop).register("file", stored('"remove"'))


def vote_from_a_page(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.answer, with the generation of a job that has just asked."""
    assert subject.question is not None
    return shop.supervisor.answer(subject.question.id, True, actor="user:ann", expected_generation=3)


def reassign(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.reassign."""
    assert subject.question is not None
    return shop.supervisor.reassign(subject.question.id, to=["carl", "dora"], actor="user:ann")


def withdraw(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.withdraw."""
    assert subject.question is not None
    return shop.supervisor.withdraw(subject.question.id, actor="user:ann")


def later() -> Retry:
    """A retry that is not due for long."""
    return retry(HOUR)


def cancel(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.cancel."""
    return shop.supervisor.cancel(subject.job_id, actor="user:ann")


def terminate(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.cancel."""
    return shop.supervisor.cancel(subject.job_id, actor="user:ann", terminate=True)


def pause(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.pause."""
    return shop.supervisor.pause(subject.job_id, actor="user:ann")


def resume(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.resume."""
    return shop.supervisor.resume(subject.job_id, actor="user:ann")


def extend(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.extend."""
    return shop.supervisor.extend(subject.job_id, deadline=FAR, actor="user:ann")


def extend_by(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.extend: of the job as it was seen, so that whoever comes again does not add twice."""
    return shop.supervisor.extend(subject.job_id, by=DAY, actor="user:ann", expected_generation=1)


def extend_question(shop: Shop, subject: Subject) -> Any:
    """See Supervisor.extend_question; likewise."""
    assert subject.question is not None
    return shop.supervisor.extend_question(subject.question.id, by=DAY, actor="user:ann", expected_generation=3)


def complete(shop: Shop, subject: Subject) -> Any:
    """See Holding.complete."""
    return subject.held(shop).complete(stored('"done"'))


def retire(shop: Shop, subject: Subject) -> Any:
    """See Holding.retry."""
    return subject.held(shop).retry(later(), failure())


def replace(shop: Shop, subject: Subject) -> Any:
    """See Holding.replace."""
    return subject.held(shop).replace(replacement())


def replace_plain(shop: Shop, subject: Subject) -> Any:
    """See Holding.replace_plain."""
    return subject.held(shop).replace_plain("shop.plain")


HOLDERS = (
    Operation("checkpoint", running, checkpoint, marker(Event.CHECKPOINT)),
    Operation("checkpoint of a paused job", pausing, checkpoint, marker(Event.CHECKPOINT)),
    Operation("judge", cancelling, lambda shop, subject: subject.held(shop).judge(), marker(Event.CHECKPOINT)),
    Operation("ask", running, ask, marker(Event.ASK)),
    Operation("ask of a paused job", pausing, ask, marker(Event.ASK)),
    Operation("complete", running, complete, marker(Event.COMPLETE)),
    Operation("complete of a cancelled job", cancelling, complete, marker(Event.COMPLETE)),
    Operation("fail", running, lambda shop, subject: subject.held(shop).fail(failure()), marker(Event.FAIL)),
    Operation("retry", running, retire, marker(Event.RETRY)),
    Operation("retry beyond the deadline", hurried, retire, marker(Event.RETRY)),
    Operation("replace", running, replace, marker(Event.REPLACE)),
    Operation("replace of a cancelled job", cancelling, replace, marker(Event.REPLACE)),
    Operation("replace by a plain task", running, replace_plain, marker(Event.REPLACE_PLAIN)),
    Operation("register a cleanup", running, register, b".cleanups (job_id"),
    Operation("hand over", running, lambda shop, subject: subject.held(shop).hand_over(), marker(Event.HAND_OVER)),
)
"""What the attempt that holds a job does."""

PEOPLE = (
    Operation("submit", unborn, submit, b"'submitted'"),
    Operation("submit many", unborn, submit_many, b"'submitted'"),
    Operation("answer", asked, answer, marker(Event.ANSWER)),
    Operation("vote", asked_of_two, answer, COMMIT),
    Operation("vote from a page", asked_of_two, vote_from_a_page, COMMIT),
    Operation("vote that decides", half_decided, answer, COMMIT),
    Operation("reassign", half_decided, reassign, COMMIT),
    Operation("withdraw", asked, withdraw, marker(Event.WITHDRAW)),
    Operation("resume", paused, resume, marker(Event.RESUME)),
    Operation("withdraw a pause", pausing, resume, marker(Event.RESUME)),
    Operation("pause", running, pause, marker(Event.REQUEST_PAUSE)),
    Operation("cancel of a pending job", pending, cancel, COMMIT),
    Operation("cancel of a running job", running, cancel, COMMIT),
    Operation("cancel of a parked job", asked, cancel, COMMIT),
    Operation("cancel with its process", running, terminate, COMMIT),
    Operation("cancel with its process of a cancelled job", cancelling, terminate, COMMIT),
    Operation("rerun", over, rerun, COMMIT),
    Operation("extend", running, extend, COMMIT),
    Operation("extend by a span", timed, extend_by, COMMIT),
    Operation("extend a question", asked, extend_question, COMMIT),
    Operation("kick", pending, lambda shop, subject: shop.supervisor.kick(subject.job_id, actor="user:ann"), KICKS),
    Operation(
        "erase", told, lambda shop, subject: shop.supervisor.erase(subject.job_id, actor="user:ann"), b"erase_job"
    ),
)
"""What people and producers do."""

NOT_OF_HOLDERS = (
    *PEOPLE,
    Operation("claim", pending, claim, marker(Event.CLAIM)),
    Operation("migrating claim", of_old_code, migrate, COMMIT),
)
OPERATIONS = (*HOLDERS, *NOT_OF_HOLDERS)
ON_A_ROW = tuple(operation for operation in OPERATIONS if operation.name not in {"submit", "submit many"})


PICTURE = text("""
SELECT jsonb_build_object(
    'state', j.current_state, 'reason', j.watchdog_stop_reason, 'generation', j.generation, 'log', j.log_seq,
    'ticket', j.ticket_id IS NOT NULL, 'released', j.ticket_released_at IS NOT NULL, 'bytes', j.stored_bytes,
    'days', round(extract(epoch FROM j.expires_at - j.created_at) / 86400),
    'pause', j.pause_requested_at IS NOT NULL, 'cancel', j.cancel_requested_at IS NOT NULL, 'node', j.node,
    'terminate', j.terminate_after IS NOT NULL,
    'events', (SELECT array_agg(l.event ORDER BY l.sequence_num) FROM supervise.log AS l WHERE l.job_id = j.id),
    'attempts', (SELECT array_agg(a.outcome ORDER BY a.number) FROM supervise.attempts AS a WHERE a.job_id = j.id),
    'version', j.task_version,
    'nodes', (SELECT array_agg(c.node || CASE WHEN c.run_id = j.run_id THEN '' ELSE ', once' END ORDER BY c.node)
              FROM supervise.checkpoints AS c WHERE c.job_id = j.id),
    'questions', (SELECT array_agg(ARRAY[q.status, q.assignees::text])
                  FROM supervise.questions AS q WHERE q.job_id = j.id),
    'open for', (SELECT array_agg(round(extract(epoch FROM q.expires_at - q.asked_at) / 86400))
                 FROM supervise.questions AS q WHERE q.job_id = j.id),
    'votes', (SELECT array_agg(v.actor ORDER BY v.actor) FROM supervise.votes AS v JOIN supervise.questions AS q
              ON q.id = v.question_id WHERE q.job_id = j.id),
    'cleanups', (SELECT array_agg(c.name) FROM supervise.cleanups AS c WHERE c.job_id = j.id),
    'payloads', (SELECT array_agg(p.kind ORDER BY p.kind) FROM supervise.payloads AS p WHERE p.job_id = j.id),
    'outbox', (SELECT array_agg(o.done_at IS NOT NULL ORDER BY o.created_at)
               FROM supervise.outbox AS o WHERE o.job_id = j.id))
FROM supervise.jobs AS j WHERE j.id = :job_id""")


def picture(shop: Shop, job_id: str) -> Any:
    """All of a job that does not differ between two that fared alike; None where there is none."""
    with shop.engine.connect() as connection:
        return connection.execute(PICTURE, {"job_id": job_id}).scalar_one_or_none()


def undisturbed(shop: Shop, operation: Operation) -> tuple[Any, Any]:
    """The picture of a job on which the operation was done with nothing in its way, and what its caller got."""
    subject = operation.prepare(shop)
    outcome = operation.call(shop, subject)
    return picture(shop, subject.job_id), outcome


def said(outcome: Any) -> tuple[object, ...]:
    """What does not differ between two equal outcomes: the kind, and where the job is."""
    if outcome is None:
        return (None,)
    if isinstance(outcome, Lease):
        return Lease, outcome.number, outcome.resumed
    if isinstance(outcome, Kicked):
        return Kicked, outcome.queue, outcome.sent
    return type(outcome), outcome.state, outcome.question_id is None if isinstance(outcome, Moved) else outcome.created
