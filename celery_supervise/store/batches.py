"""Many jobs in one statement: that of a single one (`births`), with a row of parameters for each. No decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from ..model import NewJob
from .births import Given, birth, parameters
from .door import Door, Row
from .parameters import timed
from .plans import PARAMETER
from .sql import Statement

KINDS: Final[Mapping[str, str]] = {
    "job_id": "text",
    "task": "text",
    "owner": "text",
    "queue": "text",
    "priority": "smallint",
    "ticket_id": "uuid",
    "run_id": "uuid",
    "lost_limit": "integer",
    "max_active": "interval",
    "stall_after": "interval",
    "on_stall": "text",
    "stored_bytes": "bigint",
    "ignore_result": "boolean",
    "input_digest": "text",
    "input_version": "text",
    "task_version": "integer",
    "idempotency_key": "text",
    "rerun_of": "text",
    "data": "bytea",
    "encoding": "text",
    "key_id": "text",
    "due_at": "timestamptz",
    "due_in": "interval",
    "deadline_at": "timestamptz",
    "deadline_in": "interval",
    "start_by_at": "timestamptz",
    "start_by_in": "interval",
}
"""What differs from job to job, by name, as Postgres calls its type."""

_EACH: Final = "each_"

_FULL: Final = """CASE WHEN CAST(:window AS integer) IS NOT NULL THEN n.ordinal > CAST(:window AS integer) - (
               SELECT count(*) FROM (
                   SELECT FROM {s}.outbox AS outbox
                   WHERE outbox.namespace = :namespace AND outbox.queue = :of_queue
                     AND outbox.published_at IS NOT NULL AND outbox.done_at IS NULL
                   LIMIT CAST(:window AS integer)) AS out) END"""
"""The first are let out, up to the window of their queue; the relay lets out the rest. All are of one queue."""


def _submit_many() -> str:
    """In ``w`` the parameters of a job are columns of ``n``; after it they are columns of ``w``."""
    sources = ", ".join(f"CAST(:{_EACH}{name} AS {kind}[])" for name, kind in KINDS.items())
    given = Given(
        source=f", unnest({sources}) WITH ORDINALITY AS n ({', '.join(KINDS)}, ordinal)",
        columns="n.*, ",
        own="w.job_id = j.id",
        names="w.job_id AS given_id, ",
    )
    text = birth(given, full=_FULL)
    head, tail = text.split("\nj AS (", 1)
    return _columns(head, "n") + "\nj AS (" + _columns(tail, "w")


def _columns(text: str, source: str) -> str:
    return PARAMETER.sub(lambda found: f"{source}.{found[1]}" if found[1] in KINDS else found[0], text)


SUBMIT_MANY = Statement("submit_many", _submit_many())


def submit_many(
    door: Door, jobs: Sequence[NewJob], *, actor: str, release: bool, window: int | None, **hold: timedelta
) -> Sequence[Row]:
    """Insert jobs of one queue. A row for each, as of `births.submit`; `given_id` is the id that it was to have."""
    shared: dict[str, Any] = {"actor": actor, "received": False, "release": release, "window": window, **hold}
    every = [parameters(job) for job in jobs]
    each = {f"{_EACH}{name}": [_plain(one[name]) for one in every] for name in KINDS}
    return door.all(SUBMIT_MANY, of_queue=jobs[0].queue, **each, **shared)


def _plain(value: Any) -> Any:
    """An element of an array that both drivers can send."""
    return str(value) if isinstance(value, UUID) else timed(value)
