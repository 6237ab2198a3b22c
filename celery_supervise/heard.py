"""What people's revokes have asked for, as this process heard them, until it was done. Knows no job and no database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

MOST = 50_000
"""So many ids are kept, as Celery does; the oldest are forgotten first."""


@dataclass(frozen=True)
class Revoke:
    """A revoke of one id. `waits`: nobody has looked yet whether there is a job of this id."""

    job_id: str
    terminate: bool
    waits: bool = True


class Heard:
    """The revokes that this process heard itself, and that no job has used up.

    Celery's own set of revoked ids has others, too: what workers told each other, or one remembers from before.
    The main thread adds, another one acts.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._revokes: dict[str, Revoke] = {}

    def add(self, job_ids: Iterable[str], *, terminate: bool) -> None:
        """A revoke was heard: again is as new. `terminate` is not taken back by one that does not say it."""
        with self._lock:
            for job_id in job_ids:
                before = self._revokes.pop(job_id, None)
                self._revokes[job_id] = Revoke(job_id, terminate or (before is not None and before.terminate))
            while len(self._revokes) > MOST:
                del self._revokes[next(iter(self._revokes))]

    def __contains__(self, job_id: object) -> bool:
        """Whether the id's next message is still to be stopped."""
        return job_id in self._revokes

    def waiting(self) -> list[Revoke]:
        """Those that nobody has looked at yet, oldest first."""
        with self._lock:
            return [one for one in self._revokes.values() if one.waits]

    def looked(self, revoke: Revoke) -> None:
        """There is no job of this id: its first message is to be stopped, if there ever is one."""
        with self._lock:
            if self._revokes.get(revoke.job_id) is revoke:
                self._revokes[revoke.job_id] = Revoke(revoke.job_id, revoke.terminate, waits=False)

    def used(self, job_id: str) -> None:
        """Its job has been cancelled, or had ended: whatever is called so later is another one."""
        with self._lock:
            self._revokes.pop(job_id, None)
