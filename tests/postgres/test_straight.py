"""Statements by the driver's own cursor: they give, raise and end what they would under SQLAlchemy."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError

from celery_supervise.engine import create_engine, sqlstate
from celery_supervise.store.link import connected
from celery_supervise.store.straight import straight

GIVEN = {"text": "100 % {}", "none": None, "bytes": b"\0\xff"}
SELECT = (
    "SELECT CAST(%(text)s AS text) AS text, CAST(%(none)s AS text) AS none, CAST(%(bytes)s AS bytea) AS bytes,"
    " gen_random_uuid() <> CAST('00000000-0000-0000-0000-000000000000' AS uuid) AS made,"
    " CAST('00000000-0000-0000-0000-00000000000a' AS uuid) AS id, now() AS now, interval '1 s' AS span"
)


class Rang(Exception):  # as Celery's soft time limit: no error of ours
    """The alarm went off."""


@pytest.fixture(params=["postgresql+psycopg2", "postgresql+psycopg"])
def engine(request: pytest.FixtureRequest, database_url: str) -> Iterator[Engine]:
    """Of either driver, to an empty database of its own."""
    engine = create_engine(make_url(database_url).set(drivername=request.param))
    yield engine
    engine.dispose()


@contextmanager
def alarm(error: BaseException) -> Iterator[None]:
    """Raise `error` in this thread, soon."""

    def ring(*_: object) -> NoReturn:
        raise error

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_rows_are_the_same(engine: Engine) -> None:
    """Whether somebody listens to the engine or not."""
    with engine.connect() as connection:  # one transaction: one now()
        connection.exec_driver_sql("SELECT 1")
        (own,) = straight(connection, SELECT, GIVEN)
        seen: list[str] = []
        sa.event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: seen.append(statement))
        (watched,) = straight(connection, SELECT, GIVEN)
    assert dict(own) == dict(watched)
    assert seen == [SELECT]
    assert own["text"] == GIVEN["text"]


def test_those_who_log_statements_see_them(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """SQLAlchemy's log of statements is complete."""
    with caplog.at_level(logging.INFO, "sqlalchemy.engine"), engine.connect() as connection:
        straight(connection, "SELECT 1 AS here", {})
    assert "SELECT 1 AS here" in caplog.text


def test_what_the_server_refuses(engine: Engine) -> None:
    """Is SQLAlchemy's error, with its SQLSTATE; the connection is used on."""
    with connected(engine) as connection:
        connection.exec_driver_sql("CREATE TEMPORARY TABLE ones (one integer CHECK (one = 1))")
        with pytest.raises(IntegrityError) as refused:
            straight(connection, "INSERT INTO ones VALUES (2) RETURNING one", {})
        assert sqlstate(refused.value) == "23514"
        assert straight(connection, "INSERT INTO ones VALUES (1) RETURNING one", {}) == [{"one": 1}]


def test_a_session_that_is_ended(engine: Engine) -> None:
    """Is found to be gone, and not used again; the engine's next connection is another."""
    with connected(engine) as connection:
        (here,) = straight(connection, "SELECT pg_backend_pid() AS pid", {})
        with pytest.raises(DBAPIError) as gone:
            straight(connection, "SELECT pg_terminate_backend(pg_backend_pid())", {})
        assert gone.value.connection_invalidated
        assert connection.invalidated
    with connected(engine) as connection:
        assert straight(connection, "SELECT pg_backend_pid() AS pid", {}) != [here]


@pytest.mark.parametrize("error", [Rang(), SystemExit(1)], ids=["time limit", "exit"])
def test_what_a_signal_raises(engine: Engine, error: BaseException) -> None:
    """Comes out as it is; nobody uses the session again, whatever it is still at."""
    with connected(engine) as connection:
        with pytest.raises(type(error)) as raised, alarm(error):
            straight(connection, "SELECT pg_sleep(0.2)", {})
        assert raised.value is error
        assert connection.invalidated
    with connected(engine) as connection:
        assert straight(connection, "SELECT 1 AS one", {}) == [{"one": 1}]
