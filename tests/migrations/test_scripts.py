"""The same migrations by other ways: as a script for psql, by plain Alembic, from wherever the package lies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from celery_supervise import errors, migrate
from celery_supervise.engine import create_engine
from tests.migrations.catalog import EVERYTHING, Catalog, catalog
from tests.servers import RUNTIME

ROOT = Path(__file__).resolve().parents[2]


def seen(url: str, schema: str) -> Catalog:
    """What is in the schema now."""
    with create_engine(url).connect() as connection:
        return catalog(connection, schema, EVERYTHING)


def alembic(*argv: str, url: str) -> str:
    """Run the `alembic` command as a developer does; its output."""
    done = subprocess.run(
        [sys.executable, "-m", "alembic", *argv],
        cwd=ROOT,
        env=os.environ | {"SUPERVISE_DATABASE_URL": url},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def test_the_script_makes_what_migrate_makes(empty_database_url: str) -> None:
    """`--sql` run by hand, in one piece, gives the same schema with the same rights."""
    script = migrate.sql(schema="by_hand", runtime_role=RUNTIME)
    with closing(psycopg2.connect(empty_database_url)) as connection:
        connection.autocommit = True
        connection.cursor().execute(script)
    migrate.migrate(empty_database_url, schema="by_us", runtime_role=RUNTIME)
    assert seen(empty_database_url, "by_hand") == seen(empty_database_url, "by_us")
    with create_engine(empty_database_url).connect() as connection:
        migrate.check(connection, "by_hand")


def test_the_script_waits_no_longer_than_migrate_does() -> None:
    """The script takes the same lock, with the same bound, in the same one transaction."""
    lines = migrate.sql().split("\n")
    assert lines[0] == "BEGIN;"
    assert "SET LOCAL lock_timeout = '5000ms';" in lines
    assert any("pg_advisory_xact_lock" in line for line in lines)
    assert [line for line in lines if line][-1] == "COMMIT;"


def test_a_script_for_another_database() -> None:
    """There is none for MySQL."""
    with pytest.raises(errors.ConfigError, match="mysql"):
        migrate.sql("mysql://localhost/shop")


def test_plain_alembic(empty_database_url: str) -> None:
    """Alembic's own command, with a schema of one's own, does and finds the same."""
    alembic("-x", "schema=shop", "upgrade", "head", url=empty_database_url)
    migrate.migrate(empty_database_url)
    assert seen(empty_database_url, "shop") == seen(empty_database_url, "supervise")
    assert "No new upgrade operations" in alembic("-x", "schema=shop", "check", url=empty_database_url)
    assert 'CREATE TABLE "shop".jobs' in alembic("-x", "schema=shop", "upgrade", "head", "--sql", url="")
    alembic("-x", "schema=shop", "downgrade", "base", url=empty_database_url)
    with create_engine(empty_database_url).connect() as connection:
        assert migrate.current(connection, "shop") is None
        migrate.check(connection)


def test_plain_alembic_without_a_url() -> None:
    """It says which variable to set."""
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "upgrade", "head"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "SUPERVISE_DATABASE_URL"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "set sqlalchemy.url or SUPERVISE_DATABASE_URL" in done.stderr


FROM_A_FOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from celery_supervise import migrate
migrate.migrate(sys.argv[2])
print(migrate.config().get_main_option("script_location"))
"""


def test_a_checkout_uses_its_own(empty_database_url: str, tmp_path: Path) -> None:
    """A checkout, of which there may be others on this machine, finds the migrations beside its package."""
    for folder in ("celery_supervise", "migrations"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    assert migrated_from(tmp_path, empty_database_url) == tmp_path / "migrations"


def test_an_installed_package_uses_its_own(empty_database_url: str, tmp_path: Path) -> None:
    """Laid out as in a wheel, it finds them inside, even where another `migrations` lies beside it."""
    shutil.copytree(ROOT / "celery_supervise", tmp_path / "celery_supervise")
    shutil.copytree(ROOT / "migrations", tmp_path / "celery_supervise/migrations")
    (tmp_path / "migrations").mkdir()
    assert migrated_from(tmp_path, empty_database_url) == tmp_path / "celery_supervise/migrations"


def migrated_from(folder: Path, url: str) -> Path:
    """Which migrations the package in `folder` runs."""
    argv = [sys.executable, "-c", FROM_A_FOLDER, str(folder), url]
    done = subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())
