"""What a body needs of a journal; the journal in memory of eager mode, direct calls and rehearsals. No I/O.

A journal remembers what one run of a job has decided: nodes with their values, and answers. It moves the job
where that is due, by raising control flow; it does not decide what is saved, nor how values are encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Final, Protocol
from uuid import UUID, uuid4

from .errors import AskedAsFunction, NeedsAnswer
from .forms import check_answer, plain
from .model import Answer, NewQuestion, Node, NodeKind, Stored
from .values import IDENTITY, MAX_VALUE_BYTES, Codec, decode, encode_plain


class Journal(Protocol):
    """What one run of a job has decided. `save`, `ask` and `progress` may raise any `errors.ControlFlow`."""

    @property
    def run_id(self) -> UUID:
        """The run: the same for every attempt with the same input."""

    def nodes(self) -> Mapping[str, Node]:
        """What is decided, by name, in the order of first arrival. Read once, by the first who asks."""

    def read(self, name: str) -> Stored | None:
        """The value of a node that is decided; None where it was saved without one."""

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Commit a node; one of the same name is replaced. Inside `transaction`: as its last statement."""

    def answer(self, key: str) -> Answer | None:
        """The accepted answer of this run to the question `key`."""

    def ask(self, question: NewQuestion) -> Answer:
        """The answer, if it can be had at once; else raises `QuestionAsked`, or `NeedsAnswer` in eager mode.

        An answer that this run already has is superseded: the body has seen it, and asks all the same.
        """

    @property
    def attempt_id(self) -> str:
        """The attempt: another one has another."""

    def register(self, name: str, signature: Any) -> None:
        """Keep a signature that is sent if the job does not complete; one of the same name is replaced."""

    def progress(self, current: int | None, total: int | None, message: str | None) -> None:
        """Show how far the job is."""

    def transaction(self, block: AbstractContextManager[Any]) -> AbstractContextManager[None]:
        """Enter `block`, which gives a connection, commits at its end and rolls back on any exception.

        A `save` inside joins that connection. Where it judges that the job moves, it raises inside the block,
        which rolls back; then the job is moved in a transaction of its own.
        """

    def hurry(self) -> bool:
        """Whether a loop that saves rarely should save now: its worker leaves, or it was long ago."""


@dataclass(frozen=True)
class Asked:
    """A question as a test's answer function sees it. `show` and `schema` are plain JSON."""

    key: str
    prompt: str
    show: Any
    schema: Mapping[str, Any]
    to: tuple[str, ...]
    approvals: int = 1
    self_approval: bool = False


Answers = Mapping[str, Any] | Callable[[Asked], Any]
"""Test answers: by key, a value, a pydantic model, or a function of the question; or one function for all."""

current_answers: ContextVar[Answers] = ContextVar("current_answers", default=MappingProxyType({}))
"""What `testing.answers` has given, for eager mode and direct calls."""


class Killed(BaseException):
    """The process is gone, in a rehearsal: nothing that the body does after this was ever done."""


@dataclass(frozen=True)
class Event:
    """Something that a journal in memory made durable: a node, or an answer by its question's key."""

    name: str
    question: bool = False


_TESTER: Final = "test"


class MemoryJournal:
    """A journal for as long as it lives, that answers questions itself.

    `answers`: see `Answers`; without it, those of `testing.answers`. `kill_after`: raise `Killed` right after
    the event of that number, once; 0 for never. `in_worker`: a question without an answer is an ordinary error,
    since what is no `Exception` would end the worker.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        codec: Codec = IDENTITY,
        kill_after: int = 0,
        in_worker: bool = False,
    ) -> None:
        self.run_id = uuid4()
        self.attempt_id = str(uuid4())
        self.cleanups: dict[str, Any] = {}
        self.events: list[Event] = []
        self.killed = False
        self._given = answers
        self._codec = codec
        self._kill_after = kill_after
        self._in_worker = in_worker
        self._nodes: dict[str, Node] = {}
        self._values: dict[str, Stored | None] = {}
        self._answers: dict[str, Answer] = {}
        self._held: list[Callable[[], None]] | None = None

    def nodes(self) -> Mapping[str, Node]:
        """What is decided, in order."""
        return MappingProxyType(self._nodes)

    def read(self, name: str) -> Stored | None:
        """The value of a node."""
        return self._values[name]

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Remember a node; inside `transaction`, once its block has committed."""
        if self._held is not None:
            self._held.append(lambda: self._keep(name, kind, value))
        else:
            self._keep(name, kind, value)

    def _keep(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        self._nodes[name] = Node(name, kind, len(value.data) if value else 0)
        self._values[name] = value
        self._happened(Event(name))

    def rearrange(
        self,
        gone: Iterable[str],
        renamed: Iterable[tuple[str, str]],
        put: Iterable[tuple[str, NodeKind, str | None, Stored]],
    ) -> None:
        """Remember what a migration has made of it: see `remembered.Changed`."""
        aside = {name: (self._nodes.pop(name), self._values.pop(name)) for name in gone}
        for before, name in renamed:
            node, self._values[name] = aside[before]
            self._nodes[name] = replace(node, name=name)
        for name, kind, _, value in put:
            self._nodes[name], self._values[name] = Node(name, kind, len(value.data)), value

    def answer(self, key: str) -> Answer | None:
        """The answer that this run already has."""
        return self._answers.get(key)

    def ask(self, question: NewQuestion) -> Answer:
        """Answer from the test's answers: each is what was decided, whoever may answer, however many must agree.

        Raises `NeedsAnswer`, in a worker `AskedAsFunction`; `InvalidAnswer` where one does not fit.
        """
        value = plain(self._given_to(question))
        check_answer(question.schema, value)
        self._answers[question.key] = answer = Answer(
            question_id=question.id,
            key=question.key,
            value=encode_plain(value, limit=MAX_VALUE_BYTES, codec=self._codec),
            digest=question.digest,
            actor=_TESTER,
            at=datetime.now(timezone.utc),
        )
        self._happened(Event(question.key, question=True))
        return answer

    def _given_to(self, question: NewQuestion) -> Any:
        answers = current_answers.get() if self._given is None else self._given
        if callable(answers):
            return answers(self._asked(question))
        if question.key not in answers and self._in_worker:
            raise AskedAsFunction(question.key)
        if question.key not in answers:
            raise NeedsAnswer(question.key, given=None if self._given is None else sorted(answers))
        answer = answers[question.key]
        return answer(self._asked(question)) if callable(answer) else answer

    def _asked(self, question: NewQuestion) -> Asked:
        content = decode(question.content, codec=self._codec, what=f"question {question.key!r}")
        return Asked(
            key=question.key,
            prompt=content["prompt"],
            show=content["show"],
            schema=question.schema,
            to=question.to,
            approvals=question.approvals,
            self_approval=question.self_approval,
        )

    def start_over(self) -> None:
        """A new run, as a retry with other arguments is: nothing is decided yet. What is registered stays."""
        self.run_id = uuid4()
        self._nodes.clear()
        self._values.clear()
        self._answers.clear()

    def register(self, name: str, signature: Any) -> None:
        """Remember a signature. Nothing is ever sent."""
        self.cleanups[name] = signature

    def progress(self, current: int | None, total: int | None, message: str | None) -> None:
        """Nobody looks."""

    @contextmanager
    def transaction(self, block: AbstractContextManager[Any]) -> Iterator[None]:
        """Enter `block`; what was saved inside is remembered once it has committed."""
        held: list[Callable[[], None]] = []
        self._held = held
        try:
            with block:
                yield
        finally:
            self._held = None
        for keep in held:
            keep()

    def hurry(self) -> bool:
        """Never: nobody waits."""
        return False

    def _happened(self, event: Event) -> None:
        self.events.append(event)
        if len(self.events) == self._kill_after:
            self.killed = True
            raise Killed
