"""What holds for every test: the plugins with the shared fixtures, and hypothesis's settings."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from celery import _state
from hypothesis import settings

pytest_plugins = ["pytester", "tests.skips", "tests.servers", "tests.databases", "tests.results"]

# no deadline: how long an example takes says nothing on a machine that is busy with other tests
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure() -> None:
    """Keep the person's own Postgres out: PGHOST, PGOPTIONS and their like reach every connection."""
    for name in [name for name in os.environ if name.startswith("PG") and name != "PG_BINDIR"]:
        del os.environ[name]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that need RabbitMQ to one xdist process: each node takes 8 s to start."""
    for item in items:
        if "rabbitmq_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("rabbitmq"))
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: another id in each process of xdist; use ids=named")


@pytest.fixture(autouse=True)
def _tasks_of_one_test_are_nobody_elses() -> Iterator[None]:
    """Celery gives a task that is made with `@app.task` to every app of the process: also to those of later tests."""
    waiting: set[object] = _state._on_app_finalizers  # type: ignore[attr-defined]  # Celery has no other place (5.4-5.7)
    before = set(waiting)
    yield
    waiting.clear()
    waiting.update(before)
