"""What is taken away, and when: whole jobs after their time, or their values on request. Only of jobs that ended.

In bounded batches through the privileged functions of the schema, which alone decide what may go.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from .errors import Conflict
from .events import events_of
from .store.door import Door, Row, repeated
from .store.retention import COUNT_OLD, ERASABLE_OF, ERASE, FIND_OLD, NOT_ERASED_OF, PRUNE, STILL_THERE
from .store.sql import Statement

logger = events_of(__name__)

BATCH = 100
A_PASS = 200
"""So many jobs, at most, go in one pass of the sweep: it shares a thread with what publishes."""


@dataclass(frozen=True)
class Pruned:
    """What a prune did.

    `pruned`: jobs that are gone. `left`: old ones that stayed, since they still owe a message or a cleanup, or are
    held just now. `more`: it stopped at its limit, there may be others.
    """

    pruned: int
    left: int = 0
    more: bool = False


@dataclass(frozen=True)
class Erased:
    """What an erasure of an owner did: jobs whose values are gone, and jobs that stayed as they are."""

    erased: int
    left: int


def count_old(door: Door, older_than: timedelta, *, most: int | None = None) -> int:
    """How many settled jobs ended longer ago than that; at most `most` are counted."""
    return int(door.all(COUNT_OLD, older_than=older_than, most=most)[0]["jobs"])


def prune(door: Door, older_than: timedelta, *, actor: str, limit: int | None = None) -> Pruned:
    """Remove the settled jobs that ended longer ago than that, oldest first. Each batch is one transaction."""
    began, pruned, tried = time.monotonic(), 0, 0
    for batch in _batches(door, FIND_OLD, limit=limit, older_than=older_than):
        pruned, tried = pruned + _prune(door, batch), tried + len(batch)
    if pruned:
        facts = {"actor": actor, "jobs": pruned, "older_than": str(older_than), "seconds": time.monotonic() - began}
        logger.info("supervise.pruned", extra=facts)
    return Pruned(pruned, tried - pruned, more=limit is not None and tried >= limit)


def _batches(door: Door, find: Statement, *, limit: int | None = None, **params: object) -> Iterator[list[str]]:
    """Ids, batch by batch, each found after the last one was dealt with."""
    last: Row | None = None
    left = limit
    while left is None or left > 0:
        size = BATCH if left is None else min(BATCH, left)
        after, after_id = (last["created_at"], last["job_id"]) if last else (None, None)
        rows = door.all(find, batch=size, after=after, after_id=after_id, **params)
        if not rows:
            return
        yield [row["job_id"] for row in rows]
        last, left = rows[-1], None if left is None else left - len(rows)


def _prune(door: Door, job_ids: Sequence[str]) -> int:
    try:
        rows, again = repeated(lambda: door.all(PRUNE, job_ids=list(job_ids)))
    except Conflict:  # somebody holds a row of theirs for longer than we wait: the next prune takes them
        logger.warning("supervise.prune_busy", extra={"jobs": len(job_ids)})
        return 0
    if again:
        return len(job_ids) - len(door.all(STILL_THERE, job_ids=list(job_ids)))
    return len(rows)


def erase_owner(door: Door, owner: str, *, actor: str) -> Erased:
    """Take the values of all ended jobs of an owner away. Each job is one transaction."""
    done = 0
    for batch in _batches(door, ERASABLE_OF, owner_id=owner):
        done += sum(_erase(door, job_id, owner, actor) for job_id in batch)
    return Erased(done, int(door.all(NOT_ERASED_OF, owner_id=owner)[0]["jobs"]))


def _erase(door: Door, job_id: str, owner: str, actor: str) -> bool:
    try:
        return repeated(lambda: door.one(ERASE, job_id=job_id, owner_id=owner, actor=actor))[0] is not None
    except Conflict:  # held for longer than we wait: counted among those that are left
        logger.warning("supervise.erase_busy", extra={"job_id": job_id})
        return False
