"""Calls that count with the caller's own commit: `delay_on_commit`, `apply_async_on_commit`. Commits nothing.

Where a call makes a row, the row joins the caller's transaction. Where it makes none (eagerly, or while workers make
the rows), the call itself waits for that commit, as Django's own would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from celery import Celery
from celery.result import AsyncResult
from celery.utils.imports import symbol_by_name
from kombu.utils.uuid import uuid
from sqlalchemy.orm import Session, SessionTransaction

from . import aliases
from .errors import InvalidInput
from .runtime import AnyTask, runtime_of, said_of

SESSION = "supervise_session"
WAITING = "celery_supervise.waiting"
"""In the `info` of a session."""


def on_commit(
    task: AnyTask, args: Any, kwargs: Any, *, session: Any, using: str | None, options: Mapping[str, Any]
) -> AsyncResult[Any]:
    """The call, to count with the commit of `session`, or of Django's database `using`. Raises as `apply_async`."""
    if session is not None and using is not None:
        raise InvalidInput("using", "and session are both given: a call joins one transaction")
    if session is None and (using is not None or _is_djangos(task.app)):
        joins = None if task.is_plain() else runtime_of(task.app).settings.database
        result: AsyncResult[Any] = aliases.on_commit(task, args, kwargs, using=using, database=joins, options=options)
        return result
    session = _current(task.app) if session is None else session
    said = {**(options.get("supervise") or {}), "session": session}
    if not task.is_plain():
        return task.apply_async(args, kwargs, **{**options, "supervise": said})  # type: ignore[no-any-return]
    if not isinstance(session, Session):
        raise InvalidInput("session", "must be a SQLAlchemy Session where calls make no rows: it tells of its commit")
    given = {**options, "task_id": options.get("task_id") or uuid()}
    if WAITING not in session.info:
        session.info[WAITING] = Waiting(session)
    session.info[WAITING].add(session, lambda: task.apply_async(args, kwargs, **given))
    return task.AsyncResult(given["task_id"])  # type: ignore[no-any-return]


def _is_djangos(app: Celery) -> bool:
    """Whether a call that names nothing counts with a transaction of Django's."""
    named = [said_of(app, name) is not None for name in ("supervise_database", SESSION)]
    return named[0] or (not named[1] and aliases.in_use())


def _current(app: Celery) -> Any:
    """The session that the shop says is the caller's."""
    path = said_of(app, SESSION)
    if path is None:
        advice = f"give the SQLAlchemy session with whose commit the call counts, or set {SESSION}"
        raise InvalidInput("session", advice)
    return symbol_by_name(path)()


class Waiting:
    """The calls that wait for the commit of a session; those made in what is rolled back never run."""

    def __init__(self, session: Session) -> None:
        self._calls: list[tuple[SessionTransaction | None, Callable[[], object]]] = []
        sa.event.listen(session, "after_commit", self._committed)
        sa.event.listen(session, "after_soft_rollback", self._rolled_back)

    def add(self, session: Session, call: Callable[[], object]) -> None:
        """A call, made within what is open now."""
        within = session.get_nested_transaction() or session.get_transaction() or session.begin()
        self._calls.append((within, call))

    def _committed(self, session: Session) -> None:
        if session.get_nested_transaction() is None:  # not only a savepoint
            calls, self._calls = self._calls, []
            for _, call in calls:
                call()

    def _rolled_back(self, _: Session, ended: SessionTransaction) -> None:
        self._calls = [(within, call) for within, call in self._calls if not _is_within(within, ended)]


def _is_within(transaction: SessionTransaction | None, outer: SessionTransaction) -> bool:
    """Whether a savepoint, or a transaction, is this one or one inside it."""
    while transaction is not None and transaction is not outer:
        transaction = transaction.parent
    return transaction is not None
