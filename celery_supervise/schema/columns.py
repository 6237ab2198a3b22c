"""Columns and rules that many tables share. No tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import CheckConstraint, Column, DateTime, text

from celery_supervise.lifecycle import TERMINAL, State
from celery_supervise.model import MAX_ID_BYTES


def one_of(column: str, values: Iterable[object]) -> str:
    """The SQL condition that `column` is one of `values`, in an order that does not depend on a set's."""
    names = ", ".join(f"'{name}'" for name in sorted(str(value) for value in values))
    return f"{column} IN ({names})"


IS_TERMINAL = one_of("current_state", TERMINAL)
IS_OPEN = one_of("current_state", frozenset(State) - TERMINAL)


def time(name: str, *, null: bool = True) -> Column[datetime]:
    """A point in time, on the database's clock."""
    return Column(name, DateTime(timezone=True), nullable=null)


def time_now(name: str) -> Column[datetime]:
    """When the row was made, by the clock at the insert, not at the start of a transaction that waited."""
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()"))


def bounded(column: str) -> CheckConstraint:
    """Names are bounded in bytes: a longer one would not fit a btree entry (2,704 bytes)."""
    return CheckConstraint(f"octet_length({column}) BETWEEN 1 AND {MAX_ID_BYTES}", name=f"{column}_length")


def storage(**parameters: float) -> dict[str, str]:
    """Storage parameters, for a table's `info`: SQLAlchemy 2.0 has no place of its own for them."""
    return {name: str(value) for name, value in parameters.items()}
