"""Statements of a replacement: another task takes the job over, or one that is not supervised goes on in its place."""

from __future__ import annotations

from ..lifecycle import Event
from .births import ENVELOPE_REF
from .cleanups import drop_after, send_after
from .sql import RETURNING, Statement, end_attempt, judge_and_move, log, planned, publish


def _its(value: str, column: str) -> str:
    """What the job has of the task that takes it over."""
    return f"CASE WHEN p.verdict = 'replace' THEN {value} ELSE p.{column} END"


_NONE = ("node", "progress_current", "progress_total", "progress_message", "stalled_at")

_replace = planned(
    Event.REPLACE,
    settle="CAST(:token AS uuid)",
    due="greatest(v.at, CAST(:due_at AS timestamptz), v.at + CAST(:due_in AS interval))",
    data="jsonb_build_object('from', p.task, 'task', j.task, 'input', j.input_digest)",
    sets={
        "task": _its(":task", "task"),
        "queue": _its(":queue", "queue"),
        "priority": _its("CAST(:priority AS smallint)", "priority"),
        "task_version": _its("CAST(:task_version AS integer)", "task_version"),
        # what another task lost, or tried, uses up nothing of its own
        "lost_count": _its("0", "lost_count"),
        "lost_limit": _its("CAST(:lost_limit AS integer)", "lost_limit"),
        "stall_after": _its("CAST(:stall_after AS interval)", "stall_after"),
        "on_stall": _its(":on_stall", "on_stall"),
        "ignore_result": _its("CAST(:ignore_result AS boolean)", "ignore_result"),
        # another task is another run: nothing that was remembered or answered for the old one holds
        "run_id": _its("CAST(:run_id AS uuid)", "run_id"),
        "input_digest": _its(":input_digest", "input_digest"),
        **{column: _its("NULL", column) for column in _NONE},
    },
)

REPLACE = Statement(
    "replace",
    judge_and_move(_replace)
    + f""",
y AS (
    INSERT INTO {{s}}.payloads AS payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, 'envelope', '{ENVELOPE_REF}', CAST(:data AS bytea), :encoding, :key_id
    FROM j, p WHERE p.id = j.id AND p.verdict = 'replace'
    ON CONFLICT (job_id, kind, ref) DO UPDATE
    SET data = excluded.data, encoding = excluded.encoding, key_id = excluded.key_id
)"""
    + end_attempt()
    + publish()
    + log(_replace)
    + RETURNING,
)

_replace_plain = planned(
    Event.REPLACE_PLAIN,
    settle="CAST(:token AS uuid)",
    data="jsonb_strip_nulls(jsonb_build_object('replaced_by',"
    " CASE WHEN p.verdict = 'replace_plain' THEN CAST(:by AS text) END))",
    # Celery has nothing to be told: whoever goes on under this id will be what it hears
    sets={"settled_at": "CASE WHEN p.verdict = 'replace_plain' THEN p.at END"},
)

# What whoever settles a job does. Cleanups can be looked for here, though their rows may be older than the job's:
# only the holder registers any, in the same thread, and what attempts before it registered it was claimed after.
_SETTLED = f""",
over AS (
    SELECT j.id, j.namespace, j.queue, j.current_state, j.settle_id
    FROM j, p WHERE p.id = j.id AND p.verdict = 'replace_plain'
),
o AS (
    DELETE FROM {{s}}.outbox AS outbox USING over
    WHERE outbox.job_id = over.id
      AND (outbox.kind = 'run' OR (outbox.kind = 'notify' AND outbox.done_at IS NOT NULL))
){send_after("over")}{drop_after("over")}"""

REPLACE_PLAIN = Statement(
    "replace_plain", judge_and_move(_replace_plain) + end_attempt() + _SETTLED + log(_replace_plain) + RETURNING
)
