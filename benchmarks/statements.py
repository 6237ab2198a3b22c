"""Checkpoint, claim and complete, by the library and by pgbench, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from hashlib import md5
from uuid import UUID, uuid4

from benchmarks.measure import Ratio, milliseconds
from benchmarks.pgbench import Pgbench
from benchmarks.place import Place
from celery_supervise.holding import Holding
from celery_supervise.model import Claimer, Lease, NewJob, NodeKind, Stored
from celery_supervise.store.holder import CHECKPOINT, CLAIM, COMPLETE
from celery_supervise.store.sql import Statement

BOUND = 1.3
TURNS = 5
VALUE = Stored(b'{"paid": 17, "total": "1204.10"}', "json+kombu")


def ratios(place: Place, *, rounds: int) -> Iterator[Ratio]:
    """One ratio a statement: the median of several turns."""
    pgbench = Pgbench(place.pgbench, place.url, place.folder)
    yield _ratio("checkpoint", *_checkpoints(place, pgbench, rounds))
    yield _ratio("claim", *_claims(place, pgbench, rounds))
    yield _ratio("complete", *_completes(place, pgbench, rounds))


Timer = Callable[[int], float]


def _ratio(name: str, ours: Timer, theirs: Timer) -> Ratio:
    pairs = [(ours(turn), theirs(turn)) for turn in range(TURNS)]
    value = statistics.median(one / other for one, other in pairs)
    mine, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Ratio(f"{name}: library / pgbench, same statement", value, BOUND, f"{mine:.2f} ms / {floor:.2f} ms")


def ticket(number: int) -> UUID:
    """A ticket that SQL can make from a number, too."""
    return UUID(md5(f"ticket{number}".encode(), usedforsecurity=False).hexdigest())


TICKET = "CAST(md5('ticket' || :i) AS uuid)"
TOKEN_SQL = "CAST(md5('token' || :i) AS uuid)"
WORKER = Claimer(uuid4(), "bench@host", 1)


def new_job(job_id: str, ticket_id: UUID) -> NewJob:
    """A small job."""
    return NewJob(
        id=job_id,
        task="bench.task",
        queue="celery",
        envelope=Stored(b"{}", "envelope"),
        input_digest="input",
        ticket_id=ticket_id,
        run_id=uuid4(),
    )


def held(place: Place, job_id: str) -> Holding:
    """A job that runs."""
    job = new_job(job_id, uuid4())
    place.supervisor.submit(job)
    lease = place.supervisor.claim(job.id, job.ticket_id, WORKER)
    if not isinstance(lease, Lease):
        raise TypeError(f"not claimed: {lease}")
    return place.supervisor.holding(lease, worker=WORKER.worker)


def _sql(values: Mapping[str, object]) -> dict[str, str]:
    return {name: _literal(value) for name, value in values.items()}


def _literal(value: object) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case timedelta():
            return f"interval '{value.total_seconds()} s'"
        case _:
            return f"'{value}'"


def _common(place: Place) -> dict[str, str]:
    return _sql(
        {
            "namespace": "default",
            "lease": place.door.lease,
            "lock_timeout": "5000ms",
            "publish_hold": place.door.publish_hold,
            "settle_after": place.door.lease,
            "actor": "worker:bench@host",
            "data": VALUE.data,
            "encoding": VALUE.encoding,
            "size": len(VALUE.data),
        }
    )


def _checkpoints(place: Place, pgbench: Pgbench, rounds: int) -> tuple[Timer, Timer]:
    ours, theirs = held(place, "checkpoint-ours"), held(place, "checkpoint-pgbench")
    node = _sql({"job_id": theirs.lease.job_id, "token": theirs.lease.token, "kind": "step", "added_bytes": 32})
    params = {**_common(place), **node, "node": "('node' || :i)"}

    def library(turn: int) -> float:
        numbers = range(turn * rounds, (turn + 1) * rounds)
        return milliseconds(lambda n: ours.checkpoint(f"node{n}", NodeKind.STEP, VALUE), numbers)

    return library, _by_pgbench(pgbench, CHECKPOINT, params, rounds)


def _by_pgbench(pgbench: Pgbench, statement: Statement, params: Mapping[str, str], rounds: int) -> Timer:
    return lambda turn: pgbench.milliseconds(statement, params, rounds=rounds, first=turn * rounds)


def _claims(place: Place, pgbench: Pgbench, rounds: int) -> tuple[Timer, Timer]:
    for number in range(1, TURNS * rounds + 1):
        place.supervisor.submit(new_job(f"ours{number}", ticket(-number)))
        place.supervisor.submit(new_job(f"pgbench{number}", ticket(number)))
    worker = _sql({"incarnation": WORKER.incarnation, "worker": WORKER.worker, "pid": 1})
    params = {
        **_common(place),
        **worker,
        "job_id": "('pgbench' || :i)",
        "ticket_id": TICKET,
        "token": TOKEN_SQL,
        "versions": "'{1}'",
        "settle_after": "interval '0 s'",
    }

    def library(turn: int) -> float:
        numbers = range(turn * rounds + 1, (turn + 1) * rounds + 1)
        return milliseconds(lambda n: place.supervisor.claim(f"ours{n}", ticket(-n), WORKER), numbers)

    return library, _by_pgbench(pgbench, CLAIM, params, rounds)


def _completes(place: Place, pgbench: Pgbench, rounds: int) -> tuple[Timer, Timer]:
    params = {**_common(place), "job_id": "('pgbench' || :i)", "token": TOKEN_SQL}

    def library(turn: int) -> float:
        numbers = range(turn * rounds + 1, (turn + 1) * rounds + 1)
        holdings = {number: _running(place, f"ours{number}") for number in numbers}
        return milliseconds(lambda n: holdings[n].complete(VALUE), numbers)

    return library, _by_pgbench(pgbench, COMPLETE, params, rounds)


def _running(place: Place, job_id: str) -> Holding:
    job = place.supervisor.job(job_id)
    attempt = place.supervisor.attempts(job_id)[-1]
    lease = Lease(
        job_id=job.id,
        task=job.task,
        token=attempt.token,
        run_id=job.run_id,
        number=attempt.number,
        generation=job.generation,
        lease_until=attempt.lease_until,
        deadline=None,
        owner_id=None,
        stored_bytes=0,
        lost_count=0,
        resumed=False,
    )
    return place.supervisor.holding(lease, worker=WORKER.worker)
