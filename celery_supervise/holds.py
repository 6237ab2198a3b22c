"""Tasks and owners that are held: nothing of theirs starts for now. What runs goes on; no rule of a job is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import InvalidInput
from .events import events_of
from .intake import check_actor, check_why
from .model import Hold
from .service import Service
from .store.door import Door, Row
from .store.holds import HOLD, HOLD_BACK, HOLDS, LET_GO
from .values import check_name

logger = events_of(__name__)

BATCH = 500


class Holds(Service):
    """What operators do to keep jobs from starting."""

    def hold(self, *, task: str | None = None, owner: str | None = None, reason: str, actor: str) -> Hold:
        """From now on no job of the task, or of the owner, starts or goes on; those that run are left to.

        They can be answered, paused, cancelled, and expire. What was being given out at this very moment may still
        start. Held already: the reason is replaced. Raises `InvalidInput`.
        """
        given = {**_named(task, owner), "reason": check_why(reason), "actor": check_actor(actor)}
        if not (reason or "").strip():
            raise InvalidInput("reason", "must say why: others will want to know")
        (row,) = self.door.all(HOLD, **given)
        hold_back(self.door)
        _note("supervise.held", given)
        return _hold(row)

    def release(self, *, task: str | None = None, owner: str | None = None, actor: str) -> Hold | None:
        """Let the jobs start again, as the relay gets to them; gives what was held, None where nothing was.

        A job of a held task stays held by its owner's hold, and the other way round. Raises `InvalidInput`.
        """
        given = {**_named(task, owner), "actor": check_actor(actor)}
        rows = self.door.all(LET_GO, **given)
        if rows:
            _note("supervise.released", given)
        return _hold(rows[0]) if rows else None

    def holds(self) -> Sequence[Hold]:
        """What is held, the oldest first."""
        return holds(self.door)


def holds(door: Door) -> Sequence[Hold]:
    """What is held in this namespace."""
    return [_hold(row) for row in door.all(HOLDS)]


def hold_back(door: Door) -> int:
    """Take back what may not start any more and was let out before. How many jobs."""
    done = 0
    while part := len(door.all(HOLD_BACK, batch=BATCH)):
        done += part
    return done


def _note(event: str, given: dict[str, Any]) -> None:
    # not as "name", which a log record has of its own
    logger.info(event, extra={"held": given["name"], "kind": given["kind"], "actor": given["actor"]})


def _named(task: str | None, owner: str | None) -> dict[str, Any]:
    if (task is None) is (owner is None):
        raise InvalidInput("hold", "name a task or an owner, one of the two")
    kind, name = ("task", task) if owner is None else ("owner", owner)
    return {"kind": kind, "name": check_name(kind, name)}


def _hold(row: Row) -> Hold:
    return Hold(row["kind"], row["name"], row["reason"], row["actor"], row["held_at"])
