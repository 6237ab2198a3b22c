"""One app under test in this process: settings, the messages it has sent, the statements it runs."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from kombu import serialization
from kombu.asynchronous import set_event_loop
from kombu.compression import decompress
from sqlalchemy import event

from example_project import embedded
from tests.jobs import Jobs
from tests.tools import wait_for

QUICK: Mapping[str, Any] = {
    "supervise_lease_seconds": 3.0,
    "supervise_heartbeat_seconds": 0.5,
    "supervise_sweep_seconds": 0.5,
    "supervise_relay_seconds": 0.2,
    "supervise_republish_seconds": 1.0,
    "broker_connection_retry_on_startup": True,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "accept_content": ["json", "pickle", "yaml"],
    "result_accept_content": ["json", "pickle"],
}


def place(server: embedded.Redis, database_url: str, *, queue: str, **settings: Any) -> dict[str, Any]:
    """The settings of an app on these servers."""
    backend = urlsplit(server.url)._replace(path="/1").geturl()
    servers = {"broker_url": server.url, "result_backend": backend, "supervise_database_url": database_url}
    return {**QUICK, **servers, "task_default_queue": queue, **settings}


def connect(app: Celery, client: redis.Redis, settings: Mapping[str, Any]) -> Site:
    """Give an app its settings."""
    app.conf.update(settings)
    return Site(app, client, str(settings["task_default_queue"]))


@dataclass
class Site(Jobs):
    """An app with its broker in sight."""

    broker: redis.Redis
    queue: str

    def messages(self, queue: str = "*") -> list[dict[str, Any]]:
        """What waits in a queue (or in all), at any priority, as it went over the wire; oldest first."""
        lists = sorted(self.broker.scan_iter(match=f"{queue}*", _type="list"))
        return [json.loads(one) for key in lists for one in reversed(self.broker.lrange(key, 0, -1))]

    def held(self) -> set[str]:
        """The ids of the messages that workers hold, not yet acknowledged."""
        return {json.loads(one)[0]["headers"]["id"] for one in self.broker.hvals("unacked")}

    @contextmanager
    def statements(self) -> Iterator[list[str]]:
        """Collect the SQL that this thread sends to the jobs' database meanwhile."""
        sent: list[str] = []
        here = threading.get_ident()

        def note(_conn: Any, _cursor: Any, sql: str, *_: Any) -> None:
            if threading.get_ident() == here:
                sent.append(sql)

        engine = self.runtime.engines()
        event.listen(engine, "before_cursor_execute", note)
        try:
            yield sent
        finally:
            event.remove(engine, "before_cursor_execute", note)


@contextmanager
def working(site: Site, *, pool: str = "solo") -> Iterator[None]:
    """A worker of this app, in a thread."""
    set_event_loop(None)  # the one of a worker before it in this process has timers that nobody looks at
    with start_worker(site.app, pool=pool, concurrency=4, perform_ping_check=False, shutdown_timeout=30) as worker:
        yield
    # A worker that ends as this one does is in a process that ends, too. Here its own threads would go on, and on.
    signals.worker_shutdown.send(sender=worker)


def got(result: Any) -> Any:
    """What a result gives, when it is ready: by looking, not by a subscription.

    Here worker and caller are one process and share that; with threads 5.4 loses what comes by it.
    """
    wait_for(result.ready, what=f"the end of {result!r}")
    return result.get(timeout=20)


def body_of(message: Mapping[str, Any]) -> Any:
    """The arguments and callbacks in a message."""
    data = message["body"]
    raw = base64.b64decode(data) if message["properties"]["body_encoding"] == "base64" else data
    if compression := message["headers"].get("compression"):
        raw = decompress(raw, compression)
    return serialization.loads(
        raw, message["content-type"], message["content-encoding"], accept=[message["content-type"]]
    )
