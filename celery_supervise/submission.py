"""How a job is accepted. From that commit on it is not lost, whatever the broker does."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from . import refusals
from .errors import InvalidInput, JobExists, QuotaExceeded
from .intake import check_actor, check_job
from .lifecycle import State
from .model import Message, MessageKind, NewJob, Submitted
from .service import Service, Session
from .store import births
from .store.door import Row, as_uuid
from .store.joining import Joined


class Submission(Service):
    """What producers do."""

    def submit(
        self,
        job: NewJob,
        *,
        actor: str = "producer",
        received: bool = False,
        limited: bool = True,
        session: Session | Connection | None = None,
        using: str | None = None,
    ) -> Submitted:
        """Accept a job: from this commit on it is not lost, whatever the broker does.

        `received`: it comes from a message that a worker holds, so nothing is published, and it is not refused.
        `limited`: it counts against what its owner may have. `session`, or `using` with a Django alias: joins the
        caller's transaction; published within a second of its commit, never after a rollback. Where its queue is
        full it waits in its row.
        Raises `InvalidInput` (a name, a time, a deadline that is past), `JobExists` (id or key taken by another
        input), `QuotaExceeded`, `Conflict` (busy), `DatabaseUnavailable`.
        """
        check_job(job)
        actor, joined = check_actor(actor), self._joins(session, using)
        limit = self._open_limit(job.owner_id) if limited and not received else None
        row, again = self._commit(lambda: self._insert(job, actor, limit, received=received, joined=joined), joined)
        if row["job_id"] is None:
            made = self._twin(job, row, limit, received=received, joined=joined, again=again)
        else:
            made = births.submitted(row, created=True)
        if made.created and made.released and not received:
            self._soon(joined, lambda: self._publish(job_message(job)))
        return made

    def _insert(self, job: NewJob, actor: str, limit: int | None, *, received: bool, joined: Joined | None) -> Row:
        row = births.submit(
            self.door,
            job,
            actor=actor,
            received=received,
            release=received or not self._windows.is_full(job.queue),
            window=None if received else self._windows.to_count(job.queue),
            open_limit=limit,
            joined=joined,
            **self._hold(joined),
        )
        self._windows.counted(job.queue, full=row["full"])
        return row

    def _twin(
        self, job: NewJob, row: Row, limit: int | None, *, received: bool, joined: Joined | None, again: bool
    ) -> Submitted:
        twin = births.find_twin(self.door, job, joined=joined)
        if twin is None:
            if row["late"]:
                raise InvalidInput("deadline", "is already past; nothing was accepted")
            if row["over"] and limit is not None:
                raise QuotaExceeded(str(job.owner_id), limit=limit)
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


def job_message(job: NewJob) -> Message:
    """The first message of a job."""
    return Message(job.ticket_id, MessageKind.RUN, job.id, job.task, job.queue, job.envelope, State.PENDING)
