"""A schema for a run of a shop's tests, and a place in it for each of them. Reads no setting of the shop's database."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from uuid import uuid4

from celery import Celery
from sqlalchemy.engine import URL

from ..config import PREFIX
from ..engine import create_engine, normalise_url
from ..install import Supervisor
from ..migrate import migrate
from ..privileges import quoted
from ..runtime import ATTRIBUTE
from ..supervisor import Supervisor as Service

QUICK: Mapping[str, Any] = {
    # for so long sweeps hold back where Postgres has just started, as it may have for these tests
    "supervise_lease_seconds": 6.0,
    "supervise_heartbeat_seconds": 1.0,
    "supervise_sweep_seconds": 0.5,
    "supervise_relay_seconds": 0.2,
    "supervise_beat": False,
    # a worker in a thread would take over the logging and the output of the tests' process
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
}
"""What is a matter of minutes in production is one of moments in a test. A worker alone takes no lease of its own."""


@dataclass(frozen=True)
class TestSchema:
    """A migrated schema: the database's URL, and its name there."""

    __test__ = False  # nothing for pytest to collect

    url: str
    name: str


@contextmanager
def schema(url: str, *, process: str) -> Iterator[TestSchema]:
    """A migrated schema of its own, dropped at the end. `process` is part of its name: that of xdist's worker.

    The role in `url` must be allowed to make schemas. Raises as `migrate`.
    """
    made = TestSchema(url, f"supervise_test_{process}_{uuid4().hex[:12]}")
    migrate(made.url, schema=made.name)
    try:
        yield made
    finally:
        _drop(made)


def _drop(made: TestSchema) -> None:
    engine = create_engine(made.url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {quoted(made.name)} CASCADE")
    finally:
        engine.dispose()


@contextmanager
def placed(app: Celery, made: TestSchema, settings: Mapping[str, Any]) -> Iterator[Service]:
    """The service of `app` on this schema, in a namespace of its own: no test sees the jobs of another one.

    Afterwards the app is what it was before.
    """
    changes: Any = app.conf.changes  # its stubs say that there may be none
    before, runtime = dict(changes), app.__dict__.pop(ATTRIBUTE, None)
    app.conf.update({**QUICK, **settings, **_place(app, made)})
    try:
        with closing(_Opened(app)):
            yield Supervisor.of(app)
    finally:
        changes.clear()
        changes.update(before)
        app.__dict__.pop(ATTRIBUTE, None)
        if runtime is not None:
            app.__dict__[ATTRIBUTE] = runtime


def _place(app: Celery, made: TestSchema) -> dict[str, Any]:
    """Where it is. An app on a Django database keeps that: Django's own tests have moved it."""
    aliased = app.conf.first(f"{PREFIX}database", f"{PREFIX}database".upper())
    where = {} if aliased else {"supervise_database_url": made.url}
    return {**where, "supervise_schema": made.name, "supervise_namespace": f"test {uuid4()}"}


@dataclass(frozen=True)
class _Opened:
    """What an app opens for a test."""

    app: Celery

    def close(self) -> None:
        runtime = self.app.__dict__.get(ATTRIBUTE)
        if runtime is not None:
            runtime.publisher.close()
            runtime.engines.dispose()


def on_django() -> bool:
    """Whether these are the tests of a Django project: pytest-django may be installed, and have none."""
    conf = sys.modules.get("django.conf")
    return conf is not None and bool(conf.settings.configured)


def django_url() -> str:
    """Django's default database, as a URL: its tests' one, once that is set up. Raises `ConfigError`: no Postgres."""
    said = import_module("django.db").connections["default"].settings_dict
    kind = "postgresql" if said["ENGINE"].endswith(("postgresql", "postgis")) else said["ENGINE"].rpartition(".")[2]
    port = int(said["PORT"]) if said["PORT"] else None
    url = URL.create(kind, said["USER"] or None, said["PASSWORD"] or None, said["HOST"] or None, port, said["NAME"])
    return normalise_url(url).render_as_string(hide_password=False)
