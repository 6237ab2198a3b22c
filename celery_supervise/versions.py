"""Jobs and the code at hand: what it cannot run it leaves to others, and takes up again when it can (protocol 28)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from .holding import moved
from .lifecycle import State
from .model import Moved
from .store.door import Door, Row
from .store.versions import LEAVE, LOCK_SHELVED, REISSUE, UNFINISHED

BATCH = 100

Known = Mapping[str, Collection[int]]
"""The supervised tasks of a program, by name, and the versions of jobs that each can go on with."""


@dataclass(frozen=True)
class Unfinished:
    """Jobs that are not over, of one task, one version, one state. `ids`: the oldest five of them."""

    task: str
    version: int
    state: State
    jobs: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Stranded:
    """Unfinished jobs that a program could not go on with, and why not."""

    unfinished: Unfinished
    why: str


def leave(door: Door, job_id: str, ticket_id: UUID, *, versions: Collection[int], version: int) -> bool:
    """Leave a job to code that can run it. Whether that is why its claim found nothing; nothing changes if not."""
    params = {"job_id": job_id, "ticket_id": ticket_id, "versions": sorted(versions), "version": str(version)}
    return door.one(LEAVE, **params) is not None


def leave_unknown(door: Door, job_id: str, ticket_id: UUID) -> bool:
    """Leave a job whose task nobody knows in this program."""
    return door.one(LEAVE, job_id=job_id, ticket_id=ticket_id) is not None


def take_up(door: Door, known: Known) -> list[Moved]:
    """Let jobs go on that were parked since no code could run them, and that this program can run."""
    pairs = [(task, version) for task, versions in known.items() for version in versions]
    if not pairs:
        return []
    tasks, versions = (list(column) for column in zip(*pairs, strict=True))
    with door.batch() as run:
        locked = run(LOCK_SHELVED, tasks=tasks, task_versions=versions, batch=BATCH)
        if not locked:
            return []
        ids = [row["job_id"] for row in locked]
        rows = run(
            REISSUE, job_ids=ids, actor="worker", settle_after=timedelta(0), publish_hold=timedelta(0), data="{}"
        )
    return [moved(row) for row in rows]


def preflight(door: Door, known: Known, others: Collection[str] = ()) -> Sequence[Stranded]:
    """The unfinished jobs that a program with these tasks would strand; `others`: its tasks that are not supervised."""
    found = [_unfinished(row) for row in door.all(UNFINISHED)]
    return [Stranded(one, why) for one in found if (why := _why_not(one, known, others))]


def _unfinished(row: Row) -> Unfinished:
    return Unfinished(row["task"], row["version"], State(row["state"]), row["jobs"], tuple(row["ids"]))


def _why_not(one: Unfinished, known: Known, others: Collection[str]) -> str | None:
    if one.task in others:
        return "the task is not supervised any more: give it its base= back until they have ended"
    if one.task not in known:
        return "there is no task of this name"
    if one.version not in known[one.task]:
        accepted = ", ".join(map(str, sorted(known[one.task])))
        return f"this code goes on with jobs of version {accepted} only"
    return None
