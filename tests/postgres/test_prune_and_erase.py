"""The two functions that take things away, called by the application: whole jobs, or their values."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from celery_supervise.engine import create_engine
from celery_supervise.lifecycle import TERMINAL
from tests.postgres.rows import NOW, SOON, TABLES, answered, ended, insert, parked, row, running, settled
from tests.tools import wait_for

LASTING = {"queues", "sweeps", "holds", "api_tokens", "meta", "tombstones"}
"""Tables that hold nothing of a job, and the one that holds what is left of it."""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """Connections of the application."""
    engine = create_engine(database_url, pool_size=3)
    yield engine
    engine.dispose()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    """Each statement commits."""
    with autocommit(engine) as connection:
        yield connection


def autocommit(engine: Engine) -> Connection:
    """A connection on which each statement commits."""
    return engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def whole_job(connection: Connection, job_id: str, **job: Any) -> UUID:
    """A job with something in every table that can hold something of it; the id of its question."""
    question, run = uuid4(), uuid4()
    insert(connection, "jobs", row("jobs", id=job_id, log_seq=2, run_id=run, progress_message="Bob 7", **job))
    insert(connection, "payloads", row("payloads", job_id=job_id))
    insert(connection, "payloads", row("payloads", job_id=job_id, kind="envelope"))
    failed = {"ended_at": NOW, "outcome": "failed", "cause": "Bob", "traceback": "Bob at 7"}
    insert(connection, "attempts", row("attempts", job_id=job_id, **failed))
    insert(connection, "checkpoints", row("checkpoints", job_id=job_id, run_id=run))
    insert(connection, "questions", row("questions", id=question, job_id=job_id, run_id=run, **answered()))
    insert(connection, "votes", row("votes", question_id=question))
    insert(connection, "answer_links", row("answer_links", question_id=question))
    insert(connection, "cleanups", row("cleanups", job_id=job_id, dispatched_at=NOW))
    insert(connection, "outbox", row("outbox", job_id=job_id, kind="run"))
    insert(connection, "operations", row("operations", job_id=job_id, key=job_id))
    for number in (1, 2):
        insert(connection, "log", row("log", job_id=job_id, sequence_num=number))
    return question


def prune(connection: Connection, *ids: str) -> list[str]:
    """What prune says that it deleted."""
    return list(connection.execute(sa.text("SELECT supervise.prune_jobs(:ids)"), {"ids": list(ids)}).scalar_one())


def erase(connection: Connection, job_id: str) -> bool:
    """Whether erase says that the values are gone."""
    given = {"id": job_id, "actor": "ann"}
    return bool(connection.execute(sa.text("SELECT supervise.erase_job(:id, :actor)"), given).scalar_one())


def counts(connection: Connection) -> dict[str, int]:
    """How many rows each table has."""
    query = sa.select(
        *(sa.select(sa.func.count()).select_from(t).scalar_subquery().label(n) for n, t in TABLES.items())
    )
    return dict(connection.execute(query).mappings().one())


def everything(connection: Connection) -> dict[str, list[Any]]:
    """All rows of all tables."""
    return {name: sorted(map(str, connection.execute(sa.select(table)))) for name, table in TABLES.items()}


# --- prune -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_prune_takes_all_of_a_job(connection: Connection, state: str) -> None:
    """Its row and what every other table holds of it, the log included, go; a tombstone stays."""
    whole_job(connection, "other", **settled())
    before = counts(connection)
    whole_job(connection, "j", **settled(state))
    gained = {name for name, count in counts(connection).items() if count > before[name]}
    assert gained == set(TABLES) - LASTING
    assert prune(connection, "j") == ["j"]
    assert counts(connection) == {**before, "tombstones": 1}
    tombstone = connection.execute(sa.select(TABLES["tombstones"])).mappings().one()
    assert {**tombstone, "pruned_at": None} == {
        "job_id": "j",
        "namespace": "default",
        "task": "shop.pay",
        "state": state,
        "log_seq": 2,
        "finished_at": NOW,
        "pruned_at": None,
    }


@pytest.mark.parametrize("state", [{}, running(), parked(), ended()])
def test_s50_prune_leaves_a_job_that_has_not_ended_or_is_not_settled(
    connection: Connection, state: dict[str, Any]
) -> None:
    """Nothing of it goes, even when it is asked for by its id beside one that may go."""
    whole_job(connection, "waits", **state)
    before = everything(connection)
    whole_job(connection, "done", **settled())
    assert prune(connection, "done", "waits", "unknown") == ["done"]
    after = everything(connection)
    assert after.pop("tombstones") != before.pop("tombstones")
    assert after == before


def test_prune_of_nothing(connection: Connection) -> None:
    """No ids, no rows, no error: an empty array, not NULL."""
    assert prune(connection) == []
    assert prune(connection, "unknown") == []


def test_prune_twice(connection: Connection) -> None:
    """The second finds nothing; a second life of the same id replaces its tombstone."""
    whole_job(connection, "j", **settled("failed"))
    assert [prune(connection, "j"), prune(connection, "j")] == [["j"], []]
    whole_job(connection, "j", **settled("cancelled"))
    assert prune(connection, "j") == ["j"]
    assert connection.execute(sa.select(TABLES["tombstones"].c.state)).scalars().all() == ["cancelled"]


@pytest.mark.parametrize(
    ("table", "owed", "paid"),
    [
        ("outbox", {"kind": "notify"}, {"published_at": NOW}),
        ("outbox", {"kind": "cleanup"}, {"published_at": NOW}),
        ("outbox", {"kind": "settle"}, {"done_at": NOW}),
        ("cleanups", {"name": "owed"}, {"dispatched_at": NOW}),
        ("cleanups", {"name": "owed"}, {"dropped_at": NOW}),
    ],
)
def test_prune_leaves_a_job_that_owes_something(
    connection: Connection, table: str, owed: dict[str, Any], paid: dict[str, Any]
) -> None:
    """While a message about it is unpublished or a cleanup undispatched it stays; then it goes."""
    whole_job(connection, "j", **settled("cancelled"))
    values = row(table, job_id="j", **owed)
    insert(connection, table, values)
    assert prune(connection, "j") == []
    key = [column == values[column.name] for column in TABLES[table].primary_key]
    connection.execute(TABLES[table].update().where(*key).values(paid))
    assert prune(connection, "j") == ["j"]


def test_prune_does_not_wait(engine: Engine, connection: Connection) -> None:
    """A job that another session holds is left for the next time; the others go."""
    for job_id in ("held", "free"):
        whole_job(connection, job_id, **settled())
    connection.exec_driver_sql("SET lock_timeout = '2s'")
    with engine.connect() as other:
        other.exec_driver_sql("SELECT 1 FROM supervise.jobs WHERE id = 'held' FOR NO KEY UPDATE")
        assert prune(connection, "held", "free") == ["free"]
    assert prune(connection, "held", "free") == ["held"]


# --- erase -----------------------------------------------------------------------------------------------

VALUES = (b"{}", b"[1]", b'"Pay?"', b"null", b"true", "Bob", '"type": "null"')
"""All that `whole_job` stores of values, as bytes or text."""


def stored_values(connection: Connection, job_id: str) -> list[str]:
    """Which of VALUES the tables of this job still hold, the log and the message's own fields aside."""
    found = []
    for name in ("payloads", "checkpoints", "questions", "votes", "cleanups", "attempts", "jobs"):
        key = TABLES[name].c.get("id" if name == "jobs" else "job_id")
        query = sa.select(TABLES[name]) if key is None else sa.select(TABLES[name]).where(key == job_id)
        texts = [
            bytes(v) if isinstance(v, (bytes, memoryview)) else str(v) for r in connection.execute(query) for v in r
        ]
        found += [f"{name}: {text!r}" for text in texts if any(_holds(text, value) for value in VALUES)]
    return found


def _holds(text: bytes | str, value: bytes | str) -> bool:
    return text == value if isinstance(value, bytes) else isinstance(text, str) and value.replace('"', "'") in text


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_erase_takes_the_values(connection: Connection, state: str) -> None:
    """Results, bindings, questions, answers, votes, cleanups, texts of errors and progress go; rows stay."""
    whole_job(connection, "j", **ended(state))
    before = counts(connection)
    held = {place.split(":")[0] for place in stored_values(connection, "j")}
    assert held == {"payloads", "checkpoints", "questions", "votes", "cleanups", "attempts", "jobs"}
    assert erase(connection, "j") is True
    assert stored_values(connection, "j") == []
    assert counts(connection) == {**before, "log": before["log"] + 1}


def test_erase_is_logged(connection: Connection) -> None:
    """One entry with the next number, by whoever erased, with the number of values; no new generation."""
    whole_job(connection, "j", **ended("failed"))
    erase(connection, "j")
    jobs, log = TABLES["jobs"], TABLES["log"]
    job = connection.execute(sa.select(jobs)).mappings().one()
    entry = connection.execute(sa.select(log).order_by(log.c.sequence_num.desc()).limit(1)).mappings().one()
    assert (job["log_seq"], job["generation"]) == (3, 1)
    assert entry == {
        "job_id": "j",
        "sequence_num": 3,
        "event": "erased",
        "actor": "ann",
        "at": job["erased_at"],
        "data": {"state": "failed", "generation": 1, "values": 7},
    }


def test_erase_leaves_other_jobs(connection: Connection) -> None:
    """It takes nothing of any other job."""
    whole_job(connection, "other", **ended())
    before = everything(connection)
    whole_job(connection, "j", **settled())
    erase(connection, "j")
    prune(connection, "j")
    after = everything(connection)
    assert {**after, "tombstones": []} == before


@pytest.mark.parametrize("state", [{}, running(), parked()])
def test_erase_leaves_a_job_that_has_not_ended(connection: Connection, state: dict[str, Any]) -> None:
    """What a job still needs stays, and the caller is told."""
    whole_job(connection, "j", **state)
    before = everything(connection)
    assert [erase(connection, "j"), erase(connection, "unknown")] == [False, False]
    assert everything(connection) == before


def test_erase_again(connection: Connection) -> None:
    """Repeated it changes nothing; where a late attempt left a value since, it takes that, and says so."""
    whole_job(connection, "j", **ended())
    erase(connection, "j")
    before = everything(connection)
    assert erase(connection, "j") is True
    assert everything(connection) == before
    insert(connection, "payloads", row("payloads", job_id="j", kind="rejected"))
    assert erase(connection, "j") is True
    log = TABLES["log"]
    assert connection.execute(sa.select(log.c.data["values"]).order_by(log.c.sequence_num)).scalars().all() == [
        None,
        None,
        7,
        1,
    ]


def test_erase_leaves_a_cleanup_that_is_to_be_sent(connection: Connection) -> None:
    """A cleanup that nobody sent yet keeps what it needs, until it was sent and erase is called again."""
    whole_job(connection, "j", **ended("failed"))
    insert(connection, "cleanups", row("cleanups", job_id="j", name="owed"))
    erase(connection, "j")
    cleanups = TABLES["cleanups"]
    left = sa.select(cleanups.c.name).where(cleanups.c.data.is_not(None))
    assert connection.execute(left).scalars().all() == ["owed"]
    connection.execute(cleanups.update().where(cleanups.c.dispatched_at.is_(None)).values(dispatched_at=SOON))
    erase(connection, "j")
    assert connection.execute(left).scalars().all() == []


def test_erase_takes_its_number_under_the_jobs_lock(engine: Engine, connection: Connection) -> None:
    """Behind a session that is just logging an entry it waits, and takes the number after that."""
    whole_job(connection, "j", **ended())
    with engine.connect() as other:
        other.exec_driver_sql("UPDATE supervise.jobs SET log_seq = 3 WHERE id = 'j'")
        with autocommit(engine) as eraser:
            erasing = eraser.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            thread = threading.Thread(target=erase, args=(eraser, "j"))
            thread.start()
            blockers = sa.text("SELECT pg_blocking_pids(:pid)")
            wait_for(lambda: connection.execute(blockers, {"pid": erasing}).scalar_one())
            other.exec_driver_sql("INSERT INTO supervise.log VALUES ('j', 3, 'refused', 'w', now())")
            other.commit()
            thread.join()
    log = TABLES["log"]
    found = connection.execute(sa.select(log.c.sequence_num, log.c.event).order_by(log.c.sequence_num)).all()
    assert [tuple(entry) for entry in found[2:]] == [(3, "refused"), (4, "erased")]
