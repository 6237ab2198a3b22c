"""What goes into the outbox for the shop's notification task, in the statement of the event itself. Sends nothing.

``:notify`` is the task's name, given by the door; where the shop has not set one, no row is written. A notice names
what happened and to whom; it never has values.
"""

from __future__ import annotations

from .sql import Statement, stamp


def notice(
    kind: str,
    *,
    when: str,
    key: str,
    assignees: str,
    deadline: str,
    question: str = "p.question_id",
    beside: str = "",
    at: str = "p.at",
    row: str = "j, p",
    identity: str = "gen_random_uuid()",
    hold: str = "CAST(NULL AS timestamptz)",
) -> str:
    """The CTE that writes a notice of `kind` (SQL) of the question of a job that moved, if `when`.

    `beside`: a further source of the question's columns. `row`: the job's row as it is now, and as it was; joined
    by id. `hold`: until when the relay leaves it to the process that wrote it.
    """
    job, before = (name.strip() for name in row.split(","))
    return f""",
n AS (
    INSERT INTO {{s}}.outbox (id, namespace, kind, job_id, queue, due_at, publish_until, data)
    SELECT {identity}, {job}.namespace, 'notify', {job}.id, {job}.queue, {at}, {hold},
           jsonb_build_object('task', CAST(:notify AS text), 'notice', jsonb_build_object(
               'kind', {kind}, 'job_id', {job}.id, 'question_id', {question}, 'key', {key}, 'task', {job}.task,
               'owner', {job}.owner_id, 'assignees', to_jsonb({assignees}), 'deadline', {stamp(deadline)}))
    FROM {job} JOIN {before} ON {before}.id = {job}.id{beside}
    WHERE CAST(:notify AS text) IS NOT NULL AND {when}
)"""


def of_question(kind: str, *, when: str) -> str:
    """A notice of the question that the job left, read by its key: needs a snapshot newer than the lock."""
    return notice(
        kind,
        when=when,
        key="q.question_key",
        assignees="q.assignees",
        deadline="q.expires_at",
        beside=" JOIN {s}.questions AS q ON q.id = p.question_id",
    )


NOTICE = Statement(
    "notice",
    """
SELECT outbox.id, outbox.job_id, outbox.queue, outbox.data AS detail, jobs.task, jobs.current_state
FROM {s}.outbox AS outbox JOIN {s}.jobs AS jobs ON jobs.id = outbox.job_id
WHERE outbox.id = CAST(:id AS uuid) AND outbox.namespace = :namespace AND outbox.kind = 'notify'
  AND outbox.published_at IS NULL""",
)
"""One that is to be sent, for the process that has just written it."""
