"""Races with real sessions. Who waits for whom is read from Postgres before anybody goes on; knows no rule of jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.sql import text

from celery_supervise.engine import create_engine
from celery_supervise.store.door import Door, Row
from celery_supervise.store.joining import Joined
from celery_supervise.store.sql import Statement
from tests.tools import wait_for

PATIENCE = 60.0  # seconds after which a call that should have ended has not

PLANS: Mapping[str, tuple[str, ...]] = {
    "nested-loops": (),
    "hash-joins": ("nestloop", "mergejoin", "indexscan", "bitmapscan"),
    "merge-joins": ("nestloop", "hashjoin", "material"),
}
"""What the planner may not use. Of itself it takes nested loops, since it expects one row of each CTE."""

WAITERS = text(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND :pid = ANY(pg_blocking_pids(pid))"
)
IDLE_IN_TRANSACTION = text(
    "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND state LIKE 'idle in transaction%'"
)


class Call:
    """A call in a thread of its own. `outcome` is what it returned, or the error that it raised."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._outcome = work()
        except BaseException as error:  # noqa: BLE001 - control flow is an outcome, too; the test judges it
            self._outcome = error

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def outcome(self) -> Any:
        """Wait for its end."""
        self._thread.join(PATIENCE)
        assert not self.running, "the call did not end"
        return self._outcome


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Start all together, each in a thread of its own; the outcomes in their order."""
    barrier = threading.Barrier(len(works))

    def after_barrier(work: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            barrier.wait(PATIENCE)
            return work()

        return run

    calls = [Call(after_barrier(work)) for work in works]
    return [call.outcome() for call in calls]


@contextmanager
def planning(url: str, without: Iterable[str]) -> Iterator[Engine]:
    """An engine whose sessions plan without these methods (`enable_…`)."""
    # before Postgres 18 a forbidden method makes a plan so expensive that each statement is compiled first
    options = " ".join(["-c jit=off", *(f"-c enable_{method}=off" for method in without)])
    engine = create_engine(make_url(url).update_query_dict({"options": options}), pool_size=5, max_overflow=60)
    yield engine
    engine.dispose()


# --- who waits for whom ----------------------------------------------------------------------------------


def pid_of(connection: Connection) -> int:
    """The server's process behind a connection, as the driver knows it: no statement is run."""
    pid = connection.connection.dbapi_connection.info.backend_pid  # type: ignore[union-attr] # psycopg's own
    assert isinstance(pid, int)
    return pid


def waiters(engine: Engine, pid: int) -> list[int]:
    """The sessions that wait for a lock that the session `pid` holds or will get before them."""
    with engine.connect() as connection:
        return list(connection.execute(WAITERS, {"pid": pid}).scalars())


def waiter(engine: Engine, pid: int) -> int:
    """The one session that waits for the session `pid`, once it does: this is the proof that it is blocked."""
    (found,) = wait_for(lambda: waiters(engine, pid), what=f"a session that waits for {pid}")
    return found


@contextmanager
def row_held(engine: Engine, table: str, key: str, value: object) -> Iterator[int]:
    """A session that holds one row, and does nothing else; yields its pid. The row is free after the block."""
    lock = text(f"SELECT FROM supervise.{table} WHERE {key} = :value FOR NO KEY UPDATE")
    with engine.connect() as connection, connection.begin():
        assert connection.execute(lock, {"value": value}).rowcount == 1
        yield pid_of(connection)


def in_order(engine: Engine, job_id: str, first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
    """Both at once, and `first` is proven to get the job's row before `second`, which waited for it.

    Each has begun its statement, and so has taken its snapshot, before the other has changed anything.
    """
    with row_held(engine, "jobs", "id", job_id) as gate:
        one = Call(first)
        before = waiter(engine, gate)
        other = Call(second)
        waiter(engine, before)
    return one.outcome(), other.outcome()


# --- a session that stops in the middle ------------------------------------------------------------------


@dataclass
class Halt:
    """A session that stands still. `pid` is its server process, once it has stopped."""

    marker: str
    pid: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)
    _going: threading.Event = field(default_factory=threading.Event)

    def reached(self, call: Call) -> int:
        """Wait until `call` stands still here; the pid of its session."""
        wait_for(lambda: self._stopped.is_set() or not call.running, what=f"{self.marker!r}", timeout=PATIENCE)
        assert self._stopped.is_set(), f"it never came to {self.marker!r}, and ended with {call.outcome()!r}"
        return self.pid

    def go(self) -> None:
        """Let it go on."""
        self._going.set()

    def stop(self, connection: Connection) -> None:
        """Called in the session's own thread. Only the first that comes is stopped, and nobody after `go`."""
        if not (self._stopped.is_set() or self._going.is_set()):
            self.pid = pid_of(connection)
            self._stopped.set()
            assert self._going.wait(PATIENCE), f"nobody let it go on from {self.marker!r}"


@contextmanager
def halted(engine: Engine, statement: Statement | None) -> Iterator[Halt]:
    """The first session of `engine` that comes to `statement` (None: to a COMMIT) stops before it.

    The listener stays with the engine: SQLAlchemy cannot take one away while another thread is in it.
    """
    halt = Halt(statement.name if statement else "COMMIT")
    wanted = sql_of(engine, statement) if statement else "COMMIT"

    def before_statement(connection: Connection, _: object, sql: str, *__: object) -> None:
        if sql == wanted:
            halt.stop(connection)

    sa.event.listen(engine, "before_cursor_execute", before_statement)
    try:
        yield halt
    finally:
        halt.go()


def sql_of(engine: Engine, statement: Statement) -> str:
    """A statement as the driver of `engine` gets it."""
    return str(text(statement.render('"supervise"', joined=False)).compile(dialect=engine.dialect))


class OpenDoor(Door):
    """A door whose statements all run in one transaction, which stays open: what it did, nobody sees yet."""

    def __init__(self, door: Door, connection: Connection) -> None:
        super().__init__(
            lambda: door.engine,
            schema=door.schema,
            namespace=door.namespace,
            lease=door.lease,
            lock_timeout=door.lock_timeout,
            publish_hold=door.publish_hold,
        )
        self._open = connection

    def all(self, statement: Statement, _joined: Joined | None = None, /, **params: Any) -> Sequence[Row]:
        """In the open transaction."""
        return self._execute(self._open, statement, params, joined=False)

    def locked(self, lock: Statement, then: Statement, _joined: Joined | None = None, /, **params: Any) -> Row | None:
        """Likewise."""
        return self._both(self._open, lock, then, params, joined=False)

    @contextmanager
    def batch(self) -> Iterator[Callable[..., Sequence[Row]]]:
        """Likewise; it ends with the others."""
        yield self.all
