"""`migrate`: all or nothing, at most one at a time, and clear words where it cannot."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection

from celery_supervise import errors, migrate
from celery_supervise.engine import create_engine
from celery_supervise.schema import metadata
from example_project.machine import HOST, free_port
from tests.migrations.catalog import EVERYTHING, catalog
from tests.postgres.rows import row
from tests.servers import Database
from tests.tools import wait_for

LATER = Path(__file__).parent / "later"
KILL = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s"""


def with_later(**attributes: object) -> Config:
    """Alembic's configuration with a revision that comes after the library's own."""
    config = migrate.config(**attributes)
    own = Path(str(config.get_main_option("script_location"))) / "versions"
    config.set_main_option("version_path_separator", "os")  # what Alembic before 1.16 reads
    config.set_main_option("version_locations", f"{own}:{LATER}")
    return config


def later(url: str, *, lock_timeout: timedelta = migrate.LOCK_TIMEOUT) -> None:
    """What the `migrate` of a later library does."""
    with migrate.locked(url, lock_timeout=lock_timeout) as connection:
        command.upgrade(with_later(connection=connection), "head")


@contextmanager
def autocommit(url: str) -> Iterator[Connection]:
    """A connection on which each statement commits."""
    engine = create_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        yield connection
    engine.dispose()


def waiting(connection: Connection, query: str) -> int:
    """How many sessions wait for a lock in a statement like `query`."""
    return int(connection.exec_driver_sql(WAITING, (query,)).scalar_one())


@pytest.mark.parametrize("driver", ["postgres", "postgresql", "postgresql+psycopg"])
def test_any_driver_and_any_schema(empty_database_url: str, driver: str) -> None:
    """Both drivers make the same schema, under whatever name; doing it again changes nothing."""
    url = empty_database_url.replace("postgresql", driver, 1)
    migrate.migrate(url, schema="Shop-2")
    with autocommit(url) as connection:
        first = catalog(connection, "Shop-2", EVERYTHING)
        migrate.migrate(url, schema="Shop-2")
        assert catalog(connection, "Shop-2", EVERYTHING) == first
        assert migrate.current(connection, "Shop-2") == "0001"
        assert migrate.current(connection, "supervise") is None
        broken = "select prosrc from pg_proc where proname = 'no_truncate' and prosrc like '%%table %% cannot%%'"
        assert len(connection.exec_driver_sql(broken, ()).all()) == 1


def test_two_schemas_in_one_database(empty_database_url: str) -> None:
    """Two installations side by side know nothing of each other."""
    migrate.migrate(empty_database_url, schema="one")
    migrate.migrate(empty_database_url, schema="two")
    with autocommit(empty_database_url) as connection:
        one, two = (catalog(connection, name, EVERYTHING) for name in ("one", "two"))
        assert one == two
        assert one["functions"]


def test_concurrent_migrations_wait_for_each_other(empty_database_url: str) -> None:
    """Three at once, as three workers start: all succeed, and one of them did it."""
    code = "import sys; from celery_supervise.migrate import migrate; migrate(sys.argv[1])"
    with migrate.locked(empty_database_url), autocommit(empty_database_url) as watcher:
        started = [subprocess.Popen([sys.executable, "-c", code, empty_database_url]) for _ in range(3)]
        wait_for(lambda: waiting(watcher, "%pg_advisory_xact_lock%") == len(started))
    assert [process.wait(60) for process in started] == [0, 0, 0]
    with autocommit(empty_database_url) as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM supervise.version").scalars().all() == ["0001"]


def test_another_migration_that_does_not_end(empty_database_url: str) -> None:
    """It gives up after the lock timeout, and says that nothing was changed."""
    with (
        migrate.locked(empty_database_url),
        pytest.raises(errors.MigrationBlocked, match="nothing was changed"),
    ):
        migrate.migrate(empty_database_url, lock_timeout=timedelta(milliseconds=50))


def test_s81_first_migration_blocked(empty_database_url: str) -> None:
    """Behind somebody's uncommitted schema of that name it gives up with nothing half done."""
    engine = create_engine(empty_database_url)
    with engine.connect() as other:
        other.exec_driver_sql("CREATE SCHEMA supervise")
        with pytest.raises(errors.MigrationBlocked) as blocked:
            migrate.migrate(empty_database_url, lock_timeout=timedelta(milliseconds=50))
        other.rollback()
    assert blocked.value.waited == timedelta(milliseconds=50)
    with autocommit(empty_database_url) as connection:
        assert not sa.inspect(connection).has_schema("supervise")
    migrate.migrate(empty_database_url)


def test_s81_later_migration_blocked(database: Database) -> None:
    """Behind a dump a later migration gives up; nothing is half done, no job waited longer than it did."""
    jobs = metadata().tables["supervise.jobs"]
    blocked: list[BaseException] = []

    def attempt() -> None:
        try:
            later(database.owner_url, lock_timeout=timedelta(seconds=3))
        except errors.MigrationBlocked as error:
            blocked.append(error)

    dumping = create_engine(database.owner_url).connect()
    with autocommit(database.url) as worker, autocommit(database.owner_url) as watcher, dumping as dump:
        worker.execute(jobs.insert().values(row("jobs", id="hot")))
        before = catalog(worker, "supervise", EVERYTHING)
        dump.exec_driver_sql("LOCK TABLE supervise.jobs IN ACCESS SHARE MODE")
        migration = threading.Thread(target=attempt)
        migration.start()
        wait_for(lambda: waiting(watcher, "%ALTER TABLE%"))
        began = time.monotonic()
        worker.execute(jobs.update().where(jobs.c.id == "hot").values(generation=2))
        waited = time.monotonic() - began
        migration.join()
        assert [str(error).count("lock timeout") for error in blocked] == [1]
        assert waited < 8
        assert catalog(worker, "supervise", EVERYTHING) == before
        assert migrate.current(worker) == "0001"


def test_s81_old_library_beside_a_newer_schema(database: Database) -> None:
    """Where a newer library has migrated, an older one works on, but does not migrate."""
    later(database.owner_url)
    with autocommit(database.url) as worker:
        migrate.check(worker)
        jobs = metadata().tables["supervise.jobs"]
        worker.execute(jobs.insert().values(row("jobs")))
    with pytest.raises(errors.NotMigrated, match="at revision 0002") as refusal:
        migrate.migrate(database.owner_url)
    assert "newer celery-supervise" in refusal.value.advice


def test_the_database_is_not_there() -> None:
    """Nobody listens: one error of ours, which says that nothing was written."""
    url = f"postgresql://nobody@{HOST}:{free_port()}/none"
    with pytest.raises(errors.DatabaseUnavailable, match="nothing was written") as refusal:
        migrate.migrate(url)
    assert not refusal.value.unknown


def test_the_server_goes_away(empty_database: Database) -> None:
    """A session that is killed in the middle of a migration has changed nothing, and says so."""
    with pytest.raises(errors.DatabaseUnavailable) as refusal:
        cut_off(empty_database)
    assert not refusal.value.unknown


def cut_off(database: Database) -> None:
    """A migration whose session is killed before its next statement."""
    with migrate.locked(database.owner_url) as connection, autocommit(database.superuser_url) as superuser:
        superuser.exec_driver_sql(KILL)
        connection.exec_driver_sql("SELECT 1")


def test_a_role_that_may_not(empty_database: Database) -> None:
    """Whoever is not the owner is told to connect as the owner."""
    with pytest.raises(errors.ConfigError, match="connect as the owner"):
        migrate.migrate(empty_database.url)


def test_a_schema_made_by_somebody_else(empty_database: Database) -> None:
    """An owner of the schema alone, who may make none, can migrate into it."""
    with autocommit(empty_database.superuser_url) as superuser:
        superuser.exec_driver_sql("CREATE SCHEMA handed AUTHORIZATION supervise_runtime")
    migrate.migrate(empty_database.url, schema="handed")
    with autocommit(empty_database.url) as connection:
        migrate.check(connection, "handed")


def test_a_runtime_role_that_does_not_exist(empty_database_url: str) -> None:
    """It is refused before anything is made, with the statement that makes it."""
    with pytest.raises(errors.ConfigError, match='CREATE ROLE "100%"'):
        migrate.migrate(empty_database_url, runtime_role="100%")
    with autocommit(empty_database_url) as connection:
        assert not sa.inspect(connection).has_schema("supervise")


@pytest.mark.parametrize("name", ["", "1st", "pg_supervise", "a.b", 'a"b', "a'b", "a b", "ü", "x" * 64, "$$"])
def test_schema_names(name: str) -> None:
    """A name that would have to be escaped somewhere is refused before anybody connects."""
    with pytest.raises(errors.ConfigError, match="supervise_schema"):
        migrate.migrate("postgresql://nowhere.invalid/none", schema=name)


def test_check_before_migrate(empty_database_url: str) -> None:
    """A worker on an empty database is told what to run."""
    with autocommit(empty_database_url) as connection:
        with pytest.raises(errors.NotMigrated, match="celery -A proj supervise migrate"):
            migrate.check(connection)
        migrate.migrate(empty_database_url)
        migrate.check(connection)


def test_check_below_min_library(database: Database) -> None:
    """A library that the schema has outgrown is told which one to install."""
    with autocommit(database.owner_url) as connection:
        connection.exec_driver_sql("UPDATE supervise.meta SET value = '99.1.0' WHERE name = 'min_library'")
        with pytest.raises(errors.NotMigrated, match=r"upgrade celery-supervise to 99\.1\.0"):
            migrate.check(connection)


def test_check_at_an_older_revision(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer library on an older schema asks for the migration."""
    monkeypatch.setattr("celery_supervise.revision.REVISIONS", ("0001", "0002"))
    with autocommit(database.url) as connection, pytest.raises(errors.NotMigrated, match="at revision 0001"):
        migrate.check(connection)


def test_check_by_a_role_without_rights(empty_database: Database) -> None:
    """A role that nobody let in is told how to be let in, and its transaction goes on."""
    migrate.migrate(empty_database.owner_url)
    with create_engine(empty_database.url).connect() as connection:
        with pytest.raises(errors.NotMigrated, match="--runtime-role"):
            migrate.check(connection)
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
