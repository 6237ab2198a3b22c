"""What a row says, as the values of ``model``. Reads nothing; pure."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from .lifecycle import State
from .model import Answer, Attempt, Job, LogEntry, Node, NodeKind, Question, Stored
from .store.door import Row, as_uuid


def as_job(row: Row) -> Job:
    """A row of `jobs`."""
    return Job(
        id=row["id"],
        namespace=row["namespace"],
        task=row["task"],
        owner_id=row["owner_id"],
        state=State(row["current_state"]),
        stop_reason=row["watchdog_stop_reason"],
        generation=row["generation"],
        queue=row["queue"],
        node=row["node"],
        run_id=uuid_of(row["run_id"]),
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        settled_at=row["settled_at"],
        deadline=row["expires_at"],
        wait_until=row["wait_until"],
        starts_at=row["ticket_due_at"],
        pause_requested_at=row["pause_requested_at"],
        cancel_requested_at=row["cancel_requested_at"],
        stage_at=row["stage_at"],
        stalled_at=row["stalled_at"],
        terminate_after=row["terminate_after"],
        progress_at=row["progress_at"],
        progress_current=row["progress_current"],
        progress_total=row["progress_total"],
        progress_message=row["progress_message"],
        attempts=row["attempt_count"],
        lost_count=row["lost_count"],
        log_seq=row["log_seq"],
        progress_seq=row["progress_seq"],
        task_version=row["task_version"],
        input_version=row["input_version"],
        idempotency_key=row["idempotency_key"],
        rerun_of=row["rerun_of"],
        question_id=as_uuid(row["question_id"]),
        ticket_id=as_uuid(row["ticket_id"]),
        current_token=as_uuid(row["current_token"]),
        settle_id=as_uuid(row["settle_id"]),
        ignore_result=row["ignore_result"],
        erased_at=row["erased_at"],
    )


def as_node(row: Row) -> Node:
    """A row of `checkpoints`, without its value."""
    return Node(row["node"], NodeKind(row["kind"]), row["size"], as_uuid(row["attempt_token"]), row["saved_at"])


def uuid_of(value: Any) -> UUID:
    """A uuid that is never NULL, as every driver gives it."""
    return value if isinstance(value, UUID) else UUID(str(value))


def as_stored(row: Row, data: str, encoding: str, key_id: str) -> Stored | None:
    """A value, from the columns of these names; None where it is NULL."""
    if row[data] is None:
        return None
    return Stored(bytes(row[data]), row[encoding], row[key_id])


def as_answer(row: Row) -> Answer:
    """A row of `questions` that is answered."""
    return Answer(
        question_id=uuid_of(row["id"]),
        key=row["question_key"],
        value=Stored(bytes(row["answer"]), row["answer_encoding"], row["answer_key_id"]),
        digest=row["digest"],
        actor=row["answered_by"],
        at=row["answered_at"],
    )


def as_question(row: Row) -> Question:
    """A row of `questions`, with columns of its job's."""
    return Question(
        id=uuid_of(row["id"]),
        job_id=row["job_id"],
        key=row["question_key"],
        status=row["status"],
        content=as_stored(row, "question_data", "encoding", "key_id"),
        schema=row["answer_schema"],
        digest=row["digest"],
        asked_at=row["asked_at"],
        expires_at=row["expires_at"],
        to=tuple(row["assignees"]),
        approvals=row["approvals"],
        self_approval=row["self_approval"],
        answer=as_stored(row, "answer", "answer_encoding", "answer_key_id"),
        answered_by=row["answered_by"],
        answered_at=row["answered_at"],
        namespace=row["namespace"],
        owner_id=row["owner_id"],
        task=row["task"],
        job_state=State(row["current_state"]),
        generation=row["generation"],
        voted=tuple(row["voted"]),
        deadline=row["deadline"],
    )


def as_attempt(row: Row) -> Attempt:
    """A row of `attempts`."""
    return Attempt(
        token=uuid_of(row["token"]),
        job_id=row["job_id"],
        number=row["number"],
        worker=row["worker"],
        pid=row["pid"],
        incarnation=uuid_of(row["incarnation"]),
        started_at=row["started_at"],
        lease_until=row["lease_until"],
        heartbeat_at=row["heartbeat_at"],
        ended_at=row["ended_at"],
        outcome=row["outcome"],
        cause=row["cause"],
        traceback=row["traceback"],
        checkpoint_ref=row["checkpoint_ref"],
        ticket_id=uuid_of(row["ticket_id"]),
        handing_over=row["hand_over_at"] is not None,
    )


def as_entry(row: Row) -> LogEntry:
    """A row of `log`."""
    return LogEntry(row["job_id"], row["sequence_num"], row["event"], row["actor"], row["at"], row["data"])
