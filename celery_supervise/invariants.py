"""What must always hold in the database, each as a query for its violations. Changes nothing.

The same checks run after every database test and in ``supervise doctor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .store.door import Door
from .store.sql import Statement

CHILDREN = ("attempts", "checkpoints", "cleanups", "log", "outbox", "payloads", "questions")
TERMINAL = "('cancelled', 'completed', 'expired', 'failed')"


@dataclass(frozen=True)
class Invariant:
    """A rule: `query` returns `job_id` and `detail` of every job that breaks it."""

    name: str
    meaning: str
    query: Statement


@dataclass(frozen=True)
class Finding:
    """A broken rule."""

    invariant: str
    meaning: str
    job_id: str
    detail: str


def _rule(name: str, meaning: str, query: str) -> Invariant:
    return Invariant(name, meaning, Statement(f"invariant {name}", query))


def _jobs(name: str, meaning: str, where: str) -> Invariant:
    return _rule(
        name,
        meaning,
        "SELECT j.id AS job_id, j.current_state || ' ' || coalesce(j.watchdog_stop_reason, '(no reason)') AS detail"
        " FROM {s}.jobs AS j WHERE j.namespace = :namespace AND " + where,
    )


INVARIANTS: tuple[Invariant, ...] = (
    _jobs(
        "parked_has_reason",
        "a parked job says why",
        "j.current_state = 'parked' AND coalesce(j.watchdog_stop_reason, '') = ''",
    ),
    _jobs(
        "running_has_attempt",
        "a running job has a live attempt with its token",
        "j.current_state = 'running' AND NOT EXISTS (SELECT FROM {s}.attempts AS a"
        " WHERE a.token = j.current_token AND a.job_id = j.id AND a.ended_at IS NULL)",
    ),
    _rule(
        "attempt_has_job",
        "a live attempt is its job's current one",
        "SELECT a.job_id, a.token::text AS detail FROM {s}.attempts AS a JOIN {s}.jobs AS j ON j.id = a.job_id"
        " WHERE j.namespace = :namespace AND a.ended_at IS NULL AND j.current_token IS DISTINCT FROM a.token",
    ),
    _jobs(
        "ticket_is_published",
        "a ticket that is released has a copy in the outbox",
        "j.ticket_released_at IS NOT NULL AND NOT EXISTS (SELECT FROM {s}.outbox AS o"
        " WHERE o.id = j.ticket_id AND o.job_id = j.id AND o.done_at IS NULL)",
    ),
    _jobs(
        "parked_can_go_on",
        "a parked job waits for somebody: an answer, a worker, or a person who paused it",
        "j.current_state = 'parked' AND j.ticket_id IS NULL AND j.question_id IS NULL"
        " AND j.watchdog_stop_reason !~ '^(user_paused|incompatible_version:|unknown_task:)'",
    ),
    _rule(
        "question_parks",
        "an open question belongs to a job that is parked on it",
        "SELECT q.job_id, q.question_key AS detail FROM {s}.questions AS q JOIN {s}.jobs AS j ON j.id = q.job_id"
        " WHERE j.namespace = :namespace AND q.status = 'pending' AND j.question_id IS DISTINCT FROM q.id",
    ),
    _jobs(
        "question_exists",
        "the question a job is parked on is open",
        "j.question_id IS NOT NULL AND NOT EXISTS (SELECT FROM {s}.questions AS q"
        " WHERE q.id = j.question_id AND q.job_id = j.id AND q.status = 'pending')",
    ),
    _rule(
        "answer_has_votes",
        "an answer that several people decide has their votes",
        "SELECT q.job_id, q.question_key AS detail FROM {s}.questions AS q JOIN {s}.jobs AS j ON j.id = q.job_id"
        " WHERE j.namespace = :namespace AND q.status = 'answered' AND q.approvals > 1"
        " AND q.approvals > (SELECT count(*) FROM {s}.votes AS v WHERE v.question_id = q.id)",
    ),
    _rule(
        "log_gapless",
        "the log of a job is numbered from 1 without gaps",
        "SELECT j.id AS job_id, format('%s entries up to %s, counted %s', count(l.*), max(l.sequence_num), j.log_seq)"
        " AS detail FROM {s}.jobs AS j LEFT JOIN {s}.log AS l ON l.job_id = j.id WHERE j.namespace = :namespace"
        " GROUP BY j.id HAVING count(l.*) <> j.log_seq OR coalesce(max(l.sequence_num), 0) <> j.log_seq",
    ),
    _rule(
        "log_in_order",
        "the times of a log follow its numbers",
        "SELECT job_id, sequence_num::text AS detail FROM (SELECT l.job_id, l.sequence_num, l.at,"
        " lag(l.at) OVER (PARTITION BY l.job_id ORDER BY l.sequence_num) AS before FROM {s}.log AS l"
        " JOIN {s}.jobs AS j ON j.id = l.job_id WHERE j.namespace = :namespace) AS x WHERE x.at < x.before",
    ),
    _rule(
        "ends_once",
        "a job has one terminal entry in its log, and only if it has ended",
        "SELECT j.id AS job_id, format('%s with %s terminal entries', j.current_state, count(l.*)) AS detail"
        " FROM {s}.jobs AS j LEFT JOIN {s}.log AS l ON l.job_id = j.id AND l.event IN "
        + TERMINAL
        + " WHERE j.namespace = :namespace GROUP BY j.id, j.current_state"
        " HAVING count(l.*) <> CASE WHEN j.current_state IN " + TERMINAL + " THEN 1 ELSE 0 END",
    ),
    _jobs(
        "end_is_told",
        "a job that ended will be settled",
        "j.current_state IN " + TERMINAL + " AND j.settled_at IS NULL"
        " AND (j.settle_id IS NULL OR j.settle_due_at IS NULL)",
    ),
    _rule(
        "cleanups_are_sent",
        "of a job whose end was told every cleanup is dropped or will be sent",
        "SELECT c.job_id, c.name AS detail FROM {s}.cleanups AS c JOIN {s}.jobs AS j ON j.id = c.job_id"
        " WHERE j.namespace = :namespace AND j.settled_at IS NOT NULL AND c.data IS NOT NULL"
        " AND c.dispatched_at IS NULL AND c.dropped_at IS NULL AND NOT EXISTS (SELECT FROM {s}.outbox AS o"
        " WHERE o.job_id = c.job_id AND o.kind = 'cleanup' AND o.data ->> 'name' = c.name)",
    ),
    _rule(
        "attempts_counted",
        "attempts are numbered as the job counts them",
        "SELECT j.id AS job_id, format('%s rows, counted %s', count(a.*), j.attempt_count) AS detail"
        " FROM {s}.jobs AS j LEFT JOIN {s}.attempts AS a ON a.job_id = j.id WHERE j.namespace = :namespace"
        " GROUP BY j.id HAVING count(a.*) <> j.attempt_count",
    ),
    _rule(
        "one_result",
        "a job has at most one result, and only if it completed",
        "SELECT p.job_id, count(*)::text AS detail FROM {s}.payloads AS p JOIN {s}.jobs AS j ON j.id = p.job_id"
        " WHERE j.namespace = :namespace AND p.kind = 'result' GROUP BY p.job_id, j.current_state"
        " HAVING count(*) > 1 OR j.current_state <> 'completed'",
    ),
    _jobs(
        "envelope_exists",
        "a job that has not ended has the message to send",
        "j.current_state NOT IN " + TERMINAL + " AND NOT EXISTS (SELECT FROM {s}.payloads AS p"
        " WHERE p.job_id = j.id AND p.kind = 'envelope')",
    ),
    _rule(
        "parent_exists",
        "nothing is left of a job that is gone",
        " UNION ALL ".join(
            f"SELECT DISTINCT x.job_id, '{table}' AS detail FROM {{s}}.{table} AS x"
            " WHERE NOT EXISTS (SELECT FROM {s}.jobs AS j WHERE j.id = x.job_id)"
            for table in CHILDREN
        ),
    ),
)


def check(door: Door) -> Sequence[Finding]:
    """Every broken rule in this namespace; empty is good."""
    return [
        Finding(rule.name, rule.meaning, row["job_id"], row["detail"])
        for rule in INVARIANTS
        for row in door.all(rule.query)
    ]
