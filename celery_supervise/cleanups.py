"""What is to be sent if a job does not complete, and what became of it: read for operators. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .model import Cleanup
from .store.door import Door
from .store.sql import Statement

_CLEANUPS: Final = Statement(
    "cleanups",
    """
SELECT c.name, c.registered_at, c.dispatched_at, c.dropped_at, a.number
FROM {s}.cleanups AS c JOIN {s}.attempts AS a ON a.token = c.attempt_token
WHERE c.job_id = :job_id ORDER BY c.registered_at, c.name""",
)


def cleanups(door: Door, job_id: str) -> Sequence[Cleanup]:
    """The job's cleanups, first registered first."""
    return [
        Cleanup(row["name"], row["number"], row["registered_at"], row["dispatched_at"], row["dropped_at"])
        for row in door.all(_CLEANUPS, job_id=job_id)
    ]
