"""Jobs and the code at hand: what it cannot run it leaves to others, and takes up again when it can (protocol 28)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from .errors import Conflict, DatabaseUnavailable
from .holding import moved
from .lifecycle import State
from .migrating import Memories, OldJob
from .model import Moved
from .options import Options
from .store.door import Door, Row
from .store.versions import LEAVE, LOCK_SHELVED, OF_VERSION, REISSUE, UNFINISHED

BATCH = 100
SHOWN = 5  # jobs of a kind

Known = Mapping[str, Options]
"""The supervised tasks of a program, by name: their options say which versions of jobs each can go on with."""


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


def leave(
    door: Door,
    job_id: str,
    ticket_id: UUID,
    *,
    versions: Collection[int],
    version: int,
    migrates: Collection[int] = (),
    why: str | None = None,
) -> OldJob | None:
    """Leave a job to code that can run it; None where that is not why its claim found nothing: nothing changes then.

    `migrates`: the versions whose jobs are now to be migrated here, which keep their tickets for that. `why`: what this
    code's own migration of the job came to.
    """
    params = {"versions": sorted(versions), "version": str(version), "migrates": sorted(migrates), "why": why}
    row = door.one(LEAVE, job_id=job_id, ticket_id=ticket_id, **params)
    return _old(row) if row else None


def _old(row: Row) -> OldJob:
    return OldJob(row["job_id"], row["task_version"], UUID(str(row["run_id"])), row["node"])


def leave_unknown(door: Door, job_id: str, ticket_id: UUID) -> bool:
    """Leave a job whose task nobody knows in this program."""
    return (
        door.one(LEAVE, job_id=job_id, ticket_id=ticket_id, versions=None, version=None, migrates=[], why=None)
        is not None
    )


def take_up(door: Door, known: Known) -> list[Moved]:
    """Let jobs go on that were parked since no code could run them, and that this program can run."""
    said = [(task, version, options.version) for task, options in known.items() for version in options.versions]
    if not said:
        return []
    tasks, versions, codes = (list(column) for column in zip(*said, strict=True))
    with door.batch() as run:
        locked = run(LOCK_SHELVED, tasks=tasks, task_versions=versions, codes=codes, batch=BATCH)
        if not locked:
            return []
        ids = [row["job_id"] for row in locked]
        rows = run(
            REISSUE, job_ids=ids, actor="worker", settle_after=timedelta(0), publish_hold=timedelta(0), data="{}"
        )
    return [moved(row) for row in rows]


def preflight(door: Door, known: Known, others: Collection[str], memories: Memories) -> Sequence[Stranded]:
    """The unfinished jobs that a program with these tasks would strand; `others`: its tasks that are not supervised.

    Where jobs would be migrated, that is tried on each of them, and nothing kept.
    """
    found = [_unfinished(row) for row in door.all(UNFINISHED)]
    stranded = [Stranded(one, why) for one in found if (why := _why_not(one, known, others))]
    return [*stranded, *_refused(door, known, found, memories)]


def _unfinished(row: Row) -> Unfinished:
    return Unfinished(row["task"], row["version"], State(row["state"]), row["jobs"], tuple(row["ids"]))


def _why_not(one: Unfinished, known: Known, others: Collection[str]) -> str | None:
    if one.task in others:
        return "the task is not supervised any more: give it its base= back until they have ended"
    if one.task not in known:
        return "there is no task of this name"
    if one.version not in known[one.task].versions:
        accepted = ", ".join(map(str, sorted(known[one.task].versions)))
        return f"this code goes on with jobs of version {accepted} only"
    return None


def _refused(door: Door, known: Known, found: Sequence[Unfinished], memories: Memories) -> Iterator[Stranded]:
    """The jobs whose migrations raise, by task, version, state and what they raise."""
    for task, version in sorted({(one.task, one.version) for one in found if one.task in known}):
        migration = known[task].migrations.get(version)
        if migration is None:
            continue
        groups: dict[tuple[State, str], list[str]] = defaultdict(list)
        for state, job in _of_version(door, task, version):
            try:
                memories.migrated(job, migration)
            except (DatabaseUnavailable, Conflict):
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001  # what the shop's function raises is its refusal
                groups[state, f"its migration raises {type(error).__name__}: {error}"].append(job.job_id)
        for (state, why), ids in sorted(groups.items()):
            yield Stranded(Unfinished(task, version, state, len(ids), tuple(ids[:SHOWN])), why)


def _of_version(door: Door, task: str, version: int) -> Iterator[tuple[State, OldJob]]:
    after: str | None = None
    while rows := door.all(OF_VERSION, task=task, version=version, after=after, batch=BATCH):
        yield from ((State(row["state"]), _old(row)) for row in rows)
        after = rows[-1]["job_id"]
