"""Fixtures of pytest-celery, overridden where it would start a container. The others are its own.

`pytest -p pytest_docker_tools.plugin -p pytest_celery.plugin tests/nodes`. Without the plugins nothing is collected
here: they make an app of their own the current one, and give its tasks to all apps of the process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery import Celery

from example_project import embedded
from example_project.processes import Process
from tests.jobs import close
from tests.nodes.containers import Handle, Local, Serving, local
from tests.nodes.jobs import NodeJobs
from tests.servers import Database
from tests.tools import wait_for

START_SECONDS = 60.0
PLUGIN = "pytest_celery.plugin"
ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "supervise_lease_seconds": 3.0,
    "supervise_heartbeat_seconds": 0.5,
    "supervise_sweep_seconds": 0.5,
    "supervise_relay_seconds": 0.2,
    "supervise_republish_seconds": 1.0,
    "broker_connection_retry_on_startup": True,
    "worker_prefetch_multiplier": 1,
    "worker_concurrency": 2,
}


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Whether to leave these modules out: in a run without the plugin."""
    return None if config.pluginmanager.hasplugin(PLUGIN) else True


# --- servers -------------------------------------------------------------------------------------------------


@pytest.fixture
def default_redis_broker(default_redis_broker_cls: type[Any]) -> Iterator[Any]:
    """A server of the test's own: it may be killed and restarted."""
    with embedded.redis() as server:
        yield local(default_redis_broker_cls, Serving, Handle(server, ports={"6379/tcp": server.port}))


@pytest.fixture
def default_redis_backend(default_redis_backend_cls: type[Any]) -> Iterator[Any]:
    """Likewise."""
    with embedded.redis() as server:
        yield local(default_redis_backend_cls, Serving, Handle(server, ports={"6379/tcp": server.port}))


@pytest.fixture(params=["celery_redis_broker"])
def celery_broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Redis alone; RabbitMQ takes long to start, and has tests of its own (tests/acceptance/test_rabbitmq.py)."""
    broker = request.getfixturevalue(request.param)
    yield broker
    broker.teardown()


# --- workers -------------------------------------------------------------------------------------------------


@pytest.fixture
def default_worker_command(default_worker_container_cls: type[Any]) -> list[str]:
    """pytest-celery's, without what takes a second to find other workers."""
    command: list[str] = default_worker_container_cls.command("--without-mingle", "--without-gossip")
    return command


@pytest.fixture
def default_worker_tasks(default_worker_tasks: set[ModuleType]) -> set[ModuleType]:
    """pytest-celery's and ours. Imported here, as shared tasks belong to each app of a process."""
    return {*default_worker_tasks, import_module("tests.nodes.tasks")}


@pytest.fixture
def default_worker_signals() -> set[ModuleType]:
    """Those of a shop that listens."""
    return {import_module("tests.nodes.signals")}


@pytest.fixture
def celery_setup_app(celery_setup_app: Celery) -> Iterator[Celery]:
    """pytest-celery's; what it holds open is given back."""
    yield celery_setup_app
    close(celery_setup_app)


@pytest.fixture
def default_worker_app(default_worker_app: Celery, database: Database) -> Celery:
    """The app of tests and workers, on a database of the test's own."""
    default_worker_app.conf.update(SETTINGS, supervise_database_url=database.url)
    return default_worker_app


@pytest.fixture
def start_worker(
    default_worker_container_cls: type[Any],
    default_worker_initial_content: dict[str, bytes],
    default_worker_command: list[str],
    default_worker_env: dict[str, str],
    tmp_path: Path,
) -> Iterator[Callable[..., Any]]:
    """Starts a worker with what pytest-celery would put into its container."""
    with ExitStack() as stack:

        def start(name: str, *options: str) -> Any:
            folder = tmp_path / name
            for path, source in default_worker_initial_content.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(source)
            # whatever `celery` and `python` may be outside
            ours = {
                "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
                "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
                "C_FORCE_ROOT": "1",
            }
            env = {**os.environ, **default_worker_env, **ours}
            argv = [sys.executable, "-m", *default_worker_command, *options]
            process = stack.enter_context(Process(argv, folder / f"{name}.log", cwd=folder, env=env))
            # pytest-celery looks once a second
            wait_for(lambda: " ready." in process.tail() or not process.running, timeout=START_SECONDS, what="a start")
            return local(default_worker_container_cls, Local, Handle(process))

        yield start


@pytest.fixture
def default_worker_container(start_worker: Callable[..., Any]) -> Any:
    """The worker of a setup."""
    return start_worker("worker")


# --- jobs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(celery_setup: Any) -> Iterator[NodeJobs]:
    """The jobs of the setup. After the test the invariants must hold."""
    jobs = NodeJobs(celery_setup.app, celery_setup)
    yield jobs
    jobs.check()
