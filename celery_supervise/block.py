"""How `transaction` opens the caller's own transaction, SQLAlchemy's or Django's. Saves nothing.

A block gives what a statement needs to join that transaction, commits it at its end, and rolls it back on any
exception, control flow included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from sqlalchemy.engine import Connection

from .compare import name_of
from .errors import InvalidInput


@dataclass(frozen=True)
class Blocks:
    """What blocks can be opened. `using` opens one by its Django alias; None where Django is not used."""

    using: Callable[[str], AbstractContextManager[Any]] | None = None

    def open(self, session: Any, using: str | None) -> AbstractContextManager[Any]:
        """The block for exactly one of a session (or connection) and an alias. Raises `InvalidInput`."""
        if (session is None) == (using is None):
            raise InvalidInput("transaction", "give a session, or using= with a Django database's alias")
        if using is None:
            return _of_session(_checked(session))
        if self.using is None:
            raise InvalidInput("using", "Django is not set up in this process; give a SQLAlchemy session")
        return self.using(using)


def _checked(session: Any) -> Any:
    methods = [getattr(session, name, None) for name in ("commit", "rollback", "connection")]
    if None in methods or any(map(iscoroutinefunction, methods)):
        raise InvalidInput("session", f"must be a SQLAlchemy Session or Connection, not {name_of(session)}")
    return session


@contextmanager
def _of_session(session: Any) -> Iterator[Connection]:
    connection = session if isinstance(session, Connection) else session.connection()
    try:
        yield connection
    except BaseException:
        session.rollback()
        raise
    session.commit()
