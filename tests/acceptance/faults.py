"""Kills a worker's process at a statement of the library: SQLAlchemy's events, no hook in the library."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from tests.acceptance.project import Place

STATEMENTS: Mapping[str, str] = {
    "claim": "INSERT INTO [^ ]*attempts |EXECUTE supervise_claim_",
    "checkpoint": "INSERT INTO [^ ]*checkpoints |EXECUTE supervise_checkpoint_",
    "ask": "INSERT INTO [^ ]*questions ",
    "complete": "rejected_result|EXECUTE supervise_complete_",
    "retry": "retry_scheduled",
}
"""What only this statement's SQL has in it, sent whole or, with a plan that the session keeps, by name."""
MOMENTS = ("before", "after")


def plan(place: Place, moment: str, statement: str, *, times: int = 1) -> None:
    """The next `times` processes that come to this moment of this statement are killed there."""
    assert moment in MOMENTS
    assert statement in STATEMENTS
    for number in range(times):
        _order(place.folder, moment, statement, number).touch()


def install(place: Place) -> None:
    """Watch every engine of this process and of its children."""
    for moment in MOMENTS:
        event.listen(Engine, f"{moment}_cursor_execute", _killer(place.folder, moment))


def _killer(folder: str, moment: str) -> Any:
    def look(_conn: Any, _cursor: Any, sql: str, *_: Any) -> None:
        if sql.startswith("PREPARE "):  # runs nothing
            return
        name = next((name for name, pattern in STATEMENTS.items() if re.search(pattern, sql)), None)
        if name is not None and _taken(folder, moment, name):
            os.kill(os.getpid(), signal.SIGKILL)

    return look


def _taken(folder: str, moment: str, statement: str) -> bool:
    """Whether this process is the one: an order is carried out by whoever deletes its file."""
    for path in Path(folder).glob(f"kill {moment} {statement} *"):
        try:
            path.unlink()
        except FileNotFoundError:
            continue
        return True
    return False


def _order(folder: str, moment: str, statement: str, number: int) -> Path:
    return Path(folder) / f"kill {moment} {statement} {number}"
