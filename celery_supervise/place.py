"""Where an app's broker is, in one way to write it. Connects to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from celery import Celery
from kombu import Connection

HERE: Final = frozenset({"127.0.0.1", "::1"})


def broker_place(app: Celery) -> str:
    """Host, port and virtual host (with Redis the number) of each of its brokers; no user, no password.

    >>> broker_place(Celery(broker="redis://:secret@db:6379/1"))
    'db:6379/1'
    """
    connection = app.connection_for_write()
    return ", ".join(sorted(set(_places(connection))))


def _places(connection: Any) -> Iterator[str]:
    for url in connection.alt or [None]:
        info = (connection if url is None else Connection(url)).info()
        host = str(info.get("hostname") or "localhost").lower()
        name = _name(str(info.get("transport")), str(info.get("virtual_host") or ""))
        yield f"{'localhost' if host in HERE else host}:{info.get('port') or ''}/{name}"


def _name(transport: str, virtual_host: str) -> str:
    """Redis' first database, and RabbitMQ's `/`, need not be written."""
    if transport.startswith(("redis", "rediss", "sentinel")):
        return virtual_host.strip("/") or "0"
    return "" if virtual_host == "/" else virtual_host
