"""How people steer a job: pause, resume, cancel. Requests, unless nobody runs it; the row says what came of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy.engine import Connection

from . import queries, refusals
from .holding import moved
from .intake import check_grace, check_why
from .lifecycle import TERMINAL, USER_PAUSED, State
from .model import Job, Moved
from .service import Service, Session, unchanged
from .store.door import repeated
from .store.people import LOCK, REQUEST_CANCEL, REQUEST_PAUSE, RESUME

GRACE: Final = timedelta(seconds=10)
"""For so long a body that is cancelled may go on to its next supervised call, before its process is ended."""


class Steering(Service):
    """What owners and operators do with jobs."""

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
        using: str | None = None,
    ) -> Moved:
        """Let a paused job go on, or take back a pause that was only asked for. One caller wins.

        Raises `JobNotFound`, `Conflict` (not parked, question open, already resumed, ended, stale, busy).
        """
        joined = self._joins(session, using)
        params = self._common(job_id, actor, owner, expected_generation) | self._hold(joined)
        row, again = self._commit(lambda: self.door.one(RESUME, joined, **params), joined)
        if row is None and again and queries.issued(self.door, job_id, params["ticket_id"]):
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
        terminate: bool = False,
        grace: timedelta = GRACE,
        expected_generation: int | None = None,
    ) -> Moved:
        """Cancel: at once where no worker runs it, else from this commit on no other end is possible.

        A body that runs learns of it at its next supervised call. `terminate`: if it has not left by then, its process
        is killed `grace` from now, by its own worker, in a pool of processes. A cancel that was asked for before can
        still be made such a one.
        Raises `JobNotFound`, `InvalidInput`, `Conflict` (``already_final`` where it ended first, stale, busy).
        """
        params = self._common(job_id, actor, owner, expected_generation)
        params |= {"why": check_why(why), "grace": check_grace(grace) if terminate else None}
        row, again = repeated(lambda: self.door.locked(LOCK, REQUEST_CANCEL, **params))
        done = is_cancelled if again else None
        return moved(row) if row else self._unchanged(job_id, owner, expected_generation, done)


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
