"""A statement by the driver's own cursor, for those that each job runs. No decisions.

What SQLAlchemy puts around a statement (an execution context, metadata of its result, a row class) costs a process
more than all else about one that is planned already: 0.32 ms for a claim, of which 0.12 are the driver's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias, cast

from sqlalchemy.engine import Connection

Rows: TypeAlias = Sequence[Mapping[str, Any]]


def straight(connection: Connection, text: str, given: Mapping[str, Any]) -> Rows:
    """Run a text in the driver's own form; its rows. Raises what SQLAlchemy would.

    Where somebody listens to statements, or logs them, SQLAlchemy runs it, so that they hear of it.
    """
    if _is_watched(connection):
        return cast("Rows", connection.exec_driver_sql(text, dict(given)).mappings().all())
    driver: Any = connection.connection.dbapi_connection
    try:
        with closing(driver.cursor()) as cursor:
            cursor.execute(text, given)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]
    except connection.dialect.loaded_dbapi.Error as error:
        connection._handle_dbapi_exception(error, text, given, None, None)  # noqa: SLF001  # it has no public name (2.0-2.1)
    except BaseException:  # a signal's, in the middle: who knows what the session is still at
        connection.invalidate()
        raise


def _is_watched(connection: Connection) -> bool:
    # as SQLAlchemy itself asks, at each statement (2.0-2.1)
    return connection._has_events or connection.engine._has_events or connection._echo  # noqa: SLF001
