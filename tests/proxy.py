"""A TCP proxy in front of a server, for tests that delay, swallow and cut. Knows no protocol."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from example_project.machine import HOST, free_port

CHUNK = 65_536
POLL_SECONDS = 0.05
Loss = Literal["request", "reply"]


@dataclass
class Trap:
    """Bytes of a request that will be lost, or whose reply will be; sprung once."""

    loss: Loss
    pattern: bytes
    sprung: threading.Event = field(default_factory=threading.Event)


@dataclass
class Link:
    """A client's connection, and ours to the server for it."""

    client: socket.socket
    server: socket.socket
    awaited: Trap | None = None
    """Its request has passed; the reply will not."""

    def cut(self) -> None:
        """End both connections; whoever waits on them sees the end at once."""
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@dataclass
class Proxy:
    """Passes everything on, in both directions, until it is told otherwise. A context manager."""

    target: tuple[str, int]
    delay: float = 0.0
    """Seconds that each chunk waits before it is passed on, in either direction."""
    silent: bool = False
    """Swallow everything, as a network does that drops packets: connections stay, nothing arrives."""
    port: int = field(default_factory=free_port, init=False)
    _open: bool = field(default=False, init=False)
    _acceptor: threading.Thread | None = field(default=None, init=False)
    _links: list[Link] = field(default_factory=list, init=False)
    _pumps: list[threading.Thread] = field(default_factory=list, init=False)
    _traps: list[Trap] = field(default_factory=list, init=False)

    def __enter__(self) -> Proxy:  # noqa: PYI034 - Self is newer than Python 3.10
        self._listen()
        return self

    def __exit__(self, *_: object) -> None:
        self._refuse()
        for pump in self._pumps:
            pump.join()

    def url(self, url: str) -> str:
        """The same URL, by way of this proxy."""
        parts = urlsplit(url)
        return url.replace(f"{parts.hostname}:{parts.port}", f"{HOST}:{self.port}")

    def cut(self) -> None:
        """Cut all connections that there are."""
        for link in tuple(self._links):  # who is cut may be back before the last is
            link.cut()

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Cut all connections and refuse new ones, as a server does that is down, for the block."""
        self._refuse()
        try:
            yield
        finally:
            self._listen()

    def lose(self, loss: Loss, pattern: bytes) -> threading.Event:
        """Cut the connection of the next request that has these bytes in one piece of it (8 KiB with libpq).

        "request": before the server gets it. "reply": once the server has replied, before the client hears of
        it. The event tells that it has happened.
        """
        trap = Trap(loss, pattern)
        self._traps.append(trap)
        return trap.sprung

    def _listen(self) -> None:
        listener = socket.create_server((HOST, self.port))
        listener.settimeout(POLL_SECONDS)
        self._open = True
        self._acceptor = start(lambda: self._accept(listener))

    def _refuse(self) -> None:
        self._open = False
        if self._acceptor is not None:
            self._acceptor.join()
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while self._open:
                with contextlib.suppress(TimeoutError):
                    self._connect(listener.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.target)
        except OSError:  # the server is down, and the client learns it so
            client.close()
            return
        link = Link(client, server)
        self._links.append(link)
        self._pumps.append(start(lambda: self._pump(link)))

    def _pump(self, link: Link) -> None:
        # one thread for both directions, so that no socket is closed while another thread uses its number
        with link.client, link.server, contextlib.suppress(OSError):
            while True:
                for source in select.select([link.client, link.server], [], [])[0]:
                    chunk = source.recv(CHUNK)
                    if not chunk or not self._pass_on(link, source, chunk):
                        return

    def _pass_on(self, link: Link, source: socket.socket, chunk: bytes) -> bool:
        """Whether the connection goes on."""
        time.sleep(self.delay)
        if self.silent:
            return True
        if source is link.server:
            return self._reply(link, chunk)
        return self._request(link, chunk)

    def _request(self, link: Link, chunk: bytes) -> bool:
        trap = next((trap for trap in self._traps if trap.pattern in chunk), None)
        if trap is not None:
            self._traps.remove(trap)
        if trap is not None and trap.loss == "request":
            trap.sprung.set()
            return False
        link.awaited = trap or link.awaited
        link.server.sendall(chunk)
        return True

    def _reply(self, link: Link, chunk: bytes) -> bool:
        if link.awaited is not None:
            link.awaited.sprung.set()
            return False
        link.client.sendall(chunk)
        return True


@dataclass
class Tap(Proxy):
    """A proxy that keeps what it passes on to the server: all bytes up to a reply are one request."""

    requests: list[bytes] = field(default_factory=list)
    _replied: bool = field(default=True, init=False)

    def _request(self, link: Link, chunk: bytes) -> bool:
        if self._replied or not self.requests:
            self.requests.append(chunk)
        else:  # libpq sends 8 KiB at a time
            self.requests[-1] += chunk
        self._replied = False
        return super()._request(link, chunk)

    def _reply(self, link: Link, chunk: bytes) -> bool:
        self._replied = True
        return super()._reply(link, chunk)


def start(work: Callable[[], None]) -> threading.Thread:
    """Run `work` in a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
