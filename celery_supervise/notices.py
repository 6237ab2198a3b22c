"""A notice to the shop's notification task, as a message of the outbox. Sends nothing, decides nothing."""

from __future__ import annotations

from .lifecycle import State
from .model import Message, MessageKind, Stored
from .store.door import Row

NO_ENVELOPE = Stored(b"", "none")
"""A notice is a call of another task: the job's own message has no part in it."""


def notice_of(row: Row) -> Message:
    """A notice, from its row of the outbox: `task` is the task that is told, `detail` its one argument."""
    return Message(
        id=row["id"],
        kind=MessageKind.NOTIFY,
        job_id=row["job_id"],
        task=row["detail"]["task"],
        queue=row["queue"],
        envelope=NO_ENVELOPE,
        state=State(row["current_state"]),
        detail=row["detail"]["notice"],
    )
