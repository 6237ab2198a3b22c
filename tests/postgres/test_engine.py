"""Engines: which URLs mean what, what a connection is made with, and that none crosses a fork."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from typing import Any

import psycopg2
import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from celery_supervise import errors
from celery_supervise.engine import EngineCell, create_engine, normalise_url, sqlstate
from celery_supervise.forks import FORKS
from example_project.machine import HOST

NOBODY = f"postgresql://nobody@{HOST}:1/none"
FORK = """
import os, sys, threading
from celery_supervise.engine import EngineCell, create_engine

cell = EngineCell(lambda: create_engine(sys.argv[1]))
WHO = "SELECT pg_backend_pid()"
using, forked = threading.Event(), threading.Event()

def beat():
    # the other thread of a worker's main process is in the middle of something when a child is forked
    with cell().connect() as connection:
        before = connection.exec_driver_sql(WHO).scalar()
        using.set()
        forked.wait()
        assert connection.exec_driver_sql(WHO).scalar() == before

def child():
    assert cell() is not inherited
    assert cell() is cell()
    with cell().connect() as connection:
        assert connection.exec_driver_sql(WHO).scalar() != pooled
    cell.dispose()

inherited = cell()
with inherited.connect() as connection:
    pooled = connection.exec_driver_sql(WHO).scalar()
thread = threading.Thread(target=beat)
with inherited.connect() as connection:
    thread.start()
    using.wait()
pid = os.fork()
if not pid:
    child()
    sys.exit(0)  # with all that an ending interpreter closes
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
forked.set()
thread.join()
assert cell() is inherited
with inherited.connect() as connection:
    assert connection.exec_driver_sql(WHO).scalar() == pooled
cell.dispose()
print("whole")
"""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("postgres://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("postgresql://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("postgresql+psycopg2://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
        (
            "postgresql://u:p%40ss%25@h:6432/d?sslmode=require",
            "postgresql+psycopg2://u:p%40ss%25@h:6432/d?sslmode=require",
        ),
    ],
)
def test_urls(given: str, meant: str) -> None:
    """Plain URLs mean psycopg2; what else the URL says stays."""
    assert normalise_url(given).render_as_string(hide_password=False) == meant
    assert normalise_url(normalise_url(given)) == normalise_url(given)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "secret",
        "postgresql://u:secret@h:port/d",
        "mysql://u:secret@h/d",
        "postgresql+asyncpg://u:secret@h/d",
        "postgresql+psycopg_async://u:secret@h/d",
        "sqlite:///secret",
    ],
)
def test_urls_that_cannot_be_used(given: str) -> None:
    """They are refused before anybody connects, with what to write instead, and without the password."""
    with pytest.raises(errors.ConfigError, match=r"supervise_database_url: .* write postgresql://") as refusal:
        create_engine(given)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_connections(database_url: str, driver: str) -> None:
    """A connection has a name, keeps watch on its peer, and can commit each statement by itself."""
    engine = create_engine(database_url.replace("postgresql", driver, 1), connect_timeout=timedelta(seconds=7))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "celery-supervise"
        raw = connection.connection.dbapi_connection
        assert raw is not None
        given = raw.info.dsn_parameters if driver == "postgresql" else raw.info.get_parameters()
        assert {given[name] for name in ("keepalives_idle", "tcp_user_timeout", "connect_timeout")} == {
            "20",
            "30000",
            "7",
        }
        assert not given.get("options")
        assert getattr(raw, "prepare_threshold", None) is None
        seen = "SELECT xact_start = query_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        assert connection.exec_driver_sql(seen).scalar() is True
    engine.dispose()


def test_no_child_is_forked_while_it_connects(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread has locked in the driver's C code would stay locked in the child."""
    engine = create_engine(database_url)
    connect, held_off = psycopg2.connect, []

    def connected(*args: Any, **kwargs: Any) -> Any:
        held_off.append(bool(FORKS._connecting))
        return connect(*args, **kwargs)

    monkeypatch.setattr(psycopg2, "connect", connected)
    with engine.connect():
        assert (held_off, FORKS._connecting) == ([True], [])
    engine.dispose()


def test_the_url_comes_before_the_defaults(database_url: str) -> None:
    """Who says something of the connection in the URL gets it."""
    engine = create_engine(database_url + "?application_name=shop&keepalives_idle=99")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "shop"
        raw = connection.connection.dbapi_connection
        assert raw is not None
        assert raw.info.dsn_parameters["keepalives_idle"] == "99"
    engine.dispose()


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_sqlstate(database_url: str, driver: str) -> None:
    """It is the server's, whichever driver brings it; where no server answers there is none."""
    engine = create_engine(database_url.replace("postgresql", driver, 1))
    with engine.connect() as connection, pytest.raises(DBAPIError) as refusal:
        connection.exec_driver_sql("SELECT 1 / 0")
    engine.dispose()
    assert sqlstate(refusal.value) == "22012"
    with pytest.raises(DBAPIError) as silence:
        create_engine(NOBODY.replace("postgresql", driver, 1)).connect()
    assert sqlstate(silence.value) is None


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_a_fork(database_url: str, driver: str) -> None:
    """A child has connections of its own, and when it ends the parent's still work."""
    # psycopg 3 warns of the parent's connections, which the child must not close; Python of forking beside threads
    warnings = ["-W", "error", "-W", "ignore::ResourceWarning", "-W", "ignore::DeprecationWarning"]
    argv = [sys.executable, *warnings, "-c", FORK, database_url.replace("postgresql", driver, 1)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_threads_share_one_engine() -> None:
    """However many threads come first, all get the same engine."""
    together = threading.Barrier(8)
    got: list[Engine] = []

    cell = EngineCell(lambda: create_engine(NOBODY))

    def first() -> None:
        together.wait()
        got.append(cell())

    threads = [threading.Thread(target=first) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == together.parties
    assert len(set(map(id, got))) == 1


def test_a_disposed_cell_makes_a_new_engine() -> None:
    """After dispose the next call makes another engine; disposing twice is nothing."""
    cell = EngineCell(lambda: create_engine(NOBODY))
    before = cell()
    cell.dispose()
    cell.dispose()
    assert cell() is not before
