"""No-op jobs through a real worker, beside the same function as a plain task, in turns; and what a parked job holds."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from celery import group

from benchmarks.measure import Ratio
from celery_supervise.migrate import migrate
from example_project import embedded
from example_project.machine import private_folder
from example_project.processes import Process

ROOT = Path(__file__).resolve().parents[1]
TURNS = 3
BOUND = 0.6
PARKED = 500
GROUP, GROUP_BOUND = 1000, 3.0


def ratios(*, jobs: int) -> Iterator[Ratio]:
    """The throughput, and the sessions of Postgres that parked jobs hold."""
    with private_folder("bench", None) as folder, embedded.postgres(fast=False) as postgres, embedded.redis() as redis:
        migrate(postgres.url)
        env = {**os.environ, "BENCH_DATABASE": postgres.url, "BENCH_BROKER": redis.url}
        os.environ.update(env)
        command = [sys.executable, "-m", "celery", "-A", "benchmarks.noop", "worker", "-c", "2", "-l", "WARNING"]
        with Process([*command, "--without-mingle", "--without-gossip"], folder / "worker.log", cwd=ROOT, env=env) as w:
            yield from _measured(jobs, lambda: time.process_time() + _processor(redis.pid, w.pid))


@dataclass(frozen=True)
class Cost:
    """Of one job: its share of the time that all took, and of the processor time beside Postgres; in seconds."""

    time: float
    processor: float


def _measured(jobs: int, processor: Callable[[], float]) -> Iterator[Ratio]:
    from benchmarks import noop  # noqa: PLC0415  # its app reads the variables that were just set

    pairs = [
        (_cost(noop.plain, jobs, processor), _cost(noop.supervised, jobs, processor)) for _ in range(TURNS)
    ]  # fmt: skip
    rate = statistics.median(plain.time / ours.time for plain, ours in pairs)
    theirs, mine = (statistics.median(1 / cost.time for cost in column) for column in zip(*pairs, strict=True))
    detail = f"{mine:.0f}/s / {theirs:.0f}/s"
    yield Ratio("no-op jobs: supervised / plain Celery, one machine", rate, BOUND, detail, at_most=False)
    rate = statistics.median(plain.processor / ours.processor for plain, ours in pairs)
    theirs, mine = (statistics.median(cost.processor for cost in column) * 1000 for column in zip(*pairs, strict=True))
    detail = f"{mine:.1f} ms / {theirs:.1f} ms a job"
    yield Ratio("no-op jobs: the same by processor time, Postgres apart", rate, BOUND, detail, at_most=False)
    yield _groups(noop)
    yield from _parked(noop)


def _groups(noop: Any) -> Ratio:
    """What a group takes its caller; no worker is at it."""
    noop.app.control.cancel_consumer("celery", reply=True, timeout=5)
    pairs = [(_sent(noop.supervised), _sent(noop.plain)) for _ in range(TURNS)]
    noop.app.control.add_consumer("celery")
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    value = statistics.median(one / other for one, other in pairs)
    return Ratio(f"group({GROUP}): supervised / plain Celery", value, GROUP_BOUND, f"{ours:.2f} s / {theirs:.2f} s")


def _sent(task: Any) -> float:
    members = group(task.s() for _ in range(GROUP))
    begin = time.perf_counter()
    members.apply_async()
    return time.perf_counter() - begin


def _cost(task: Any, jobs: int, processor: Callable[[], float]) -> Cost:
    """From the first message taken to the last result: all are queued before any worker may start."""
    task.app.control.cancel_consumer("celery", reply=True, timeout=5)
    results = [task.delay() for _ in range(jobs)]
    for result in results:  # plain Celery's caller subscribes as it sends, a job's as it asks: neither is the worker's
        result.backend.add_pending_result(result)
    begin, spent = time.perf_counter(), processor()
    task.app.control.add_consumer("celery")
    for result in results:
        result.get(timeout=300)
    return Cost((time.perf_counter() - begin) / jobs, (processor() - spent) / jobs)


def _processor(*pids: int) -> float:
    """Seconds that these processes and their children have spent, as the system counts them: in steps of 10 ms."""
    heads = [psutil.Process(pid) for pid in pids]
    found = {one.pid: one for head in heads for one in (head, *head.children(recursive=True))}
    return sum(sum(one.cpu_times()[:2]) for one in found.values())


def _parked(noop: Any) -> Iterator[Ratio]:
    before, threads = _sessions(noop), _threads()
    for _ in range(PARKED):
        noop.asks.delay()
    while noop.supervise.jobs(states=[noop.State.PARKED], page=1)[1] < PARKED:
        time.sleep(0.1)
    yield Ratio(f"sessions of Postgres held by {PARKED} parked jobs", max(0, _sessions(noop) - before), 0, "")
    yield Ratio(f"processes and threads held by {PARKED} parked jobs", max(0, _threads() - threads), 0, "")


def _sessions(noop: Any) -> int:
    with noop.supervise.door.engine.connect() as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL"
        found: int = connection.exec_driver_sql(query).scalar()
    return found


def _threads() -> int:
    """Of all processes that run the benchmark's worker."""
    listed = subprocess.run(["ps", "-eLo", "args"], capture_output=True, text=True, check=True).stdout
    return sum("benchmarks.noop" in line for line in listed.splitlines())
