"""The service: one method, one transaction; the only way to change a job from outside its worker.

Edges (CLI, HTTP, page) and shops call this. No rule lives above it. After a commit it publishes at once where
it can; where it cannot, the relay does, from the row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from sqlalchemy.engine import Connection

from . import queries, refusals
from .errors import Conflict, DatabaseUnavailable, InvalidInput, JobExists, JobNotFound, PublishFailed
from .forms import check_answer
from .holding import Holding, claim, moved
from .intake import check_actor, check_job, check_why, is_name
from .lifecycle import TERMINAL, USER_PAUSED, State
from .model import (
    Claimer,
    Failure,
    Job,
    Lease,
    Message,
    MessageKind,
    Moved,
    NewJob,
    Publisher,
    Question,
    Stored,
    Submitted,
)
from .reader import Reader
from .store import births
from .store.door import Door, Row, as_uuid, repeated
from .store.people import ANSWER, FAIL_WAITING, LOCK, REQUEST_CANCEL, REQUEST_PAUSE, RESUME
from .store.publishing import STAMP
from .values import IDENTITY, Codec, digest, encode_plain

logger = logging.getLogger(__name__)

AT_ONCE = timedelta(0)
T = TypeVar("T")


class Session(Protocol):
    """A SQLAlchemy Session: what `session=` takes, beside a Connection."""

    def connection(self) -> Connection:
        """The connection of the session's transaction."""


class Supervisor(Reader):
    """The operations of people and producers on jobs, in one namespace of one schema."""

    def __init__(
        self,
        door: Door,
        *,
        publisher: Publisher | None = None,
        codec: Codec = IDENTITY,
        max_value_bytes: int = 1 << 20,
    ) -> None:
        super().__init__(door, codec=codec)
        self.max_value_bytes = max_value_bytes
        self._publisher = publisher

    # --- submit ------------------------------------------------------------------------------------------

    def submit(
        self,
        job: NewJob,
        *,
        actor: str = "producer",
        received: bool = False,
        session: Session | Connection | None = None,
    ) -> Submitted:
        """Accept a job: from this commit on it is not lost, whatever the broker does.

        `received`: it comes from a message that a worker holds, so nothing is published. `session`: joins the
        caller's transaction; published within a second of its commit, never after a rollback.
        Raises `InvalidInput` (a name, a time, a deadline that is past), `JobExists` (id or key taken by another
        input), `Conflict` (busy), `DatabaseUnavailable`.
        """
        check_job(job)
        actor, joined = check_actor(actor), connection_of(session)
        row, again = self._commit(lambda: self._insert(job, actor, received=received, joined=joined), joined)
        if row["job_id"] is None:
            made = self._twin(job, received=received, joined=joined, late=row["late"], again=again)
        else:
            made = births.submitted(row, created=True)
        if made.created and made.released and not received and joined is None:
            self._publish(job_message(job))
        return made

    def _insert(self, job: NewJob, actor: str, *, received: bool, joined: Connection | None) -> Row:
        return births.submit(
            self.door, job, actor=actor, received=received, release=True, joined=joined, **self._hold(joined)
        )

    def _twin(self, job: NewJob, *, received: bool, joined: Connection | None, late: bool, again: bool) -> Submitted:
        twin = births.find_twin(self.door, job, joined=joined)
        if twin is None:
            if late:
                raise InvalidInput("deadline", "is already past; nothing was accepted")
            if received:
                return Submitted(job.id, State.CANCELLED, 0, created=False)
            raise refusals.busy(None)
        same = (
            twin["namespace"] == self.door.namespace
            and twin["task"] == job.task
            and twin["owner_id"] == job.owner_id
            and (received or twin["input_digest"] == job.input_digest)
            and twin["input_version"] == job.input_version
        )
        if not same:
            key = job.idempotency_key if twin["job_id"] != job.id else None
            raise JobExists(twin["job_id"], idempotency_key=key)
        return births.submitted(twin, created=again and as_uuid(twin["run_id"]) == job.run_id)

    # --- answer ------------------------------------------------------------------------------------------

    def answer(
        self,
        question_id: UUID | str,
        value: Any,
        *,
        actor: str,
        owner: str | None = None,
        seen: str | None = None,
        expected_generation: int | None = None,
        session: Session | Connection | None = None,
    ) -> Moved:
        """Give the answer: it is durable when this returns, and only then is the job told to go on.

        `seen`: the digest of what was shown to the person. Raises `QuestionNotFound`, `InvalidAnswer` (nothing
        changed), `QuestionClosed` (answered, expired, ended, withdrawn), `Conflict` (stale, busy).
        """
        joined = connection_of(session)
        question = self._question(question_id, owner, joined)
        if question.status != "pending":
            raise refusals.cannot_answer(question, seen=seen, expected=expected_generation, late=False)
        stored = self._checked(question, value)
        params = self._answering(question, stored, check_actor(actor), seen, expected_generation) | self._hold(joined)
        row, again = self._commit(lambda: self.door.one(ANSWER, joined, **params), joined)
        if row is None and again and queries.issued(self.door, params["ticket_id"]):
            return self._publish_moved(self._issued(question.job_id, params["ticket_id"]), joined)
        if row is None or row["verdict"] == "expire":
            now = self._question(question_id, owner, joined)
            raise refusals.cannot_answer(now, seen=seen, expected=expected_generation, late=row is not None)
        return self._publish_moved(moved(row), joined)

    def _checked(self, question: Question, value: Any) -> Stored:
        check_answer(question.schema, value, limit=self.max_value_bytes)
        return encode_plain(value, path="answer", what="answer", limit=self.max_value_bytes, codec=self.codec)

    def _answering(
        self, question: Question, stored: Stored, actor: str, seen: str | None, expected_generation: int | None
    ) -> dict[str, Any]:
        return {
            "job_id": question.job_id,
            "question_id": question.id,
            "ticket_id": uuid4(),
            "data": stored.data,
            "encoding": stored.encoding,
            "key_id": stored.key_id,
            "answer_digest": digest(stored.data),
            "actor": actor,
            "seen": seen,
            "expected_generation": expected_generation,
            "settle_after": AT_ONCE,
        }

    def _commit(self, commit: Callable[[], T], joined: Connection | None) -> tuple[T, bool]:
        """Run a commit, again where its reply was lost: see `door.repeated`. A joined call commits nothing."""
        return repeated(commit) if joined is None else (commit(), False)

    def _issued(self, job_id: str, ticket_id: UUID) -> Moved:
        """What a call did whose reply was lost and whose ticket was found."""
        job = self._job(job_id, None)
        out = ticket_id if job.ticket_id == ticket_id else None
        return Moved(job.id, job.state, job.stop_reason, job.generation, ticket_id=out)

    # --- pause, resume, cancel ---------------------------------------------------------------------------

    def pause(
        self, job_id: str, *, actor: str, owner: str | None = None, expected_generation: int | None = None
    ) -> Moved:
        """Ask the job to pause. A running job goes on to the end of its current step: `state` says so.

        Asking twice changes nothing. Raises `JobNotFound`, `Conflict` (ended, stale, busy).
        """
        params = self._common(job_id, actor, owner, expected_generation)
        row, again = repeated(lambda: self.door.one(REQUEST_PAUSE, **params))
        return moved(row) if row else self._unchanged(job_id, owner, expected_generation, is_pausing if again else None)

    def resume(
        self,
        job_id: str,
        *,
        actor: str,
        owner: str | None = None,
        expected_generation: int | None = None,
        session: Session | Connection | None = None,
    ) -> Moved:
        """Let a paused job go on, or take back a pause that was only asked for. One caller wins.

        Raises `JobNotFound`, `Conflict` (not parked, question open, already resumed, ended, stale, busy).
        """
        joined = connection_of(session)
        params = self._common(job_id, actor, owner, expected_generation) | self._hold(joined)
        row, again = self._commit(lambda: self.door.one(RESUME, joined, **params), joined)
        if row is None and again and queries.issued(self.door, params["ticket_id"]):
            return self._publish_moved(self._issued(job_id, params["ticket_id"]), joined)
        if row is None:
            job = self._job(job_id, owner, joined)
            if again and goes_on(job):
                return unchanged(job)
            raise refusals.cannot_resume(job, expected_generation)
        return self._publish_moved(moved(row), joined)

    def cancel(
        self,
        job_id: str,
        *,
        actor: str,
        owner: str | None = None,
        why: str | None = None,
        expected_generation: int | None = None,
    ) -> Moved:
        """Cancel: at once where no worker runs it, else from this commit on no other end is possible.

        Raises `JobNotFound`, `Conflict` (``already_final`` where it ended first, stale, busy).
        """
        params = self._common(job_id, actor, owner, expected_generation) | {"why": check_why(why)}
        row, again = repeated(lambda: self.door.locked(LOCK, REQUEST_CANCEL, **params))
        done = is_cancelled if again else None
        return moved(row) if row else self._unchanged(job_id, owner, expected_generation, done)

    def _common(self, job_id: str, actor: str, owner: str | None, expected_generation: int | None) -> dict[str, Any]:
        if not (is_name(job_id) and (owner is None or is_name(owner))):
            raise JobNotFound(job_id)
        return {
            "job_id": job_id,
            "owner_id": owner,
            "actor": check_actor(actor),
            "expected_generation": expected_generation,
            "ticket_id": uuid4(),
            "settle_after": AT_ONCE,
            "data": "{}",
        }

    def _unchanged(
        self, job_id: str, owner: str | None, expected_generation: int | None, done: Callable[[Job], bool] | None
    ) -> Moved:
        """A repeated request: told what is, unless that is a conflict. `done`: whether a lost call has done it."""
        job = self._job(job_id, owner)
        if done is None or not done(job):
            conflict = refusals.stale_generation(job, expected_generation) or refusals.already_final(job)
            if conflict:
                raise conflict
        return unchanged(job)

    # --- workers -----------------------------------------------------------------------------------------

    def claim(self, job_id: str, ticket_id: UUID, claimer: Claimer) -> Lease | Moved | None:
        """Claim a job by its ticket: see `holding.claim`."""
        return claim(self.door, job_id, ticket_id, claimer)

    def holding(self, lease: Lease, *, worker: str) -> Holding:
        """The operations of the attempt that holds the job."""
        return Holding(self.door, lease, worker=worker)

    def fail_waiting(self, job_id: str, ticket_id: UUID, failure: Failure, *, reason: str, actor: str) -> Moved | None:
        """Celery's parent side reports the end of a message that was never claimed: only by its ticket (22)."""
        params = {
            "job_id": job_id,
            "ticket_id": ticket_id,
            "settle_id": uuid4(),
            "settle_after": AT_ONCE,
            "reason": reason,
            "error_type": failure.type,
            "actor": actor,
            "data": failure.stored.data if failure.stored else None,
            "encoding": failure.stored.encoding if failure.stored else "none",
            "key_id": failure.stored.key_id if failure.stored else None,
        }
        row, again = repeated(lambda: self.door.one(FAIL_WAITING, **params))
        if row is None and again:
            job = queries.job(self.door, job_id)
            return unchanged(job) if job is not None and job.settle_id == params["settle_id"] else None
        return moved(row) if row else None

    # --- publishing --------------------------------------------------------------------------------------

    def _hold(self, joined: Connection | None) -> dict[str, Any]:
        """A joined change is published by the relay after the caller's commit: nothing holds it back."""
        return {"publish_hold": AT_ONCE} if joined is not None or self._publisher is None else {}

    def _publish_moved(self, change: Moved, joined: Connection | None) -> Moved:
        if change.ticket_id is not None and joined is None and self._publisher is not None:
            self.publish_ticket(change.job_id, change.ticket_id)
        return change

    def publish_ticket(self, job_id: str, ticket_id: UUID) -> None:
        """Send the job's message with this ticket now. A failure is left to the relay."""
        try:
            job = queries.job(self.door, job_id)
            envelope = queries.payload(self.door, job_id, "envelope")
        except DatabaseUnavailable as error:
            _deferred(job_id, error.detail)
            return
        if job is None or envelope is None or job.state in TERMINAL:
            return
        self._publish(Message(ticket_id, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state))

    def _publish(self, message: Message) -> None:
        if self._publisher is None:
            return
        # What was committed is accepted, whatever happens from here on. A message that is not stamped is sent again.
        try:
            self._publisher.publish(message)
            self.door.one(STAMP, ids=[message.id])
        except (PublishFailed, DatabaseUnavailable, Conflict) as error:
            _deferred(message.job_id, str(error))


def _deferred(job_id: str, why: str) -> None:
    logger.warning("supervise.publish_deferred", extra={"job_id": job_id, "why": why})


def unchanged(job: Job) -> Moved:
    """What a call is told that found nothing to do."""
    return Moved(
        job.id,
        job.state,
        job.stop_reason,
        job.generation,
        changed=False,
        pause_requested=job.pause_requested_at is not None,
    )


def is_pausing(job: Job) -> bool:
    """Whether a pause stands: asked for, or come about."""
    return job.pause_requested_at is not None or job.stop_reason == USER_PAUSED


def is_cancelled(job: Job) -> bool:
    """Whether a cancel stands."""
    return job.cancel_requested_at is not None


def goes_on(job: Job) -> bool:
    """Whether nobody's pause holds the job up."""
    stands = job.state is State.PARKED and job.ticket_id is None and job.question_id is None
    return job.state not in TERMINAL and job.pause_requested_at is None and not stands


def job_message(job: NewJob) -> Message:
    """The first message of a job."""
    return Message(job.ticket_id, MessageKind.RUN, job.id, job.task, job.queue, job.envelope, State.PENDING)


def connection_of(session: Session | Connection | None) -> Connection | None:
    """The connection of a caller's transaction."""
    return session if session is None or isinstance(session, Connection) else session.connection()
