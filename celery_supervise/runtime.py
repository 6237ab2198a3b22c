"""What one app has of the library in this process: settings, engine, service, publisher. Made at first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, TypeAlias
from uuid import UUID, uuid4

from celery import Celery
from celery.utils.imports import symbol_by_name

from .aliases import Aliases, in_tests, name_of, url_of
from .body import Body
from .brokers import Broker
from .config import PREFIX, Settings, load
from .engine import EngineCell, create_engine
from .errors import ConfigError
from .heard import Heard
from .migrating import Memories
from .place import broker_place
from .publisher import CeleryPublisher
from .recipients import GroupsOf, asked_of
from .relay import Relay, Told
from .store.door import Door, door_of
from .supervisor import Supervisor
from .sweeps import Sweeper
from .values import IDENTITY, Codec
from .versions import Known
from .windows import LimitOf, limits
from .wording import shown

AnyTask: TypeAlias = Any
"""A task of the shop's: celery-types knows little of what a Task has (5.4-5.7)."""

ATTRIBUTE = "celery_supervise_runtime"
BODIES = "celery_supervise_bodies"
WORKERS = "celery_supervise_workers"
FLAG = "supervised"  # in the dict of a task's request, while its body runs in an attempt
PUBLISH_HOLD = timedelta(seconds=10)
"""For so long the relay leaves a new ticket to the process that made it."""


@dataclass
class Runtime:
    """The parts, in the order in which they need each other.

    `incarnation` names this worker's main process, `green` is whether its bodies are green threads, `heard` has
    the revokes that it heard, `reports` what its main loop has to tell the database, and `told` the jobs of whose end
    Celery has been told: its thread does that.
    """

    app: Celery
    settings: Settings
    engines: EngineCell
    door: Door
    codec: Codec
    publisher: CeleryPublisher
    supervisor: Supervisor
    relay: Relay
    broker: Broker
    sweeper: Sweeper
    owner: Callable[[], str | None]
    incarnation: UUID = field(default_factory=uuid4)
    green: bool = False
    heard: Heard = field(default_factory=Heard)
    reports: SimpleQueue[Callable[[], object]] = field(default_factory=SimpleQueue)
    told: SimpleQueue[Told] = field(default_factory=SimpleQueue)


def running_in(app: Any) -> dict[int, Body]:
    """The bodies that run in this process, jobs or not, by their own id. Needs no settings."""
    bodies: dict[int, Body] = app.__dict__.setdefault(BODIES, {})
    return bodies


@contextmanager
def running(app: Any, body: Body) -> Iterator[None]:
    """Count a body among those that run: a call in a thread that one of them started is known by it."""
    bodies = running_in(app)
    bodies[id(body)] = body
    try:
        yield
    finally:
        del bodies[id(body)]


def count_worker(app: Any, change: int) -> None:
    """A worker of this app begins or ends in this process. Before its pool forks, so that children know it, too."""
    app.__dict__[WORKERS] = app.__dict__.get(WORKERS, 0) + change


def in_worker(app: Any) -> bool:
    """Whether this process is a worker of the app. Needs no settings."""
    return bool(app.__dict__.get(WORKERS, 0))


def attempt_of(request: Any) -> Any:
    """The attempt that runs a task's body in this thread, by its request; None where none does."""
    return request.__dict__.get(FLAG)


def known_tasks(app: Any) -> Known:
    """The app's supervised tasks, and what they say of the versions of jobs that they can go on with."""
    return {name: task.supervise for name, task in app.tasks.items() if is_supervised(name, task)}


def memories_of(runtime: Runtime) -> Memories:
    """What reads the memories of this app's jobs."""
    settings = runtime.settings
    return Memories(runtime.door, runtime.codec, settings.max_value_bytes, settings.max_job_bytes)


def is_supervised(name: str, task: AnyTask) -> bool:
    """Whether calls of a task are jobs; Celery's own tasks never are."""
    return hasattr(task, "supervise") and not name.startswith("celery.")


def runtime_of(app: Celery) -> Runtime:
    """The runtime of this app, made at the first call. Raises `ConfigError`."""
    found = app.__dict__.get(ATTRIBUTE)
    if found is None:
        found = app.__dict__.setdefault(ATTRIBUTE, _make(app))
    return found  # type: ignore[no-any-return]  # app.__dict__ is untyped


def settings_of(app: Celery) -> Settings:
    """The app's `supervise_*` settings. Raises `ConfigError`."""
    namespace = app.__dict__.get("namespace")  # not in its stubs; CELERY where Django's settings are read
    prefix = f"{namespace}_" if namespace else ""
    names = (str(key).removeprefix(prefix) for key in app.conf)
    given = [name for name in names if name.lower().startswith(PREFIX)]
    return load(lambda name: said_of(app, name), given)


def said_of(app: Celery, name: str) -> Any:
    """What the app's configuration says of one setting; None where nothing. For what needs no other one."""
    return app.conf.first(name, name.upper())


def _make(app: Celery) -> Runtime:
    settings = settings_of(app)
    engines = _engines(settings)
    codec: Codec = symbol_by_name(settings.codec) if settings.codec else IDENTITY
    door = door_of(settings, engines, publish_hold=PUBLISH_HOLD)
    broker = Broker(door, lambda: broker_place(app))
    publisher = CeleryPublisher(app, namespace=settings.namespace, codec=codec)
    return Runtime(
        app=app,
        settings=settings,
        engines=engines,
        door=door,
        codec=codec,
        publisher=publisher,
        supervisor=Supervisor(
            door,
            publisher=publisher,
            codec=codec,
            max_value_bytes=settings.max_value_bytes,
            groups=_groups(settings),
            release_window=settings.release_window,
            open_limit=_limits("supervise_owner_open", settings.owner_open),
            using=Aliases(settings.schema).joined,
        ),
        relay=Relay(
            door,
            publisher,
            settling=timedelta(seconds=settings.republish_seconds),
            window=settings.release_window,
            running=_limits("supervise_owner_running", settings.owner_running),
            allowed=broker.check,
        ),
        broker=broker,
        sweeper=Sweeper(
            door,
            period=timedelta(seconds=settings.sweep_seconds),
            version_grace=timedelta(seconds=settings.version_grace_seconds),
        ),
        owner=_owner(settings),
    )


def _engines(settings: Settings) -> EngineCell:
    """Where the database is. With Django that is read anew each time: its tests have one of their own, and drop it."""
    alias, url = settings.database, settings.database_url
    if alias is not None:
        url_of(alias)
        return EngineCell(lambda: create_engine(url_of(alias), kept=not in_tests()), where=lambda: name_of(alias))
    if url is None:
        raise ConfigError("supervise_database_url", "is not set; give the URL of a Postgres database")
    return EngineCell(lambda: create_engine(url))


def _limits(setting: str, given: int | str | None) -> LimitOf | None:
    return limits(setting, function_at(setting, given) if isinstance(given, str) else given)


def _owner(settings: Settings) -> Callable[[], str | None]:
    if settings.owner is None:
        return lambda: None
    return function_at("supervise_owner", settings.owner)  # type: ignore[no-any-return]  # whatever the shop wrote


def _groups(settings: Settings) -> GroupsOf | None:
    if settings.groups is None:
        return None
    return asked_of(function_at("supervise_groups", settings.groups), settings.groups)


def function_at(setting: str, path: str) -> Any:
    """The function that a setting names. Raises `ConfigError`."""
    found: Any = symbol_by_name(path)
    if not callable(found):
        raise ConfigError(setting, f"{shown(path)} is not a function")
    return found
