"""Pytest plugin: private servers for the session, and databases in them. Knows no schema and no job.

Under xdist each process has servers of its own, so that a test may stop, freeze, kill or flush them.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
import redis

from example_project import embedded
from example_project.machine import HOST
from example_project.processes import ProcessFailed

OWNER = "supervise_owner"
RUNTIME = "supervise_runtime"
PASSWORD = "of-a-private-server"
# the way through the WAL, the default since 15, takes three times as long
FILE_COPY_SINCE = 150_000
# In memory a database is copied in 20 ms, on a busy disk in 300 ms. Containers often have 64 MiB of it only.
MEMORY = Path("/dev/shm")  # noqa: S108 - the server makes a private folder in it
MEMORY_WANTED = 2 * 1024**3
SETTINGS = {"max_connections": "200", "max_wal_size": "256MB"}


@dataclass(frozen=True)
class Database:
    """One database, and who may connect to it."""

    url: str
    """The application: it reads and writes rows, and may do nothing else."""
    owner_url: str
    """Whoever migrates: owns the database, and is no superuser."""
    superuser_url: str


@pytest.fixture(scope="session")
def pg_server() -> Iterator[embedded.Postgres]:
    """A Postgres that a test may stop, kill, restart and freeze."""
    with embedded.postgres(options=SETTINGS, parent=memory()) as server:
        for role in (OWNER, RUNTIME):
            execute(server, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[embedded.Redis]:
    """A Valkey or Redis that a test may stop, kill, restart and freeze."""
    with embedded.redis() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[embedded.RabbitMQ]:
    """A RabbitMQ node, where this machine has RabbitMQ."""
    try:
        embedded.rabbitmq_binary()
    except ProcessFailed as absent:
        pytest.skip(str(absent))
    with embedded.rabbitmq() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: embedded.Redis) -> str:
    """A Redis with nothing in it."""
    revive(redis_server)
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.flushall()
    return redis_server.url


@pytest.fixture
def empty_database(pg_server: embedded.Postgres) -> Iterator[Database]:
    """A database with nothing in it, for one test."""
    with created(pg_server, "template1") as made:
        yield made


@pytest.fixture
def empty_database_url(empty_database: Database) -> str:
    """A database with nothing in it, for one test, as its owner connects to it."""
    return empty_database.owner_url


def memory() -> Path | None:
    """A folder in memory, where there is enough of it."""
    return MEMORY if MEMORY.exists() and shutil.disk_usage(MEMORY).free > MEMORY_WANTED else None


@contextmanager
def created(server: embedded.Postgres, template: str) -> Iterator[Database]:
    """A copy of the database `template`; dropped afterwards, under whoever is still connected to it."""
    revive(server)
    name = f"test_{secrets.token_hex(8)}"
    quick = "STRATEGY file_copy" if version(server) >= FILE_COPY_SINCE else ""
    execute(server, f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} {quick}")
    try:
        yield located(server, name)
    finally:
        revive(server)
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def revive(server: embedded.Server) -> None:
    """Bring back a server that a failed test left down or on its way there, lest it fail all that follow."""
    if not (server.running and server.ready()):
        server.stop()
        server.start()


def located(server: embedded.Postgres, name: str) -> Database:
    """The URLs of a database."""
    place = f"{HOST}:{server.port}/{name}"
    return Database(
        url=f"postgresql://{RUNTIME}:{PASSWORD}@{place}",
        owner_url=f"postgresql://{OWNER}:{PASSWORD}@{place}",
        superuser_url=urlsplit(server.url)._replace(path=f"/{name}").geturl(),
    )


def execute(server: embedded.Postgres, statement: str) -> None:
    """Run one statement as the superuser, on a connection of its own: the server may have restarted."""
    with closing(psycopg2.connect(server.url)) as connection:
        connection.autocommit = True
        connection.cursor().execute(statement)


def version(server: embedded.Postgres) -> int:
    """Its version as libpq counts: 150004 for 15.4."""
    with closing(psycopg2.connect(server.url)) as connection:
        return connection.server_version
