"""Whether the schema in the database is one that this library can work on. Reads only; knows no Alembic.

Every process asks this at its start, and Alembic would cost each of them 150 ms.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from .errors import NotMigrated
from .schema import DEFAULT_SCHEMA, VERSION_TABLE
from .version import VERSION, ordered

REVISIONS = ("0001",)
"""The revisions that this library knows, oldest first; it needs the last. A test compares the files."""

HEAD = REVISIONS[-1]

# From the catalog, since a name that cannot be resolved is an error, and ends the caller's transaction.
_IS_THERE = sa.text(
    "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')"
    " FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :schema AND c.relname = :table AND c.relkind = 'r'"
)


def current(connection: Connection, schema: str = DEFAULT_SCHEMA) -> str | None:
    """The revision of the schema in the database, None where it is not migrated at all.

    Raises NotMigrated where the role may not read it.
    """
    readable = connection.execute(_IS_THERE, {"schema": schema, "table": VERSION_TABLE}).scalar()
    if readable is None:
        return None
    if not readable:
        raise NotMigrated(
            schema,
            "this database role may not use it",
            advice="run, as the owner of the tables: celery -A proj supervise migrate --runtime-role ROLE",
        )
    versions = sa.table(VERSION_TABLE, sa.column("version_num", sa.Text), schema=schema)
    found: str | None = connection.execute(sa.select(versions.c.version_num)).scalar()
    return found


def check(connection: Connection, schema: str = DEFAULT_SCHEMA) -> None:
    """Raises NotMigrated unless this library can work on the schema: it is there, and not too old or too new.

    A newer schema is usable: migrations only add, until one says that it needs `min_library`.
    """
    found = current(connection, schema)
    if found is None:
        raise NotMigrated(schema, "it is not there")
    if found in REVISIONS[:-1]:
        raise NotMigrated(schema, f"it is at revision {found}, celery-supervise {VERSION} needs {HEAD}")
    least = _min_library(connection, schema)
    if ordered(VERSION) < ordered(least):
        raise NotMigrated(
            schema,
            f"it is at revision {found}, which celery-supervise {VERSION} cannot use",
            advice=f"upgrade celery-supervise to {least} or newer",
        )


def _min_library(connection: Connection, schema: str) -> str:
    meta = sa.table("meta", sa.column("name", sa.Text), sa.column("value", sa.Text), schema=schema)
    least: str = connection.execute(sa.select(meta.c.value).where(meta.c.name == "min_library")).scalar_one()
    return least
