"""What the database tests look at: whole rows, before and after; and time that passes on the database's clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from celery_supervise import queries
from celery_supervise.model import LogEntry
from tests.postgres.shop import Shop

Rows = Mapping[str, Any]

DRIVER = os.environ.get("TEST_DRIVER", "psycopg2")
"""The driver of the tests that do not say: psycopg2 or psycopg. Every release is tested with both."""
TABLES = ("jobs", "payloads", "attempts", "checkpoints", "questions", "cleanups", "log", "outbox")
OF_JOB = {"jobs": "id"}
NO_TIME = timedelta(0)


def driven(url: str, driver: str = DRIVER) -> str:
    """The URL with this driver."""
    return url.replace("postgresql://", f"postgresql+{driver}://")


def row(shop: Shop, job_id: str) -> Rows:
    """The job's row, every column of it."""
    found = shop.door.one(queries.JOB, job_id=job_id, owner_id=None)
    assert found is not None
    return dict(found)


def rows(shop: Shop, table: str, job_id: str) -> list[Rows]:
    """All rows of a table that belong to the job."""
    query = sa.text(f"SELECT * FROM supervise.{table} AS x WHERE {OF_JOB.get(table, 'job_id')} = :id ORDER BY x::text")
    with shop.engine.connect() as connection:
        return [dict(found) for found in connection.execute(query, {"id": job_id}).mappings()]


def everything(shop: Shop, job_id: str) -> dict[str, list[Rows]]:
    """All that the database has of a job: what a refused call must leave as it is."""
    return {table: rows(shop, table, job_id) for table in TABLES}


_TOLD = r"""
SELECT told[1] FROM (SELECT data FROM supervise.log UNION ALL SELECT data FROM supervise.outbox) AS all_data,
    regexp_matches(CAST(data AS text), '"(\d{4}-\d\d-\d\dT[^"]*)"', 'g') AS told
WHERE told[1] !~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+]00:00$'"""


def told_otherwise(engine: sa.Engine) -> list[str]:
    """The times in the log and in messages that are not written as Python 3.10 reads them: whole, and in UTC."""
    with engine.connect() as connection:
        return list(connection.execute(sa.text(_TOLD)).scalars())


@contextmanager
def unchanged(shop: Shop, job_id: str) -> Iterator[None]:
    """Nothing of the job changes inside: no row, no generation, no log entry."""
    before = everything(shop, job_id)
    yield
    assert everything(shop, job_id) == before


@dataclass
class Seen:
    """What changed between two looks at a job."""

    generation: int = 0
    entries: tuple[LogEntry, ...] = ()

    @property
    def events(self) -> list[str]:
        """The new log entries, by name."""
        return [entry.event for entry in self.entries]


@contextmanager
def watching(shop: Shop, job_id: str) -> Iterator[Seen]:
    """Yields what changed; filled in when the block is left."""
    job, seen = shop.job(job_id), Seen()
    yield seen
    seen.generation = shop.job(job_id).generation - job.generation
    seen.entries = tuple(e for e in queries.entries(shop.door, job_id) if e.sequence_num > job.log_seq)


def last_entry(shop: Shop, job_id: str) -> LogEntry:
    """The newest entry of the log."""
    return list(queries.entries(shop.door, job_id))[-1]


def execute(shop: Shop, statement: str, **params: Any) -> list[Rows]:
    """Run a statement as the application's role; the rows it gives."""
    with shop.engine.begin() as connection:
        result = connection.execute(sa.text(statement), params)
        return [dict(found) for found in result.mappings()] if result.returns_rows else []


def now(shop: Shop) -> datetime:
    """The database's clock."""
    at: datetime = execute(shop, "SELECT clock_timestamp() AS at")[0]["at"]
    return at


def wait_until(shop: Shop, moment: datetime) -> None:
    """Come back when the database's clock has passed `moment`."""
    execute(
        shop,
        "SELECT pg_sleep(greatest(0, extract(epoch FROM CAST(:at AS timestamptz) - clock_timestamp())) + 0.001)",
        at=moment,
    )


def backdate(shop: Shop, job_id: str, column: str, by: timedelta = timedelta(seconds=1)) -> None:
    """Let the time in `column` of the job's row have passed: no test waits for a deadline."""
    execute(
        shop,
        f"UPDATE supervise.jobs SET {column} = clock_timestamp() - CAST(:by AS interval) WHERE id = :id",
        by=by,
        id=job_id,
    )


def lapse(shop: Shop, job_id: str) -> None:
    """Let the lease of the job's live attempt have ended."""
    execute(
        shop,
        "UPDATE supervise.attempts SET lease_until = clock_timestamp() - interval '1 s'"
        " WHERE job_id = :id AND ended_at IS NULL",
        id=job_id,
    )


def out_again(shop: Shop, job_id: str) -> None:
    """Let the relay have let the job's ticket out again, after a worker that cannot run the job had left it."""
    execute(
        shop,
        "UPDATE supervise.jobs SET ticket_due_at = clock_timestamp(), ticket_released_at = clock_timestamp()"
        " WHERE id = :id",
        id=job_id,
    )
    execute(shop, "UPDATE supervise.outbox SET done_at = NULL WHERE job_id = :id", id=job_id)
