"""Statements that find ended jobs and call the two privileged functions on them: prune and erase. No decisions.

What may go is decided in the functions (`0001_functions.sql`), under each job's lock; these say only which to try.
"""

from __future__ import annotations

from ..lifecycle import TERMINAL
from .publishing import SETTLE_TRIES
from .sql import OURS, Statement

_GATE = "WITH s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true))"
_STATES = "ARRAY[" + ", ".join(f"'{state}'" for state in sorted(TERMINAL)) + "]"

# By `jobs_by_state`: a job was made before it ended, so that what ended before a time was made before it, too. Bounded
# by statement_timestamp(), since an index scan cannot be by clock_timestamp(); this waits for no lock.
_OLD = """jobs.namespace = :namespace AND jobs.current_state = state.name
      AND jobs.created_at < statement_timestamp() - CAST(:older_than AS interval)
      AND jobs.finished_at < statement_timestamp() - CAST(:older_than AS interval) AND jobs.settled_at IS NOT NULL"""

FIND_OLD = Statement(
    "find_old",
    f"""
SELECT old.id AS job_id, old.created_at FROM unnest({_STATES}) AS state (name) CROSS JOIN LATERAL (
    SELECT jobs.id, jobs.created_at FROM {{s}}.jobs AS jobs
    WHERE {_OLD}
      AND (CAST(:after AS timestamptz) IS NULL OR (jobs.created_at >= CAST(:after AS timestamptz)
           AND (jobs.created_at, jobs.id) > (CAST(:after AS timestamptz), CAST(:after_id AS text))))
    ORDER BY jobs.created_at, jobs.id LIMIT :batch) AS old
ORDER BY old.created_at, old.id LIMIT :batch""",
)
"""The next ones after those that were tried: one that owes something still must not keep the others."""

COUNT_OLD = Statement(
    "count_old",
    f"""
SELECT count(*) AS jobs FROM (
    SELECT FROM unnest({_STATES}) AS state (name) CROSS JOIN {{s}}.jobs AS jobs
    WHERE {_OLD} LIMIT CAST(:most AS bigint)) AS old""",
)

PRUNE = Statement("prune", f"{_GATE} SELECT unnest({{s}}.prune_jobs(CAST(:job_ids AS text[]))) AS job_id FROM s")

STILL_THERE = Statement(
    "still_there", f"SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs WHERE jobs.id = ANY(:job_ids) AND {OURS}"
)
"""How a prune whose reply was lost is read back."""

_TOLD = f"(jobs.settled_at IS NOT NULL OR jobs.settle_tries >= {SETTLE_TRIES}) AND jobs.finished_at IS NOT NULL"

ERASE = Statement(
    "erase",
    f"""{_GATE}
SELECT jobs.id AS job_id, jobs.log_seq, {{s}}.erase_job(jobs.id, CAST(:actor AS text)) AS erased
FROM {{s}}.jobs AS jobs, s
WHERE jobs.id = :job_id AND {OURS} AND (CAST(:owner_id AS text) IS NULL OR jobs.owner_id = :owner_id) AND {_TOLD}""",
)
"""Not before Celery has been told: what is to be told is among the values. `log_seq`: as it was before."""

ERASABLE_OF = Statement(
    "erasable_of",
    f"""
SELECT jobs.id AS job_id, jobs.created_at FROM {{s}}.jobs AS jobs
WHERE jobs.namespace = :namespace AND jobs.owner_id = :owner_id AND {_TOLD}
  AND (CAST(:after AS timestamptz) IS NULL OR (jobs.created_at >= CAST(:after AS timestamptz)
       AND (jobs.created_at, jobs.id) > (CAST(:after AS timestamptz), CAST(:after_id AS text))))
ORDER BY jobs.created_at, jobs.id LIMIT :batch""",
)

NOT_ERASED_OF = Statement(
    "not_erased_of",
    "SELECT count(*) AS jobs FROM {s}.jobs AS jobs"
    " WHERE jobs.namespace = :namespace AND jobs.owner_id = :owner_id AND jobs.erased_at IS NULL",
)
