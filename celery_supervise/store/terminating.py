"""Statements of the end of a process: whom a worker is to end, and the proof that its process still runs just that."""

from __future__ import annotations

from .sql import LIVE, Statement, one_job

FIND_DOOMED = Statement(
    "find_doomed",
    """
SELECT attempts.job_id, attempts.token, attempts.ticket_id, attempts.pid
FROM {s}.attempts AS attempts JOIN {s}.jobs AS jobs ON jobs.id = attempts.job_id
WHERE attempts.incarnation = CAST(:incarnation AS uuid) AND attempts.ended_at IS NULL
  AND attempts.terminate_at IS NULL AND jobs.current_token = attempts.token
  AND jobs.terminate_after <= clock_timestamp()""",
)

DOOM = Statement(
    "doom",
    one_job()
    + f""",
a AS (
    UPDATE {{s}}.attempts AS attempts SET terminate_at = t.at
    FROM t
    WHERE attempts.token = CAST(:token AS uuid) AND {LIVE} AND attempts.terminate_at IS NULL
      AND attempts.incarnation = CAST(:incarnation AS uuid) AND attempts.pid = :pid
      AND attempts.token = t.current_token AND t.terminate_after <= t.at
    RETURNING attempts.job_id
)
SELECT a.job_id FROM a""",
)
"""To be run in a transaction that stays open until the process has been ended: whatever runs next in that process, its
attempt must have committed its end to this very row before.
"""
