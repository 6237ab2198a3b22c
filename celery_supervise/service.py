"""What every operation of the service stands on: one commit, then a publish. Has no operation of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar
from uuid import UUID, uuid4

from sqlalchemy.engine import Connection

from . import queries, refusals
from .errors import Conflict, DatabaseUnavailable, InvalidInput, JobNotFound, PublishFailed
from .events import events_of
from .intake import check_actor, check_generation, is_name
from .lifecycle import TERMINAL
from .model import Job, Message, MessageKind, Moved, Publisher
from .notices import notice_of
from .reader import Reader
from .recipients import GroupsOf
from .store.door import Door, repeated
from .store.joining import Joined
from .store.notices import NOTICE
from .store.publishing import STAMP_ONE
from .values import IDENTITY, Codec
from .windows import LimitOf, Windows

logger = events_of(__name__)

AT_ONCE = timedelta(0)
T = TypeVar("T")


class Session(Protocol):
    """A SQLAlchemy Session: what `session=` takes, beside a Connection."""

    def connection(self) -> Connection:
        """The connection of the session's transaction."""


class Service(Reader):
    """Commits of people and producers, in one namespace of one schema; after a commit it publishes where it can."""

    def __init__(
        self,
        door: Door,
        *,
        publisher: Publisher | None = None,
        codec: Codec = IDENTITY,
        max_value_bytes: int = 1 << 20,
        groups: GroupsOf | None = None,
        release_window: int | None = None,
        open_limit: LimitOf | None = None,
        using: Callable[[str], Joined | None] | None = None,
    ) -> None:
        super().__init__(door, codec=codec)
        self.max_value_bytes = max_value_bytes
        self._publisher = publisher
        self._groups = groups
        self._windows = Windows(release_window)
        self._limit_of = open_limit
        self._using = using

    def _joins(self, session: Session | Connection | None, using: str | None) -> Joined | None:
        """The caller's transaction, by a session or a Django alias; None where there is none. Raises `InvalidInput`."""
        if using is None:
            return connection_of(session)
        if session is not None:
            raise InvalidInput("using", "and session are both given: a call joins one transaction")
        if self._using is None:
            raise InvalidInput("using", "is the alias of a Django database, and this service knows none")
        return self._using(using)

    def _commit(self, commit: Callable[[], T], joined: Joined | None) -> tuple[T, bool]:
        """Run a commit, again where its reply was lost: see `door.repeated`. A joined call commits nothing."""
        return repeated(commit) if joined is None else (commit(), False)

    def _issued(self, job_id: str, ticket_id: UUID) -> Moved:
        """What a call did whose reply was lost and whose ticket was found."""
        job = self._job(job_id, None)
        out = ticket_id if job.ticket_id == ticket_id else None
        return Moved(job.id, job.state, job.stop_reason, job.generation, ticket_id=out)

    def _open_limit(self, owner: str | None) -> int | None:
        return self._limit_of(owner) if self._limit_of is not None and owner is not None else None

    def _common(self, job_id: str, actor: str, owner: str | None, expected_generation: int | None) -> dict[str, Any]:
        if not (is_name(job_id) and (owner is None or is_name(owner))):
            raise JobNotFound(job_id)
        return {
            "job_id": job_id,
            "owner_id": owner,
            "actor": check_actor(actor),
            "expected_generation": check_generation(expected_generation),
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

    def _hold(self, joined: Joined | None) -> dict[str, Any]:
        """A joined change may be the relay's to publish as soon as the caller commits: nothing holds it back."""
        return {"publish_hold": AT_ONCE} if joined is not None or self._publisher is None else {}

    def _publish_moved(self, change: Moved, joined: Joined | None) -> Moved:
        ticket_id = change.ticket_id
        if ticket_id is not None and self._publisher is not None:
            self._soon(joined, lambda: self.publish_ticket(change.job_id, ticket_id))
        return change

    def _soon(self, joined: Joined | None, send: Callable[[], None]) -> None:
        """Send now; in a transaction that tells of its commit, then. In any other the relay sends."""
        if joined is None:
            send()
        elif not isinstance(joined, Connection):
            joined.after_commit(send)

    def publish_ticket(self, job_id: str, ticket_id: UUID) -> None:
        """Send the job's message with this ticket now. A failure is left to the relay."""
        try:
            message = self._message(job_id, ticket_id)
        except DatabaseUnavailable as error:
            deferred(job_id, error.detail)
            return
        if message is not None:
            self._publish(message)

    def _message(self, job_id: str, ticket_id: UUID) -> Message | None:
        job = queries.job(self.door, job_id)
        envelope = queries.payload(self.door, job_id, "envelope")
        if job is None or envelope is None or job.state in TERMINAL:
            return None
        return Message(ticket_id, MessageKind.RUN, job.id, job.task, job.queue, envelope, job.state)

    def publish_notice(self, identity: UUID) -> None:
        """Tell the shop's notification task now. A failure is left to the relay."""
        if self.door.notify is None:
            return
        try:
            row = self.door.one(NOTICE, id=identity)
        except (DatabaseUnavailable, Conflict) as error:
            deferred(str(identity), str(error))
            return
        if row is not None:
            self._publish(notice_of(row))

    def _publish(self, message: Message) -> None:
        if self._publisher is None:
            return
        # What was committed is accepted, whatever happens from here on. A message that is not stamped is sent again.
        try:
            self._publisher.publish(message)
            self.door.one(STAMP_ONE, id=message.id)
        except (PublishFailed, DatabaseUnavailable, Conflict) as error:
            deferred(message.job_id, str(error))


def deferred(job_id: str, why: str) -> None:
    """A message that was not sent now: the relay sends it."""
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


def connection_of(session: Session | Connection | None) -> Connection | None:
    """The connection of a caller's transaction. Raises `InvalidInput`."""
    if session is None or isinstance(session, Connection):
        return session
    if hasattr(session, "run_sync"):
        raise InvalidInput("session", "is an asynchronous one; use supervise.aio, or call this by its run_sync")
    connect = getattr(session, "connection", None)
    joined = connect() if callable(connect) else None
    if not isinstance(joined, Connection):
        raise InvalidInput("session", f"must be a SQLAlchemy Session or Connection, not {type(session).__name__}")
    return joined
