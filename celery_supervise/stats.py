"""How an installation is doing, in numbers of one moment. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .lifecycle import State
from .store.door import Door, Row
from .store.stats import ENDED, OPEN_JOBS, PARKED, REFUSED, RUNNABLE, STAGES

MOST: Final = 100_000
"""So many jobs a state are counted, at most."""
NO_TIME: Final = timedelta(0)


@dataclass(frozen=True)
class Stage:
    """Running jobs of a task that passed the same checkpoint last (None: none yet), and for how long."""

    task: str
    after: str | None
    jobs: int
    longest: timedelta
    mean: timedelta


@dataclass(frozen=True)
class ParkedFor:
    """Parked jobs by the kind of their stop reason, and how long the oldest has been parked."""

    reason: str
    jobs: int
    oldest: timedelta


@dataclass(frozen=True)
class QueueLoad:
    """Jobs of a queue that a worker could take now, and how long the first of them has been due."""

    queue: str
    runnable: int
    oldest: timedelta


@dataclass(frozen=True)
class Stats:
    """Numbers of one moment, on the database's clock. Ages are of the oldest; None where there is none.

    `jobs`: by state; `capped`: states of which there are that many or more, where counting stopped. `heartbeat_age`,
    `progress_age`: of running jobs, since a worker last renewed and since a body last saved or reported something.
    `lost_leases`, `refused_writes`, `republished`: of jobs that have not ended, how often an attempt was lost, how
    often one that was lost tried to write, how many messages that are out were sent again.
    """

    at: datetime
    jobs: Mapping[State, int]
    capped: Sequence[State]
    oldest_pending: timedelta | None
    heartbeat_age: timedelta | None
    progress_age: timedelta | None
    stalled: int
    stages: Sequence[Stage]
    parked: Sequence[ParkedFor]
    parked_without_reason: int
    lost_leases: int
    refused_writes: int
    republished: int
    runnable: Sequence[QueueLoad]


def stats(door: Door, *, most: int = MOST) -> Stats:
    """The numbers, in six statements: none of one moment waits for another, so they may differ by what came between."""
    open_jobs = {State(row["name"]): row for row in door.all(OPEN_JOBS, most=most)}
    jobs = {state: int(row["jobs"]) for state, row in open_jobs.items()}
    jobs |= {State(row["name"]): int(row["jobs"]) for row in door.all(ENDED, most=most)}
    stages, queues = door.all(STAGES), door.all(RUNNABLE, most=most)
    pending = open_jobs[State.PENDING]
    return Stats(
        at=pending["at"],
        jobs={state: jobs[state] for state in State},
        capped=tuple(state for state in State if jobs[state] >= most),
        oldest_pending=pending["at"] - pending["oldest"] if pending["oldest"] else None,
        heartbeat_age=_longest(stages, "heartbeat_age"),
        progress_age=_longest(stages, "progress_age"),
        stalled=sum(int(row["stalled"]) for row in stages),
        stages=[Stage(row["task"], row["node"], row["jobs"], row["longest"], row["mean"]) for row in stages],
        parked=[ParkedFor(row["reason"], row["jobs"], row["oldest"]) for row in door.all(PARKED, most=most)],
        parked_without_reason=int(open_jobs[State.PARKED]["without_reason"]),
        lost_leases=sum(int(row["lost"]) for row in open_jobs.values()),
        refused_writes=int(door.all(REFUSED)[0]["writes"]),
        republished=sum(int(row["republished"]) for row in queues),
        runnable=[QueueLoad(row["queue"], row["jobs"], row["oldest"]) for row in queues],
    )


def _longest(rows: Sequence[Row], name: str) -> timedelta | None:
    return max((row[name] for row in rows if row[name] is not None), default=None)
