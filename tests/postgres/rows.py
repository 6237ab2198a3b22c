"""One valid row of every table, for tests of the tables' own rules. Other tests go through the service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

from sqlalchemy.engine import Connection

from celery_supervise.schema import metadata

Row = dict[str, Any]

TABLES = {table.name: table for table in metadata().tables.values()}
NOW = datetime(2026, 11, 30, 12, tzinfo=timezone.utc)
SOON = NOW + timedelta(hours=1)

NO_TICKET: Row = {"ticket_id": None, "ticket_due_at": None}


def running() -> Row:
    """What a running job has other than the pending one of `row("jobs")`."""
    return {**NO_TICKET, "current_state": "running", "current_token": uuid4()}


def parked() -> Row:
    """The same for a parked job; it waits for nothing."""
    return {**NO_TICKET, "current_state": "parked", "watchdog_stop_reason": "user_paused"}


def ended(state: str = "completed") -> Row:
    """The same for one that has ended and is still to be settled."""
    return {
        **NO_TICKET,
        "current_state": state,
        "finished_at": NOW,
        "settle_id": uuid4(),
        "settle_due_at": SOON,
    }


def settled(state: str = "completed") -> Row:
    """The same for one that Celery has been told of."""
    return {**ended(state), "settled_at": SOON}


def _id() -> str:
    return f"job-{uuid4()}"


def _job() -> Row:
    ticket = {"current_state": "pending", "ticket_id": uuid4(), "ticket_due_at": NOW}
    return {"id": _id(), **_OF_A_TASK, "queue": "celery", "run_id": uuid4(), "input_digest": "i", **ticket}


def _attempt() -> Row:
    ids = {name: uuid4() for name in ("token", "run_id", "ticket_id", "incarnation")}
    process = {"number": uuid4().int >> 97, "worker": "w@host", "pid": 7, "task_version": 1}
    return {"job_id": _id(), **ids, **process, "started_at": NOW, "lease_until": SOON, "heartbeat_at": NOW}


def _checkpoint() -> Row:
    node = {"node": "load", "kind": "step", "position": 1, "data": b"[1]", "encoding": "json", "size": 3}
    return {
        "job_id": _id(),
        "run_id": uuid4(),
        **node,
        "attempt_token": uuid4(),
        "saved_at": NOW,
        "logged_at": NOW,
    }


def _question() -> Row:
    asked = {
        "asked_by": uuid4(),
        "asked_at": NOW,
        "expires_at": SOON,
        "digest": "d",
        "answer_schema": {"type": "null"},
    }
    content = {"question_key": "approve", "question_data": b'"Pay?"', "encoding": "json"}
    return {"id": uuid4(), "job_id": _id(), "run_id": uuid4(), **content, **asked}


def answered() -> Row:
    """What an answered question has other than the pending one of `row("questions")`."""
    return {
        "status": "answered",
        "answer": b"null",
        "answer_encoding": "json",
        "answered_by": "ann",
        "answered_at": NOW,
    }


_OF_A_TASK: Row = {"namespace": "default", "task": "shop.pay"}
_BYTES: Row = {"data": b"{}", "encoding": "json"}
_MAKERS: Mapping[str, Callable[[], Row]] = {
    "jobs": _job,
    "payloads": lambda: {"job_id": _id(), "kind": "result", "ref": uuid4(), **_BYTES},
    "attempts": _attempt,
    "checkpoints": _checkpoint,
    "questions": _question,
    "votes": lambda: {"question_id": uuid4(), "actor": "ann", "value": b"true", "encoding": "json"},
    "cleanups": lambda: {"job_id": _id(), "name": "files", "attempt_token": uuid4(), **_BYTES},
    "log": lambda: {"job_id": _id(), "sequence_num": 1, "event": "submitted", "actor": "ann", "at": NOW},
    "outbox": lambda: {
        "id": uuid4(),
        "namespace": "default",
        "kind": "run",
        "job_id": _id(),
        "queue": "celery",
        "due_at": NOW,
    },
    "queues": lambda: {"namespace": "default", "name": "celery"},
    "sweeps": lambda: {"namespace": "default", "name": "expire"},
    "holds": lambda: {
        "namespace": "default",
        "kind": "task",
        "name": "shop.pay",
        "reason": "broken",
        "actor": "ann",
    },
    "operations": lambda: {
        "namespace": "default",
        "scope": "cancel",
        "key": "k",
        "request_digest": "r",
        "reply": {},
        "job_id": _id(),
    },
    "tombstones": lambda: {
        "job_id": _id(),
        **_OF_A_TASK,
        "state": "completed",
        "log_seq": 3,
        "finished_at": NOW,
    },
    "api_tokens": lambda: {
        "id": uuid4(),
        "namespace": "default",
        "name": "ci",
        "secret_hash": str(uuid4()),
        "scope": "owner",
        "subject": "ann",
    },
    "answer_links": lambda: {
        "id": uuid4(),
        "question_id": uuid4(),
        "recipient": "bob",
        "digest": "d",
        "secret_hash": str(uuid4()),
        "expires_at": SOON,
    },
    "meta": lambda: {"name": "fact", "value": "1"},
}


def row(table: str, **changes: Any) -> Row:
    """A row that every rule of the table allows, changed. Ids are new each time; a job is pending."""
    return {**_MAKERS[table](), **changes}


def insert(connection: Connection, table: str, values: Mapping[str, Any]) -> None:
    """Insert one row."""
    connection.execute(TABLES[table].insert().values(values))
