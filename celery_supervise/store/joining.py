"""A caller's own transaction that a statement joins: SQLAlchemy's, or one that it knows nothing of. Runs none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from sqlalchemy.engine import Connection

from .straight import Rows


class Foreign(Protocol):
    """The transaction of a shop whose connection is not SQLAlchemy's: Django's."""

    def run(self, text: str, given: Mapping[str, Any]) -> Rows:
        """Run a text in the driver's own form (`%(name)s`), on the shop's cursor; its rows, JSON decoded, times aware.

        Commits nothing. The shop's errors stay its own; raises `NotMigrated` where our tables are not in its database.
        """

    def after_commit(self, call: Callable[[], None]) -> None:
        """Have `call` called once it has committed, never after a rollback. What it raises harms nobody."""


Joined: TypeAlias = Connection | Foreign
"""What a call runs in that is to commit with the caller."""
