"""The proxy of the tests, in front of a real Postgres: what is lost, and that the client sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from example_project import embedded
from example_project.machine import HOST
from tests.proxy import Proxy


@pytest.fixture
def proxy(pg_server: embedded.Postgres) -> Iterator[Proxy]:
    """A proxy in front of Postgres."""
    with Proxy((HOST, pg_server.port)) as running:
        yield running


@pytest.fixture
def connection(proxy: Proxy, empty_database_url: str) -> Iterator[psycopg2.extensions.connection]:
    """A connection through the proxy, in autocommit, to a database with an empty table `effects`."""
    with closing(psycopg2.connect(proxy.url(empty_database_url))) as through:
        through.autocommit = True
        through.cursor().execute("CREATE TABLE effects (number int)")
        yield through


def effects(url: str) -> int:
    """How many rows are there, asked without the proxy."""
    with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM effects")
        row = cursor.fetchone()
        assert row is not None
        return int(row[0])


def test_passes_everything_on(connection: psycopg2.extensions.connection, empty_database_url: str) -> None:
    """Untouched, it changes nothing, and large values pass too."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT repeat('x', 3000000), %s", ["y" * 3_000_000])
        assert cursor.fetchall() == [("x" * 3_000_000, "y" * 3_000_000)]
        cursor.execute("INSERT INTO effects VALUES (1)")
    assert effects(empty_database_url) == 1


def test_lost_request_had_no_effect(
    connection: psycopg2.extensions.connection, proxy: Proxy, empty_database_url: str
) -> None:
    """A lost request never reached the server; the client sees the connection end."""
    lost = proxy.lose("request", b"INSERT INTO effects")
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("INSERT INTO effects VALUES (1)")
    assert lost.is_set()
    assert effects(empty_database_url) == 0


def test_lost_reply_had_its_effect(
    connection: psycopg2.extensions.connection, proxy: Proxy, empty_database_url: str
) -> None:
    """With a lost reply the statement committed, and the client sees the same as with a lost request."""
    lost = proxy.lose("reply", b"INSERT INTO effects")
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("INSERT INTO effects VALUES (1)")
    assert lost.is_set()
    assert effects(empty_database_url) == 1


def test_trap_is_sprung_once(connection: psycopg2.extensions.connection, proxy: Proxy, empty_database_url: str) -> None:
    """Only the next request is lost; the one after it passes."""
    proxy.lose("request", b"INSERT INTO effects")
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("INSERT INTO effects VALUES (1)")
    with closing(psycopg2.connect(proxy.url(empty_database_url))) as another, another:
        another.cursor().execute("INSERT INTO effects VALUES (2)")
    assert effects(empty_database_url) == 1


def test_cut_ends_what_is_open(connection: psycopg2.extensions.connection, proxy: Proxy) -> None:
    """Cutting ends open connections, and new ones are possible."""
    proxy.cut()
    with pytest.raises(psycopg2.OperationalError):
        connection.cursor().execute("SELECT 1")


def test_refusing_is_a_server_that_is_down(proxy: Proxy, empty_database_url: str) -> None:
    """Within the block a connection is refused, after it accepted, on the same port."""
    with proxy.refusing(), pytest.raises(psycopg2.OperationalError, match="Connection refused"):
        psycopg2.connect(proxy.url(empty_database_url))
    psycopg2.connect(proxy.url(empty_database_url)).close()


def test_silence_is_noticed_by_a_timeout_only(proxy: Proxy, empty_database_url: str) -> None:
    """Silent, it accepts a connection and never answers."""
    proxy.silent = True
    with pytest.raises(psycopg2.OperationalError, match="timeout expired"):
        psycopg2.connect(proxy.url(empty_database_url), connect_timeout=2)


def test_delay_slows_each_reply(connection: psycopg2.extensions.connection, proxy: Proxy) -> None:
    """A delay counts in both directions."""
    proxy.delay = 0.1
    before = time.monotonic()
    connection.cursor().execute("SELECT 1")
    assert time.monotonic() - before >= 0.2
