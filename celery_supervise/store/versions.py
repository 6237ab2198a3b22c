"""Statements about jobs of other versions than the code at hand (protocol 28): leave, shelve, issue again, migrate."""

from __future__ import annotations

from ..lifecycle import Event
from .sql import OURS, RETURNING, Plan, Statement, consume, judge_and_move, log, many_jobs, one_job, publish

TRIED = "tried"
"""Why a job is parked whose migration has ended its process."""

_WAITS = "current_state IN ('pending', 'parked')"

LEAVE = Statement(
    "leave",
    f"""{one_job()},
v AS (
    SELECT t.*, coalesce(t.task_version = ANY(CAST(:migrates AS integer[])), false) AS tries,
           t.at + greatest(interval '1 s', least(t.at - coalesce(t.incompatible_since, t.at), interval '64 s')) AS again
    FROM t
),
j AS (
    UPDATE {{s}}.jobs AS jobs
    SET incompatible_since = coalesce(v.incompatible_since, v.at),
        ticket_released_at = CASE WHEN v.tries THEN v.ticket_released_at END,
        ticket_due_at = CASE WHEN v.tries THEN v.ticket_due_at ELSE v.again END
    FROM v
    WHERE jobs.id = v.id AND v.{_WAITS} AND v.ticket_id = CAST(:ticket_id AS uuid)
      AND v.ticket_released_at IS NOT NULL AND v.ticket_due_at <= v.at
      AND (v.expires_at IS NULL OR v.expires_at > v.at)
      AND (CAST(:versions AS integer[]) IS NULL OR v.task_version <> ALL(CAST(:versions AS integer[])))
    RETURNING jobs.id, jobs.task, jobs.task_version, jobs.ticket_id, jobs.run_id, jobs.node
),
o AS (
    UPDATE {{s}}.outbox AS outbox
    SET published_at = NULL, publish_until = v.again, done_at = CASE WHEN NOT v.tries THEN v.at END,
        data = outbox.data || jsonb_build_object('incompatible', CASE
            WHEN CAST(:versions AS integer[]) IS NULL THEN 'unknown_task:' || j.task
            ELSE 'incompatible_version:' || j.task_version || '->' || CAST(:version AS text)
                 || coalesce(':' || CASE WHEN v.tries THEN '{TRIED}' ELSE CAST(:why AS text) END, '') END)
    FROM j, v WHERE outbox.id = j.ticket_id
)
SELECT j.id AS job_id, j.task_version, j.run_id, j.node FROM j""",
)
"""State and ticket stay as they are, and the ticket goes round again, later each time: another worker may know better.
Meanwhile it is not out, so that what nobody can run takes no place in its queue or of its owner. Only while its
migration is tried, by this worker, it stays so. Without versions the task itself is unknown. The reason stands with the
message until the job is shelved for it."""

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
JOIN unnest(CAST(:tasks AS text[]), CAST(:task_versions AS integer[]), CAST(:codes AS integer[]))
    AS known (task, version, code) ON known.task = jobs.task AND known.version = jobs.task_version
WHERE jobs.incompatible_since IS NOT NULL AND jobs.{_WAITS} AND jobs.current_state = 'parked'
  AND NOT starts_with(jobs.watchdog_stop_reason, 'incompatible_version:' || known.version || '->' || known.code || ':')
  AND jobs.ticket_id IS NULL AND jobs.question_id IS NULL AND {OURS}
ORDER BY jobs.id LIMIT :batch
FOR NO KEY UPDATE OF jobs SKIP LOCKED""",
)
"""Not what this very version's migration has refused: it would only refuse it again. A person may resume that."""

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

# --- migrate: in the transaction of a claim, which holds the row's lock ------------------------------------

ASIDE = Statement(
    "aside",
    """
UPDATE {s}.checkpoints SET run_id = CAST(:aside AS uuid)
WHERE job_id = :job_id AND run_id = CAST(:run_id AS uuid) AND node = ANY(:gone)""",
)
"""What the run has no more stays under a run id that is no run's: for operators, for `erase` and `prune`."""

RENAME = Statement(
    "rename",
    """
UPDATE {s}.checkpoints AS k SET run_id = CAST(:run_id AS uuid), node = names.now
FROM unnest(CAST(:old_names AS text[]), CAST(:new_names AS text[])) AS names (before, now)
WHERE k.job_id = :job_id AND k.run_id = CAST(:aside AS uuid) AND k.node = names.before""",
)
"""Back from aside under another name, so that two nodes may exchange theirs."""

PUT = Statement(
    "put",
    """
INSERT INTO {s}.checkpoints (job_id, run_id, node, kind, position, data, encoding, key_id, size, attempt_token,
                             saved_at, logged_at)
SELECT :job_id, CAST(:run_id AS uuid), :node, :kind,
       coalesce((SELECT before.position FROM {s}.checkpoints AS before WHERE before.job_id = :job_id
                 AND before.run_id = CAST(:aside AS uuid) AND before.node = CAST(:origin AS text)),
                (SELECT jobs.progress_seq + CAST(:place AS integer) FROM {s}.jobs AS jobs WHERE jobs.id = :job_id)),
       CAST(:data AS bytea), :encoding, :key_id, :size, CAST(:token AS uuid), clock_timestamp(), clock_timestamp()""",
)

MIGRATED = Statement(
    "migrated",
    """
WITH j AS (
    UPDATE {s}.jobs AS jobs
    SET task_version = :version, node = CAST(:node AS text),
        progress_seq = jobs.progress_seq + CAST(:places AS integer),
        stored_bytes = jobs.stored_bytes + CAST(:added AS bigint), log_seq = jobs.log_seq + 1
    WHERE jobs.id = :job_id AND jobs.current_token = CAST(:token AS uuid)
    RETURNING jobs.id, jobs.log_seq, jobs.current_token, jobs.stored_bytes
),
a AS (
    UPDATE {s}.attempts AS attempts SET task_version = :version, checkpoint_ref = CAST(:node AS text)
    FROM j WHERE attempts.token = j.current_token
),
g AS (
    INSERT INTO {s}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, j.log_seq, 'migrated', :actor, clock_timestamp(),
           jsonb_build_object('from', CAST(:from_version AS integer), 'to', CAST(:version AS integer),
                              'renamed', CAST(:renamed AS jsonb), 'written', CAST(:written AS jsonb),
                              'gone', CAST(:forgotten AS jsonb))
    FROM j
)
SELECT j.id AS job_id, j.stored_bytes FROM j""",
)
"""The job is one of this version from here on. Names only: the log never holds values."""

OF_VERSION = Statement(
    "of_version",
    """
SELECT jobs.id AS job_id, jobs.task_version, jobs.current_state AS state, jobs.run_id, jobs.node
FROM {s}.jobs AS jobs
WHERE jobs.namespace = :namespace AND jobs.current_state IN ('pending', 'running', 'parked')
  AND jobs.task = :task AND jobs.task_version = :version
  AND (CAST(:after AS text) IS NULL OR jobs.id > :after)
ORDER BY jobs.id LIMIT :batch""",
)
