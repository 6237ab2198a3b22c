"""The state machine: every state, every event, every move, the order of judgement. Pure: no I/O, no clock, no SQL.

Everything that decides whether a job may move lives in this file. The statements of ``store``, the refusals
of ``supervisor`` and the diagram in ``docs/lifecycle.md`` are derived from ``TABLE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType


class State(str, Enum):
    """Where a job is. The last four are terminal and never left."""

    PENDING = "pending"
    RUNNING = "running"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"

    __str__ = str.__str__


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.EXPIRED, State.CANCELLED})
OPEN = frozenset(State) - TERMINAL


class Event(str, Enum):
    """What can happen to a job that exists; ``submit`` makes one, see ``BORN``."""

    CLAIM = "claim"  # a worker holds the job's ticket
    CHECKPOINT = "checkpoint"  # step, checkpoint, an item of each
    ASK = "ask"
    PARK = "park"  # a pause request was seen, at a claim or at a checkpoint
    VOTE = "vote"  # one of several approvals, not the deciding one
    ANSWER = "answer"
    RESUME = "resume"
    REQUEST_PAUSE = "request_pause"
    WITHDRAW_PAUSE = "withdraw_pause"
    REQUEST_CANCEL = "request_cancel"
    CANCEL = "cancel"  # a cancel request was seen
    COMPLETE = "complete"
    FAIL = "fail"
    RETRY = "retry"
    HAND_OVER = "hand_over"  # the worker is shutting down
    EXPIRE = "expire"
    LOSE = "lose"  # the attempt's process died, or its lease ended and was reaped
    GIVE_UP = "give_up"  # lost once too often
    STALL_CANCEL = "stall_cancel"
    STALL_FAIL = "stall_fail"
    REPLACE = "replace"  # by another supervised task, which takes the row over
    REPLACE_PLAIN = "replace_plain"  # by a task that is not supervised
    EXTEND = "extend"
    REASSIGN = "reassign"
    WITHDRAW = "withdraw"  # the question is taken back, the body asks anew
    SHELVE = "shelve"  # no worker can run this version or task name
    REISSUE = "reissue"  # one can again
    SETTLE = "settle"
    ERASE = "erase"

    __str__ = str.__str__


class Ticket(str, Enum):
    """What a move does to the job's ticket, the right to be claimed once (protocol 1, 2)."""

    KEEP = "keep"
    CLEAR = "clear"
    ISSUE = "issue"
    ENSURE = "ensure"  # keep the one that is out, else issue

    __str__ = str.__str__


@dataclass(frozen=True)
class Move:
    """One edge: where it leads, whether clients see it as a mutation, what it logs."""

    to: State
    log: str | None
    ticket: Ticket = Ticket.CLEAR
    generation: bool = True

    @property
    def ends(self) -> bool:
        """Whether the job is over after this move."""
        return self.to in TERMINAL


def _flag(state: State, log: str) -> Move:
    return Move(state, log, Ticket.KEEP)


def _end(state: State) -> Move:
    return Move(state, state.value)


_ANY_OPEN = {
    Event.CANCEL: _end(State.CANCELLED),
    Event.EXPIRE: _end(State.EXPIRED),
    Event.FAIL: _end(State.FAILED),
}

_WAITING = {
    **_ANY_OPEN,
    Event.CLAIM: Move(State.RUNNING, "claimed"),
    Event.PARK: Move(State.PARKED, "parked"),
    Event.REQUEST_CANCEL: _end(State.CANCELLED),
    Event.GIVE_UP: _end(State.FAILED),
    Event.SHELVE: Move(State.PARKED, "parked"),
}


def _ended(state: State) -> Mapping[Event, Move]:
    return {
        Event.SETTLE: Move(state, "settled", generation=False),
        Event.ERASE: Move(state, "erased", generation=False),
    }


BORN = Move(State.PENDING, "submitted", Ticket.ISSUE)
"""The move of ``submit``: from nothing to pending."""

TABLE: Mapping[State, Mapping[Event, Move]] = MappingProxyType(
    {
        State.PENDING: {
            **_WAITING,
            Event.REQUEST_PAUSE: _flag(State.PENDING, "pause_requested"),
            Event.WITHDRAW_PAUSE: _flag(State.PENDING, "pause_withdrawn"),
            Event.EXTEND: _flag(State.PENDING, "extended"),
        },
        State.RUNNING: {
            **_ANY_OPEN,
            Event.CHECKPOINT: Move(State.RUNNING, "checkpoint", Ticket.KEEP, generation=False),
            Event.ASK: Move(State.PARKED, "asked"),
            Event.PARK: Move(State.PARKED, "parked"),
            Event.REQUEST_PAUSE: _flag(State.RUNNING, "pause_requested"),
            Event.WITHDRAW_PAUSE: _flag(State.RUNNING, "pause_withdrawn"),
            Event.REQUEST_CANCEL: _flag(State.RUNNING, "cancel_requested"),
            Event.COMPLETE: _end(State.COMPLETED),
            Event.RETRY: Move(State.PENDING, "retry_scheduled", Ticket.ISSUE),
            Event.HAND_OVER: Move(State.PENDING, "handed_over", Ticket.ISSUE),
            Event.LOSE: Move(State.PENDING, "lease_lost", Ticket.ISSUE),
            Event.GIVE_UP: _end(State.FAILED),
            Event.STALL_CANCEL: _end(State.CANCELLED),
            Event.STALL_FAIL: _end(State.FAILED),
            Event.REPLACE: Move(State.PENDING, "replaced", Ticket.ISSUE),
            Event.REPLACE_PLAIN: _end(State.COMPLETED),
            Event.EXTEND: _flag(State.RUNNING, "extended"),
        },
        State.PARKED: {
            **_WAITING,
            Event.VOTE: _flag(State.PARKED, "voted"),
            Event.ANSWER: Move(State.PARKED, "answered", Ticket.ENSURE),
            Event.RESUME: Move(State.PARKED, "resumed", Ticket.ENSURE),
            Event.REQUEST_PAUSE: _flag(State.PARKED, "pause_requested"),
            Event.WITHDRAW_PAUSE: _flag(State.PARKED, "pause_withdrawn"),
            Event.EXTEND: _flag(State.PARKED, "extended"),
            Event.REASSIGN: _flag(State.PARKED, "reassigned"),
            Event.WITHDRAW: Move(State.PARKED, "withdrawn", Ticket.ENSURE),
            Event.REISSUE: Move(State.PARKED, "resumed", Ticket.ENSURE),
        },
        State.COMPLETED: _ended(State.COMPLETED),
        State.FAILED: _ended(State.FAILED),
        State.EXPIRED: _ended(State.EXPIRED),
        State.CANCELLED: _ended(State.CANCELLED),
    }
)


LOGGED = tuple(
    sorted(
        {BORN.log or "", "migrated", "refused", "reminded", "stalled"}
        | {move.log for moves in TABLE.values() for move in moves.values() if move.log}
    )
)
"""What the entries of a log are called: the moves', and what is noted of a job that stays where it is."""


def move(state: State, event: Event) -> Move | None:
    """The move that `event` makes from `state`, None where it is refused."""
    return TABLE[state].get(event)


def sources(event: Event) -> frozenset[State]:
    """The states from which `event` moves a job."""
    return frozenset(state for state, moves in TABLE.items() if event in moves)


@dataclass(frozen=True)
class Facts:
    """What the job's row says at the moment of judgement, under its lock, on the database's clock."""

    cancel_requested: bool = False
    time_over: bool = False  # deadline, or running time used up
    pause_requested: bool = False
    hand_over: bool = False  # the worker of this attempt is shutting down


_HOLDER = frozenset(
    {
        Event.CHECKPOINT,
        Event.ASK,
        Event.COMPLETE,
        Event.FAIL,
        Event.RETRY,
        Event.HAND_OVER,
        Event.REPLACE,
        Event.REPLACE_PLAIN,
    }
)

JUDGED = _HOLDER | {Event.CLAIM, Event.LOSE}
"""The events that are judged before they happen (protocol 12)."""

JUDGEMENT: tuple[tuple[str, Event, frozenset[Event]], ...] = (
    ("cancel_requested", Event.CANCEL, JUDGED),
    ("time_over", Event.EXPIRE, JUDGED),
    ("pause_requested", Event.PARK, frozenset({Event.CLAIM, Event.CHECKPOINT, Event.ASK})),
    ("hand_over", Event.HAND_OVER, frozenset({Event.CHECKPOINT})),
)
"""The one order of judgement: (fact, what happens instead, the events it overrules). First match wins."""


def judge(event: Event, facts: Facts) -> Event:
    """What really happens when `event` is attempted and the row says `facts`."""
    for fact, instead, overruled in JUDGEMENT:
        if event in overruled and getattr(facts, fact):
            return instead
    return event


def verdicts(event: Event) -> tuple[Event, ...]:
    """Every verdict that `event` can get, in the order of judgement, itself last."""
    return (*(instead for _, instead, overruled in JUDGEMENT if event in overruled and instead != event), event)


USER_PAUSED = "user_paused"


def awaiting(key: str) -> str:
    """The stop reason of a job that waits for the answer to the question `key`."""
    return f"awaiting_user_answer:{key}"


def answered(key: str) -> str:
    """The stop reason of a parked job whose question `key` was answered and that waits for a worker."""
    return f"answered:{key}"


def withdrawn(key: str) -> str:
    """The stop reason of a parked job whose question `key` was taken back and that waits for a worker, to ask anew."""
    return f"withdrawn:{key}"


def resume_requested(prior: str) -> str:
    """The stop reason of a parked job that was told to go on."""
    return f"resume_requested:{prior}"


def expired(prior: str | None, otherwise: str = "deadline") -> str:
    """The stop reason of an expired job: keeps why it stood still when its time ran out."""
    return f"expired:{prior or otherwise}"
