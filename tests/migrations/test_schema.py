"""The tables as the code declares them are the tables as the migrations make them."""

from __future__ import annotations

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from celery_supervise import migrate
from celery_supervise.engine import create_engine, sqlstate
from celery_supervise.revision import REVISIONS
from celery_supervise.schema import VERSION_TABLE, metadata
from tests.migrations.catalog import EVERYTHING, TABLES, catalog


def test_the_migrations_make_what_the_code_declares(empty_database_url: str) -> None:
    """Columns, defaults, constraints by name, indexes and storage settings, as Postgres shows them."""
    migrate.migrate(empty_database_url, schema="migrated")
    with create_engine(empty_database_url).begin() as connection:
        connection.exec_driver_sql("DROP VIEW migrated.locked_decisions")
        connection.exec_driver_sql(f"DROP TABLE migrated.{VERSION_TABLE}")
        connection.exec_driver_sql("CREATE SCHEMA declared")
        declare(connection, metadata("declared"))
        declared = catalog(connection, "declared", TABLES)
        migrated = catalog(connection, "migrated", TABLES)
    assert declared["tables"]
    assert migrated == declared


def declare(connection: Connection, tables: MetaData) -> None:
    """Make what the code declares, storage parameters included."""
    tables.create_all(connection)
    for table in tables.sorted_tables:
        if table.info:
            settings = ", ".join(f"{name} = {value}" for name, value in table.info.items())
            connection.exec_driver_sql(f"ALTER TABLE {table.fullname} SET ({settings})")


def test_alembic_sees_no_difference(empty_database_url: str) -> None:
    """`alembic revision --autogenerate` would find nothing to do."""
    migrate.migrate(empty_database_url, schema="shop")
    with create_engine(empty_database_url).connect() as connection:
        command.check(migrate.config(schema="shop", connection=connection))


def test_down_and_up_again_is_the_same(empty_database_url: str) -> None:
    """Each revision can be taken back and made again; of all of them only the version table is left."""
    engine = create_engine(empty_database_url)
    migrate.migrate(empty_database_url)
    with engine.begin() as connection:
        config = migrate.config(connection=connection)
        first = catalog(connection, "supervise", EVERYTHING)
        for _ in REVISIONS:
            command.downgrade(config, "-1")
        with connection.begin_nested() as kept:
            connection.exec_driver_sql(f"DROP TABLE supervise.{VERSION_TABLE}")
            nothing = catalog(connection, "supervise", EVERYTHING)
            kept.rollback()
        for _ in REVISIONS:
            command.upgrade(config, "+1")
        again = catalog(connection, "supervise", EVERYTHING)
    assert again == first
    assert not any(nothing.values())


def test_going_down_does_not_lose_jobs(empty_database_url: str) -> None:
    """A downgrade that would drop the log of jobs that were refuses."""
    migrate.migrate(empty_database_url)
    with create_engine(empty_database_url).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO supervise.tombstones VALUES ('pruned', 'default', 't', 'failed', 3, now(), now())"
        )
    engine = create_engine(empty_database_url)
    with pytest.raises(DBAPIError, match="there are jobs") as refusal, engine.begin() as connection:
        command.downgrade(migrate.config(connection=connection), "base")
    assert sqlstate(refusal.value) == "P0001"


def test_one_head_and_the_revisions_that_the_library_names() -> None:
    """The history is one line, and the list that a starting worker checks is that line."""
    scripts = ScriptDirectory.from_config(migrate.config())
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)
    assert scripts.get_heads() == [REVISIONS[-1]]
