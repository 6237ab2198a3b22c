"""The pytest plugin: fixtures for the tests of a shop that has a database. Imports nothing of the library until used.

Pytest loads it in every suite of an environment. It is no part of the package, so that loading it costs nothing: no
Celery, no SQLAlchemy. It decides nothing: see `celery_supervise.kit`.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import pytest

APP = "supervise_app"
URL = "supervise_test_database_url"
FIXTURES = (APP, "supervise_settings", "supervise_schema", "supervise_url", "supervise_worker_options")
"""Of its own names those that begin like a setting of the library."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options of the ini file."""
    parser.addini(APP, "the Celery app whose jobs are tested: module:name")
    parser.addini(URL, f"a Postgres database for tests; {URL.upper()} in the environment comes first")


def _kit(module: str) -> Any:
    return import_module(f"celery_supervise.kit.{module}")


@pytest.fixture(scope="session")
def supervise_app(pytestconfig: pytest.Config) -> Any:
    """The Celery app. Define a fixture of this name, or name it in the ini file."""
    named = str(pytestconfig.getini(APP))
    if not named:
        raise pytest.UsageError(f"name the Celery app: {APP} = module:name in pytest's ini file, or such a fixture")
    return pkgutil.resolve_name(named)


@pytest.fixture(scope="session")
def supervise_settings() -> Mapping[str, Any]:
    """Settings of the app in tests, beyond the kit's own. To be overridden."""
    return {}


@pytest.fixture(scope="session")
def supervise_worker_options() -> Mapping[str, Any]:
    """Of Celery's `start_worker`: pool, concurrency, queues. To be overridden."""
    return {}


@pytest.fixture(scope="session")
def supervise_url(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> str:
    """A Postgres database for tests: of the environment, the ini file, or pytest-django. Never the app's own."""
    given = os.environ.get(URL.upper()) or str(pytestconfig.getini(URL))
    if not given and pytestconfig.pluginmanager.hasplugin("django") and _kit("schemas").on_django():
        request.getfixturevalue("django_db_setup")
        given = _kit("schemas").django_url()
    if not given:
        raise pytest.UsageError(
            f"name a Postgres database for tests: {URL.upper()}=postgresql://…, or {URL} in the ini"
        )
    return given


@pytest.fixture(scope="session")
def supervise_schema(supervise_url: str) -> Iterator[Any]:
    """A migrated schema for this run; under xdist one for each process. Has `url` and `name`."""
    with _kit("schemas").schema(supervise_url, process=os.environ.get("PYTEST_XDIST_WORKER", "main")) as made:
        yield made


@pytest.fixture
def supervise(supervise_app: Any, supervise_schema: Any, supervise_settings: Mapping[str, Any]) -> Iterator[Any]:
    """The service of the app on the schema, where no other test's jobs are. Afterwards every rule must hold."""
    with _kit("schemas").placed(supervise_app, supervise_schema, supervise_settings) as service:
        yield service
        _kit("working").assert_invariants(supervise_app)


@pytest.fixture
def supervised_worker(supervise: Any, supervise_app: Any, supervise_worker_options: Mapping[str, Any]) -> Iterator[Any]:  # noqa: ARG001  # the app must be placed
    """A worker in a thread. It ends with the test."""
    with _kit("working").working(supervise_app, supervise_worker_options) as worker:
        yield worker


@pytest.fixture
def human(supervise: Any) -> Any:
    """Whoever answers: `human.answers(key, value, after=timedelta(…))`."""
    return _kit("human").Human(supervise)


@pytest.fixture
def crash(supervise: Any) -> Iterator[Any]:
    """Where bodies die: `crash.before(name)`, `crash.after(name)`. Each must have happened when the test ends."""
    with _kit("crashes").crashing(supervise) as crashes:
        yield crashes
        crashes.check()


@pytest.fixture
def assert_invariants(supervise: Any, supervise_app: Any) -> Callable[[], None]:  # noqa: ARG001  # the app must be placed
    """A function: raises where a rule is broken that `doctor` checks, too."""
    return lambda: _kit("working").assert_invariants(supervise_app)
