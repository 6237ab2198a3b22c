"""What operators do with jobs, one or many, and ask about them. Rules of a job are the other parts' and the store's."""

from __future__ import annotations

from .errors import JobNotFound
from .intake import is_name
from .service import Service
from .standing import standing
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
