"""A small model of a job, in memory, to stand beside the real service. Knows no SQL, and nothing of the library's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from celery_supervise.holding import Holding
from celery_supervise.model import NewQuestion

ENDED = {"completed", "failed", "expired", "cancelled"}


@dataclass
class Model:
    """What a job should be, in the words of the protocol, and as few of them as will do."""

    state: str = "pending"
    reason: str | None = None
    generation: int = 1
    log: list[str] = field(default_factory=lambda: ["submitted"])
    ticket: bool = True
    paused: bool = False
    cancelled: bool = False
    late: bool = False
    question: str | None = None
    approvals: int = 1
    people: tuple[str, ...] = ()
    votes: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    limit: int = 3
    lost: int = 0
    attempts: int = 0
    settled: bool = False
    digest: str = "input"
    on_stall: str = "log"
    stalled: bool = False
    left: bool = False

    @property
    def idle(self) -> bool:
        """Parked, and waiting for nobody but a resume."""
        return self.state == "parked" and not self.ticket and self.question is None

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state in ENDED

    def judge(self, event: str) -> str:
        """Protocol 12."""
        if self.cancelled:
            return "cancelled"
        if self.late:
            return "expired"
        if self.paused and event in ("running", "checkpoint", "asked"):
            return "parked"
        return event

    def to(self, state: str, entry: str, reason: str | None = None) -> None:
        """Move: one generation, one entry; the ticket and the question stay behind."""
        if state == "expired":
            reason = f"expired:{self.reason or 'deadline'}"
        if state == "parked" and entry == "parked":
            self.paused, reason = False, "user_paused"
        self.state, self.reason, self.question = state, reason, None
        self.ticket, self.stalled = state == "pending", False
        self.generation += 1
        self.log.append(entry)

    def ask(self, key: str, approvals: int) -> None:
        """Park on a question that nobody has answered."""
        self.to("parked", "asked", f"awaiting_user_answer:{key}")
        self.question, self.approvals, self.people, self.votes = key, approvals, (), {}
        self.answers.pop(key, None)

    def vote(self, person: str, value: Any) -> None:
        """Protocol 31: the vote that makes enough agree is the answer."""
        key = self.question
        self.votes[person] = value
        if sum(vote == value for vote in self.votes.values()) < self.approvals:
            self.flag("voted")
            return
        self.go_on("answered")
        self.answers[str(key)] = value

    def go_on(self, entry: str) -> None:
        """The question is closed, and the job is told to go on."""
        self.to("parked", entry, f"{entry}:{self.question}")
        self.ticket = True

    def shelve(self) -> None:
        """Parked, since no code could run it: a pause that was asked for is asked for still."""
        paused, self.left = self.paused, True
        self.to("parked", "parked")
        self.paused, self.reason = paused, "incompatible_version:1->2"

    def take_up(self) -> None:
        """Let on by code that can run it."""
        self.to("parked", "resumed", f"resume_requested:{self.reason}")
        self.ticket, self.left = True, False

    def flag(self, entry: str) -> None:
        """A change that is no move."""
        self.generation += 1
        self.log.append(entry)


@dataclass
class Tracked:
    """A job, its model, who holds it, and what was left behind by those who did."""

    id: str
    model: Model
    holding: Holding | None = None
    stale: list[Holding] = field(default_factory=list)
    used: list[UUID] = field(default_factory=list)
    asked: dict[str, NewQuestion] = field(default_factory=dict)

    @property
    def held(self) -> Holding:
        """Who runs it."""
        assert self.holding is not None
        return self.holding

    def left(self) -> None:
        """The attempt is over."""
        if self.holding is not None:
            self.stale.append(self.holding)
        self.holding = None
