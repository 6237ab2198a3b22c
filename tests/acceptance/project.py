"""The shop of the acceptance tests: its settings, its effects, its tasks. Runs in the workers and in the tests.

A side effect is a line in a file. A task that must be caught at a place stands at a gate until the test opens it.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from celery import Celery

from tests.acceptance import bodies

SHOP = "ACCEPTANCE_SHOP"
"""The environment variable that tells a worker its shop, as JSON."""
GATE_SECONDS = 60.0
POLL_SECONDS = 0.02

SETTINGS: Mapping[str, Any] = {
    "supervise_lease_seconds": 3.0,
    "supervise_heartbeat_seconds": 0.5,
    "supervise_sweep_seconds": 0.5,
    "supervise_relay_seconds": 0.2,
    "supervise_republish_seconds": 1.0,
    "supervise_beat": False,
    "broker_connection_retry_on_startup": True,
    "worker_prefetch_multiplier": 1,
    "result_expires": 3600,
}
"""Everything that is a matter of minutes in production is one of a second or two here."""


@dataclass(frozen=True)
class Place:
    """Where a shop is: its servers, its queue, the folder of its effects and gates."""

    broker: str
    backend: str
    database: str
    folder: str
    queue: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def dump(self) -> str:
        """For the environment of a worker."""
        return json.dumps(asdict(self))

    @staticmethod
    def given() -> Place:
        """Of this process, a worker."""
        return Place(**json.loads(os.environ[SHOP]))

    def with_backend(self, url: str) -> Place:
        """The same place, for workers that reach the result backend another way."""
        return replace(self, backend=url)

    def with_database(self, url: str) -> Place:
        """The same place, for workers that reach the database another way."""
        return replace(self, database=url)

    def effect(self, line: str) -> None:
        """A side effect: one line, by one write."""
        with (Path(self.folder) / "effects").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def effects(self) -> list[str]:
        """All side effects so far, in order."""
        path = Path(self.folder) / "effects"
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []

    def stand_at(self, gate: str) -> None:
        """Say that we are here, and wait until the test opens the gate."""
        self.effect(f"at {gate}")
        until = time.monotonic() + GATE_SECONDS
        while not self.is_open(gate):
            if time.monotonic() > until:
                raise TimeoutError(f"nobody opened {gate}")
            time.sleep(POLL_SECONDS)

    def spin_at(self, gate: str) -> str:
        """Say that we are here, and look for the gate's opening without a pause."""
        self.effect(f"at {gate}")
        until = time.monotonic() + GATE_SECONDS
        while not self.is_open(gate):
            if time.monotonic() > until:
                raise TimeoutError(f"nobody opened {gate}")
        return gate

    def clench_at(self, gate: str) -> str:
        """Say that we are here, and wait in C, holding the interpreter's lock, until somebody writes to the pipe."""
        os.mkfifo(self.pipe(gate))
        self.effect(f"at {gate}")
        os.close(ctypes.PyDLL(None).open(str(self.pipe(gate)).encode(), os.O_RDONLY))
        return gate

    def pipe(self, gate: str) -> Path:
        """The pipe at which a body holds on to the interpreter's lock."""
        return Path(self.folder) / f"pipe {gate}"

    def open(self, gate: str) -> None:
        """Let pass whoever stands at the gate, and whoever comes later."""
        self._gate(gate).touch()

    def is_open(self, gate: str) -> bool:
        """Whether the test has let pass whoever stands there."""
        return self._gate(gate).exists()

    def _gate(self, gate: str) -> Path:
        return Path(self.folder) / f"gate {gate}"


def build(place: Place) -> Celery:
    """The shop's Celery app, with its tasks."""
    app = Celery("shop", broker=place.broker, backend=place.backend, set_as_current=False)
    app.conf.update(SETTINGS)
    app.conf.update(
        supervise_database_url=place.database,
        task_default_queue=place.queue,
        **place.settings,
    )
    bodies.define(app, place)
    return app
