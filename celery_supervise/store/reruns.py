"""The statement that makes a new job of one that has ended. Run after ``people.LOCK``: it reads what the job left.

And after ``births.LOCK_OWNER``, where the owner may only have so many open jobs.
"""

from __future__ import annotations

from ..lifecycle import BORN, TERMINAL
from .births import ENVELOPE_REF, over_limit
from .sql import Statement, lasting, let_out, one_job, stamp

_ENDED = ", ".join(f"'{state}'" for state in sorted(TERMINAL))

_FREE = let_out("p.namespace", "p.task", "p.owner_id")

RERUN = Statement(
    "rerun",
    one_job()
    + f""",
p AS (
    SELECT t.*, (SELECT CAST(log.data ->> 'max_active' AS interval) FROM {{s}}.log AS log
                 WHERE log.job_id = t.id AND log.sequence_num = 1) AS max_active
    FROM t
    WHERE t.current_state IN ({_ENDED}) AND t.erased_at IS NULL
      AND (CAST(:expected_generation AS integer) IS NULL OR t.generation = CAST(:expected_generation AS integer))
      AND ({over_limit("t.owner_id")}) IS NOT TRUE
),
kept AS (
    SELECT k.* FROM p JOIN {{s}}.checkpoints AS k ON k.job_id = p.id AND k.run_id = p.run_id
    WHERE :from_checkpoints
),
j AS (
    INSERT INTO {{s}}.jobs (
        id, namespace, task, owner_id, queue, priority, current_state, log_seq,
        ticket_id, ticket_due_at, ticket_released_at, run_id, lost_limit, created_at, expires_at,
        active_left, stall_after, on_stall, stored_bytes, ignore_result, input_digest, input_version, task_version,
        node, progress_seq, rerun_of)
    SELECT :new_id, p.namespace, p.task, p.owner_id, p.queue, p.priority, '{BORN.to}', 1,
           CAST(:ticket_id AS uuid), p.at, CASE WHEN {_FREE} THEN p.at END, CAST(:run_id AS uuid), p.lost_limit, p.at,
           p.at + {lasting("p.expires_at", "p.created_at")}, p.max_active, p.stall_after, p.on_stall,
           octet_length(CAST(:data AS bytea)) + (SELECT coalesce(sum(kept.size), 0) FROM kept), p.ignore_result,
           p.input_digest, p.input_version, p.task_version,
           CASE WHEN :from_checkpoints THEN p.node END,
           (SELECT coalesce(max(kept.position), 0) FROM kept), p.id
    FROM p
    ON CONFLICT DO NOTHING
    RETURNING *
),
y AS (
    INSERT INTO {{s}}.payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, 'envelope', '{ENVELOPE_REF}', CAST(:data AS bytea), :encoding, :key_id FROM j
),
x AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, publish_until)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at,
           j.created_at + CAST(:publish_hold AS interval)
    FROM j WHERE j.ticket_released_at IS NOT NULL
),
k AS (
    INSERT INTO {{s}}.checkpoints (job_id, run_id, node, kind, position, data, encoding, key_id, size,
                                   attempt_token, saved_at, logged_at)
    SELECT j.id, j.run_id, kept.node, kept.kind, kept.position, kept.data, kept.encoding, kept.key_id, kept.size,
           kept.attempt_token, kept.saved_at, kept.logged_at
    FROM j, kept
    RETURNING node
),
m AS MATERIALIZED (
    SELECT q.id AS old_id, gen_random_uuid() AS new_id
    FROM p JOIN {{s}}.questions AS q ON q.job_id = p.id AND q.run_id = p.run_id
    WHERE :from_checkpoints AND q.status = 'answered'
),
q AS (
    INSERT INTO {{s}}.questions (id, job_id, run_id, question_key, status, question_data, encoding, key_id,
                                 answer_schema, digest, asked_by, asked_at, expires_at, assignees, approvals,
                                 self_approval, answer, answer_encoding, answer_key_id, answered_by, answered_at)
    SELECT m.new_id, j.id, j.run_id, q.question_key, q.status, q.question_data, q.encoding, q.key_id,
           q.answer_schema, q.digest, q.asked_by, q.asked_at, q.expires_at, q.assignees, q.approvals,
           q.self_approval, q.answer, q.answer_encoding, q.answer_key_id, q.answered_by, q.answered_at
    FROM j JOIN m ON true JOIN {{s}}.questions AS q ON q.id = m.old_id
    RETURNING id
),
b AS (
    INSERT INTO {{s}}.votes (question_id, actor, value, encoding, key_id, voted_at, erased_at)
    SELECT m.new_id, votes.actor, votes.value, votes.encoding, votes.key_id, votes.voted_at, votes.erased_at
    FROM j JOIN m ON true JOIN {{s}}.votes AS votes ON votes.question_id = m.old_id
),
u AS (
    UPDATE {{s}}.jobs AS jobs SET log_seq = p.log_seq + 1 FROM p, j WHERE jobs.id = p.id
    RETURNING jobs.id, jobs.log_seq
),
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data)
    SELECT j.id, 1, '{BORN.log}', :actor, j.created_at,
           jsonb_strip_nulls(jsonb_build_object('task', j.task, 'owner', j.owner_id, 'queue', j.queue,
               'deadline', {stamp("j.expires_at")}, 'max_active', CAST(j.active_left AS text), 'rerun_of', j.rerun_of,
               'input', j.input_digest, 'generation', 1, 'checkpoints', (SELECT count(*) FROM k),
               'answers', (SELECT count(*) FROM q)))
    FROM j
    UNION ALL
    SELECT u.id, u.log_seq, 'rerun', :actor, j.created_at,
           jsonb_build_object('job', j.id, 'from_checkpoints', CAST(:from_checkpoints AS boolean),
                              'with_callbacks', CAST(:with_callbacks AS boolean))
    FROM u, j
)
SELECT j.id AS job_id, j.current_state, j.generation, j.ticket_released_at IS NOT NULL AS released FROM j""",
)
"""One successor a job: a second one finds `rerun_of` taken (17). Its deadline is as far away as the first one's was."""

SUCCESSOR = Statement(
    "successor",
    """
SELECT id AS job_id, run_id FROM {s}.jobs WHERE rerun_of = :job_id AND (namespace = :namespace) IS TRUE""",
)
