"""How a person runs an ended job again: a new job, once. The old one stays as it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from . import queries, refusals
from .errors import AlreadyRerun, ConfigError, Conflict, QuotaExceeded
from .lifecycle import TERMINAL, State
from .model import Job, Message, MessageKind, Stored, Submitted
from .service import Service
from .store.births import LOCK_OWNER, submitted
from .store.door import Row, repeated
from .store.people import LOCK
from .store.reruns import RERUN, SUCCESSOR


class Rerunning(Service):
    """What people do with jobs that have ended."""

    def rerun(
        self,
        job_id: str,
        *,
        actor: str,
        owner: str | None = None,
        from_checkpoints: bool = False,
        with_callbacks: bool = False,
        expected_generation: int | None = None,
    ) -> Submitted:
        """Make a new job of one that has ended, with the same input; the outcome has the new job's id.

        From the start; `from_checkpoints`: with what the old one had decided, its checkpoints and the answers that
        people gave. `with_callbacks`: what was linked to the old one (link, chain, chord, errbacks) is called again.
        Its deadline is as far from now as the old one's was from its submit. Effect keys are new: they are the job's.

        Raises `JobNotFound`, `AlreadyRerun` (its `successor` is the job that was made), `Conflict` (``not_final``,
        ``erased``, stale, busy), `QuotaExceeded`, `Unreadable` (a message that this process does not accept).
        """
        params = self._common(job_id, actor, owner, expected_generation) | self._hold(None)
        job, old = self._job(job_id, owner), queries.payload(self.door, job_id, "envelope")
        self._check_rerun(job, old, expected_generation)
        new_id = str(uuid4())
        envelope = self._renewed(job, old, new_id, with_callbacks=with_callbacks)
        params |= {
            "new_id": new_id,
            "run_id": uuid4(),
            "from_checkpoints": from_checkpoints,
            "with_callbacks": with_callbacks,
            "data": envelope.data,
            "encoding": envelope.encoding,
            "key_id": envelope.key_id,
        }
        limit = self._open_limit(job.owner_id)
        row, _ = repeated(lambda: self._make(params, job.owner_id, limit))
        made = submitted(row, created=True) if row else self._made_before(job_id, owner, new_id, limit)
        if made.released:
            self._publish(
                Message(params["ticket_id"], MessageKind.RUN, made.job_id, job.task, job.queue, envelope, made.state)
            )
        return made

    def successor(self, job_id: str, *, owner: str | None = None) -> str | None:
        """The id of the job that this one was run again as. Raises `JobNotFound`."""
        self._job(job_id, owner)
        row = self.door.one(SUCCESSOR, job_id=job_id)
        return row["job_id"] if row else None

    def _check_rerun(self, job: Job, envelope: Stored | None, expected_generation: int | None) -> None:
        stale = refusals.stale_generation(job, expected_generation)
        if stale:
            raise stale
        if job.state not in TERMINAL:
            detail = f"the job is {job.state}; only one that has ended can be run again"
            raise Conflict("not_final", state=job.state, actual=job.generation, detail=detail)
        successor = self.successor(job.id)
        if successor is not None:
            raise AlreadyRerun(successor, state=job.state)
        if envelope is None:
            detail = "its values were erased, the arguments among them"
            raise Conflict("erased", state=job.state, actual=job.generation, detail=detail)

    def _renewed(self, job: Job, old: Stored | None, new_id: str, *, with_callbacks: bool) -> Stored:
        if self._publisher is None or old is None:
            raise ConfigError("publisher", "is not given: a message can be made only where there is one")
        completed = job.state is State.COMPLETED
        return self._publisher.renew(old, new_id, with_callbacks=with_callbacks, completed=completed)

    def _make(self, params: Mapping[str, Any], owner: str | None, limit: int | None) -> Row | None:
        if limit is None:
            return self.door.locked(LOCK, RERUN, open_limit=None, **params)
        with self.door.batch() as run:
            if not run(LOCK, job_id=params["job_id"], owner_id=params["owner_id"]):
                return None
            run(LOCK_OWNER, owner=owner)
            rows = run(RERUN, open_limit=limit, **params)
        return rows[0] if rows else None

    def _made_before(self, job_id: str, owner: str | None, new_id: str, limit: int | None) -> Submitted:
        """No row: our own call whose reply was lost has made it, or somebody else's was first."""
        successor: Any = self.door.one(SUCCESSOR, job_id=job_id)
        job = self._job(job_id, owner)
        if successor is None:
            self._check_rerun(job, queries.payload(self.door, job_id, "envelope"), None)
            if limit is not None:
                raise QuotaExceeded(str(job.owner_id), limit=limit)
            raise refusals.busy(job)
        if successor["job_id"] != new_id:
            raise AlreadyRerun(successor["job_id"], state=job.state)
        made = self._job(new_id, None)
        return Submitted(new_id, made.state, made.generation, created=True)
