"""How a statement that moves a job is put together. Text only: derived from the transition table, decides nothing.

Every such statement has the one form that is right under every plan (protocol 7):

``s`` bounds the wait for locks; ``l`` locks the job row and reads its newest version; ``t`` reads the clock
*after* the lock is held; ``v`` judges, from ``t`` alone; ``p`` joins the verdict to the table's moves, so that a
move that is not in the table finds no row; ``j`` is the one UPDATE of the job; all else is inserted, or
updated by key, from ``j`` and ``p``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import MetaData

from ..lifecycle import JUDGEMENT, USER_PAUSED, Event, Ticket, move, sources, verdicts
from ..schema.jobs import jobs

FACTS: Mapping[str, str] = {
    "cancel_requested": "t.cancel_requested_at IS NOT NULL",
    "time_over": "(t.expires_at <= t.at OR t.active_until <= t.at)",
    "pause_requested": "t.pause_requested_at IS NOT NULL",
}
"""The facts of the judgement, as the job row holds them. (`hand_over` is on the attempt: see `checkpoint`.)"""

OUTCOMES: Mapping[Event, str] = {
    Event.ASK: "parked",
    Event.PARK: "parked",
    Event.CANCEL: "cancelled",
    Event.EXPIRE: "expired",
    Event.COMPLETE: "completed",
    Event.FAIL: "failed",
    Event.RETRY: "retried",
    Event.HAND_OVER: "handed_over",
    Event.LOSE: "lost",
    Event.GIVE_UP: "lost",
    Event.STALL_CANCEL: "cancelled",
    Event.STALL_FAIL: "failed",
    Event.REPLACE: "replaced",
    Event.REPLACE_PLAIN: "replaced",
}
"""How an attempt ended, by the verdict that ended it."""


OURS = "(jobs.namespace = :namespace) IS TRUE"
LIVE = "(attempts.ended_at IS NULL) IS TRUE"
"""Beside a row's own key: a filter, never the way in. As plain conditions they fit other indexes, by which a plan made
while a table was small, or never analysed, walks all rows of the namespace, and all attempts that live."""


def let_out(namespace: str, task: str, owner: str) -> str:
    """That a statement may release the ticket that it issues. Where owners may only run so many, the relay counts.

    It only puts off the release of a ticket, and the relay looks again, so that it may be old (protocol 6, 25).
    """
    return f"(CAST(:counted AS boolean) IS NOT TRUE OR {owner} IS NULL) AND {not_held(namespace, task, owner)}"


def not_held(namespace: str, task: str, owner: str) -> str:
    """That nobody holds this task or owner, as the statement's snapshot says: each by the hold's own key."""
    return " AND ".join(
        f"NOT EXISTS (SELECT FROM {{s}}.holds AS {kind}_hold WHERE {kind}_hold.namespace = {namespace}"
        f" AND {kind}_hold.kind = '{kind}' AND {kind}_hold.name = {name})"
        for kind, name in (("task", task), ("owner", owner))
    )


def stamp(moment: str) -> str:
    """A time for JSON, in UTC: as long as Python's own, which Python 3.10 reads; Postgres leaves out last zeros."""
    return f"to_char({moment} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"+00:00\"')"


def lasting(later: str, earlier: str) -> str:
    """How long it is between two times, to be added to another.

    Their bare difference has days, and those have 23 or 25 hours where the session's zone changes its clocks.
    """
    return f"(extract(epoch FROM {later} - {earlier}) * interval '1 second')"


LAZY = ", set_config('synchronous_commit', 'off', true)"
"""For this transaction only. What commits after it and does wait for the disk takes it along."""


LASTS: Final = re.compile(r"CAST\((:\w+) AS interval\)")
"""A parameter that is a length of time."""


@dataclass(frozen=True)
class Statement:
    """A template: ``{s}`` is the schema; ``{gate}``, ``{lock}`` differ where a caller's transaction is joined."""

    name: str
    text: str
    lazy: bool = False
    """Whether its commit is safe to lose in a crash of Postgres: it then need not wait for the disk."""
    hot: bool = False
    """Whether each job runs it, so that a session keeps its plan."""

    @property
    def only_reads(self) -> bool:
        """Whether it changes and locks nothing, so that it may be repeated: a plain SELECT."""
        return self.text.lstrip().startswith("SELECT")

    def render(self, schema: str, *, joined: bool) -> str:
        """The SQL for `schema`; `joined` never waits and never sets a lock timeout (protocol 10)."""
        own = {
            "gate": f"s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true){LAZY}),"
            if self.lazy
            else "s AS MATERIALIZED (SELECT set_config('lock_timeout', CAST(:lock_timeout AS text), true)),",
            "gated": ", s",
            "lock": "FOR NO KEY UPDATE OF jobs",
        }
        other = {"gate": "", "gated": "", "lock": "FOR NO KEY UPDATE OF jobs SKIP LOCKED"}
        # a length of time is sent as text (see `timed`), which asyncpg does where the statement says so
        text = LASTS.sub(r"CAST(CAST(\1 AS text) AS interval)", self.text)
        columns = {"read": columns_of(self.text, "tvp"), "moved": columns_of(self.text, "j")}
        return text.format(s=schema, **columns, **(other if joined else own))


COLUMNS: Final = tuple(column.name for column in jobs(MetaData()).columns)


def columns_of(text: str, aliases: str) -> str:
    """The columns of `jobs` that a statement uses by these aliases: each one more costs it time, used or not."""
    used = {name for _, name in re.findall(rf"\b([{aliases}])\.(\w+)", text)}
    return ", ".join(f"jobs.{name}" for name in COLUMNS if name == "id" or name in used)


def one_job() -> str:
    """The head of a statement on one job, of this namespace and, where an owner is named, of this owner."""
    return f"""
WITH {{gate}}
l AS MATERIALIZED (
    SELECT {{read}} FROM {{s}}.jobs AS jobs{{gated}}
    WHERE jobs.id = :job_id AND {OURS}
      AND (CAST(:owner_id AS text) IS NULL OR jobs.owner_id = :owner_id)
    {{lock}}
),
t AS MATERIALIZED (SELECT l.*, clock_timestamp() AS at FROM l)"""


def many_jobs() -> str:
    """The head of a statement on a batch of jobs that this transaction has locked already."""
    return f"""
WITH l AS MATERIALIZED (
    SELECT {{read}} FROM {{s}}.jobs AS jobs
    WHERE jobs.id = ANY(:job_ids) AND {OURS}
    ORDER BY jobs.id FOR NO KEY UPDATE OF jobs
),
t AS MATERIALIZED (SELECT l.*, clock_timestamp() AS at FROM l)"""


def judged(event: Event, *, facts: Mapping[str, str] = FACTS, otherwise: str | None = None) -> str:
    """The CASE that judges `event` (protocol 12), in the order of ``JUDGEMENT``."""
    rules = [(facts[fact], instead) for fact, instead, over in JUDGEMENT if event in over and fact in facts]
    whens = " ".join(f"WHEN {fact} THEN '{instead}'" for fact, instead in rules)
    return f"CASE {whens} ELSE {otherwise or repr(event.value)} END"


def moves(events: Iterable[Event]) -> str:
    """The rows of the transition table for these verdicts, as VALUES."""
    rows = [
        f"('{verdict}', '{state}', '{m.to}', {int(m.generation)}, '{m.ticket.value}', "
        f"{_literal(m.log)}, {str(m.ends).upper()})"
        for verdict in events
        for state in sorted(sources(verdict))
        if (m := move(state, verdict)) is not None
    ]
    return "(VALUES " + ", ".join(rows) + ") AS m (verdict, from_state, to_state, bump, ticket, log_event, ends)"


def _literal(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


WHICH_TIME = "CASE WHEN v.expires_at <= v.at THEN 'deadline' ELSE 'max_active' END"


@dataclass(frozen=True)
class Plan:
    """What one operation adds to the common form. The defaults keep what the row has."""

    events: tuple[Event, ...]
    verdict: str
    where: str = "true"
    reads: str = ""  # further columns of v, from t and `beside` alone
    beside: str = ""  # rows named by key that only the caller writes, joined to t
    reason: Mapping[Event, str] = field(default_factory=dict)  # the stop reason by verdict; `v` is readable
    which_time: str = WHICH_TIME
    entries: str = "1"
    due: str = "v.at"
    ticket: str = "CAST(:ticket_id AS uuid)"
    settle: str = "CAST(:settle_id AS uuid)"
    token: str = "p.current_token"
    question: str = "p.question_id"
    wait: str = "p.wait_until"
    active: str = "p.active_until"
    sets: Mapping[str, str] = field(default_factory=dict)
    joins: str = ""  # further sources of p, each decided by the UPDATE of one row named by key
    actor: str = "CAST(:actor AS text)"
    data: str = "CAST(:data AS jsonb)"
    head: str = field(default_factory=one_job)


def planned(event: Event, **changes: object) -> Plan:
    """The plan of an event of the attempt's holder: judged, and fenced by its token (protocol 12)."""
    # a checkpoint only tells that its worker leaves: the hand-over is a statement of its own, judged again
    left = {Event.HAND_OVER} if event is Event.CHECKPOINT else set()
    events = tuple(verdict for verdict in verdicts(event) if verdict not in left)
    base: dict[str, object] = {
        "events": events,
        "verdict": judged(event),
        "where": "t.current_state = 'running' AND t.current_token = CAST(:token AS uuid)",
    }
    return Plan(**{**base, **changes})  # type: ignore[arg-type]


def judge_and_move(plan: Plan) -> str:
    """The CTEs ``v``, ``p`` and ``j``: judgement, move, and the one UPDATE of the job row."""
    return f"""{plan.head},
v AS (SELECT t.*{plan.reads}, {plan.verdict} AS verdict FROM t{plan.beside} WHERE {plan.where}){plan.joins},
p AS (
    SELECT v.*, m.to_state, m.bump, m.ticket, m.log_event, m.ends,
           {_reason(plan)} AS reason, {plan.entries} AS entries, {plan.due} AS due
    FROM v JOIN {moves(plan.events)} ON m.verdict = v.verdict AND m.from_state = v.current_state{_joined(plan)}
),
j AS (
    UPDATE {{s}}.jobs AS jobs SET {_sets(plan)}
    FROM p WHERE jobs.id = p.id
    RETURNING {{moved}}
)"""


def _joined(plan: Plan) -> str:
    """A further source takes part in p, so that no move happens without it."""
    names = [part.split(" AS ")[0].strip() for part in plan.joins.split("\n,")[1:]]
    return "".join(f" JOIN {name} ON {name}.job_id = v.id" for name in names)


def _reason(plan: Plan) -> str:
    by_verdict = {
        Event.EXPIRE: f"'expired:' || coalesce(v.watchdog_stop_reason, {plan.which_time})",
        Event.PARK: f"'{USER_PAUSED}'",
        **plan.reason,
    }
    whens = " ".join(f"WHEN '{event}' THEN {sql}" for event, sql in by_verdict.items() if event in plan.events)
    keep = "CASE WHEN m.to_state = v.current_state THEN v.watchdog_stop_reason END"
    return f"CASE v.verdict {whens} ELSE {keep} END" if whens else keep


def _moves(plan: Plan) -> list[tuple[Ticket, bool]]:
    found = [move(state, event) for event in plan.events for state in sources(event)]
    return [(m.ticket, m.ends) for m in found if m is not None]


def _sets(plan: Plan) -> str:
    sets = {
        "current_state": "p.to_state",
        "watchdog_stop_reason": "p.reason",
        "generation": "p.generation + p.bump",
        "log_seq": "p.log_seq + p.entries",
        "current_token": f"CASE WHEN p.to_state = 'running' THEN {plan.token} END",
        "question_id": f"CASE WHEN p.to_state = 'parked' THEN {plan.question} END",
        "wait_until": f"CASE WHEN p.to_state = 'parked' THEN {plan.wait} END",
        "active_until": f"CASE WHEN p.to_state = 'running' THEN {plan.active} END",
        "active_left": "CASE WHEN p.to_state <> 'running' AND p.active_until IS NOT NULL"
        f" THEN greatest({lasting('p.active_until', 'p.at')}, interval '0') ELSE p.active_left END",
        **_ticket_sets(plan),
        **_ending_sets(plan),
        **plan.sets,
    }
    if Event.PARK in plan.events:
        sets.setdefault("pause_requested_at", "CASE WHEN p.verdict <> 'park' THEN p.pause_requested_at END")
    return ", ".join(f"{column} = {value}" for column, value in sets.items())


def _ticket_sets(plan: Plan) -> dict[str, str]:
    actions = {ticket for ticket, _ in _moves(plan)}
    if actions == {Ticket.CLEAR}:
        return {"ticket_id": "NULL", "ticket_due_at": "NULL", "ticket_released_at": "NULL"}
    if actions == {Ticket.KEEP}:
        return {}
    free = let_out("p.namespace", "p.task", "p.owner_id")
    released = f"CASE WHEN p.due <= p.at AND {free} THEN p.at END"
    kept = "p.ticket = 'keep' OR (p.ticket = 'ensure' AND p.ticket_id IS NOT NULL)"
    new = {"ticket_id": plan.ticket, "ticket_due_at": "p.due", "ticket_released_at": released}
    if not actions & {Ticket.ISSUE, Ticket.ENSURE}:
        return {column: f"CASE WHEN {kept} THEN p.{column} END" for column in new}
    return {
        column: f"CASE WHEN {kept} THEN p.{column} WHEN p.ticket IN ('issue', 'ensure') THEN {value} END"
        for column, value in new.items()
    }


def _ending_sets(plan: Plan) -> dict[str, str]:
    if not any(ends for _, ends in _moves(plan)):
        return {}
    return {
        "finished_at": "CASE WHEN p.ends THEN p.at END",
        "settle_id": f"CASE WHEN p.ends THEN {plan.settle} END",
        "settle_due_at": "CASE WHEN p.ends THEN p.at + CAST(:settle_after AS interval) END",
    }


def log(plan: Plan) -> str:
    """The CTE that logs the move. The job row counted the entries, so the numbers are gapless (protocol 11)."""
    own = f"""
    SELECT j.id, j.log_seq, p.log_event, {plan.actor}, p.at, {plan.data} || {_facts()} FROM j, p
    WHERE p.id = j.id AND p.log_event IS NOT NULL"""
    return f""",
g AS (
    INSERT INTO {{s}}.log (job_id, sequence_num, event, actor, at, data){own}
)"""


def _facts() -> str:
    return (
        "jsonb_strip_nulls(jsonb_build_object('state', j.current_state, 'generation', j.generation,"
        " 'reason', j.watchdog_stop_reason))"
    )


THE_JOBS = "p.current_token"
THE_HOLDERS = "CAST(:token AS uuid)"
"""The attempt's token, as the job's row has it, and as its holder's statement carries it: a value, for which no plan
guesses how many there are."""


def end_attempt(*, token: str = THE_JOBS, cause: str = "NULL", traceback: str = "NULL") -> str:
    """The CTE that ends the attempt of a job that left running. Job first, then attempt (protocol 9)."""
    return f""",
a AS (
    UPDATE {{s}}.attempts AS attempts
    SET ended_at = p.at, outcome = {outcome_of("p.verdict")}, outcome_generation = j.generation,
        cause = {cause}, traceback = {traceback}
    FROM j, p
    WHERE p.id = j.id AND attempts.token = {token} AND {LIVE}
      AND p.current_state = 'running' AND p.to_state <> 'running'
)"""


def outcome_of(verdict: str) -> str:
    """How the attempt ended, as SQL."""
    whens = " ".join(f"WHEN '{event}' THEN '{outcome}'" for event, outcome in OUTCOMES.items())
    return f"CASE {verdict} {whens} END"


def publish() -> str:
    """The CTEs that copy a new ticket into the outbox, and mark the copy of one that is gone as done.

    One that is not released yet gets its copy when it is: the outbox grows with what may be sent, not with what waits.
    `publish_hold` keeps the relay away from a ticket that is due at once, which the caller publishes by itself.
    """
    return """,
o AS (
    INSERT INTO {s}.outbox (id, namespace, kind, job_id, queue, due_at, publish_until)
    SELECT j.ticket_id, j.namespace, 'run', j.id, j.queue, j.ticket_due_at,
           p.at + CAST(:publish_hold AS interval)
    FROM j, p WHERE p.id = j.id AND j.ticket_released_at IS NOT NULL AND j.ticket_id IS DISTINCT FROM p.ticket_id
)""" + consume()


def consume() -> str:
    """The CTE that marks the outbox copy of a ticket that the job no longer holds."""
    return """,
d AS (
    UPDATE {s}.outbox AS outbox SET done_at = p.at
    FROM j, p WHERE p.id = j.id AND outbox.id = p.ticket_id AND j.ticket_id IS DISTINCT FROM p.ticket_id
)"""


def close_question() -> str:
    """The CTE that closes the open question of a job that left parked. Needs a snapshot newer than the lock."""
    return """,
c AS (
    UPDATE {s}.questions AS questions
    SET status = CASE WHEN p.wait_until <= p.at THEN 'expired' ELSE 'closed' END, closed_at = p.at
    FROM j, p
    WHERE p.id = j.id AND questions.id = p.question_id AND questions.status = 'pending'
      AND j.question_id IS NULL
)"""


RETURNING = """
SELECT j.id AS job_id, j.current_state, j.watchdog_stop_reason, j.generation, j.ticket_id, j.settle_id,
       j.question_id, j.pause_requested_at IS NOT NULL AS pause_requested, p.verdict,
       j.ticket_id IS NOT NULL AND j.ticket_id IS DISTINCT FROM p.ticket_id AND j.ticket_released_at IS NOT NULL
           AS publish_now
FROM j, p WHERE p.id = j.id"""
