"""What came too late to count: read for operators. Never shown as a job's result, and to no owner. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from . import results
from .model import Rejected, Stored
from .store.door import Door
from .store.sql import Statement
from .values import Codec, opened

EXCEPTION: Final = "exception"
"""The encoding of an error: JSON with its type and message."""

_REJECTED: Final = Statement(
    "rejected",
    """
SELECT a.number, p.created_at, p.data, p.encoding, p.key_id
FROM {s}.payloads AS p JOIN {s}.attempts AS a ON a.token = p.ref AND a.job_id = p.job_id
WHERE p.job_id = :job_id AND p.kind = 'rejected'
ORDER BY a.number""",
)


def rejected(door: Door, job_id: str) -> Sequence[Rejected]:
    """What the job's attempts brought too late, in their order."""
    return [
        Rejected(
            number=row["number"],
            kept_at=row["created_at"],
            size=0 if row["data"] is None else len(row["data"]),
            stored=None if row["data"] is None else Stored(bytes(row["data"]), row["encoding"], row["key_id"]),
        )
        for row in door.all(_REJECTED, job_id=job_id)
    ]


def is_error(one: Rejected) -> bool:
    """Whether it is what an attempt failed with, not what it returned."""
    return one.stored is not None and one.stored.encoding == EXCEPTION


def value_of(one: Rejected, *, codec: Codec) -> Any:
    """The value, or the text of the error; None once it is erased. Raises `Unreadable`."""
    if one.stored is None:
        return None
    if not is_error(one):
        return results.unpack(one.stored, codec=codec)
    told = json.loads(opened(one.stored, codec=codec, what="error"))
    return f"{told.get('exc_type')}: {told.get('exc_message')}"
