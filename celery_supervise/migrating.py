"""Jobs of older code that this code takes over: the task's function, then one commit with the claim (protocol 28).

The function runs while nobody holds the job and no transaction is open. What it read cannot have changed when the
claim takes the ticket that was out before: only attempts save, and each would have used that ticket up.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from . import queries
from .holding import claim_by
from .lifecycle import State
from .model import Claimer, Lease, Moved, Stored
from .remembered import Changed, Migration, Remembered, migrate
from .store.door import Door, Row
from .store.holder import CLAIM
from .store.versions import ASIDE, MIGRATED, PUT, RENAME
from .values import IDENTITY, MAX_JOB_BYTES, MAX_VALUE_BYTES, Codec


@dataclass(frozen=True)
class OldJob:
    """A job of older code: its version, its run, the place that it has reached."""

    job_id: str
    version: int
    run_id: UUID
    node: str | None


@dataclass(frozen=True)
class Memories:
    """Reads what jobs remember. `codec` and the limits are the app's."""

    door: Door
    codec: Codec = IDENTITY
    max_value_bytes: int = MAX_VALUE_BYTES
    max_job_bytes: int = MAX_JOB_BYTES

    def of(self, job_id: str, run_id: UUID, *, version: int) -> Remembered:
        """What this run of a job remembers. Values are read when they are asked for."""

        def read(name: str) -> Stored | None:
            return queries.values(self.door, job_id, run_id, [name]).get(name)

        return Remembered(
            queries.nodes(self.door, job_id, run_id),
            read,
            job_id=job_id,
            version=version,
            codec=self.codec,
            max_value_bytes=self.max_value_bytes,
            max_job_bytes=self.max_job_bytes,
        )

    def migrated(self, job: OldJob, migration: Migration) -> Changed:
        """What `migration` makes of what a job remembers. Raises whatever that does."""
        return migrate(migration, self.of(job.job_id, job.run_id, version=job.version), reached=job.node)


def claim_migrated(
    door: Door, job: OldJob, ticket_id: UUID, claimer: Claimer, *, version: int, changed: Changed
) -> Lease | Moved | None:
    """Claim the job by its ticket as one of `version`, with what its migration has changed: both, or neither.

    Returns and raises as `holding.claim`. A job that is paused, cancelled or expired here stays one of its version.
    """

    def commit(params: dict[str, Any]) -> Row | None:
        with door.batch() as run:
            rows = run(CLAIM, **{**params, "versions": [job.version]})
            if not rows or rows[0]["current_state"] != State.RUNNING:
                return rows[0] if rows else None
            for statement, given in _changes(changed, token=params["token"]):
                run(statement, job_id=job.job_id, run_id=job.run_id, **given)
            facts = {"token": params["token"], "actor": params["actor"], **_said(changed)}
            (now,) = run(MIGRATED, job_id=job.job_id, version=version, from_version=job.version, **facts)
            return {**rows[0], "stored_bytes": now["stored_bytes"]}

    return claim_by(commit, door, job.job_id, ticket_id, claimer)


def _changes(changed: Changed, *, token: UUID) -> list[tuple[Any, dict[str, Any]]]:
    """The statements that store it, in order."""
    aside, found = uuid4(), list[tuple[Any, dict[str, Any]]]()
    if changed.gone:
        found.append((ASIDE, {"aside": aside, "gone": list(changed.gone)}))
    if changed.renamed:
        old, new = zip(*changed.renamed, strict=True)
        found.append((RENAME, {"aside": aside, "old_names": list(old), "new_names": list(new)}))
    place = 0
    for name, kind, origin, value in changed.put:
        place += origin is None  # what is new comes last, in the order in which it was written
        put = {"data": value.data, "encoding": value.encoding, "key_id": value.key_id, "size": len(value.data)}
        where = {"node": name, "kind": str(kind), "origin": origin, "place": place}
        found.append((PUT, {"aside": aside, "token": token, **where, **put}))
    return found


def _said(changed: Changed) -> dict[str, Any]:
    """What the job's row and its log take of it."""
    kept = {old for old, _ in changed.renamed} | {origin for _, _, origin, _ in changed.put}
    return {
        "node": changed.node,
        "added": changed.added,
        "places": max(1, sum(origin is None for _, _, origin, _ in changed.put)),
        "renamed": json.dumps(dict(changed.renamed)),
        "written": json.dumps([name for name, _, _, _ in changed.put]),
        "forgotten": json.dumps([name for name in changed.gone if name not in kept]),
    }
