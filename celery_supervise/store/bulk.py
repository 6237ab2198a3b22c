"""Statements that choose the jobs for an operation on many, oldest first. They lock and change nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..lifecycle import OPEN, TERMINAL, USER_PAUSED, State
from .sql import Statement


def _one_of(states: frozenset[State]) -> str:
    return "jobs.current_state IN (" + ", ".join(f"'{state}'" for state in sorted(states)) + ")"


_OPEN = _one_of(OPEN)

WORTH: Mapping[str, str] = {
    "cancel": f"{_OPEN} AND jobs.cancel_requested_at IS NULL",
    "pause": f"{_OPEN} AND jobs.pause_requested_at IS NULL"
    f" AND jobs.watchdog_stop_reason IS DISTINCT FROM '{USER_PAUSED}'",
    "resume": f"{_OPEN} AND (jobs.pause_requested_at IS NOT NULL"
    " OR (jobs.current_state = 'parked' AND jobs.ticket_id IS NULL AND jobs.question_id IS NULL))",
    "extend": f"{_OPEN} AND jobs.expires_at > statement_timestamp()",
    # what went well is run again only where somebody says that state
    "rerun": f"{_one_of(TERMINAL)} AND jobs.erased_at IS NULL"
    " AND (jobs.current_state <> 'completed' OR 'completed' = ANY(CAST(:states AS text[])))"
    " AND NOT EXISTS (SELECT FROM {s}.jobs AS successors WHERE successors.rerun_of = jobs.id)",
}
"""By operation: the jobs on which it would do something. Whether it does is judged by itself, under each one's lock."""


def _choose(action: str, worth: str) -> Statement:
    return Statement(
        f"choose_{action}",
        f"""
SELECT jobs.id AS job_id, jobs.generation, jobs.current_state, jobs.task, count(*) OVER () AS total
FROM {{s}}.jobs AS jobs
WHERE jobs.namespace = :namespace AND {worth}
  AND (CAST(:owner_id AS text) IS NULL OR jobs.owner_id = :owner_id)
  AND (CAST(:states AS text[]) IS NULL OR jobs.current_state = ANY(CAST(:states AS text[])))
  AND (CAST(:task AS text) IS NULL OR jobs.task = :task)
  AND (CAST(:queue AS text) IS NULL OR jobs.queue = :queue)
  AND (CAST(:reason AS text) IS NULL OR jobs.watchdog_stop_reason = :reason
       OR starts_with(jobs.watchdog_stop_reason, :reason || ':'))
ORDER BY jobs.created_at, jobs.id LIMIT :limit""",
    )


CHOOSE: Mapping[str, Statement] = {action: _choose(action, worth) for action, worth in WORTH.items()}
