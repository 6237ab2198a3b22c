"""Connects a Celery app: worker steps, beat entries. Happens by itself when a supervised task is bound. Idempotent."""

from __future__ import annotations

from typing import Any

from celery import Celery

from . import lasting
from .config import Settings
from .errors import ConfigError
from .groups import gather_groups
from .revoking import HearRevokes
from .runtime import Runtime, runtime_of, settings_of
from .supervisor import Supervisor as Service
from .sweeps import SWEEPS
from .unknown import UnknownTasks
from .worker import KeeperStep, own

INSTALLED = "celery_supervise_installed"
SWEEP_TASK = "celery_supervise.sweep"
RELAY_TASK = "celery_supervise.relay"


def install(app: Celery) -> None:
    """Connect `app`. Reads no setting yet: those are read when they are needed."""
    if app.__dict__.setdefault(INSTALLED, False):
        return
    app.__dict__[INSTALLED] = True
    gather_groups(app)
    app.steps["worker"].add(KeeperStep)
    app.steps["consumer"].update((HearRevokes, UnknownTasks))
    _add_tasks(app)
    if getattr(app, "finalized", False):
        add_beat_entries(app)
    else:
        app.on_after_finalize.connect(add_beat_entries, weak=False)


def _add_tasks(app: Celery) -> None:
    def sweep() -> None:
        sweep_once(runtime_of(app))

    def relay() -> None:
        runtime_of(app).relay.run_once()

    make: Any = app.task  # its stubs know the decorator's form only
    make(sweep, name=SWEEP_TASK, ignore_result=True, shared=False, lazy=False)
    make(relay, name=RELAY_TASK, ignore_result=True, shared=False, lazy=False)


def sweep_once(runtime: Runtime, *, force: bool = False) -> None:
    """One pass of every sweep: the same that each worker's thread makes."""
    for kind in SWEEPS:
        runtime.sweeper.run_once(kind, force=force, own=own(runtime))
    runtime.sweeper.find_lost(runtime.relay, force=force)
    runtime.sweeper.renew(lambda: lasting.renew(runtime), lasting.period(runtime.app), force=force)
    if runtime.settings.retention is not None:
        runtime.sweeper.prune(runtime.settings.retention, force=force)


def add_beat_entries(sender: Celery, **_: Any) -> None:
    """Beat runs the sweeps, too. An entry of the same name in the shop's schedule wins."""
    try:
        settings = settings_of(sender)
    except ConfigError:
        return  # told at the first use of the library, with its traceback, not at every start of the app
    if not settings.beat:
        return
    for name, task, period in (
        ("supervise.sweep", SWEEP_TASK, settings.sweep_seconds),
        ("supervise.relay", RELAY_TASK, max(settings.relay_seconds, 5.0)),
    ):
        if name not in sender.conf.beat_schedule:
            sender.add_periodic_task(
                period, sender.signature(task, immutable=True), name=name, **_entry_options(settings, period)
            )


def _entry_options(settings: Settings, period: float) -> dict[str, Any]:
    queue = {"queue": settings.queue} if settings.queue else {}
    return {"expires": period, **queue}


class Supervisor(Service):
    """The service, of a Celery app: ``supervise = Supervisor.of(app)``."""

    @classmethod
    def of(cls, app: Celery) -> Service:
        """The service of `app`: one an app and process; imports no tasks. Raises `ConfigError`."""
        install(app)
        return runtime_of(app).supervisor
