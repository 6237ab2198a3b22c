"""The service: one method, one transaction; the only way to change a job from outside its worker.

Edges (CLI, HTTP, page) and shops call this. No rule lives above it. After a commit it publishes at once where
it can; where it cannot, the relay does, from the row.
"""

from __future__ import annotations

from functools import cached_property
from uuid import UUID, uuid4

from . import queries
from .aio import Aio
from .answering import Answering
from .bulk import Bulk
from .gathering import Gathering
from .handing import Handing
from .holding import Holding, claim, moved
from .holds import Holds
from .model import Claimer, Failure, Lease, Moved
from .operating import Operating
from .service import AT_ONCE, unchanged
from .store.door import repeated
from .store.people import FAIL_WAITING


class Supervisor(Gathering, Answering, Handing, Bulk, Holds, Operating):
    """The operations of people and producers on jobs, and of workers on what they claim."""

    @cached_property
    def aio(self) -> Aio:
        """The same operations for coroutines: `await supervise.aio.answer(…)`. See `Aio`."""
        return Aio(self)

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
