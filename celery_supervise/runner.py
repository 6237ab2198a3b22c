"""The runner boundary: what a body runs as, and from a delivered message to a claim. Knows no ends: see `execution`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn
from uuid import UUID, uuid4, uuid5

from celery.exceptions import Ignore, Reject

from .body import Body, current, current_body, use
from .envelope import HEADER, input_digest, of_request
from .errors import (
    Conflict,
    DatabaseUnavailable,
    JobExists,
)
from .events import events_of
from .execution import Execution
from .journal import MemoryJournal
from .lifecycle import State
from .migrating import OldJob, claim_migrated
from .model import Claimer, Lease, Moved
from .outcomes import show_again, unpack_result
from .publisher import SETTLE
from .relay import settlement_of
from .runtime import FLAG, AnyTask, Runtime, attempt_of, in_worker, memories_of, running, running_in, runtime_of
from .store.publishing import CLAIM_SETTLING
from .submitting import row_of
from .versions import leave

logger = events_of(__name__)

REQUEUE_PAUSE = 1.0  # seconds that this process takes nothing else: the message is back in its queue at once
TOLD = UUID("6d4e8f0a-5d2f-4d39-9a57-0f0d7c5a8b11")


def enter(task: AnyTask, call: Callable[[], Any]) -> Any:
    """Run a body as what it is here: a job's attempt, an eager run, or a plain function."""
    request = task.request
    if request.is_eager or request.called_directly or attempt_of(request) is not None:
        mode = "eager" if request.is_eager else "direct"
        journal = MemoryJournal(in_worker=in_worker(task.app))
        return _called(task, Body(journal, job_id=request.id or str(uuid4()), mode=mode), call)  # type: ignore[arg-type]
    return Delivery(task, request, runtime_of(task.app)).run(call)


def _called(task: AnyTask, body: Body, call: Callable[[], Any]) -> Any:
    """Run a body without a job. What ended it is raised, whatever the body made of that."""
    try:
        with running(task.app, body), use(body):
            value = call()
    except BaseException as error:
        if body.dead is not None and body.dead is not error:
            raise body.dead from error
        raise
    if body.dead is not None:
        raise body.dead
    return value


def body_for(task: AnyTask, call: str) -> Body:
    """The body that a supervised call belongs to. Raises `OutsideAttempt`.

    Where none is current and none runs in this process, the function was called past the task (`task.run(…)`,
    as unit tests do): it then works as one that is called directly. In a thread that a body started it is an error.
    """
    if current_body.get() is None and not running_in(task.app):
        return Body(MemoryJournal(in_worker=in_worker(task.app)), job_id=str(uuid4()), mode="direct")
    return current(call)


def told_id(settle_id: UUID) -> UUID:
    """The settle id that the receiver of a settle message puts in place of the message's, known to its parent too."""
    return uuid5(TOLD, str(settle_id))


@dataclass
class Delivery:
    """One message in the hands of one worker process."""

    task: AnyTask
    request: Any
    runtime: Runtime

    @property
    def header(self) -> dict[str, Any]:
        """Our header, also of a message that came without one: its Request made it up."""
        found = self.request.__dict__.get(HEADER)
        return found if isinstance(found, dict) else {}

    def run(self, call: Callable[[], Any]) -> Any:
        """Claim, run, commit. Returns what Celery is to take as the task's result."""
        if self.header.get("kind") == SETTLE:
            return self._settle(UUID(self.header["ticket"]))
        lease = self._claim()
        attempt = Execution(self.task, self.request, self.runtime, lease)
        self.request.__dict__[FLAG] = attempt
        try:
            with running(self.task.app, attempt.body):
                return attempt.run(call)
        finally:
            self.request.__dict__.pop(FLAG, None)

    # --- claiming ----------------------------------------------------------------------------------------

    def _claim(self) -> Lease:
        ticket = self.header.get("ticket")
        born_here = ticket is None or bool(self.header.get("received"))
        ticket_id = UUID(ticket) if ticket else uuid4()
        try:
            if born_here and not self._born(ticket_id):
                self._drop("there is a job with this id")
            claimed = self.runtime.supervisor.claim(self.request.id, ticket_id, self._claimer())
            if claimed is None:
                claimed = self._taken_over(ticket_id)
        except (DatabaseUnavailable, Conflict) as error:
            self._unclaimed(error, born_here=born_here)
        if claimed is None:
            show_again(self.runtime, self.task, self.request)  # whoever exited before may have died before it did (26)
            self._drop("its ticket is used up")
        if isinstance(claimed, Moved):
            self._drop(f"the job is {claimed.state}")
        return claimed

    def _taken_over(self, ticket_id: UUID) -> Lease | Moved | None:
        """Where the claim found nothing since the job is of another version: it is migrated, or left to others (28).

        It is left before its migration is tried: a function that ends its process is not tried for ever.
        """
        said = self.task.supervise
        job = self._left(ticket_id, migrates=said.migrations)
        if job is None:
            return None
        if job.version not in said.migrations:
            self._drop("this code cannot go on with its version")
        try:
            changed = memories_of(self.runtime).migrated(job, said.migrations[job.version])
        except (DatabaseUnavailable, Conflict):
            raise
        except Exception as error:  # whatever the shop's function raises is its refusal
            logger.exception("supervise.not_migrated", extra={"job_id": job.job_id, "version": job.version})
            self._left(ticket_id, why=type(error).__name__)
            self._drop("its migration refused it")
        claimer = self._claimer()
        return claim_migrated(self.runtime.door, job, ticket_id, claimer, version=said.version, changed=changed)

    def _left(self, ticket_id: UUID, *, migrates: Collection[int] = (), why: str | None = None) -> OldJob | None:
        said = self.task.supervise
        to = {"versions": said.runs, "version": said.version, "migrates": migrates, "why": why}
        return leave(self.runtime.door, self.request.id, ticket_id, **to)

    def _claimer(self) -> Claimer:
        return Claimer(
            incarnation=self.runtime.incarnation,
            worker=self.request.hostname or "unknown",
            pid=os.getpid(),
            versions=self.task.supervise.runs,
        )

    def _born(self, ticket_id: UUID) -> bool:
        """Make the row of a message that came without our header (protocol 3)."""
        envelope = of_request(self.task.app, self.task, self.request)
        digest = input_digest(self.task.name, self.request.args, self.request.kwargs)
        job = row_of(
            self.runtime,
            self.task,
            self.request.id,
            envelope,
            digest=digest,
            start_by=self._start_by(),
            ticket_id=ticket_id,
        )
        try:
            return self.runtime.supervisor.submit(job, actor="message", received=True).created
        except JobExists:  # of another app on this schema: its result is not ours to touch
            return False

    def _start_by(self) -> datetime | None:
        """The message's `expires`."""
        given = self.header.get("expires")
        return datetime.fromisoformat(given) if given else None

    def _drop(self, why: str) -> NoReturn:
        logger.info("supervise.dropped", extra={"job_id": self.request.id, "why": why})
        raise Ignore(f"dropped: {why}") from None

    def _unclaimed(self, error: Exception, *, born_here: bool) -> NoReturn:
        """No claim was possible. The row heals a message of ours; one without a row must not be lost (5)."""
        logger.warning("supervise.not_claimed", extra={"job_id": self.request.id, "why": str(error)})
        if born_here:
            time.sleep(REQUEUE_PAUSE)
            raise Reject(str(error), requeue=True) from None
        raise Ignore(f"not claimed: {error}") from None

    # --- settling by message -----------------------------------------------------------------------------

    def _settle(self, settle_id: UUID) -> Any:
        """Return the stored result of a completed job, so that Celery's tracer calls what was linked to it."""
        door = self.runtime.door
        row = door.one(CLAIM_SETTLING, job_id=self.request.id, settle_id=settle_id, new_settle_id=told_id(settle_id))
        if row is None:
            self._drop("already settled, or being settled")
        settlement = settlement_of(door, self.request.id, told_id(settle_id))
        if settlement is None or settlement.job.state is not State.COMPLETED:
            self._drop("there is nothing to tell")
        return None if settlement.outcome is None else unpack_result(self.runtime, settlement.outcome)
