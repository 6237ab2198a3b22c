"""The world of the model: a job's row, its attempts, two workers, the broker, a person. Values, no moves."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from celery_supervise.lifecycle import TERMINAL, State

NEW = 99
"""An id that was just made. `canonical` gives it a small number, so it is always fresh."""

DEAD = -1
"""Every id that no row holds any more and, ids being unguessable, none ever will."""


NOTHING = -2
"""The ticket of no message at all."""


class Clock(str, Enum):
    """A time in a row, as the database's clock sees it."""

    NEVER = "never"
    AHEAD = "ahead"
    PASSED = "passed"


class Fleet(str, Enum):
    """Which code the workers have: of the version that the job began with, of the next one, or some of each."""

    OLD = "old"
    BOTH = "both"
    NEW = "new"


class Published(str, Enum):
    """What the outbox says of the ticket's message."""

    NO = "no"
    TAKEN = "taken"  # `publish_until` is stamped
    SENT = "sent"  # `published_at` is stamped


class Settle(str, Enum):
    """Who may tell Celery the outcome."""

    NOT_YET = "not_yet"
    DUE = "due"  # whoever wins the compare-and-swap
    HELD = "held"  # somebody has, and its time is not over
    DONE = "done"


class Phase(str, Enum):
    """Where a worker's child is."""

    IDLE = "idle"
    HELD = "held"  # has a message, has not claimed
    MIGRATING = "migrating"  # has read what a job of the older version remembers, has not claimed
    CHECKED = "checked"  # saw the ticket in another table (only without `ticket_in_row`)
    BODY = "body"
    ASKING = "asking"  # PARKED is in the result backend, the commit is next
    HANDING = "handing"  # the checkpoint told it to hand the job over
    RETRYING = "retrying"  # published before the commit (only without `retry_commits_first`)
    UNKNOWN = "unknown"  # COMMIT was sent, no reply came
    TELL = "tell"  # the outcome is committed, Celery does not know
    MARK = "mark"  # Celery knows, the row does not say so
    MAKING = "making"  # between a cleanup and the effect that it takes back
    REPLACED = "replaced"  # has sent what goes on in its place, the commit is next
    LEFT = "left"  # out of the body without an outcome


class Cleanup(str, Enum):
    """What became of the cleanup of what the body makes."""

    NONE = "none"
    OPEN = "open"  # registered
    SENT = "sent"
    DROPPED = "dropped"


class Message(NamedTuple):
    """A message in the broker. Ticket 0: it has no header of ours."""

    ticket: int
    args: int = 0
    expires: bool = False


NO_MESSAGE = Message(NOTHING)


class Report(NamedTuple):
    """What a parent says of one of its requests: its ticket, and the attempt that it had made (or 0).

    `failed`: Celery has ended it before the claim. Else its child died.
    """

    ticket: int
    token: int
    failed: bool = False


class Node(NamedTuple):
    """A committed checkpoint: the step, under which run id, and the arguments it was computed from."""

    step: int
    run: int
    args: int


Votes = tuple[tuple[int, int], ...]
"""Who has said what."""

RECIPIENTS = ((1, 2), (2, 3))
"""Who may vote, as long as the question is with the first or the second ones."""


class Question(NamedTuple):
    """A question's row. `answer` 0: none. `people`: whose it is, see `RECIPIENTS`."""

    key: int
    run: int
    args: int
    content: int
    status: str
    answer: int = 0
    people: int = 0
    votes: Votes = ()


class Attempt(NamedTuple):
    """An attempt's row. `live`: its lease has not ended. `outcome` empty: it has not ended.

    `kept`: some parent renews it although its process is gone (only where a rule is taken out).
    """

    token: int
    ticket: int
    live: bool = True
    hand_over: bool = False
    kept: bool = False
    outcome: str = ""


class Job(NamedTuple):
    """The job's row, and `held`: whether its task is, which is in another table.

    `left`: since when no worker that took it could run it; `refused`: as the next version's migration says.
    """

    state: State = State.PENDING
    reason: str | None = None
    ticket: int = 0
    due: bool = True
    released: bool = True
    published: Published = Published.NO
    token: int = 0
    cancel: bool = False
    pause: bool = False
    deadline: Clock = Clock.NEVER
    start_by: Clock = Clock.NEVER
    wait: Clock = Clock.NEVER
    questions: tuple[Question, ...] = ()
    nodes: tuple[Node, ...] = ()
    run: int = 0
    args: int = 0
    retries: int = 0
    losses: int = 0
    settle: Settle = Settle.NOT_YET
    held: bool = False
    version: int = 0
    left: Clock = Clock.NEVER
    refused: bool = False

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state in TERMINAL

    @property
    def open_question(self) -> Question | None:
        """The question that waits for an answer."""
        return next((question for question in self.questions if question.status == "open"), None)


class Worker(NamedTuple):
    """A worker: its child, what it knows, and the parent that renews the lease of its attempt meanwhile."""

    phase: Phase = Phase.IDLE
    message: Message = NO_MESSAGE
    ticket: int = 0
    next: int = 0
    token: int = 0
    pc: int = 0
    seen: tuple[int, ...] = ()
    args: int = 0
    sent: str = ""
    outcome: str = ""
    late: str = ""
    teller: bool = False
    frozen: bool = False


class Relay(NamedTuple):
    """A relay between its two commits: which ticket, whether the message is out."""

    ticket: int = 0
    sent: bool = False


class Intent(NamedTuple):
    """Somebody has read the rows and will act on what they said (only where a rule is taken out)."""

    kind: str
    value: int = 0


class Person(NamedTuple):
    """How often the user may still do what."""

    pause: int = 0
    resume: int = 0
    cancel: int = 0
    answer: int = 0
    vote: int = 0
    reassign: int = 0
    withdraw: int = 0
    extend: int = 0
    hold: int = 0
    release: int = 0


class Chances(NamedTuple):
    """How often the surroundings may still do what: none of it is a fault."""

    fails: int = 0
    retries: int = 0
    other_args: int = 0
    hand_over: int = 0
    drift: int = 0
    skipped: int = 0
    fails_early: int = 0
    remind: int = 0
    prune: int = 0
    stall: int = 0
    let_out: int = 0
    deploy: int = 0
    refuse: int = 0
    replaces: int = 0
    replaces_plainly: int = 0


class Faults(NamedTuple):
    """How many faults of a kind may still happen."""

    crash: int = 0
    freeze: int = 0
    stall: int = 0
    lose: int = 0
    double: int = 0
    flush: int = 0
    away: int = 0
    unknown: int = 0


class Ghost(NamedTuple):
    """What the people and processes outside were promised. No move looks at it, only the invariants do.

    `looked`: whether the relay has, since the hold was made; `left`: whether a worker has left the job since it was
    last told to go on; `sent_on`: how often something was that is to go on in its place; `elsewhere`: whether the row
    says so.
    """

    accepted: tuple[int, ...] = ()
    answers: tuple[tuple[int, int], ...] = ()
    votes: Votes = ()
    cancel: bool = False
    pause: bool = False
    told: int = 0
    told_as: str = ""
    ends: int = 0
    retries: int = 0
    losses: int = 0
    teller_died: bool = False
    pruned: bool = False
    log_gap: int = 0
    looked: bool = False
    left: bool = False
    sent_on: int = 0
    elsewhere: bool = False


class World(NamedTuple):
    """Everything. `job` None: there is no row with that id.

    `output`: what the body makes outside is there; `owed`: messages of its cleanup on their way.
    """

    job: Job | None
    tombstone: bool = False
    attempts: tuple[Attempt, ...] = ()
    workers: tuple[Worker, ...] = (Worker(), Worker())
    messages: tuple[Message, ...] = ()
    reports: tuple[Report, ...] = ()
    relays: tuple[Relay, ...] = ()
    intents: tuple[Intent, ...] = ()
    backend: str = ""
    content: int = 0
    fleet: Fleet | None = None
    cleanup: Cleanup = Cleanup.NONE
    output: bool = False
    owed: int = 0
    person: Person = Person()
    chances: Chances = Chances()
    faults: Faults = Faults()
    ghost: Ghost = Ghost()

    @property
    def row(self) -> Job:
        """The job's row, where the caller knows that there is one."""
        assert self.job is not None
        return self.job

    @property
    def current(self) -> Attempt | None:
        """The attempt that the job's row names."""
        return self.attempt(self.job.token) if self.job else None

    def attempt(self, token: int) -> Attempt | None:
        """The attempt with that token, if its row still matters."""
        return next((attempt for attempt in self.attempts if token and attempt.token == token), None)

    def with_worker(self, index: int, worker: Worker) -> World:
        """The same world with another worker at `index`."""
        workers = self.workers
        return self._replace(workers=(*workers[:index], worker, *workers[index + 1 :]))

    def with_attempt(self, changed: Attempt) -> World:
        """The same world with that attempt's row in place of the one with its token."""
        return self._replace(attempts=tuple(changed if a.token == changed.token else a for a in self.attempts))

    def with_relay(self, index: int, relay: Relay) -> World:
        """The same world with another relay at `index`."""
        relays = self.relays
        return self._replace(relays=(*relays[:index], relay, *relays[index + 1 :]))

    def without(self, message: Message) -> World:
        """The same world with one copy of the message less in the broker."""
        index = self.messages.index(message)
        return self._replace(messages=self.messages[:index] + self.messages[index + 1 :])

    def plus(self, message: Message) -> World:
        """The same world with one copy of the message more in the broker."""
        return self._replace(messages=(*self.messages, message))
