"""Every read. Changes nothing, decides nothing; what comes of a row says ``rows``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from .lifecycle import State
from .model import Answer, Attempt, Job, LogEntry, LogPage, Node, Question, Stored, Vote
from .rows import as_answer, as_attempt, as_entry, as_job, as_node, as_question, as_stored
from .store.door import Door
from .store.joining import Joined
from .store.sql import Statement

JOB = Statement(
    "job",
    """
SELECT * FROM {s}.jobs
WHERE id = :job_id AND (namespace = :namespace) IS TRUE
  AND (CAST(:owner_id AS text) IS NULL OR owner_id = :owner_id)""",
)

_JOBS = """{s}.jobs
WHERE namespace = :namespace
  AND (CAST(:owner_id AS text) IS NULL OR owner_id = :owner_id)
  AND (CAST(:states AS text[]) IS NULL OR current_state = ANY(:states))
  AND (CAST(:task AS text) IS NULL OR task = :task)
  AND (CAST(:prefix AS text) IS NULL OR starts_with(id, :prefix))"""

JOBS = Statement(
    "jobs",
    f"SELECT *, count(*) OVER () AS total FROM {_JOBS} ORDER BY created_at DESC, id LIMIT :page OFFSET :skip",
)

JOBS_TOTAL = Statement("jobs_total", f"SELECT count(*) AS total FROM {_JOBS}")

NODES = Statement(
    "nodes",
    """
SELECT node, kind, size, attempt_token, saved_at FROM {s}.checkpoints
WHERE job_id = :job_id AND run_id = CAST(:run_id AS uuid)
ORDER BY position, node""",
)

VALUES = Statement(
    "values",
    """
SELECT node, data, encoding, key_id, size FROM {s}.checkpoints
WHERE job_id = :job_id AND run_id = CAST(:run_id AS uuid) AND node = ANY(:nodes)""",
)

ANSWERS = Statement(
    "answers",
    """
SELECT id, question_key, digest, answer, answer_encoding, answer_key_id, answered_by, answered_at
FROM {s}.questions
WHERE job_id = :job_id AND run_id = CAST(:run_id AS uuid) AND status = 'answered' AND answer IS NOT NULL""",
)

_QUESTION = """
SELECT q.*, j.namespace, j.owner_id, j.task, j.current_state, j.generation, j.expires_at AS deadline,
       ARRAY(SELECT v.actor FROM {s}.votes AS v WHERE v.question_id = q.id ORDER BY v.voted_at) AS voted
FROM {s}.questions AS q JOIN {s}.jobs AS j ON j.id = q.job_id
WHERE j.namespace = :namespace AND (CAST(:owner_id AS text) IS NULL OR j.owner_id = :owner_id)"""

QUESTION = Statement("question", _QUESTION + " AND q.id = CAST(:question_id AS uuid)")

OPEN_QUESTIONS = Statement(
    "open_questions", _QUESTION + " AND q.status = 'pending' ORDER BY q.asked_at, q.id LIMIT :page OFFSET :skip"
)

VOTES = Statement(
    "votes", "SELECT * FROM {s}.votes WHERE question_id = CAST(:question_id AS uuid) ORDER BY voted_at, actor"
)

QUESTIONS_OF = Statement("questions_of", _QUESTION + " AND q.job_id = :job_id ORDER BY q.asked_at, q.id")

ATTEMPTS = Statement("attempts", "SELECT * FROM {s}.attempts WHERE job_id = :job_id ORDER BY number")

ATTEMPT = Statement(
    "attempt",
    "SELECT * FROM {s}.attempts WHERE job_id = :job_id AND token = CAST(:token AS uuid)",
)

LAST_WORKER = Statement(
    "last_worker",
    "SELECT worker FROM {s}.attempts WHERE job_id = :job_id ORDER BY number DESC LIMIT 1",
)

ISSUED = Statement(
    "issued",
    """
SELECT EXISTS (SELECT FROM {s}.jobs WHERE id = :job_id AND ticket_id = CAST(:ticket_id AS uuid))
    OR EXISTS (SELECT FROM {s}.outbox WHERE id = CAST(:ticket_id AS uuid))
    OR EXISTS (SELECT FROM {s}.attempts WHERE ticket_id = CAST(:ticket_id AS uuid)) AS issued""",
)

PAYLOADS = Statement(
    "payloads",
    """
SELECT kind, ref, data, encoding, key_id FROM {s}.payloads
WHERE job_id = :job_id AND (CAST(:kind AS text) IS NULL OR kind = :kind)
ORDER BY created_at DESC""",
)

LOG = Statement(
    "log",
    """
SELECT * FROM {s}.log
WHERE job_id = :job_id AND (CAST(:before AS integer) IS NULL OR sequence_num < :before)
  AND (CAST(:events AS text[]) IS NULL OR event = ANY(:events))
ORDER BY sequence_num DESC LIMIT :page""",
)

LOG_PAGE = Statement(
    "log_page",
    """
SELECT l.*, t.total
FROM (SELECT count(*) AS total FROM {s}.log AS log
      WHERE log.job_id = :job_id AND (CAST(:events AS text[]) IS NULL OR log.event = ANY(:events))) AS t
LEFT JOIN LATERAL (
    SELECT * FROM {s}.log AS log
    WHERE log.job_id = :job_id AND (CAST(:before AS integer) IS NULL OR log.sequence_num < :before)
      AND (CAST(:events AS text[]) IS NULL OR log.event = ANY(:events))
    ORDER BY log.sequence_num DESC LIMIT :page) AS l ON true
ORDER BY l.sequence_num DESC""",
)
"""Entries and count of one instant: what comes between two reads would make the count of what is withheld wrong."""


CLOCK = Statement("clock", "SELECT clock_timestamp() AS at")

SWEEPS = Statement(
    "sweeps",
    "SELECT *, clock_timestamp() - last_ok_at AS age, hold_until > clock_timestamp() AS held"
    " FROM {s}.sweeps WHERE namespace = :namespace ORDER BY name",
)


def job(door: Door, job_id: str, *, owner_id: str | None = None, joined: Joined | None = None) -> Job | None:
    """The job, None if there is none of this namespace and owner."""
    row = door.one(JOB, joined, job_id=job_id, owner_id=owner_id)
    return as_job(row) if row else None


def jobs(
    door: Door,
    *,
    owner_id: str | None = None,
    states: Sequence[State] | None = None,
    task: str | None = None,
    prefix: str | None = None,
    page: int = 50,
    skip: int = 0,
) -> tuple[Sequence[Job], int]:
    """A page of jobs, newest first, and how many there are in all."""
    wanted = [str(state) for state in states] if states is not None else None
    params = {"owner_id": owner_id, "states": wanted, "task": task, "prefix": prefix}
    rows = door.all(JOBS, **params, page=page, skip=skip)
    counted = rows[0] if rows else door.one(JOBS_TOTAL, **params)  # a page beyond the last has no row to say it
    return [as_job(row) for row in rows], counted["total"] if counted else 0


def nodes(door: Door, job_id: str, run_id: UUID) -> Mapping[str, Node]:
    """The nodes that this run of the job has passed, in order, without their values: one statement."""
    rows = door.all(NODES, job_id=job_id, run_id=run_id)
    found = map(as_node, rows)
    return {node.name: node for node in found}


def values(door: Door, job_id: str, run_id: UUID, names: Sequence[str]) -> Mapping[str, Stored | None]:
    """The stored values of these nodes."""
    rows = door.all(VALUES, job_id=job_id, run_id=run_id, nodes=list(names))
    return {row["node"]: as_stored(row, "data", "encoding", "key_id") for row in rows}


def answers(door: Door, job_id: str, run_id: UUID) -> Mapping[str, Answer]:
    """The accepted answers of this run, by question key."""
    rows = door.all(ANSWERS, job_id=job_id, run_id=run_id)
    return {row["question_key"]: as_answer(row) for row in rows}


def question(
    door: Door, question_id: UUID, *, owner_id: str | None = None, joined: Joined | None = None
) -> Question | None:
    """The question, None if there is none of this namespace and owner."""
    row = door.one(QUESTION, joined, question_id=question_id, owner_id=owner_id)
    return as_question(row) if row else None


def open_questions(door: Door, *, owner_id: str | None = None, page: int = 50, skip: int = 0) -> Sequence[Question]:
    """The questions that wait for an answer, oldest first."""
    return [as_question(row) for row in door.all(OPEN_QUESTIONS, owner_id=owner_id, page=page, skip=skip)]


def questions_of(door: Door, job_id: str, *, owner_id: str | None = None) -> Sequence[Question]:
    """All questions that a job has asked, oldest first."""
    return [as_question(row) for row in door.all(QUESTIONS_OF, job_id=job_id, owner_id=owner_id)]


def votes(door: Door, question_id: UUID, *, joined: Joined | None = None) -> Sequence[Vote]:
    """What has been said to a question, first to last."""
    rows = door.all(VOTES, joined, question_id=question_id)
    return [Vote(row["actor"], as_stored(row, "value", "encoding", "key_id"), row["voted_at"]) for row in rows]


def attempts(door: Door, job_id: str) -> Sequence[Attempt]:
    """The attempts of a job, first to last."""
    return [as_attempt(row) for row in door.all(ATTEMPTS, job_id=job_id)]


def last_worker(door: Door, job_id: str) -> str | None:
    """The worker that had the job's last attempt."""
    row = door.one(LAST_WORKER, job_id=job_id)
    return None if row is None else str(row["worker"])


def attempt(door: Door, job_id: str, token: UUID) -> Attempt | None:
    """One attempt, by its token: how an unknown commit is read back (protocol 5)."""
    row = door.one(ATTEMPT, job_id=job_id, token=token)
    return as_attempt(row) if row else None


def issued(door: Door, job_id: str, ticket_id: UUID) -> bool:
    """Whether a ticket has come into the world, used by now or not: how an unknown commit is read back (protocol 5)."""
    row = door.one(ISSUED, job_id=job_id, ticket_id=ticket_id)
    return row is not None and bool(row["issued"])


def payload(door: Door, job_id: str, kind: str) -> Stored | None:
    """The newest payload of a kind: ``envelope``, ``result``, ``error`` or ``rejected``."""
    rows = door.all(PAYLOADS, job_id=job_id, kind=kind)
    return as_stored(rows[0], "data", "encoding", "key_id") if rows else None


def log(
    door: Door, job_id: str, *, page: int = 50, before: int | None = None, events: Sequence[str] | None = None
) -> LogPage:
    """The newest page (before a sequence number), in chronological order, with the counts of what it withholds."""
    wanted = list(events) if events is not None else None
    found = door.all(LOG_PAGE, job_id=job_id, page=page, before=before, events=wanted)
    total, rows = found[0]["total"], [row for row in found if row["sequence_num"] is not None]
    return LogPage(
        entries=[as_entry(row) for row in reversed(rows)],
        returned_count=len(rows),
        total_count=total,
        withheld_count=total - len(rows),
        truncated=total > len(rows),
    )


def entries(door: Door, job_id: str, *, page: int = 1000, events: Sequence[str] | None = None) -> Iterator[LogEntry]:
    """The whole log of a job, or all of some events, newest page first inside, oldest entry first outside."""
    wanted = list(events) if events is not None else None
    pages: list[Sequence[LogEntry]] = []
    before: int | None = None
    while chunk := door.all(LOG, job_id=job_id, page=page, before=before, events=wanted):
        pages.append([as_entry(row) for row in reversed(chunk)])
        before = chunk[-1]["sequence_num"]
    for part in reversed(pages):
        yield from part
