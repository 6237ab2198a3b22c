"""Where it is measured: a Postgres of its own, with durable settings, and the service on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy.engine import make_url

from celery_supervise.config import Settings
from celery_supervise.engine import create_engine
from celery_supervise.migrate import migrate
from celery_supervise.store.door import Door, door_of
from celery_supervise.supervisor import Supervisor
from example_project import embedded
from example_project.machine import private_folder


@dataclass(frozen=True)
class Place:
    """A migrated database and the service, without a broker."""

    url: str
    folder: Path
    pgbench: Path
    door: Door
    supervisor: Supervisor


@contextmanager
def place() -> Iterator[Place]:
    """Commits wait for the disk here: what is measured lasts."""
    with private_folder("bench", None) as folder, embedded.postgres(fast=False) as server:
        binary = Path(str(server.argv[0])).with_name("pgbench")
        with _served(server.url, folder, binary) as made:
            yield made


@contextmanager
def twin(place: Place) -> Iterator[Place]:
    """Another database on the same server, to be measured in turns with it."""
    with place.door.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("CREATE DATABASE twin")
    url = make_url(place.url).set(database="twin").render_as_string(hide_password=False)
    with _served(url, place.folder, place.pgbench) as made:
        yield made


@contextmanager
def _served(url: str, folder: Path, pgbench: Path) -> Iterator[Place]:
    migrate(url)
    engine = create_engine(url)
    door = door_of(Settings(), lambda: engine, publish_hold=timedelta(seconds=10))
    try:
        yield Place(url, folder, pgbench, door, Supervisor(door))
    finally:
        engine.dispose()
