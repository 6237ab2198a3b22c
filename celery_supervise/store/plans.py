"""Plans that a session keeps: a hot statement is parsed and planned once in it, not at each run. No decisions.

Parsing and planning are most of what such a statement costs (a claim: 2.0 ms of Postgres, 0.45 ms with its plan
kept; 18). Only in a session that is ours alone: behind a pooler the next run may be in another one. That is seen by
the process id, which a pooler makes up; no setting is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from typing import Any, Final, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from ..engine import backend_pid, sqlstate
from .sql import Statement
from .straight import Rows, straight

PARAMETER: Final = re.compile(r"(?<![:\w\\]):(\w+)(?!:)")  # as sqlalchemy.text() finds them
PATIENCE: Final = 2
"""Runs in a session before a plan is kept: one that lives for a single job would pay for it and have nothing of it."""

RENEWED_AFTER: Final = 1000
"""Runs in a session after which its plans are made anew: one made while a table was small may walk it whole."""

LOST: Final = frozenset({"26000", "42P05", "0A000"})
"""No such plan, there is one already, its result changed type: whose session is this? Raised before anything runs."""

KEY: Final = "celery_supervise.plans"


@dataclass(frozen=True)
class Rendered:
    """A statement for one schema."""

    statement: Statement
    text: str

    @cached_property
    def clause(self) -> sa.TextClause:
        """As SQLAlchemy runs it."""
        return sa.text(self.text)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Its parameters, in order of first appearance."""
        return tuple(dict.fromkeys(PARAMETER.findall(self.text)))

    @cached_property
    def plan(self) -> str:
        """The plan's name in its session: another text has another."""
        return f"supervise_{self.statement.name}_{md5(self.text.encode(), usedforsecurity=False).hexdigest()[:8]}"

    @cached_property
    def prepare(self) -> str:
        """What makes the session keep the plan."""
        numbers = {name: f"${number}" for number, name in enumerate(self.names, 1)}
        return f"PREPARE {self.plan} AS {PARAMETER.sub(lambda found: numbers[found[1]], self.text)}"

    @cached_property
    def execute(self) -> str:
        """What runs it, for psycopg2."""
        return f"EXECUTE {self.plan}({', '.join(f'%({name})s' for name in self.names)})"

    @cached_property
    def driven(self) -> str:
        """As psycopg 3 runs it."""
        return PARAMETER.sub(r"%(\1)s", self.text.replace("%", "%%"))


class Plans:
    """Those of one session."""

    def __init__(self) -> None:
        self._runs: Counter[str] = Counter()
        self._kept: set[str] = set()
        self._since = 0
        self._ours: bool | None = None

    def run(self, connection: Connection, rendered: Rendered, given: Mapping[str, Any]) -> Rows:
        """Run a statement, each by itself: what is lost is found out before anything ran, and run without a plan."""
        try:
            return self._run(connection, rendered, given)
        except DBAPIError as error:
            if sqlstate(error) not in LOST:
                raise
            self._ours = False
            self._kept.clear()
        return unplanned(connection, rendered, given)

    def _run(self, connection: Connection, rendered: Rendered, given: Mapping[str, Any]) -> Rows:
        if not self._keeps(connection, rendered):
            return unplanned(connection, rendered, given)
        if connection.dialect.driver == "psycopg2":
            return straight(connection, rendered.execute, given)
        with _preparing(connection):
            return straight(connection, rendered.driven, given)

    def _keeps(self, connection: Connection, rendered: Rendered) -> bool:
        """Whether the session keeps this statement's plan, or does from now on."""
        if rendered.plan in self._kept:
            self._renew(connection)
            return True
        self._runs[rendered.plan] += 1
        if self._runs[rendered.plan] <= PATIENCE or not self._is_ours(connection):
            return False
        if connection.dialect.driver == "psycopg2":
            connection.exec_driver_sql(rendered.prepare)
        self._kept.add(rendered.plan)
        return True

    def _renew(self, connection: Connection) -> None:
        self._since += 1
        if self._since >= RENEWED_AFTER:
            connection.exec_driver_sql("DISCARD PLANS")
            self._since = 0

    def _is_ours(self, connection: Connection) -> bool:
        if self._ours is None:
            server = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
            self._ours = server == backend_pid(connection)
        return self._ours


def unplanned(connection: Connection, rendered: Rendered, given: Mapping[str, Any]) -> Rows:
    """Run a statement that nobody keeps a plan of."""
    result = connection.execute(rendered.clause, given)
    return cast("Rows", result.mappings().all()) if result.returns_rows else ()


@contextmanager
def _preparing(connection: Connection) -> Iterator[None]:
    """In here psycopg 3 prepares what it runs, or runs what it has prepared."""
    driver: Any = connection.connection.dbapi_connection
    driver.prepare_threshold = 0
    try:
        yield
    finally:
        driver.prepare_threshold = None


def plans_of(connection: Connection) -> Plans:
    """The plans of a connection's session: they end with it."""
    if KEY not in connection.info:
        connection.info[KEY] = Plans()
    found: Plans = connection.info[KEY]
    return found
