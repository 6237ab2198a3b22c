"""Statements about jobs that the code at hand cannot run (protocol 28): leave, shelve, issue again. No waiting."""

from __future__ import annotations

from ..lifecycle import Event
from .sql import OURS, RETURNING, Plan, Statement, consume, judge_and_move, log, many_jobs, one_job, publish

_WAITS = "current_state IN ('pending', 'parked')"

LEAVE = Statement(
    "leave",
    one_job()
    + f""",
j AS (
    UPDATE {{s}}.jobs AS jobs SET incompatible_since = coalesce(t.incompatible_since, t.at)
    FROM t
    WHERE jobs.id = t.id AND t.{_WAITS} AND t.ticket_id = CAST(:ticket_id AS uuid)
      AND t.ticket_released_at IS NOT NULL AND t.ticket_due_at <= t.at
      AND (t.expires_at IS NULL OR t.expires_at > t.at)
      AND (CAST(:versions AS integer[]) IS NULL OR t.task_version <> ALL(CAST(:versions AS integer[])))
    RETURNING jobs.id, jobs.task, jobs.task_version, jobs.ticket_id, t.at
),
o AS (
    UPDATE {{s}}.outbox AS outbox
    SET published_at = NULL,
        publish_until = j.at + interval '1 s' * least(power(2, greatest(outbox.publish_count, 1) - 1), 64),
        data = outbox.data || jsonb_build_object('incompatible', CASE
            WHEN CAST(:versions AS integer[]) IS NULL THEN 'unknown_task:' || j.task
            ELSE 'incompatible_version:' || j.task_version || '->' || CAST(:version AS text) END)
    FROM j WHERE outbox.id = j.ticket_id
)
SELECT j.id AS job_id FROM j""",
)
"""Ticket and state stay as they are, the message goes round again, later each time: another worker may know better.
Without versions the task itself is unknown. The reason stands with the message until the job is shelved for it."""

LOCK_INCOMPATIBLE = Statement(
    "lock_incompatible",
    f"""
SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs
WHERE jobs.incompatible_since <= clock_timestamp() - CAST(:grace AS interval) AND jobs.incompatible_since IS NOT NULL
  AND jobs.{_WAITS} AND jobs.ticket_id IS NOT NULL AND jobs.namespace = :namespace
  AND (jobs.sweep_after IS NULL OR jobs.sweep_after <= clock_timestamp())
  AND (CAST(:job_ids AS text[]) IS NULL OR jobs.id = ANY(:job_ids))
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)

_shelve = Plan(
    events=(Event.SHELVE,),
    verdict="'shelve'",
    head=many_jobs(),
    where=f"t.{_WAITS} AND t.ticket_id IS NOT NULL AND t.incompatible_since IS NOT NULL"
    " AND (t.expires_at IS NULL OR t.expires_at > t.at)",
    # named by key, read by a statement that is newer than the lock
    joins="""
,w AS (
    SELECT v.id AS job_id, outbox.data ->> 'incompatible' AS why
    FROM v JOIN {s}.outbox AS outbox ON outbox.id = v.ticket_id
    WHERE outbox.data ->> 'incompatible' IS NOT NULL
)""",
    reason={Event.SHELVE: "w.why"},
    data="jsonb_strip_nulls(jsonb_build_object('was', p.watchdog_stop_reason))",
)

SHELVE = Statement("shelve", judge_and_move(_shelve) + consume() + log(_shelve) + RETURNING)

LOCK_SHELVED = Statement(
    "lock_shelved",
    f"""
SELECT jobs.id AS job_id FROM {{s}}.jobs AS jobs
JOIN unnest(CAST(:tasks AS text[]), CAST(:task_versions AS integer[])) AS known (task, version)
    ON known.task = jobs.task AND known.version = jobs.task_version
WHERE jobs.incompatible_since IS NOT NULL AND jobs.{_WAITS} AND jobs.current_state = 'parked'
  AND jobs.ticket_id IS NULL AND jobs.question_id IS NULL AND {OURS}
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)

_reissue = Plan(
    events=(Event.REISSUE,),
    verdict="'reissue'",
    head=many_jobs(),
    where="t.current_state = 'parked' AND t.ticket_id IS NULL AND t.question_id IS NULL"
    " AND t.incompatible_since IS NOT NULL",
    ticket="gen_random_uuid()",
    reason={Event.REISSUE: "'resume_requested:' || coalesce(v.watchdog_stop_reason, '')"},
    sets={"incompatible_since": "NULL"},
)

REISSUE = Statement("reissue", judge_and_move(_reissue) + publish() + log(_reissue) + RETURNING)

UNFINISHED = Statement(
    "unfinished",
    """
SELECT jobs.task, jobs.task_version AS version, jobs.current_state AS state, count(*) AS jobs,
       (array_agg(jobs.id ORDER BY jobs.created_at))[1:5] AS ids
FROM {s}.jobs AS jobs
WHERE jobs.namespace = :namespace AND jobs.current_state IN ('pending', 'running', 'parked')
GROUP BY jobs.task, jobs.task_version, jobs.current_state
ORDER BY jobs.task, version, state""",
)
