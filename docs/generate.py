"""Writes the parts of the docs that come from the code: `python docs/generate.py`. A test holds the files to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from reference import reference

from celery_supervise.body import MESSAGE_BYTES
from celery_supervise.config import PREFIX, Settings
from celery_supervise.holding import MAX_CAUSE
from celery_supervise.intake import LATEST, LONGEST, MAX_PAGE, MAX_WHY_BYTES
from celery_supervise.lifecycle import BORN, JUDGEMENT, TABLE, Event, Move, State
from celery_supervise.metrics import METRICS
from celery_supervise.model import MAX_ID_BYTES
from celery_supervise.options import CallOptions, Options
from celery_supervise.outcomes import MAX_TRACEBACK
from celery_supervise.web.problems import TITLES

DOCS = Path(__file__).resolve().parent
BEGIN, END = "<!-- generated: {} -->", "<!-- end -->"

MEANINGS = {
    "submit": "a caller's `delay()` or `apply_async()`",
    Event.CLAIM: "a worker takes the job's ticket: a new attempt, with a token and a lease",
    Event.CHECKPOINT: "`step`, `checkpoint`, an item of `each`: saved; the lease is renewed",
    Event.ASK: "a question is stored and the job parks, in one commit",
    Event.PARK: "a pause request is seen, at a claim or a checkpoint",
    Event.VOTE: "one of several approvals that a question needs, not the last",
    Event.ANSWER: "the answer is committed; then the job is told to go on",
    Event.RESUME: "a paused job is told to go on; one caller wins",
    Event.REQUEST_PAUSE: "a request, never a state: it is obeyed after the current step",
    Event.WITHDRAW_PAUSE: "it is taken back before anybody obeyed it",
    Event.REQUEST_CANCEL: "at once where no worker runs the job, else a request that nothing can overtake",
    Event.CANCEL: "the cancel request is seen",
    Event.COMPLETE: "the body returned, and the attempt still holds the job",
    Event.FAIL: "the body raised, and Celery would not retry",
    Event.RETRY: "`self.retry()`, `autoretry_for`: back to pending until it is due",
    Event.HAND_OVER: "the worker shuts down: the job leaves at its next checkpoint, no attempt is used up",
    Event.EXPIRE: "the deadline, the running time or the question's time is over",
    Event.LOSE: "the attempt's process died, or its lease ended",
    Event.GIVE_UP: "lost once too often",
    Event.STALL_CANCEL: "no progress for too long, and the task asked for a cancel",
    Event.STALL_FAIL: "no progress for too long, and the task asked to fail",
    Event.REPLACE: "`self.replace()` by a supervised task, which takes the row over",
    Event.REPLACE_PLAIN: "`self.replace()` by another task",
    Event.EXTEND: "a deadline or a question's time is moved before it is over",
    Event.REASSIGN: "a question is given to other people",
    Event.WITHDRAW: "a question is taken back; the body asks anew",
    Event.SHELVE: "no worker can run this version or task name",
    Event.REISSUE: "one can again",
    Event.SETTLE: "Celery has been told the outcome: result, callbacks, chord",
    Event.ERASE: "the values of an ended job are removed; its log stays",
}


def diagram() -> str:
    """The machine as a Mermaid state diagram: the moves from one state to another that are made today."""
    lines = ["```mermaid", "stateDiagram-v2", "    direction LR", f"    [*] --> {BORN.to}: submit"]
    for state, moves in TABLE.items():
        for target in State:
            events = [str(event) for event, move in moves.items() if move.to is target and target is not state]
            if events:
                lines.append(f"    {state} --> {target}: {', '.join(events)}")
    lines += [f"    {state} --> [*]" for state, moves in TABLE.items() if all(m.to is state for m in moves.values())]
    return "\n".join([*lines, "```"])


def table() -> str:
    """Every state and every event: where it leads, what it logs, whether clients see it."""
    rows = ["| event | from → to | generation | log | what happens |", "|---|---|---|---|---|"]
    rows.append(_row("submit", "→ pending", BORN, meaning=MEANINGS["submit"]))
    for event in Event:
        moves = {state: by_event[event] for state, by_event in TABLE.items() if event in by_event}
        ways = ", ".join(f"{state} → {move.to}" for state, move in moves.items() if move.to is not state)
        stays = ", ".join(str(state) for state, move in moves.items() if move.to is state)
        where = "; ".join(part for part in (ways, f"stays {stays}" if stays else "") if part)
        rows.append(_row(str(event), where, *moves.values(), meaning=MEANINGS[event]))
    return "\n".join(rows)


def _row(event: str, where: str, *moves: Move, meaning: str) -> str:
    logs = ", ".join(sorted({f"`{move.log}`" for move in moves}))
    return f"| `{event}` | {where} | {'+1' if moves[0].generation else 'same'} | {logs} | {meaning} |"


def judgement() -> str:
    """The order of judgement, as a list."""
    lines = []
    for number, (fact, instead, overruled) in enumerate(JUDGEMENT, start=1):
        events = ", ".join(f"`{event}`" for event in Event if event in overruled)
        lines.append(f"{number}. `{fact}` → `{instead}`, before {events}")
    return "\n".join([*lines, f"{len(JUDGEMENT) + 1}. else what was attempted"])


NOTES = {
    "database_url": "Postgres, 13 or newer. `postgresql://…` uses psycopg2, `postgresql+psycopg://…` psycopg 3.",
    "database": "In its place, with [Django](django.md): the alias of one of its `DATABASES`.",
    "schema": "The schema of the tables.",
    "namespace": "[Apps that share a schema](operating.md#several-apps-on-one-schema) do not see each other's jobs.",
    "queue": "Queue of beat's own entries; Celery's default queue if not set.",
    "submit": '`"row"`: `delay()` makes the row, then sends. `"worker"`: see [below](#who-makes-the-row).',
    "owner": "Dotted path of a function without arguments that returns the owner of a new job, or None.",
    "groups": "Dotted path of a function: an actor's groups. See [who may answer](operating.md#who-may-answer).",
    "authenticate": "Dotted path of a function: who sends a request to the [HTTP API](http.md). Not set: tokens.",
    "notify": "Name of the task that is told of questions: see [below](#who-is-told).",
    "get_parked": 'What `.get()` of a parked job does: `"wait"`, or `"raise"`: see [calling](calling.md#results).',
    "session": "Dotted path of a function: the caller's SQLAlchemy session. See [calling](calling.md#transactions).",
    "codec": "Dotted path of an object with `encode` and `decode`: [encryption](encryption.md) of all values.",
    "lease_seconds": "How long an attempt runs on without a renewal. After that its job is given to another worker.",
    "heartbeat_seconds": "How often leases are renewed; at most a third of the lease.",
    "sweep_seconds": "How often each sweep runs, in one worker of all: expiry, lost leases, lost messages.",
    "relay_seconds": "How often each worker publishes what is due; beat at most every 5 seconds.",
    "lock_timeout_seconds": "Longest wait for a row; at most a sixth of the lease. Not set: that, or 5 if less.",
    "republish_seconds": "A message younger than this is not called lost.",
    "question_ttl_seconds": "How long a question stays open where it does not say.",
    "release_window": "Messages of a queue that are out at a time: see [turns](operating.md#lanes-turns-and-limits).",
    "owner_running": "Jobs of an owner that run at a time in a queue; a number, or a function's path. Not set: any.",
    "owner_open": "Jobs of an owner that have not ended; a number, or a function's path. Not set: any.",
    "deadline_seconds": "Deadline of a job that names none, from its submit.",
    "stall_seconds": "A job that runs so long without a checkpoint or `progress` is logged as stalled.",
    "lost_attempts": "After so many attempts that died the job is given up.",
    "version_grace_seconds": "So long a job that no worker can run stays as it is; then it is parked, with the reason.",
    "max_value_bytes": "Longest single value: see [limits](#limits).",
    "max_job_bytes": "All steps, checkpoints, loops and questions of one job together.",
    "retention_seconds": "How long an ended job is kept, with its log; then a sweep removes it. Not set: for ever.",
    "worker_thread": "Whether workers keep leases, relay and sweep. False only where no supervised task runs.",
    "beat": "Whether beat's entries `supervise.sweep` and `supervise.relay` appear by themselves.",
}
TASK_NOTES = {
    "version": "Of the task's code. A job is run only by code that names its version.",
    "compatible_with": "Older versions whose jobs this code can go on with as they are.",
    "migrate": "By an older version, the [function](operating.md#upgrades) for its jobs.",
    "deadline": "How long a job may take from submit to end, waiting included.",
    "max_active": "How long it may run; waiting for people or for a worker is not counted.",
    "lost_attempts": "How many attempts may die under it.",
    "expose": "Whether it can be submitted over [HTTP](http.md).",
    "stall_after": "How long it may run without a checkpoint or `progress`, before that is logged.",
    "on_stall": "What then: `log` only, `cancel` or `fail` the job.",
    "retry_for": "For how long after its first error a job may be tried again, waiting for people not counted.",
}
CALL_NOTES = {
    "owner": "Whom the job belongs to; else what `supervise_owner` says.",
    "idempotency_key": "A second call with this key, task and owner finds the first one's job.",
    "input_version": "The caller's version of the input; part of what identifies it.",
    "deadline": "As of the task; also an aware datetime.",
    "max_active": "As of the task.",
    "session": "A SQLAlchemy Session or Connection, in whose transaction the job is accepted.",
    "using": "Alias of a [Django](django.md#in-your-transaction) database, whose open transaction the job joins.",
}


def settings() -> str:
    """Every setting, its type, its default and what it is for."""
    return _fields(Settings, NOTES, prefix=PREFIX)


def task_options() -> str:
    """What a task may say of all its jobs."""
    return _fields(Options, TASK_NOTES)


def call_options() -> str:
    """What a call may say of its job."""
    return _fields(CallOptions, CALL_NOTES)


def _fields(made_of: type, notes: Mapping[str, str], *, prefix: str = "") -> str:
    rows = ["| name | type | default | what it says |", "|---|---|---|---|"]
    for field in dataclasses.fields(made_of):
        default = "not set" if field.default is None else f"`{field.default!r}`"
        type_ = str(field.type).replace("When", "datetime | timedelta").replace(" | ", " or ")
        rows.append(f"| `{prefix}{field.name}` | {type_} | {default} | {notes[field.name]} |")
    return "\n".join(rows)


def limits() -> str:
    """How large things may be."""
    value, job = Settings.max_value_bytes, Settings.max_job_bytes
    found = {
        "a name: id of a job, task, queue, owner, actor, key, step, checkpoint, loop, question": (
            f"{MAX_ID_BYTES} bytes of UTF-8, not blank, no NUL"
        ),
        "a value: arguments with callbacks, result, step, checkpoint, what a loop carries, answer": (
            f"{value:,} bytes, `supervise_max_value_bytes`"
        ),
        "a question: what it shows, with its prompt; its form": f"{value:,} bytes each, the same setting",
        "all steps, checkpoints, loops and questions of a job": f"{job:,} bytes, `supervise_max_job_bytes`",
        "a progress message": f"{MESSAGE_BYTES:,} bytes",
        "the reason of a cancel": f"{MAX_WHY_BYTES:,} bytes",
        "what is kept of an error: its text, its traceback": f"{MAX_CAUSE:,} and {MAX_TRACEBACK:,} characters",
        "a time": f"before {LATEST:%Y-%m-%d}, or {LONGEST.days:,} days from now",
        "a page of a list": f"{MAX_PAGE:,} rows",
    }
    return "\n".join(["| what | at most |", "|---|---|", *(f"| {what} | {most} |" for what, most in found.items())])


def metrics() -> str:
    """What Prometheus is given."""
    rows = ["| metric | labels | what it says |", "|---|---|---|"]
    for name, (text, labels) in METRICS.items():
        rows.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |")
    return "\n".join(rows)


def problems() -> str:
    """Every code of a refusal over HTTP."""
    rows = ["| status | code | what it says |", "|---|---|---|"]
    for status, codes in TITLES.items():
        rows += [f"| {status} | `{code}` | {title} |" for code, title in codes.items()]
    return "\n".join(rows)


PARTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "lifecycle.md": {"diagram": diagram, "table": table, "judgement": judgement},
    "settings.md": {"settings": settings, "task options": task_options, "call options": call_options, "limits": limits},
    "operating.md": {"metrics": metrics},
    "http.md": {"problems": problems},
    "api.md": {"reference": reference},
}


def rendered(name: str) -> str:
    """The page `name` with its generated parts as they should be now."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for part, make in PARTS[name].items():
        begin = BEGIN.format(part)
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = f"{before}{begin}\n{make()}\n{END}{after}"
    return text


def main() -> None:
    """Rewrite the pages."""
    for name in PARTS:
        (DOCS / name).write_text(rendered(name), encoding="utf-8")


if __name__ == "__main__":
    main()
