"""What operators do with jobs, one or many, and ask about them. Rules of a job are the other parts' and the store's."""

from __future__ import annotations

from datetime import timedelta

from . import refusals, retention
from .errors import JobNotFound
from .intake import check_actor, check_age, check_limit, is_name
from .model import Moved
from .retention import Erased, Pruned
from .service import Service
from .standing import standing
from .stats import Stats, stats
from .store.door import repeated
from .store.retention import ERASE
from .values import check_name
from .why import Why, explain


class Operating(Service):
    """What keeps an installation going."""

    def why(self, job_id: str, *, owner: str | None = None) -> Why:
        """Why the job does not move, in one sentence, and the command that would move it. Raises `JobNotFound`."""
        known = is_name(job_id) and (owner is None or is_name(owner))
        found = standing(self.door, job_id, owner_id=owner) if known else None
        if found is None:
            raise JobNotFound(job_id)
        return explain(found)

    def stats(self) -> Stats:
        """How the installation is doing, in numbers of one moment: what it costs stands in `docs/operating.md`."""
        return stats(self.door)

    def prune(self, *, older_than: timedelta, actor: str, limit: int | None = None) -> Pruned:
        """Remove the jobs that ended longer ago than `older_than` and of which Celery was told: row, values and log.

        Oldest first, in batches of a transaction each, at most `limit` jobs. A tombstone keeps the id of each from
        being used by a message that comes late. Nothing of a job that has not ended is touched. Raises `InvalidInput`.
        """
        check_age("older_than", older_than)
        check_limit(limit)
        return retention.prune(self.door, older_than, actor=check_actor(actor), limit=limit)

    def prunable(self, *, older_than: timedelta) -> int:
        """How many jobs `prune` would try. Raises `InvalidInput`."""
        check_age("older_than", older_than)
        return retention.count_old(self.door, older_than)

    def erase(self, job_id: str, *, actor: str, owner: str | None = None) -> Moved:
        """Take the values of an ended job away: arguments, results, steps, questions, answers, texts of errors.

        Row, names, actors and log stay, with an entry that says so; `changed` is False where nothing was left. Not
        before Celery has been told of the end. Raises `JobNotFound`, `Conflict` (``not_ended``, ``not_told``, busy).
        """
        params = {"job_id": job_id, "owner_id": owner, "actor": check_actor(actor)}
        if not (is_name(job_id) and (owner is None or is_name(owner))):
            raise JobNotFound(job_id)
        row, again = repeated(lambda: self.door.one(ERASE, **params))
        job = self._job(job_id, owner)
        if row is None:
            raise refusals.cannot_erase(job)
        changed = again or job.log_seq > row["log_seq"]
        return Moved(job.id, job.state, job.stop_reason, job.generation, changed=changed)

    def erase_owner(self, owner: str, *, actor: str) -> Erased:
        """`erase` for all ended jobs of an owner, one transaction a job; and how many stay. Raises `InvalidInput`."""
        return retention.erase_owner(self.door, check_name("owner", owner), actor=check_actor(actor))
