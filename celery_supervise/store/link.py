"""A connection as we use it, and what an error of its driver means. Runs no statement of the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, ResourceClosedError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ..engine import NO_ROOM, READ_ONLY, outage, said, sqlstate
from ..errors import Busy, DatabaseUnavailable, NotMigrated

BUSY = frozenset({"55P03", "40P01", "40001"})  # lock timeout, deadlock, serialization failure
MISSING = frozenset({"42P01", "3F000", "42703"})  # table, schema, column
AWAY = ("08", NO_ROOM, "57", "58")  # classes: connection, resources (a full disk), operator (a restart), system
SHUT_DOWN = frozenset({"57P01", "57P02"})  # sent to a session that is ended, also between its commit and the reply
LINK_ERRORS = (sa.exc.OperationalError, sa.exc.InterfaceError)  # without an SQLSTATE: not from the server


@contextmanager
def connected(engine: Engine) -> Iterator[Connection]:
    """A connection on which each statement commits by itself, unless it is between a BEGIN and a COMMIT of ours.

    Not by SQLAlchemy's `isolation_level`: psycopg2 takes it back with a SET to the server, at each return to the
    pool: a second round trip, an error after a commit where the server has gone, and a setting in somebody else's
    session behind pgbouncer. The driver's own flag says nothing to the server.
    """
    with engine.connect() as connection:
        driver, before = committing(connection)
        try:
            yield connection
        finally:
            if not connection.invalidated:
                restored(connection, driver, autocommit=before)


def committing(connection: Connection) -> tuple[DBAPIConnection, bool]:
    """Set the driver's flag; the driver's connection, and what the flag was."""
    driver = connection.connection.dbapi_connection
    assert driver is not None  # noqa: S101 - only of a detached connection
    before = driver.autocommit
    try:
        driver.autocommit = True
    except connection.dialect.loaded_dbapi.Error as error:
        connection.invalidate()
        raise DatabaseUnavailable(str(error)) from error
    return driver, before


def restored(connection: Connection, driver: DBAPIConnection, *, autocommit: bool) -> None:
    """Give the driver's flag back for others who use the pool; a connection that cannot take it is not used again."""
    try:
        driver.autocommit = autocommit
    except connection.dialect.loaded_dbapi.Error:
        connection.invalidate()


def rolled_back(connection: Connection) -> None:
    """End a transaction of ours; a connection that cannot even do that is not used again."""
    if connection.invalidated:
        return
    try:
        connection.exec_driver_sql("ROLLBACK")
    except DBAPIError:
        connection.invalidate()


@contextmanager
def told(schema: str, *, joined: bool = False, commits: bool = False) -> Iterator[None]:
    """Turns a driver's error into one of ours. In a joined transaction the shop's own errors stay its own.

    `commits`: what it runs commits, so that after a lost reply its outcome is unknown.
    """
    try:
        yield
    except DBAPIError as error:
        ours = _missing(error, schema) if joined else _ours(error, schema, commits=commits)
        if ours is None:
            raise
        raise ours from error
    except PoolTimeout as error:
        raise DatabaseUnavailable("all connections of this process are in use") from error
    except ResourceClosedError as error:
        raise DatabaseUnavailable("the connection was closed", unknown=commits) from error


def _ours(error: DBAPIError, schema: str, *, commits: bool) -> Exception | None:
    code = sqlstate(error)
    if code in BUSY:
        return Busy("another operation holds this job just now")
    lost = error.connection_invalidated or code in SHUT_DOWN or (code is None and isinstance(error, LINK_ERRORS))
    if lost or code == READ_ONLY or (code is not None and code.startswith(AWAY)):
        # what the server answered with an error was rolled back; what it did not answer may have happened
        return DatabaseUnavailable(said(error), unknown=commits and lost, code=outage(error))
    return _missing(error, schema)


def _missing(error: DBAPIError, schema: str) -> NotMigrated | None:
    if sqlstate(error) in MISSING:
        return NotMigrated(schema, "it is missing or does not fit this version")
    return None
