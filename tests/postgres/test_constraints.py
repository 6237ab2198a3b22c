"""Every CHECK and every unique index, broken once: the database refuses, and the error names the rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

from celery_supervise.engine import create_engine
from example_project import embedded
from tests.postgres.rows import (
    NO_TICKET,
    NOW,
    SOON,
    TABLES,
    Row,
    answered,
    ended,
    insert,
    parked,
    row,
    running,
)
from tests.servers import created

TOO_LONG = "ü" * 128
"""256 bytes, though only 128 characters."""

RULES = """
    SELECT conname FROM pg_constraint WHERE connamespace = 'supervise'::regnamespace AND contype <> 'n'
    UNION
    SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'supervise'::regnamespace AND i.indisunique"""
ALEMBICS_OWN = {"version_pkc"}


@dataclass(frozen=True)
class Broken:
    """A row that is valid but for `change`; or, with `same`, the second one with these columns' values."""

    rule: str
    change: Row = field(default_factory=dict)
    same: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The table whose rule it is: rules are named for their tables."""
        return max((name for name in TABLES if self.rule.startswith(f"{name}_")), key=len)


def broken(rule: str, *same: str, **change: Any) -> Broken:
    """See Broken."""
    return Broken(rule, change, same)


QUESTION: Row = {"question_id": uuid4(), "wait_until": SOON}

BROKEN = [
    broken("jobs_pkey", "id"),
    broken("jobs_state", **NO_TICKET, current_state="stuck"),
    broken("jobs_running_has_token", current_token=uuid4()),
    broken("jobs_running_has_token", **{**running(), "current_token": None}),
    broken("jobs_pending_has_ticket", **NO_TICKET),
    broken("jobs_ticket_waits", current_state="running", current_token=uuid4()),
    broken("jobs_ticket_waits", **{**ended(), "ticket_id": uuid4(), "ticket_due_at": NOW}),
    broken("jobs_ticket_has_due", ticket_due_at=None),
    broken("jobs_ticket_has_due", **{**parked(), "ticket_due_at": NOW}),
    broken("jobs_released_is_ticket", **parked(), ticket_released_at=NOW),
    broken("jobs_question_has_time", **parked(), question_id=uuid4()),
    broken("jobs_question_has_time", **parked(), wait_until=SOON),
    broken("jobs_question_parks", **running(), **QUESTION),
    broken("jobs_question_parks", **ended(), **QUESTION),
    broken("jobs_question_or_ticket", current_state="parked", **QUESTION),
    broken("jobs_terminal_has_end", **{**ended(), "finished_at": None}),
    broken("jobs_terminal_has_end", finished_at=NOW),
    broken("jobs_terminal_has_settle", **{**ended(), "settle_id": None}),
    broken("jobs_terminal_has_settle", settle_id=uuid4(), settle_due_at=SOON),
    broken("jobs_settle_has_due", **{**ended(), "settle_due_at": None}),
    broken("jobs_settled_has_id", settled_at=NOW),
    broken("jobs_active_is_running", active_until=SOON),
    broken("jobs_counters", generation=0),
    broken("jobs_counters", log_seq=-1),
    broken("jobs_counters", progress_seq=-1),
    broken("jobs_on_stall", on_stall="kill"),
    broken("jobs_counts", lost_limit=0),
    broken("jobs_counts", lost_count=-1),
    broken("jobs_counts", attempt_count=-1),
    broken("jobs_id_length", id=""),
    broken("jobs_id_length", id=TOO_LONG),
    broken("jobs_namespace_length", namespace=TOO_LONG),
    broken("jobs_task_length", task=TOO_LONG),
    broken("jobs_queue_length", queue=TOO_LONG),
    broken("jobs_owner_id_length", owner_id=""),
    broken("jobs_idempotency_key_length", idempotency_key=TOO_LONG),
    # nobody's job is one owner's too
    broken("jobs_idempotency", "idempotency_key", idempotency_key="once"),
    broken("jobs_rerun_of", "rerun_of", rerun_of="first"),
    broken("payloads_pkey", "job_id", "kind", "ref"),
    broken("payloads_kind", kind="secret"),
    broken("attempts_pkey", "token"),
    broken("attempts_ended_has_outcome", ended_at=NOW),
    broken("attempts_ended_has_outcome", outcome="lost"),
    broken("attempts_outcome", ended_at=NOW, outcome="vanished"),
    broken("attempts_job_id_number_key", "job_id", "number", ended_at=NOW, outcome="lost"),
    broken("attempts_ticket_id_key", "ticket_id", ended_at=NOW, outcome="lost"),
    broken("attempts_live", "job_id"),
    broken("checkpoints_pkey", "job_id", "run_id", "node"),
    broken("checkpoints_kind", kind="guess"),
    broken("checkpoints_node_length", node=TOO_LONG),
    broken("questions_pkey", "id"),
    broken("questions_status", status="ignored", closed_at=NOW),
    broken("questions_answered_has_answer", **{**answered(), "answer": None}),
    broken("questions_answered_has_answer", **{**answered(), "answered_at": None}),
    broken("questions_answered_has_answer", **{**answered(), "answered_by": None}),
    broken("questions_answer_is_answered", answer=b"true"),
    broken("questions_answer_is_answered", answer=b"true", status="expired", closed_at=NOW),
    broken("questions_closed_has_time", status="withdrawn"),
    broken("questions_closed_has_time", closed_at=NOW),
    broken("questions_question_has_content", question_data=None),
    broken("questions_approvals", approvals=0),
    broken("questions_question_key_length", question_key=""),
    broken("questions_key", "job_id", "run_id", "question_key", **answered()),
    broken("questions_open", "job_id"),
    broken("votes_pkey", "question_id", "actor"),
    broken("votes_vote_has_value", value=None),
    broken("votes_actor_length", actor=TOO_LONG),
    broken("cleanups_pkey", "job_id", "name"),
    broken("cleanups_one_fate", dispatched_at=NOW, dropped_at=NOW),
    broken("cleanups_name_length", name=""),
    broken("log_pkey", "job_id", "sequence_num"),
    broken("log_sequence", sequence_num=0),
    broken("outbox_pkey", "id"),
    broken("outbox_kind", kind="gossip"),
    broken("queues_pkey", "namespace", "name"),
    broken("sweeps_pkey", "namespace", "name"),
    broken("holds_pkey", "namespace", "kind", "name"),
    broken("holds_kind", kind="queue"),
    broken("operations_pkey", "namespace", "scope", "key"),
    broken("operations_key_length", key=""),
    broken("tombstones_pkey", "job_id"),
    broken("tombstones_state", state="parked"),
    broken("api_tokens_pkey", "id"),
    broken("api_tokens_secret_hash_key", "secret_hash"),
    broken("api_tokens_scope", scope="root"),
    broken("answer_links_pkey", "id"),
    broken("answer_links_secret_hash_key", "secret_hash"),
    broken("meta_pkey", "name"),
]


@pytest.fixture(scope="module")
def engine(pg_server: embedded.Postgres, migrated: str) -> Iterator[Engine]:
    """Connections of the owner, who may write what the application may not: tombstones."""
    with created(pg_server, migrated) as database:
        engine = create_engine(database.owner_url)
        yield engine
        engine.dispose()


@pytest.fixture
def owner(engine: Engine) -> Iterator[Connection]:
    """A transaction, rolled back: all these tests share one database."""
    with engine.connect() as connection:
        yield connection


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.rule)
def test_the_database_refuses(owner: Connection, case: Broken) -> None:
    """A row that breaks one rule, and no other, is refused by that rule's name."""
    values = row(case.table, **case.change)
    if case.same:
        insert(owner, case.table, values)
        own = {name: value for name, value in case.change.items() if name not in case.same}
        values = row(case.table, **own, **{name: values[name] for name in case.same})
    with pytest.raises(IntegrityError) as refusal:
        insert(owner, case.table, values)
    assert refusal.value.orig is not None
    assert refusal.value.orig.diag.constraint_name == case.rule  # type: ignore[attr-defined]  # the driver's own


def test_every_rule_is_broken_above(owner: Connection) -> None:
    """No CHECK and no unique index of the schema is missing from the list, and none in it is gone."""
    rules = set(owner.exec_driver_sql(RULES).scalars()) - ALEMBICS_OWN
    assert {case.rule for case in BROKEN} == rules


@pytest.mark.parametrize("table", TABLES)
def test_the_rows_to_be_broken_are_valid(owner: Connection, table: str) -> None:
    """What the cases above change is accepted as it is: what is refused is the change."""
    insert(owner, table, row(table))


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("jobs", running()),
        ("jobs", parked()),
        ("jobs", {**parked(), **QUESTION}),
        ("jobs", {"current_state": "parked", "watchdog_stop_reason": "answered:approve"}),
        ("jobs", {**parked(), "watchdog_stop_reason": None}),
        ("jobs", ended("expired")),
        ("jobs", {**ended(), "settled_at": NOW, "settle_due_at": None}),
        ("jobs", {"id": "ü" * 127 + "x"}),
        ("attempts", {"ended_at": NOW, "outcome": "lost"}),
        ("questions", answered()),
        ("questions", {**answered(), "status": "superseded", "closed_at": NOW}),
        ("questions", {**answered(), "answer": None, "question_data": None, "erased_at": NOW}),
        ("votes", {"value": None, "erased_at": NOW}),
    ],
)
def test_the_rules_allow_what_happens(owner: Connection, table: str, change: Row) -> None:
    """Each shape of a row that the protocol leaves behind is accepted: no rule is too strict."""
    insert(owner, table, row(table, **change))


def test_null_is_an_answer(owner: Connection) -> None:
    """The JSON value null, stored as bytes, is an answer; the absence of bytes is none."""
    insert(owner, "questions", row("questions", **answered()))
    stored = owner.exec_driver_sql("SELECT answer FROM supervise.questions").scalar_one()
    assert bytes(stored) == b"null"


def test_other_owners_may_use_the_same_key(owner: Connection) -> None:
    """An idempotency key is one owner's, for one task, in one namespace."""
    for change in (
        {},
        {"owner_id": "ann"},
        {"owner_id": "bob"},
        {"task": "shop.other"},
        {"namespace": "second"},
    ):
        insert(owner, "jobs", row("jobs", idempotency_key="once", **change))


def test_a_closed_question_may_be_asked_again(owner: Connection) -> None:
    """The key of a question is free once it is neither open nor answered, and always in another run."""
    run = uuid4()
    for change in ({"status": "superseded", "closed_at": NOW}, answered()):
        insert(owner, "questions", row("questions", run_id=run, **change))
    insert(owner, "questions", row("questions", run_id=uuid4()))
