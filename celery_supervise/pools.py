"""What differs between worker pools: which are refused, what they forget, and threads under gevent. Knows no job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from psycopg2 import extensions
from sqlalchemy.engine import Engine

from .errors import ConfigError

SETTING = "worker_pool"


def is_green(pool: Any) -> bool:
    """Whether a pool's bodies are green threads: of one process, in one OS thread, taking turns."""
    return bool(getattr(pool, "is_green", False))


def check_pool(pool: Any, engine: Engine) -> None:
    """Refuse a pool in which bodies or heartbeats would stand still. Connects to nothing. Raises `ConfigError`."""
    if not is_green(pool):
        return
    if gevents() is None:
        raise ConfigError(SETTING, "of green threads only gevent is supported; or use prefork, threads, solo")
    if engine.driver == "psycopg2" and extensions.get_wait_callback() is None:
        raise ConfigError(
            SETTING,
            "is gevent, under which psycopg2 would hold up all bodies at each statement: write postgresql+psycopg://"
            " in supervise_database_url, or call psycogreen.gevent.patch_psycopg() where the app is made",
        )


def gevents() -> Any:
    """The patches of gevent, where it has patched this process; else None."""
    return sys.modules.get("gevent.monkey") if is_patched("threading") else None


def is_patched(module: str) -> bool:
    """Whether gevent has replaced what is in this module of the standard library."""
    monkey: Any = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(module))


def keep_what_runs(pool: Any) -> None:
    """Let a prefork pool remember what its children are at when the worker loses its broker.

    Celery then forgets it, up to 5.5: the child's result is for nobody, and the attempt's lease ends while its body
    runs. Up to 5.6 it forgets that these children are busy: what comes next waits behind a body that may run for hours,
    while another child is free. Later ones do not; there is nothing to put back.
    """
    flush, inner = getattr(pool, "flush", None), getattr(pool, "_pool", None)
    known, busy = getattr(inner, "_cache", None), getattr(inner, "_busy_workers", None)
    if not callable(flush) or not isinstance(known, dict) or not isinstance(busy, set):
        return

    def flushed() -> None:
        running = {number: job for number, job in known.items() if job.accepted() and not job.ready()}
        at_work = busy & {child.inqW_fd for child in map(_child_of, running.values()) if child is not None}
        flush()
        known.update(running)
        busy.update(at_work)

    pool.flush = flushed


def _child_of(job: Any) -> Any:
    """The process that runs it, while it lives (its names: 5.4-5.7)."""
    child = getattr(job, "_write_to", None) or getattr(job, "_scheduled_for", None)
    return child if child is not None and child._is_alive() else None  # noqa: SLF001  # as Celery's own pool asks it


class Ticking:
    """Calls `act` again and again, in an OS thread of its own whatever the pool, until it is stopped.

    Under gevent a `threading.Thread` is a green thread, which stands still while a body calculates.
    """

    def __init__(self, act: Callable[[], object], *, every: float, name: str) -> None:
        self._act = act
        self._every = every
        self._name = name
        self._stopped = False

    def start(self) -> None:
        """Start the thread."""
        monkey = gevents()
        if monkey is None:
            Thread(target=self._go, args=(time.sleep,), name=self._name, daemon=True).start()
        else:
            monkey.get_original("_thread", "start_new_thread")(self._go, (monkey.get_original("time", "sleep"),))

    def stop(self) -> None:
        """End it, soon."""
        self._stopped = True

    def _go(self, sleep: Callable[[float], None]) -> None:
        while not self._stopped:
            self._act()
            sleep(self._every)
