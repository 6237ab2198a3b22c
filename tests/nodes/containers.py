"""pytest-celery's containers as local processes: what it asks of Docker, answered without it. Knows no job."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

from example_project.embedded import Server
from example_project.machine import HOST
from example_project.processes import Process

Container = TypeVar("Container")
CONNECT_SECONDS = 1.0


class Handle:
    """The calls of docker-py's `Container` that pytest-celery makes, for a process that runs already."""

    def __init__(self, process: Process, *, ports: Mapping[str, int] | None = None) -> None:
        self.process = process
        self.id = uuid.uuid4().hex
        self.name = f"{process.log.stem}-{self.id[:6]}"
        self.status = "created"
        published = {inner: [{"HostPort": str(port)}] for inner, port in (ports or {}).items()}
        self.attrs: dict[str, Any] = {
            "Config": {"Hostname": HOST, "Env": []},
            "HostConfig": {"PortBindings": {}},
            "NetworkSettings": {"Networks": {}, "Ports": published},
        }

    def reload(self) -> None:
        """As with Docker, the status is what it was when somebody looked last."""
        self.status = "running" if self.process.running else "exited"

    def logs(self, **_: Any) -> bytes:
        """All since its first start: as with Docker, a restart does not empty it."""
        return self.process.log.read_bytes()

    def kill(self, name: str | int | None = None) -> None:
        """A signal for the first process; SIGKILL takes the others with it, as the end of a container does."""
        number = signal.Signals[name] if isinstance(name, str) else signal.Signals(name or signal.SIGKILL)
        if number is not signal.SIGKILL:
            self.process.send_signal(number)
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self.process.wait()

    def restart(self, **_: Any) -> None:
        """End it in order, or by force when it takes too long, and start it anew."""
        self.process.stop()
        self.process.start()

    def exec_run(self, command: str, **_: Any) -> tuple[int, bytes]:
        """Run a command where the process runs. It sees the whole machine, not a container."""
        ran = subprocess.run(
            shlex.split(command),
            cwd=self.process.cwd,
            env=self.process.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return ran.returncode, ran.stdout


class Local:
    """What a container class has to know when there is no container. Stands before it in the bases."""

    _container: Handle
    ports: Any

    @property
    def pid(self) -> int:
        """Of the first process."""
        return self._container.process.pid

    def get_open_tcp_ports(self) -> list[str]:
        """The ports, as they are called inside the container, that somebody listens on."""
        return [name.partition("/")[0] for name, (port, *_) in self.ports.items() if listens(port)]

    def get_addr(self, port: str) -> tuple[str, int]:
        """Where to connect to, also where the tests themselves run in a container."""
        return HOST, self.ports[port][0]

    def teardown(self) -> None:
        """As the removal of a container, by force. Nodes and fixtures both do it."""
        if self._container.process.running:
            self._container.kill()
        self._container.process.stop()


class Serving(Local):
    """A server that clients reach by its URL, with the password that is in it."""

    @property
    def host_url(self) -> str:
        """As the tests reach it."""
        process = self._container.process
        assert isinstance(process, Server)
        return process.url

    @property
    def url(self) -> str:
        """As the workers reach it."""
        return self.host_url


def listens(port: int) -> bool:
    """Whether somebody takes connections."""
    with suppress(OSError), socket.create_connection((HOST, port), CONNECT_SECONDS):
        return True
    return False


def local(cls: type[Container], how: type[Local], handle: Handle) -> Container:
    """A container of pytest-celery's class that is a process, when it is ready in pytest-celery's own judgement."""
    made: Any = type(f"Local{cls.__name__}", (how, cls), {})(handle)
    while not made.ready():
        continue
    container: Container = made
    return container
