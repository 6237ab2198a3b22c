"""What operators do with jobs, one or many, and ask about them. Rules of a job are the other parts' and the store's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from . import refusals, retention
from .errors import Conflict, JobNotFound
from .events import events_of
from .intake import check_actor, check_age, check_limit, is_name
from .model import Moved
from .retention import Erased, Pruned
from .service import AT_ONCE, Service
from .standing import standing
from .stats import Stats, stats
from .store.door import repeated
from .store.kick import KICK
from .store.publishing import STAMP_ONE
from .store.retention import ERASE
from .values import check_name
from .why import Why, explain

logger = events_of(__name__)


@dataclass(frozen=True)
class Kicked:
    """A job whose message was to be sent now. `sent`: False where only the relay can, which then does so at once."""

    job_id: str
    queue: str
    sent: bool


class Operating(Service):
    """What keeps an installation going."""

    def why(self, job_id: str, *, owner: str | None = None) -> Why:
        """Why the job does not move, in one sentence, and the command that would move it. Raises `JobNotFound`."""
        found = standing(self.door, **_named(job_id, owner))
        if found is None:
            raise JobNotFound(job_id)
        return explain(found)

    def kick(self, job_id: str, *, actor: str, owner: str | None = None) -> Kicked:
        """Send the message that starts the job now, also where it was sent before, or has to wait for its turn.

        It does not start a job before its time, nor one that is paused, and a message too many runs nothing. Raises
        `JobNotFound`, `Conflict` (``nothing_to_send``, busy), `PublishFailed`: then it is sent again later.
        """
        check_actor(actor)
        params = {**_named(job_id, owner), "hold": self._kick_hold()}
        row, _ = repeated(lambda: self.door.one(KICK, **params))
        if row is None:
            why = self.why(job_id, owner=owner)
            detail = f"there is nothing to send: {why.sentence}"
            raise Conflict("nothing_to_send", state=why.state, detail=detail)
        ticket = UUID(str(row["ticket_id"]))
        sent = self._send_now(job_id, ticket)
        logger.info("supervise.kicked", extra={"job_id": job_id, "actor": actor, "sent": sent})
        return Kicked(job_id, row["queue"], sent)

    def _kick_hold(self) -> timedelta:
        """How long the relay leaves it to this call: not at all where nobody here can send."""
        return AT_ONCE if self._publisher is None else self.door.publish_hold

    def _send_now(self, job_id: str, ticket_id: UUID) -> bool:
        message = None if self._publisher is None else self._message(job_id, ticket_id)
        if message is None or self._publisher is None:
            return False
        self._publisher.publish(message)
        self.door.one(STAMP_ONE, id=ticket_id)
        return True

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
        params = {"actor": check_actor(actor), **_named(job_id, owner)}
        row, again = repeated(lambda: self.door.one(ERASE, **params))
        job = self._job(job_id, owner)
        if row is None:
            raise refusals.cannot_erase(job)
        changed = again or job.log_seq > row["log_seq"]
        return Moved(job.id, job.state, job.stop_reason, job.generation, changed=changed)

    def erase_owner(self, owner: str, *, actor: str) -> Erased:
        """`erase` for all ended jobs of an owner, one transaction a job; and how many stay. Raises `InvalidInput`."""
        return retention.erase_owner(self.door, check_name("owner", owner), actor=check_actor(actor))


def _named(job_id: str, owner: str | None) -> dict[str, Any]:
    """The parameters that name a job. What no job and no owner can be called is not looked up."""
    if not (is_name(job_id) and (owner is None or is_name(owner))):
        raise JobNotFound(job_id)
    return {"job_id": job_id, "owner_id": owner}
