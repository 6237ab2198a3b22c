"""The jobs of one setup of pytest-celery, as its tests look at them and act on them. Starts nothing."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.jobs import Jobs
from tests.tools import wait_for

GATE_SECONDS = 60.0


@dataclass
class NodeJobs(Jobs):
    """The app of a setup, and what its workers have done."""

    setup: Any
    """pytest-celery's `CeleryTestSetup`."""

    def effects(self, text: str) -> int:
        """How often a side effect happened, in any worker."""
        return sum(worker.logs().count(f"effect: {text}.") for worker in self.setup.worker_cluster)

    def at(self, gate: str, *, times: int = 1) -> None:
        """Wait until a body stands at the gate."""
        wait_for(lambda: self.effects(f"at {gate}") >= times, timeout=GATE_SECONDS, what=f"a body at {gate}")

    def open(self, gate: str) -> None:
        """Let pass whoever stands at the gate, and whoever comes later."""
        with closing(self.setup.backend.container.client) as client:
            client.set(gate, "open")

    def exited(self, worker: Any) -> None:
        """Wait until a worker has ended, as it was told."""

        def gone() -> bool:
            worker.container.reload()
            return bool(worker.container.status == "exited")

        wait_for(gone, timeout=GATE_SECONDS, what="the worker's end")
