"""Each thing that may ail an installation, and how it is seen. Changes nothing, cures nothing.

A look says what it found, what that means for the jobs, and the command or setting that helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from shlex import quote
from typing import Final

from . import invariants, queries, revision
from .diagnosis import Finding, Patient, error, jobs, ok, one, warning
from .errors import PublishFailed
from .holds import holds
from .model import Depth
from .moments import apart, span
from .retention import count_old
from .store.door import Row
from .store.health import COUNTS, LONGEST, OWNED, SERVER, SET_ASIDE, UNRUNNABLE, UNSENT, UNSTARTED, UNTOLD
from .store.link import told
from .sweeps import EXPIRY, LOST, PRUNING, REAPING, REMINDING, RENEWING, SHELVING, STALE_PERIODS, STALLING
from .wording import count

UNTOLD_AFTER: Final = timedelta(minutes=10)
UNSENT_AFTER: Final = timedelta(minutes=1)
UNSTARTED_AFTER: Final = timedelta(minutes=10)
FEW_CONNECTIONS: Final = 0.9
OLD_AFTER: Final = timedelta(days=90)
FORGOTTEN_AFTER: Final = timedelta(days=1)
LATE_AFTER: Final = timedelta(days=1)
MANY: Final = 10_000

SWEEPS: Final[Mapping[str, str]] = {
    EXPIRY.name: "expiry",
    REAPING.name: "lost workers",
    STALLING.name: "stalled jobs",
    REMINDING.name: "reminders",
    SHELVING.name: "versions",
    LOST: "lost messages",
}
"""The sweeps, as a person knows them."""

REDELIVERY: Final[Mapping[str, tuple[str, str, str]]] = {
    "redis": (
        "Redis has a visibility timeout of",
        "Redis delivers such a message again: supervised jobs do not run twice, other tasks may.",
        "Set broker_transport_options = {'visibility_timeout': SECONDS} above your longest task.",
    ),
    "amqp": (
        "and RabbitMQ has, as far as the app says, a consumer_timeout of",
        "RabbitMQ closes the channel, and Celery's worker stops: supervised jobs do not run twice, other tasks may.",
        "Raise consumer_timeout in rabbitmq.conf; or, from 3.12, x-consumer-timeout in the queue's arguments.",
    ),
}
"""What each broker does with a message that is not acknowledged for long, by kombu's name of it."""

SWEEP: Final = "celery -A proj supervise sweep"
WORKERS: Final = "Start a worker or beat; once, by hand: " + SWEEP


# --- the foundation --------------------------------------------------------------------------------------


def settings(patient: Patient) -> Iterator[Finding]:
    """How often what happens: what the shop has set, or our defaults."""
    s = patient.settings
    # `config.load` has refused those that cannot work together
    yield ok(
        f"lease {s.lease_seconds:g} s, heartbeat {s.heartbeat_seconds:g} s, sweep {s.sweep_seconds:g} s,"
        f" lock timeout {s.lock_timeout.total_seconds():g} s"
    )


def database(patient: Patient) -> Iterator[Finding]:
    """Whether Postgres answers, and has room."""
    row = one(patient, SERVER)
    yield ok(f"{row['name']} as {row['role']}, Postgres {row['version']}")
    if row["connected"] > FEW_CONNECTIONS * row["allowed"]:
        yield warning(
            f"{row['connected']} of {row['allowed']} connections are in use",
            "The next worker may find no connection.",
            "Raise max_connections in Postgres, or put pgbouncer in front of it.",
        )


def schema(patient: Patient) -> Iterator[Finding]:
    """Whether the tables are those that this library needs."""
    door = patient.door
    with told(door.schema), door.engine.connect() as connection:
        revision.check(connection, door.schema)
        found = revision.current(connection, door.schema)
    yield ok(f"{door.schema}, at revision {found}")


def role(patient: Patient) -> Iterator[Finding]:
    """Whether the application could take the log away."""
    if not one(patient, OWNED, schema=patient.door.schema)["owned"]:
        yield ok("the app's role can use the tables, and does not own them")
        return
    yield warning(
        "the app's role owns the tables",
        "It could change or delete the log: what an audit finds there proves less.",
        "Connect as another role: celery -A proj supervise migrate --url OWNER_URL --runtime-role ROLE",
    )


# --- the rules and the loops -----------------------------------------------------------------------------


def rules(patient: Patient) -> Iterator[Finding]:
    """What must always hold, a parked job's reason among it."""
    broken = groupby(invariants.check(patient.door), key=lambda finding: finding.invariant)
    found = [(name, list(findings)) for name, findings in broken]
    if not found:
        yield ok(f"all {len(invariants.INVARIANTS)} hold")
    for name, findings in found:
        yield error(
            f"{name}: {jobs([finding.job_id for finding in findings], len(findings))}",
            f"Broken rule: {findings[0].meaning} ({findings[0].detail}).",
            "A bug, or a change by hand: please report it, with celery -A proj supervise log JOB --all",
        )


def sweeps(patient: Patient) -> Iterator[Finding]:
    """Whether somebody ends what time has decided."""
    period = timedelta(seconds=patient.settings.sweep_seconds)
    rows: Mapping[str, Row] = {row["name"]: row for row in patient.door.all(queries.SWEEPS)}
    missing = [name for name in SWEEPS if name not in rows]
    unwatched = {RENEWING} if patient.settings.retention is not None else {RENEWING, PRUNING}  # in its own time
    watched = [row for row in rows.values() if row["name"] not in unwatched]
    found = [*_never_swept(patient, missing), *(bad for row in watched for bad in _sweep(row, period))]
    names = ", ".join(_known(row["name"]) for row in watched)
    yield from found or [ok(f"{names}: all within {STALE_PERIODS * period.total_seconds():g} s")]


def _never_swept(patient: Patient, missing: Sequence[str]) -> Iterator[Finding]:
    if not missing:
        return
    grave = error if one(patient, COUNTS)["open"] else warning
    yield grave(
        f"never ran: {', '.join(map(_known, missing))}",
        "No job or question expires, and no lost worker is noticed.",
        WORKERS,
    )


def _sweep(row: Row, period: timedelta) -> Iterator[Finding]:
    age = row["age"]
    if row["held"]:
        yield error(
            f"{_known(row['name'])}: holds back, since {row['hold_reason']}",
            "It ends nothing for up to one lease, so that an outage is not taken for lost workers.",
            "Wait; if it happens again, look at Postgres and at the clock of its host.",
        )
    elif is_late(row, period):
        when = "never ran well" if age is None else f"last ran well {span(age)} ago"
        failed = f"; its last error: {row['last_error']}" if row["last_error"] else ""
        yield error(
            f"{_known(row['name'])}: {when}, and should every {period.total_seconds():g} s{failed}",
            "Jobs and questions do not expire in time, and lost workers are not noticed.",
            WORKERS,
        )


def is_late(row: Row, period: timedelta) -> bool:
    """Whether a sweep that should run every `period` has not for too long, by its row."""
    return row["age"] is None or bool(row["age"] > STALE_PERIODS * period)


def _known(sweep: str) -> str:
    return "retention" if sweep == PRUNING else SWEEPS.get(sweep, sweep)


def waiting(patient: Patient) -> Iterator[Finding]:
    """What waits for longer than it should."""
    found = [*_untold(patient), *_unsent(patient), *_unstarted(patient), *_unrunnable(patient), *_set_aside(patient)]
    counts = one(patient, COUNTS)
    yield from found or [ok(f"{count(counts['open'], 'open job')}, {counts['ended']:,} ended: nothing is late")]


def _untold(patient: Patient) -> Iterator[Finding]:
    row = one(patient, UNTOLD, after=UNTOLD_AFTER)
    if row["jobs"]:
        yield error(
            f"{jobs(row['ids'], row['jobs'])} ended up to {span(row['age'])} ago, Celery has not been told",
            "Whoever waits for the result, and what was linked to these jobs, waits still.",
            f"See that broker and result backend answer, and that a worker runs; then: {SWEEP}",
        )


def _unsent(patient: Patient) -> Iterator[Finding]:
    row = one(patient, UNSENT, after=UNSENT_AFTER)
    if row["messages"]:
        failed = f"; the last error: {row['error']}" if row["error"] else ""
        unsent = count(row["messages"], "message waits", "messages wait")
        yield error(
            f"{unsent} to be sent, for up to {span(row['age'])}{failed}",
            "These jobs are safe, and do not start before their message is sent.",
            WORKERS,
        )


def _unstarted(patient: Patient) -> Iterator[Finding]:
    for row in patient.door.all(UNSTARTED, after=UNSTARTED_AFTER):
        yield warning(
            f"{count(row['jobs'], 'job waits', 'jobs wait')} in queue {row['queue']}, for up to {span(row['age'])}",
            "No worker takes from this queue, or too few.",
            f"Start one: celery -A proj worker -Q {quote(row['queue'])}",
        )


def _unrunnable(patient: Patient) -> Iterator[Finding]:
    for row in patient.door.all(UNRUNNABLE, after=UNSTARTED_AFTER):
        yield warning(
            f"{count(row['jobs'], 'job waits', 'jobs wait')} ({row['task']}, version {row['version']}) for up to"
            f" {span(row['age'])}: no worker that took one can run it",
            "Such jobs go round, and are parked after supervise_version_grace_seconds.",
            "Start workers with such code; with it, celery -A proj supervise preflight says what would still wait.",
        )


def _set_aside(patient: Patient) -> Iterator[Finding]:
    row = one(patient, SET_ASIDE)
    if row["jobs"]:
        yield error(
            f"{jobs(row['ids'], row['jobs'])} made a sweep fail, and wait for its next try",
            "They do not expire, and if their worker is lost nobody notices.",
            "Look for supervise.sweep_row_failed in the workers' log, and report it.",
        )


def retention(patient: Patient) -> Iterator[Finding]:
    """Whether ended jobs go some day."""
    kept = patient.settings.retention
    old = count_old(patient.door, OLD_AFTER if kept is None else kept + LATE_AFTER, most=MANY)
    many, are = (f"{MANY:,} or more jobs", "are") if old >= MANY else (count(old, "job"), "is" if old == 1 else "are")
    if not old:
        yield ok("no job is older than it should be" if kept else f"no ended job is older than {OLD_AFTER.days} days")
    elif kept is None:
        yield warning(
            f"{many} ended more than {OLD_AFTER.days} days ago, and nothing removes them",
            "The tables grow without end.",
            "Set supervise_retention_seconds; or, by hand: celery -A proj supervise prune --older-than 90d",
        )
    else:
        yield warning(
            f"{many} {are} older than supervise_retention_seconds by more than a day",
            "Such jobs still owe a message or a cleanup, or the sweep does not keep up.",
            "See what it says of them: celery -A proj supervise prune --older-than 90d",
        )


def held(patient: Patient) -> Iterator[Finding]:
    """Whether somebody forgot to release what they held."""
    now = one(patient, queries.CLOCK)["at"]
    found = holds(patient.door)
    old = [hold for hold in found if apart(hold.held_at, now) > FORGOTTEN_AFTER]
    if not old:
        yield ok(f"{len(found)} held, none for longer than {span(FORGOTTEN_AFTER)}")
    for hold in old:
        yield warning(
            f"{hold.kind} {hold.name} is held by {hold.actor} for {span(apart(hold.held_at, now))}: {hold.reason}",
            "None of its jobs starts.",
            f"If that is over: celery -A proj supervise release --{hold.kind}={quote(hold.name)}",
        )


# --- the broker ------------------------------------------------------------------------------------------


def broker(patient: Patient) -> Iterator[Finding]:
    """Whether the broker answers."""
    around = patient.around
    try:
        ours = patient.publisher.depth(around.queue)
    except PublishFailed as failed:
        yield error(
            f"{around.transport} does not answer: {failed.detail}",
            "Jobs are accepted and kept, and start when it is back.",
            "See that the broker runs where broker_url says.",
        )
        return
    waiting = "" if ours is None else f", {_some(ours)} in queue {around.queue}"
    yield ok(f"{around.transport} answers{waiting}")


def namespace(patient: Patient) -> Iterator[Finding]:
    """Whether the namespace's messages go to this broker."""
    name = patient.settings.namespace
    if patient.broker.differs():
        yield error(
            f"namespace {name} has another broker than this app",
            "This app's relay and sweeps refuse to send its jobs: they may be another app's.",
            patient.broker.advice,
        )
        return
    yield ok(f"namespace {name} has this broker")


def _some(depth: Depth) -> str:
    return f"{depth.count} of our messages" if depth.exact else f"{count(depth.count, 'message')}, ours among them,"


def celery(patient: Patient) -> Iterator[Finding]:
    """Settings of Celery that do not suit long jobs."""
    found = [*_prefetch(patient), *_redelivery(patient)]
    yield from found or [ok("its settings suit long jobs")]


def _prefetch(patient: Patient) -> Iterator[Finding]:
    if patient.around.prefetch != 1:
        yield warning(
            f"worker_prefetch_multiplier is {patient.around.prefetch}",
            "Jobs wait behind a long one in a busy worker while another worker is idle.",
            "Set worker_prefetch_multiplier = 1 for workers that run long jobs.",
        )


def _redelivery(patient: Patient) -> Iterator[Finding]:
    around, longest = patient.around, one(patient, LONGEST)["time"]
    known = REDELIVERY.get(around.transport)
    if known is None or longest is None or longest < around.visibility:
        return
    what, meaning, advice = known
    yield warning(f"a job ran for {span(longest)}, {what} {span(around.visibility)}", meaning, advice)
