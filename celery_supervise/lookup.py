"""Finds what a person means by a shortened id, and counts what waits for an answer. Changes nothing."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from .errors import InvalidInput, JobNotFound, QuestionNotFound
from .model import Job, Question
from .store.sql import Statement
from .supervisor import Supervisor
from .wording import shown

NAMED: Final = 5
"""How many of the ids that an unclear beginning fits are named."""

_HEX: Final = re.compile(r"[0-9a-f]{1,32}")

_QUESTIONS_BETWEEN: Final = Statement(
    "questions_between",
    """
SELECT q.id FROM {s}.questions AS q JOIN {s}.jobs AS j ON j.id = q.job_id
WHERE j.namespace = :namespace AND q.id BETWEEN CAST(:low AS uuid) AND CAST(:high AS uuid)
ORDER BY q.id LIMIT :page""",
)

_COUNT_OPEN: Final = Statement(
    "count_open_questions",
    """
SELECT count(*) AS total FROM {s}.questions AS q JOIN {s}.jobs AS j ON j.id = q.job_id
WHERE j.namespace = :namespace AND q.status = 'pending'
  AND (CAST(:owner_id AS text) IS NULL OR j.owner_id = :owner_id)""",
)


def find_job(supervisor: Supervisor, text: str) -> Job:
    """The job of this id, or the only one whose id begins so.

    Raises `JobNotFound`, and `InvalidInput` where several do.
    """
    try:
        return supervisor.job(text)
    except JobNotFound:
        found, total = supervisor.jobs(prefix=text, page=NAMED)
    if not found:
        raise JobNotFound(text)
    if total > 1:
        raise _unclear("job", text, [job.id for job in found], total)
    return found[0]


def find_question(supervisor: Supervisor, text: str) -> Question:
    """The question of this id, or the only one whose id begins so, open or not.

    Raises `QuestionNotFound`, which says so where the id is that of a job, and `InvalidInput` where several do.
    """
    digits = text.replace("-", "").lower()
    if text.startswith("-") or not _HEX.fullmatch(digits):
        raise _no_question(supervisor, text)
    # as a range, so that the index on the id answers it
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    found = [row["id"] for row in supervisor.door.all(_QUESTIONS_BETWEEN, low=low, high=high, page=NAMED + 1)]
    if not found:
        raise _no_question(supervisor, text)
    if len(found) > 1:
        raise _unclear("question", text, [str(one) for one in found[:NAMED]], len(found))
    return supervisor.question(found[0])


def _no_question(supervisor: Supervisor, text: str) -> QuestionNotFound:
    try:
        job = find_job(supervisor, text)
    except (JobNotFound, InvalidInput):
        return QuestionNotFound(text)
    asks = "it has no open question" if job.question_id is None else f"its open question is {job.question_id}"
    return QuestionNotFound(text, f"that is the id of a job; {asks}")


def count_open_questions(supervisor: Supervisor, *, owner: str | None = None) -> int:
    """How many questions wait for an answer: an exact count."""
    row = supervisor.door.one(_COUNT_OPEN, owner_id=owner)
    return int(row["total"]) if row else 0


def _unclear(what: str, text: str, ids: list[str], total: int) -> InvalidInput:
    more = ", …" if total > len(ids) else ""
    return InvalidInput(what, f"more than one id begins with {shown(text)}: {', '.join(ids)}{more}; give more of it")
