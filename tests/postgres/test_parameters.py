"""A statement is given what it names: a misspelt parameter is refused, and is not NULL."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine

from celery_supervise import queries
from celery_supervise.store import parameters
from celery_supervise.store.people import LOCK, RESUME
from celery_supervise.store.reminders import LOCK_REMINDED
from tests.postgres.looking import unchanged
from tests.postgres.shop import Shop


def test_a_misspelt_parameter(shop: Shop) -> None:
    """Named, with the nearest: an owner that is not looked at would open somebody else's job."""
    job = shop.pending(owner_id="acme")
    with pytest.raises(TypeError, match=r"job has no parameter 'owner'; did you mean 'owner_id'\?"):
        shop.door.one(queries.JOB, job_id=job.id, owner="other")


def test_a_missing_parameter(shop: Shop) -> None:
    """Named; but what is said to be optional."""
    with pytest.raises(TypeError, match="log needs the parameters before, events"):
        shop.door.all(queries.LOG, job_id="j", page=1)
    assert shop.door.one(queries.JOB, job_id="j") is None


def test_in_a_transaction_of_several_statements(shop: Shop) -> None:
    """Two statements share what they are given, and none of it is nobody's; nothing is written."""
    job = shop.paused()
    given: dict[str, Any] = {"job_id": job.id, "actor": "user:ann", "ticket_id": job.run_id, "data": "{}"}
    given |= {"expected_generation": None}
    with unchanged(shop, job.id), pytest.raises(TypeError, match="resume has no parameter 'expected_generaton'"):
        shop.door.locked(LOCK, RESUME, **given, expected_generaton=7)
    with shop.door.batch() as run, pytest.raises(TypeError, match="no parameter 'size'"):
        run(LOCK_REMINDED, job_ids=None, batch=1, grace=None, size=1)
    assert shop.door.locked(LOCK, RESUME, **given) is not None


def test_it_is_looked_at_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each statement and each way to call it: a hot one does not pay for it again."""
    looked: list[str] = []
    check = parameters.check_given

    def count(statement: str, *given: Any) -> None:
        looked.append(statement)
        check(statement, *given)

    monkeypatch.setattr("celery_supervise.store.door.check_given", count)
    for number in range(3):
        shop.door.one(queries.JOB, job_id=str(number), owner_id=None)
    shop.door.one(queries.JOB, job_id="j")
    assert looked == ["job", "job"]


def test_s45_lengths_of_time_by_asyncpg(database_url: str) -> None:
    """As by the other drivers: in hours, since a day is none where a session's clocks change."""
    asked = (timedelta(days=2), timedelta(days=-1, seconds=5), timedelta(microseconds=-3), timedelta(days=400, hours=1))

    async def told() -> list[str]:
        engine = create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"))
        async with engine.connect() as connection:
            text = sa.text("SELECT CAST(CAST(CAST(:span AS text) AS interval) AS text)")
            found = [(await connection.execute(text, {"span": parameters.timed(span)})).scalar_one() for span in asked]
        await engine.dispose()
        return found

    assert asyncio.run(told()) == ["48:00:00", "-23:59:55", "-00:00:00.000003", "9601:00:00"]
