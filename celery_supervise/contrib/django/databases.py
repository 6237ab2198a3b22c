"""Django's databases: where they are, and how a statement of ours runs in their transactions. Decides nothing.

What runs here runs on Django's own cursor, so that Django counts, logs and wraps it, marks its transaction as broken
after an error, and raises what the shop's code expects. Found by name: see `celery_supervise.aliases`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timezone
from typing import Any, Final

from django.conf import settings
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError, connections, transaction
from django.db.backends.postgresql.psycopg_any import is_psycopg3
from django.utils.connection import ConnectionDoesNotExist
from sqlalchemy.engine import URL

from celery_supervise.errors import InvalidInput, NotMigrated
from celery_supervise.store.link import MISSING

if is_psycopg3:
    from psycopg.types.datetime import TimestamptzLoader

DRIVER: Final = "psycopg" if is_psycopg3 else "psycopg2"  # Django's own choice
USING: Final = "using"
JSONB: Final = 3802  # its type's id, the same in every Postgres
POSTGRES: Final = "postgresql"
DJANGOS: Final = frozenset({"isolation_level", "server_side_binding", "pool", "cursor_factory", "context"})
"""Options of a Django database that are no parameters of a connection."""


@dataclass(frozen=True)
class Transaction:
    """The transaction that a thread has open at an alias."""

    alias: str
    schema: str

    def run(self, text: str, given: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Run a statement in it. Raises what Django raises; `NotMigrated` where our tables are not there."""
        with connections[self.alias].cursor() as cursor:
            _keep_zones(cursor.cursor)
            try:
                cursor.execute(text, dict(given))
            except ProgrammingError as error:
                if _sqlstate(error) in MISSING:
                    raise NotMigrated(self.schema, f"it is not in Django's database {self.alias!r}") from error
                raise
            return _rows(cursor) if cursor.description else ()

    def after_commit(self, call: Callable[[], None]) -> None:
        """Django's own `on_commit`: what it raises keeps no other one from being called."""
        transaction.on_commit(call, using=self.alias, robust=True)


def _keep_zones(cursor: Any) -> None:
    """Without `USE_TZ` Django has its cursors leave the offset out of times. Ours are instants."""
    if hasattr(cursor, "tzinfo_factory"):
        cursor.tzinfo_factory = timezone
    else:
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)


def _rows(cursor: Any) -> Sequence[Mapping[str, Any]]:
    """Django has jsonb come as text, to decode it by itself."""
    columns = [(column[0], column[1] == JSONB) for column in cursor.description]
    return [
        {name: _decoded(value) if is_json else value for (name, is_json), value in zip(columns, row, strict=True)}
        for row in cursor.fetchall()
    ]


def _decoded(value: Any) -> Any:
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def _sqlstate(error: Exception) -> str | None:
    cause = error.__cause__
    code = getattr(cause, "pgcode", None) or getattr(cause, "sqlstate", None)
    return code if isinstance(code, str) else None


def joined(alias: str, schema: str) -> Transaction | None:
    """The transaction that this thread has open there, None where each statement commits. Raises `InvalidInput`."""
    return Transaction(alias, schema) if _is_open(_postgres(alias)) else None


def block(alias: str, schema: str) -> AbstractContextManager[Transaction]:
    """A transaction that is the outermost: at the end of the block it has committed. Raises `InvalidInput`."""
    _postgres(alias)
    return _durable(Transaction(alias, schema))


@contextmanager
def _durable(opened: Transaction) -> Iterator[Transaction]:
    with transaction.atomic(using=opened.alias, durable=True):
        yield opened


def nested(alias: str) -> AbstractContextManager[Any]:
    """A transaction, or a savepoint in the one that is open: for a body that is no job's. Raises `InvalidInput`."""
    _connection(alias)
    atomic: AbstractContextManager[Any] = transaction.atomic(using=alias)
    return atomic


def is_set_up() -> bool:
    """Whether there are settings. Without them there is no connection, and asking for one is an error."""
    return bool(settings.configured)


def in_transaction() -> bool:
    """Whether this thread has a transaction open at any alias, where Django is set up."""
    return any(map(_is_open, connections.all(initialized_only=True)))


def _is_open(connection: Any) -> bool:
    return bool(connection.in_atomic_block or (connection.connection is not None and not connection.autocommit))


def url_of(alias: str) -> URL:
    """Where an alias leads just now: under Django's tests, to their database. Raises `InvalidInput`."""
    given = _postgres(alias).settings_dict
    options = given.get("OPTIONS") or {}
    if "assume_role" in options:
        raise InvalidInput(USING, f"{alias!r} has assume_role among its OPTIONS; set supervise_database_url instead")
    return URL.create(
        f"{POSTGRES}+{DRIVER}",
        username=given.get("USER") or None,
        password=given.get("PASSWORD") or None,
        host=given.get("HOST") or None,
        port=int(given["PORT"]) if given.get("PORT") else None,
        database=given.get("NAME") or None,
        query={name: str(value) for name, value in options.items() if name not in DJANGOS},
    )


def name_of(alias: str) -> object:
    """The name of an alias's database just now. Raises `InvalidInput`."""
    return _connection(alias).settings_dict["NAME"]


def in_tests() -> bool:
    """Whether Django's tests run in this process: documented by this attribute alone."""
    return hasattr(mail, "outbox")


def _postgres(alias: str) -> Any:
    connection = _connection(alias)
    if connection.vendor != POSTGRES:
        raise InvalidInput(USING, f"{alias!r} is a {connection.vendor} database; Postgres is needed")
    return connection


def _connection(alias: str) -> Any:
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(connections)
        raise InvalidInput(USING, f"there is no database {alias!r} in DATABASES, but {known}") from None
    except ImproperlyConfigured:
        problem = f"{alias!r} is a database of Django's, which is not set up here; set DJANGO_SETTINGS_MODULE"
        raise InvalidInput(USING, problem) from None
