"""Pages of jobs, by cursor: what comes meanwhile moves none of them. Changes nothing.

The count is of all that match, exact, of the instant of the page. All of a namespace's jobs that match are looked at.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .errors import InvalidInput
from .intake import check_age, check_filters, check_page, check_reason, check_states
from .lifecycle import State
from .model import Job
from .rows import as_job
from .store.door import Door
from .store.sql import Statement

_MATCHING: Final = """{s}.jobs
WHERE namespace = :namespace
  AND (CAST(:owner_id AS text) IS NULL OR owner_id = :owner_id)
  AND (CAST(:states AS text[]) IS NULL OR current_state = ANY(:states))
  AND (CAST(:task AS text) IS NULL OR task = :task)
  AND (CAST(:queue AS text) IS NULL OR queue = :queue)
  AND (CAST(:reason AS text) IS NULL OR watchdog_stop_reason = :reason
       OR starts_with(watchdog_stop_reason, :reason || ':'))
  AND (CAST(:older AS interval) IS NULL OR created_at <= clock_timestamp() - CAST(:older AS interval))
  AND (CAST(:text AS text) IS NULL OR strpos(lower(id), lower(:text)) > 0 OR strpos(lower(task), lower(:text)) > 0
       OR strpos(lower(owner_id), lower(:text)) > 0 OR strpos(lower(progress_message), lower(:text)) > 0)"""

LISTED: Final = Statement(
    "listed",
    f"""
SELECT j.*, t.total FROM (SELECT count(*) AS total FROM {_MATCHING}) AS t
LEFT JOIN LATERAL (
    SELECT * FROM {_MATCHING}
      AND (CAST(:last_at AS timestamptz) IS NULL
           OR (created_at, id) < (CAST(:last_at AS timestamptz), CAST(:last_id AS text)))
    ORDER BY created_at DESC, id DESC LIMIT :page) AS j ON true
ORDER BY j.created_at DESC, j.id DESC""",
)


@dataclass(frozen=True)
class Listed:
    """A page of jobs, newest first. `next`: the cursor of the page after it; None: this is the last."""

    jobs: Sequence[Job]
    total_count: int
    next: str | None


def listed(
    door: Door,
    *,
    owner: str | None = None,
    states: Sequence[State] | None = None,
    task: str | None = None,
    queue: str | None = None,
    reason: str | None = None,
    older_than: timedelta | None = None,
    text: str | None = None,
    cursor: str | None = None,
    page: int = 50,
) -> Listed:
    """The jobs that match, from `cursor` on.

    `reason`: a stop reason, or its beginning up to a colon. `older_than`: since the submit. `text`: is in id, task,
    owner or message of progress, in whatever case. Raises `InvalidInput`.
    """
    check_page(page)
    given = {"task": task, "queue": queue, "text": text}
    check_filters(owner=owner, **given)
    check_reason(reason)
    if older_than is not None:
        check_age("older_than", older_than)
    known = check_states(states)
    last_at, last_id = (None, None) if cursor is None else _place(cursor)
    rows = door.all(
        LISTED,
        **given,
        owner_id=owner,
        states=None if known is None else [str(state) for state in known],
        reason=reason,
        older=older_than,
        last_at=last_at,
        last_id=last_id,
        page=page,
    )
    jobs = [as_job(row) for row in rows if row["id"] is not None]
    return Listed(jobs, rows[0]["total"], _cursor(jobs[-1]) if len(jobs) == page else None)


def _cursor(job: Job) -> str:
    return base64.urlsafe_b64encode(json.dumps([job.created_at.isoformat(), job.id]).encode()).decode()


def _place(cursor: str) -> tuple[datetime, str]:
    try:
        at, job_id = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
        place = datetime.fromisoformat(at)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise _no_cursor() from None
    if place.utcoffset() is None:
        raise _no_cursor()
    check_filters(cursor=job_id)
    return place, job_id


def _no_cursor() -> InvalidInput:
    return InvalidInput("cursor", "is none that a page of jobs has given")
