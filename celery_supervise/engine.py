"""Engines: which URLs work, how connections are set up, one engine a process. No statements, no tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Dialect, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from .errors import ConfigError
from .forks import FORKS

SETTING = "supervise_database_url"
DRIVERS = {
    "postgres": "postgresql+psycopg2",
    "postgresql": "postgresql+psycopg2",
    "postgresql+psycopg2": "postgresql+psycopg2",
    "postgresql+psycopg": "postgresql+psycopg",
}
READ_ONLY = "25006"
"""A standby that has not been promoted."""
NO_ROOM = "53"
"""Class: a full disk, too many connections."""
_FATAL = "FATAL:"
"""A server's own word, before why it lets nobody in."""
CONNECT_TIMEOUT = timedelta(seconds=5)
POOL_TIMEOUT = timedelta(seconds=10)
POOL_RECYCLE = timedelta(seconds=300)
"""Common load balancers forget a connection that was idle for 350 s, and tell nobody."""

LINK = {
    # a dead peer is noticed well within a lease (60 s), whether we wait for it or send to it
    "keepalives": 1,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    # not `options`, which pgbouncer refuses
    "fallback_application_name": "celery-supervise",
}


def normalise_url(url: str | URL) -> URL:
    """The URL with its driver named: `postgres://` and `postgresql://` mean psycopg2.

    psycopg 3 is `postgresql+psycopg://`. Raises ConfigError for what is no URL, for another database and for
    asyncio drivers. Its text does not repeat the URL, which has a password in it.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: the port is no number
        raise ConfigError(SETTING, "is not a database URL; write postgresql://user@host:5432/name") from None
    driver = DRIVERS.get(parsed.drivername)
    if driver is None:
        usable = "postgresql:// (psycopg2) or postgresql+psycopg:// (psycopg 3)"
        raise ConfigError(SETTING, f"{parsed.drivername}:// cannot be used; write {usable}")
    return parsed.set(drivername=driver)


def create_engine(
    url: str | URL,
    *,
    pool_size: int = 1,
    max_overflow: int = 1,
    connect_timeout: timedelta = CONNECT_TIMEOUT,
    kept: bool = True,
) -> Engine:
    """An engine that works as well behind pgbouncer as without it; connects at its first use.

    At most `pool_size + max_overflow` connections, of which `pool_size` stay open. Without pings: each would
    cost every statement a round trip, and none saves a statement from a connection that dies after it. How a
    statement commits is its own business: see `store.link.connected`. What the URL says
    of a connection comes before the defaults here. Not `kept`: each connection is closed after its use. Raises
    ConfigError as `normalise_url` does.
    """
    parsed = normalise_url(url)
    pool: dict[str, Any] = {
        "pool_size": pool_size,
        "max_overflow": max_overflow,
        "pool_timeout": POOL_TIMEOUT.total_seconds(),
        "pool_recycle": int(POOL_RECYCLE.total_seconds()),
    }
    engine = sa.create_engine(
        parsed,
        **(pool if kept else {"poolclass": sa.NullPool}),
        # the driver would ask each new connection for the type's oid
        use_native_hstore=False,
        connect_args=_connect_args(parsed, connect_timeout),
    )
    _hold_off_forks(engine.dialect)
    return engine


def _hold_off_forks(dialect: Dialect) -> None:
    """Connect while no child is forked, which would inherit what is locked. By no event: `straight` heeds those."""
    connect = dialect.connect

    def connected(*args: Any, **kwargs: Any) -> Any:
        with FORKS.held_off():
            return connect(*args, **kwargs)

    dialect.connect = connected  # type: ignore[method-assign]


def _connect_args(url: URL, connect_timeout: timedelta) -> dict[str, object]:
    # libpq takes whole seconds, and 1 as 2
    given: dict[str, object] = {**LINK, "connect_timeout": math.ceil(connect_timeout.total_seconds())}
    args = {name: value for name, value in given.items() if name not in url.query}
    if url.drivername == "postgresql+psycopg":
        # a statement prepared on one of pgbouncer's server connections is unknown on the next: see `store.plans`
        args["prepare_threshold"] = None
    return args


def sqlstate(error: DBAPIError) -> str | None:
    """The SQLSTATE of a driver's error, None where the server did not send one."""
    # psycopg2 and psycopg 3
    code = getattr(error.orig, "pgcode", None) or getattr(error.orig, "sqlstate", None)
    return code if isinstance(code, str) else None


_REFUSED: Final = (
    ("no_database", re.compile(r"database .* does not exist|no such database")),
    (
        "login_refused",
        re.compile(
            r"authentication failed|no password supplied|role .* does not exist|no such user|login failed"
            r"|pg_hba\.conf|not permitted to log in|permission denied for database"
        ),
    ),
)
"""What Postgres and pgbouncer say to whom they do not let in. libpq gives no SQLSTATE of a connection that failed."""


def said(error: DBAPIError) -> str:
    """What a driver's error says, in a line: of several addresses, that of one where a server answered."""
    lines = [line.strip() for line in str(error.orig).strip().split("\n")]
    return next((line for line in lines if _FATAL in line), lines[0]) or type(error.orig).__name__


def outage(error: DBAPIError) -> str:
    """Why the database cannot be used, as a `DatabaseUnavailable.code`."""
    code, text = sqlstate(error) or "", said(error)
    if code == READ_ONLY or code.startswith(NO_ROOM):
        return "refusing"
    if error.statement is not None or error.connection_invalidated:  # it was connected
        return "unreachable"
    refused = next((why for why, words in _REFUSED if words.search(text)), None)
    return refused or ("refusing" if _FATAL in text else "unreachable")


def backend_pid(connection: Connection) -> int:
    """The server process that the driver was told of when it connected: behind a pooler, one that does not exist."""
    driver: Any = connection.connection.dbapi_connection
    pid: int = driver.info.backend_pid  # psycopg2 and psycopg 3
    return pid


class EngineCell:
    """One engine a process, made at its first use there: a connection must not be used by two processes.

    Call it to get the engine. In a child the inherited engine is let go without closing its connections: they
    are still the parent's. The thread that forks must have given its connection back. `where`: which database it is
    just now, where that may change in the life of a process; another one has another engine.
    """

    def __init__(self, make: Callable[[], Engine], *, where: Callable[[], object] = lambda: None) -> None:
        self._make = make
        self._where = where
        self._engines: dict[tuple[int, object], Engine] = {}

    def __call__(self) -> Engine:
        """This process's engine."""
        key = (os.getpid(), self._where())
        engine = self._engines.get(key)
        return self._first(key) if engine is None else engine

    def _first(self, key: tuple[int, object]) -> Engine:
        self._forget_all_but(key)
        # No lock: one that a thread of the parent held at the fork would never be released here. Of two
        # threads that come here at once, one drops an engine that has not connected yet.
        return self._engines.setdefault(key, self._make())

    def _forget_all_but(self, key: tuple[int, object] | None) -> None:
        for other in [other for other in tuple(self._engines) if other != key]:
            engine = self._engines.pop(other, None)
            if engine is not None:
                engine.dispose(close=other[0] == os.getpid())

    def another(self) -> EngineCell:
        """The same engines again, with connections of their own."""
        return EngineCell(self._make, where=self._where)

    def dispose(self) -> None:
        """Close this process's connections; the next call makes a new engine."""
        self._forget_all_but(None)
