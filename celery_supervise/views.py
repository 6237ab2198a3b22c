"""Jobs, questions and their like as programs see them, by CLI and HTTP. Nothing that only the code knows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from celery_supervise.model import Attempt, Job, LogPage, Moved, Question

JOB: Final = (
    "id",
    "namespace",
    "task",
    "owner_id",
    "state",
    "stop_reason",
    "generation",
    "queue",
    "node",
    "created_at",
    "started_at",
    "finished_at",
    "deadline",
    "wait_until",
    "starts_at",
    "pause_requested_at",
    "cancel_requested_at",
    "stage_at",
    "stalled_at",
    "terminate_after",
    "progress_at",
    "progress_current",
    "progress_total",
    "progress_message",
    "attempts",
    "lost_count",
    "task_version",
    "input_version",
    "idempotency_key",
    "rerun_of",
    "question_id",
    "erased_at",
)
QUESTION: Final = (
    "id",
    "job_id",
    "task",
    "key",
    "status",
    "schema",
    "digest",
    "asked_at",
    "expires_at",
    "open_until",
    "to",
    "approvals",
    "self_approval",
    "voted",
    "answered_by",
    "answered_at",
    "owner_id",
    "job_state",
    "generation",
)
ATTEMPT: Final = (
    "number",
    "worker",
    "pid",
    "started_at",
    "heartbeat_at",
    "lease_until",
    "ended_at",
    "outcome",
    "cause",
    "traceback",
    "checkpoint_ref",
)
MOVED: Final = ("job_id", "state", "stop_reason", "generation", "changed", "pause_requested")

View = Mapping[str, Any]


def job_view(job: Job) -> View:
    """A job."""
    return _some(job, JOB)


def attempt_view(attempt: Attempt) -> View:
    """One execution."""
    return _some(attempt, ATTEMPT)


def question_view(question: Question, content: Any, answer: Mapping[str, Any]) -> View:
    """A question: what it shows, and its answer where there is one (`{"answer": null}` is one)."""
    return {**_some(question, QUESTION), "content": content, **answer}


def moved_view(moved: Moved, said: str) -> View:
    """What a request did."""
    return {**_some(moved, MOVED), "said": said}


def log_view(page: LogPage) -> View:
    """A page of a log, and exactly how much it withholds."""
    return {
        "returned_count": page.returned_count,
        "total_count": page.total_count,
        "withheld_count": page.withheld_count,
        "truncated": page.truncated,
        "entries": page.entries,
    }


def jsonable(value: Any) -> Any:
    """A result as JSON; one that is none, as Python would print it: Celery's serialisers know more types."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value


def _some(value: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
