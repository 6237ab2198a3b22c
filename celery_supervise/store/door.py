"""The one door to the database: runs statements, bounds lock waits, says what went wrong. No decisions about jobs.

Every statement commits by itself (AUTOCOMMIT), or runs in one short READ COMMITTED transaction; no transaction
stays open when a method returns. A caller's own transaction is joined on request and never committed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ..config import Settings
from ..errors import Conflict, DatabaseUnavailable
from .joining import Joined
from .link import connected, rolled_back, told
from .parameters import check_given, timed
from .plans import Rendered, plans_of, unplanned
from .sql import Statement

Row = Mapping[str, Any]
T = TypeVar("T")


class Door:
    """Where every statement of the store goes through.

    `engines` gives this process's engine (an engine must not cross a fork). `lock_timeout` bounds each wait
    for a row; `lease` is how long an attempt runs on without a renewal; `notify` names the task that is told of
    questions; `counted`: owners may only run so many jobs, so that the relay alone lets theirs out.
    """

    def __init__(
        self,
        engines: Callable[[], Engine],
        *,
        schema: str,
        namespace: str,
        lease: timedelta,
        lock_timeout: timedelta,
        publish_hold: timedelta,
        notify: str | None = None,
        counted: bool = False,
    ) -> None:
        self._engines = engines
        self.schema = schema
        self.namespace = namespace
        self.lease = lease
        self.lock_timeout = lock_timeout
        self.publish_hold = publish_hold
        self.notify = notify
        self.counted = counted
        self._rendered: dict[tuple[Statement, bool], Rendered] = {}
        self._fitting: set[tuple[str, tuple[str, ...]]] = set()

    def over(self, engines: Callable[[], Engine]) -> Door:
        """The same door, over other connections."""
        other = copy(self)
        other._engines = engines  # noqa: SLF001  # of its own class
        return other

    @property
    def engine(self) -> Engine:
        """This process's engine."""
        return self._engines()

    @cached_property
    def quoted(self) -> str:
        """The schema's name as an identifier."""
        return '"' + self.schema.replace('"', '""') + '"'

    def one(self, statement: Statement, joined: Joined | None = None, /, **params: Any) -> Row | None:
        """The one row of a statement that commits by itself, or that joins the caller's transaction."""
        rows = self.all(statement, joined, **params)
        if len(rows) > 1:
            raise AssertionError(f"{statement.name} returned {len(rows)} rows for one job")
        return rows[0] if rows else None

    def all(self, statement: Statement, joined: Joined | None = None, /, **params: Any) -> Sequence[Row]:
        """All rows of a statement that commits by itself, or that joins the caller's transaction."""
        if joined is not None:
            with told(self.schema, joined=True):
                return self._execute(joined, statement, params, joined=True)
        try:
            return self._alone(statement, params)
        except DatabaseUnavailable as error:
            # a connection that died in the pool is found out only by using it: a read just uses the next
            if not (statement.only_reads and _cut(error)):
                raise
        return self._alone(statement, params)

    def _alone(self, statement: Statement, params: dict[str, Any]) -> Sequence[Row]:
        commits = not statement.only_reads
        with told(self.schema), self._autocommit() as connection, told(self.schema, commits=commits):
            # in a transaction of several statements a plan that is lost would end it
            return self._execute(connection, statement, params, joined=False, alone=self._reads_committed)

    def locked(self, lock: Statement, then: Statement, joined: Joined | None = None, /, **params: Any) -> Row | None:
        """`lock`, then `then` with a snapshot newer than the lock, in one transaction (protocol 6)."""
        if joined is not None:
            with told(self.schema, joined=True):
                return self._both(joined, lock, then, params, joined=True)
        with told(self.schema), self._transaction() as connection:
            return self._both(connection, lock, then, params, joined=False)

    def _both(
        self, connection: Joined, lock: Statement, then: Statement, params: dict[str, Any], *, joined: bool
    ) -> Row | None:
        names = self._render(lock, joined=joined).names
        to_lock = {name: value for name, value in params.items() if name in names}
        if not self._execute(connection, lock, to_lock, joined=joined):
            return None
        names = self._render(then, joined=joined).names
        to_move = {name: value for name, value in params.items() if name in names or name not in to_lock}
        rows = self._execute(connection, then, to_move, joined=joined)
        return rows[0] if rows else None

    @contextmanager
    def batch(self) -> Iterator[Callable[..., Sequence[Row]]]:
        """One transaction for a sweep: the yielded function runs a statement in it."""
        with told(self.schema), self._transaction() as connection:

            def run(statement: Statement, /, **params: Any) -> Sequence[Row]:
                return self._execute(connection, statement, params, joined=False)

            yield run

    def _execute(
        self, connection: Joined, statement: Statement, params: dict[str, Any], *, joined: bool, alone: bool = False
    ) -> Sequence[Row]:
        rendered = self._render(statement, joined=joined)
        given = self._given(rendered, params)
        if not isinstance(connection, Connection):
            return connection.run(rendered.driven, given)
        if statement.hot and alone:
            return plans_of(connection).run(connection, rendered, given)
        return unplanned(connection, rendered, given)

    def _given(self, rendered: Rendered, params: dict[str, Any]) -> dict[str, Any]:
        """All its parameters: the caller's, which must be its own, and what every statement may use."""
        common, fits = self._common(), (rendered.text, tuple(params))
        if fits not in self._fitting:  # looked at once for each statement and each way to call it
            check_given(rendered.statement.name, rendered.names, params, common)
            self._fitting.add(fits)
        return {name: timed(params[name] if name in params else common.get(name)) for name in rendered.names}

    def _common(self) -> Mapping[str, object]:
        return {
            "namespace": self.namespace,
            "lease": self.lease,
            "lock_timeout": f"{int(self.lock_timeout.total_seconds() * 1000)}ms",
            "publish_hold": self.publish_hold,
            "notify": self.notify,
            "counted": self.counted,
        }

    def _render(self, statement: Statement, *, joined: bool) -> Rendered:
        key = (statement, joined)
        if key not in self._rendered:
            self._rendered[key] = Rendered(statement, statement.render(self.quoted, joined=joined))
        return self._rendered[key]

    @contextmanager
    def _autocommit(self) -> Iterator[Connection]:
        if self._reads_committed:
            with connected(self.engine) as connection:
                yield connection
        else:
            with self._transaction() as connection:
                yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with connected(self.engine) as connection:
            connection.exec_driver_sql("BEGIN ISOLATION LEVEL READ COMMITTED")
            try:
                yield connection
            except BaseException:
                rolled_back(connection)
                raise
            with told(self.schema, commits=True):
                connection.exec_driver_sql("COMMIT")

    @cached_property
    def _reads_committed(self) -> bool:
        """Whether a bare statement runs at READ COMMITTED here; checked once (protocol 9)."""
        with connected(self.engine) as connection:
            return connection.exec_driver_sql("SHOW default_transaction_isolation").scalar() == "read committed"


def door_of(settings: Settings, engines: Callable[[], Engine], *, publish_hold: timedelta) -> Door:
    """The door that an app's settings describe."""
    return Door(
        engines,
        schema=settings.schema,
        namespace=settings.namespace,
        lease=settings.lease,
        lock_timeout=settings.lock_timeout,
        publish_hold=publish_hold,
        notify=settings.notify,
        counted=settings.owner_running is not None,
    )


def repeated(commit: Callable[[], T]) -> tuple[T, bool]:
    """What `commit` returned; and whether it may have been done by an earlier run, whose reply was lost.

    A commit whose connection was cut is run once more, on a new one. Ids in it are made before, so that the second
    run finds what the first has done, or waits for it where the server is still at it (protocol 5). Raises
    `DatabaseUnavailable` where the second fails, too.
    """
    try:
        return commit(), False
    except DatabaseUnavailable as error:
        if not (error.unknown or _cut(error)):
            raise
        doubt = error.unknown
    try:
        return commit(), doubt
    except DatabaseUnavailable as error:
        raise DatabaseUnavailable(error.detail, unknown=doubt or error.unknown, code=error.code) from error
    except Conflict as error:
        if not doubt:
            raise
        raise DatabaseUnavailable(str(error), unknown=True) from error


def _cut(error: DatabaseUnavailable) -> bool:
    return isinstance(error.__cause__, DBAPIError) and error.__cause__.connection_invalidated


def as_uuid(value: Any) -> UUID | None:
    """A uuid column as every driver gives it."""
    return value if value is None or isinstance(value, UUID) else UUID(str(value))
