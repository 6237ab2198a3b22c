"""Pytest plugin: a migrated database for each test, under the role that an application has. Knows no job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_supervise.migrate import migrate
from example_project import embedded
from tests.servers import OWNER, RUNTIME, Database, created, execute, located

TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def migrated(pg_server: embedded.Postgres) -> str:
    """The name of a database with our schema in it, to be copied; nobody may be connected to it."""
    execute(pg_server, f"CREATE DATABASE {TEMPLATE} OWNER {OWNER}")
    migrate(located(pg_server, TEMPLATE).owner_url, runtime_role=RUNTIME)
    return TEMPLATE


@pytest.fixture
def database(pg_server: embedded.Postgres, migrated: str) -> Iterator[Database]:
    """A migrated database for one test."""
    with created(pg_server, migrated) as made:
        yield made


@pytest.fixture
def database_url(database: Database) -> str:
    """A migrated database for one test, as the application connects to it."""
    return database.url
