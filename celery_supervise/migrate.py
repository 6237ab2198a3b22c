"""Makes and changes the schema, by Alembic: all of it in one transaction, or nothing. Runs no job.

Whether a schema can be used is asked of ``revision``, which is re-exported here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError

from .engine import create_engine, normalise_url, outage, said, sqlstate
from .errors import ConfigError, DatabaseUnavailable, MigrationBlocked, NotMigrated
from .privileges import grants, quoted
from .revision import HEAD, REVISIONS, check, current
from .schema import DEFAULT_SCHEMA
from .wording import shown

__all__ = ["check", "current", "locked", "migrate", "preparation", "sql"]

LOCK_TIMEOUT = timedelta(seconds=5)
MIN_POSTGRES = 13
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")

BLOCKED = frozenset({"55P03", "40P01"})  # lock_not_available, deadlock_detected
FORBIDDEN = "42501"


def migrate(
    url: str | URL,
    *,
    schema: str = DEFAULT_SCHEMA,
    runtime_role: str | None = None,
    revision: str = "head",
    lock_timeout: timedelta = LOCK_TIMEOUT,
) -> None:
    """Bring `schema` to `revision`, and let `runtime_role` use it. Safe to call from many processes at once.

    All or nothing: one transaction, which waits at most `lock_timeout` for each lock. Run it as the role that
    is to own the tables; `runtime_role` (which must exist) is the one that applications connect as. Raises
    ConfigError (URL, schema name, role, rights), DatabaseUnavailable, MigrationBlocked, and NotMigrated where
    the schema is newer than this library.
    """
    with locked(url, schema=schema, lock_timeout=lock_timeout) as connection:
        if runtime_role is not None:
            _require_role(connection, runtime_role)
        _require_known(connection, schema)
        command.upgrade(config(schema=schema, connection=connection), revision)
        if runtime_role is not None:
            _execute(connection, grants(schema, runtime_role))


def sql(
    url: str | URL = "postgresql://",
    *,
    schema: str = DEFAULT_SCHEMA,
    runtime_role: str | None = None,
    revision: str = "head",
    lock_timeout: timedelta = LOCK_TIMEOUT,
) -> str:
    """What `migrate` would run, as a script for psql. Connects to nothing: of `url` only the kind counts.

    For a schema that is not there yet; `revision="0001:head"` is for one at 0001. Raises ConfigError.
    """
    normalise_url(url)
    script = StringIO()
    settings = config(schema=checked_name(schema), lock_timeout=lock_timeout, runtime_role=runtime_role)
    settings.output_buffer = script
    command.upgrade(settings, revision, sql=True)
    return script.getvalue()


def config(**attributes: object) -> Config:
    """Alembic's configuration without an ini file; `attributes` reach env.py as they are."""
    settings = Config()
    settings.set_main_option("script_location", str(_scripts()).replace("%", "%%"))
    settings.set_main_option("path_separator", "os")
    settings.attributes.update(attributes)
    return settings


def _scripts() -> Path:
    """The folder of the migrations: in the package where it is installed, beside it in a checkout.

    By this file's place, not by import: a checkout that stands first on sys.path would get those of another one.
    """
    package = Path(__file__).resolve().parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


@contextmanager
def locked(
    url: str | URL, *, schema: str = DEFAULT_SCHEMA, lock_timeout: timedelta = LOCK_TIMEOUT
) -> Iterator[Connection]:
    """A connection in the one transaction of a migration: `schema` exists, and no other migration of it runs.

    Commits at the end of the block. Raises what `migrate` raises.
    """
    checked_name(schema)
    engine = create_engine(url)
    try:
        # A higher level's snapshot would be older than the lock, and show the other migration as not done.
        with (
            _told(schema, lock_timeout),
            engine.connect().execution_options(isolation_level="READ COMMITTED") as connection,
            connection.begin(),
        ):
            _require_postgres(connection)
            _execute(connection, preparation(schema, lock_timeout))
            _make(connection, schema)
            yield connection
    finally:
        engine.dispose()


def preparation(schema: str, lock_timeout: timedelta) -> Iterator[str]:
    """The first statements of a migration: no lock is waited for longer, no other migration runs beside it.

    Both end with the transaction, so that they work behind pgbouncer too.
    """
    # 0 would mean for ever
    yield f"SET LOCAL lock_timeout = '{max(1, int(lock_timeout.total_seconds() * 1000))}ms'"
    yield f"SELECT pg_advisory_xact_lock(hashtextextended('celery_supervise migrate {schema}', 0))"


def _execute(connection: Connection, statements: Iterable[str]) -> None:
    """Run them as they are: no `%` in a name is a parameter."""
    for statement in statements:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def _make(connection: Connection, schema: str) -> None:
    """Only where it is missing: `IF NOT EXISTS` asks for the right to make schemas all the same."""
    there = sa.text("SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = :schema")
    if not connection.execute(there, {"schema": schema}).scalar():
        _execute(connection, [f"CREATE SCHEMA {quoted(schema)}"])


def checked_name(schema: str) -> str:
    """`schema`, which nothing in a name or a literal has to be escaped for. Raises ConfigError."""
    if not NAME.fullmatch(schema) or schema.startswith("pg_"):
        rule = "use at most 63 letters, digits, _ and -, no digit first, and not pg_, which is Postgres's own"
        raise ConfigError("supervise_schema", f"{shown(schema)} cannot be used; {rule}")
    return schema


def _require_postgres(connection: Connection) -> None:
    version = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10_000
    if version < MIN_POSTGRES:
        raise ConfigError("supervise_database_url", f"Postgres {version} is too old, {MIN_POSTGRES} is needed")


def _require_role(connection: Connection, role: str) -> None:
    there = sa.text("SELECT count(*) FROM pg_catalog.pg_roles WHERE rolname = :role")
    if not connection.execute(there, {"role": role}).scalar():
        raise ConfigError(
            "runtime_role", f"there is no role {shown(role)}; make it first: CREATE ROLE {quoted(role)} LOGIN"
        )


def _require_known(connection: Connection, schema: str) -> None:
    found = current(connection, schema)
    if found is not None and found not in REVISIONS:
        problem = f"it is at revision {found}, this library knows {HEAD} as the newest"
        raise NotMigrated(schema, problem, advice="migrate it with the newer celery-supervise that made it")


@contextmanager
def _told(schema: str, lock_timeout: timedelta) -> Iterator[None]:
    """Turns the driver's errors that have to do with where we are, not with what we do, into ours."""
    try:
        yield
    except DBAPIError as error:
        raise _ours(error, schema, lock_timeout) from error


def _ours(error: DBAPIError, schema: str, lock_timeout: timedelta) -> Exception:
    code, detail = sqlstate(error), said(error)
    if code in BLOCKED:
        return MigrationBlocked(schema, waited=lock_timeout, detail=detail)
    if code == FORBIDDEN:
        return ConfigError("supervise_database_url", f"its role may not migrate ({detail}); connect as the owner")
    if error.connection_invalidated or error.statement is None:
        # only a COMMIT without a reply may have happened; a lost statement takes its transaction with it
        unknown = error.connection_invalidated and error.statement is None
        return DatabaseUnavailable(detail, unknown=unknown, code=outage(error))
    return error
