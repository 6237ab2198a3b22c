"""A shop under test: its client app, its workers as processes, what can be seen and done from outside."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
import psycopg2
import redis
from celery.result import AsyncResult

from example_project import embedded
from example_project.machine import HOST, free_port
from example_project.processes import Process
from tests.acceptance.project import SHOP, Place, build
from tests.jobs import Jobs, close
from tests.servers import Database, revive
from tests.tools import wait_for

ROOT = Path(__file__).resolve().parents[2]
CELERY = [sys.executable, "-m", "celery"]
SERVE = "tests.acceptance.serve"
WORKER = ["worker", "-l", "INFO", "--without-gossip", "--without-mingle"]
START_SECONDS = 40.0


@dataclass
class Worker(Process):
    """A Celery worker: a main process and its children."""

    def wait_until_ready(self) -> None:
        """It takes messages."""
        wait_for(lambda: " ready." in self.tail() or not self.running, timeout=START_SECONDS, what="the worker's start")
        assert self.running, self.tail()

    @property
    def children(self) -> list[int]:
        """The processes that run the bodies."""
        return [child.pid for child in psutil.Process(self.pid).children()]

    def text(self) -> str:
        """All of its log."""
        return self.log.read_text(errors="replace")

    def kill_all(self) -> None:
        """SIGKILL, parent first, as a machine that loses its power."""
        children = self.children
        self.kill()
        for pid in children:
            psutil.Process(pid).kill()


@dataclass(frozen=True)
class Flower:
    """Flower, by its API."""

    process: Process
    url: str

    def ask(self, path: str) -> Any:
        """What the API answers; nothing while it does not."""
        with suppress(OSError), urlopen(f"{self.url}/api/{path}", timeout=10) as reply:  # noqa: S310  # http, ours
            return json.load(reply)
        return {}

    def workers(self) -> list[str]:
        """The workers that it has events of."""
        return sorted(self.ask("workers?status=true"))

    def state(self, result: AsyncResult[Any]) -> str | None:
        """The state of a task."""
        found = self.ask("tasks").get(result.id)
        return found["state"] if found else None


@dataclass
class Shop(Jobs):
    """One shop: place, client app, and the processes of its workers."""

    place: Place
    broker: redis.Redis
    processes: ExitStack
    workers: dict[str, Worker] = field(default_factory=dict)

    # --- workers -----------------------------------------------------------------------------------------

    def worker(
        self, name: str = "w", *options: str, concurrency: int = 1, ready: bool = True, module: str = SERVE
    ) -> Worker:
        """Start a worker (with prefork children, unless `options` say otherwise); it ends with the test."""
        worker = Worker(
            [*CELERY, "-A", module, *WORKER, "-n", f"{name}@shop", "-c", str(concurrency), *options],
            Path(self.place.folder) / f"{name}.log",
            cwd=ROOT,
            env=self.environment,
        )
        self.processes.enter_context(worker)
        self.workers[name] = worker
        if ready:
            worker.wait_until_ready()
        return worker

    @property
    def environment(self) -> dict[str, str]:
        """Of the shop's processes. Those that are killed leave folders in TMPDIR."""
        return {
            **os.environ,
            SHOP: self.place.dump(),
            "C_FORCE_ROOT": "1",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": self.place.folder,
        }

    def beat(self) -> Process:
        """Start Celery's beat; it ends with the test."""
        folder = Path(self.place.folder)
        command = [*CELERY, "-A", SERVE, "beat", "-l", "INFO", "-s", str(folder / "schedule"), "--pidfile="]
        return self.processes.enter_context(Process(command, folder / "beat.log", cwd=ROOT, env=self.environment))

    def flower(self) -> Flower:
        """Start Flower, and wait until it listens; it ends with the test."""
        port = free_port()
        command = [*CELERY, "-A", SERVE, "flower", f"--port={port}", f"--address={HOST}"]
        env = {**self.environment, "FLOWER_UNAUTHENTICATED_API": "true"}
        log = Path(self.place.folder) / "flower.log"
        flower = Flower(self.processes.enter_context(Process(command, log, cwd=ROOT, env=env)), f"http://{HOST}:{port}")
        wait_for(flower.workers, timeout=START_SECONDS, what="the first event that Flower takes")
        return flower

    def log_text(self) -> str:
        """The logs of all workers."""
        return "\n".join(worker.text() for worker in self.workers.values())

    # --- tasks -------------------------------------------------------------------------------------------

    def task(self, name: str) -> Any:
        """The task, as the shop's web processes know it."""
        return self.app.tasks[f"tests.acceptance.bodies.{name}"]

    def send(self, name: str, *args: Any, **options: Any) -> AsyncResult[Any]:
        """Submit a job."""
        result: AsyncResult[Any] = self.task(name).apply_async(args, **options)
        return result

    # --- effects -----------------------------------------------------------------------------------------

    def effects(self, prefix: str = "") -> list[str]:
        """The side effects so far that begin so."""
        return [line for line in self.place.effects() if line.startswith(prefix)]

    def at(self, gate: str, *, times: int = 1) -> None:
        """Wait until a task stands at the gate."""
        wait_for(lambda: self.effects(f"at {gate}").count(f"at {gate}") >= times, what=f"a task at {gate}")

    def open(self, gate: str) -> None:
        """Let the tasks at the gate go on."""
        self.place.open(gate)

    def outlives_its_lease(self, result: AsyncResult[Any]) -> None:
        """Wait until the running attempt has been renewed after the end of the lease that it has now."""
        first = self.supervise.attempts(result.id)[-1].lease_until
        wait_for(lambda: self.supervise.attempts(result.id)[-1].heartbeat_at > first, what="more than a lease")

    @contextmanager
    def held(self, result: AsyncResult[Any]) -> Iterator[None]:
        """Somebody else has the job's row for the block."""
        with closing(psycopg2.connect(self.app.conf.supervise_database_url)) as other:
            other.cursor().execute("SELECT FROM supervise.jobs WHERE id = %s FOR UPDATE", (result.id,))
            yield

    def now(self) -> datetime:
        """The database's clock."""
        with closing(psycopg2.connect(self.app.conf.supervise_database_url)) as clock, clock.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            (now,) = cursor.fetchone() or ()
            return cast("datetime", now)

    def unclench(self, gate: str) -> None:
        """Let go on who holds the interpreter's lock at this gate."""
        os.close(os.open(self.place.pipe(gate), os.O_WRONLY))

    def tidy(self) -> None:
        """Forget all effects and gates."""
        for pattern in ("effects", "gate *", "kill *", "pipe *"):
            for path in Path(self.place.folder).glob(pattern):
                path.unlink()

    @property
    def queued(self) -> int:
        """How many messages wait in the shop's queue."""
        return int(self.broker.llen(self.place.queue))


@contextmanager
def opened(
    server: embedded.Redis,
    number: int,
    database: Database,
    folder: Path,
    *,
    other_broker: str | None = None,
    queue: str = "shop",
    **settings: Any,
) -> Iterator[Shop]:
    """A shop on two empty databases of Redis, or with another broker.

    Its workers end with it, before its database is dropped.
    """
    revive(server)
    broker, backend = (urlsplit(server.url)._replace(path=f"/{one}").geturl() for one in (number, number + 1))
    for url in (broker, backend):
        with closing(redis.Redis.from_url(url)) as client:
            client.flushdb()
    place = Place(other_broker or broker, backend, database.url, str(folder), queue, settings)
    with ExitStack() as processes, closing(redis.Redis.from_url(broker, decode_responses=True)) as client:
        shop = Shop(build(place), place, client, processes)
        try:
            yield shop
        finally:
            processes.close()
            close(shop.app)
