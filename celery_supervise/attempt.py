"""The journal of a held job: what the body saves and asks becomes rows. Knows no Celery; raises control flow.

Names are read once, at the first supervised call; values come in pages, in the order in which they were made,
since a body that is entered again asks for them in that order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

from . import queries
from .errors import AttemptEnded, InvalidInput, LeaseLost, QuestionAsked
from .holding import Holding
from .lifecycle import State
from .model import Answer, Moved, NewQuestion, Node, NodeKind, Stored
from .recipients import check_recipients
from .store.door import Door
from .store.joining import Joined

PAGE = 500  # nodes whose values are read at once
PAGE_BYTES = 4 << 20
HURRY_AFTER = 5.0  # seconds after which a loop that saves rarely saves all the same: a pause is seen by then


def _nobody(_question_id: UUID) -> None:
    """Nobody is told."""


class StoreJournal:
    """The journal of one attempt.

    `on_park` is called with the question before the parking commit; `on_ticket` with a ticket that is to be
    published after a commit, `on_asked` with the id of a question after it was stored. `groups`: whether it can be
    known who is in one. `pack` makes a message of the signature of a cleanup.
    """

    def __init__(
        self,
        door: Door,
        holding: Holding,
        *,
        question_ttl: timedelta,
        on_park: Callable[[NewQuestion], None],
        on_ticket: Callable[[str, UUID], None],
        pack: Callable[[Any], Stored],
        on_asked: Callable[[UUID], None] = _nobody,
        groups: bool = False,
    ) -> None:
        self._door = door
        self._holding = holding
        self._ttl = question_ttl
        self._on_park = on_park
        self._on_ticket = on_ticket
        self._pack = pack
        self._on_asked = on_asked
        self._groups = groups
        self._nodes: dict[str, Node] | None = None
        self._order: list[str] = []
        self._values: dict[str, Stored | None] = {}
        self._answers: Mapping[str, Answer] | None = None
        self._joined: Joined | None = None
        self._joint: list[Moved] = []  # what the last joined saves said
        self._last_save = time.monotonic()

    @property
    def run_id(self) -> UUID:
        """The run whose nodes and answers these are."""
        return self._holding.lease.run_id

    def nodes(self) -> Mapping[str, Node]:
        """What this run has decided so far, by name, in order."""
        if self._nodes is None:
            found = queries.nodes(self._door, self._holding.lease.job_id, self.run_id)
            self._nodes = dict(found)
            self._order = list(found)
        return self._nodes

    def read(self, name: str) -> Stored | None:
        """The stored value of a node, None where it has none."""
        if name not in self._values:
            self._values.update(self._page(name))
        return self._values.pop(name, None)

    def _page(self, name: str) -> Mapping[str, Stored | None]:
        start = self._order.index(name) if name in self._order else 0
        names, size = [name], 0
        for other in self._order[start + 1 : start + PAGE]:
            size += self.nodes()[other].size
            if size > PAGE_BYTES:
                break
            names.append(other)
        return queries.values(self._door, self._holding.lease.job_id, self.run_id, names)

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Commit a node. Raises `AttemptEnded` where the job leaves this attempt here."""
        moved = self._holding.checkpoint(name, kind, value, joined=self._joined)
        if self._joined is not None:
            self._joint.append(moved)
        if moved.state is not State.RUNNING:
            raise AttemptEnded(moved.state, moved.stop_reason or str(moved.state))
        self._remember(name, kind, value)
        if moved.hand_over and self._joined is None:
            self.hand_over()

    def _remember(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        self._last_save = time.monotonic()
        self._values.pop(name, None)
        if self._nodes is not None:
            self._nodes[name] = Node(name, kind, len(value.data) if value else 0, self._holding.lease.token)

    def hand_over(self) -> None:
        """Leave the job to another worker. Raises `AttemptEnded`."""
        moved = self._holding.hand_over()
        if moved.ticket_id is not None:
            self._on_ticket(moved.job_id, moved.ticket_id)
        raise AttemptEnded(moved.state, "handed over: its worker is shutting down")

    def answer(self, key: str) -> Answer | None:
        """The accepted answer to a question of this run."""
        if self._answers is None:
            self._answers = queries.answers(self._door, self._holding.lease.job_id, self.run_id)
        return self._answers.get(key)

    def ask(self, question: NewQuestion) -> Answer:
        """Store the question and park. Never returns in a worker: the answer is found by `answer` next time.

        Raises `InvalidInput` for recipients who could never decide, and for a reminder before the question.
        """
        ttl = question.ttl or self._ttl
        _check_reminder(question, ttl)
        barred = None if question.self_approval else self._holding.lease.owner_id
        check_recipients(question.to, approvals=question.approvals, barred=barred, groups=self._groups)
        before = self.answer(question.key)
        self._on_park(question)
        moved = self._holding.ask(question, ttl=ttl, supersedes=before.question_id if before else None)
        if moved.question_id == question.id:
            self._on_asked(question.id)
            raise QuestionAsked(str(question.id))
        raise AttemptEnded(moved.state, moved.stop_reason or str(moved.state))

    @property
    def attempt_id(self) -> str:
        """This attempt's own id."""
        return str(self._holding.lease.token)

    def register(self, name: str, signature: Any) -> None:
        """Keep a cleanup. Raises what packing it does, before anything is written; `LeaseLost`."""
        self._holding.register(name, self._pack(signature))

    def progress(self, current: int | None, total: int | None, message: str | None) -> None:
        """Show progress."""
        self._holding.progress(current, total, message)

    @contextmanager
    def transaction(self, block: AbstractContextManager[Joined]) -> Iterator[None]:
        """Enter `block`, which commits at its end; a save inside joins its transaction.

        Where that save judges that the job moves, the block rolls back, and the job is moved afterwards.
        """
        self._joint.clear()
        try:
            with block as connection:
                self._joined = connection
                try:
                    yield
                finally:
                    self._joined = None
        except AttemptEnded as ended:
            if isinstance(ended, LeaseLost) or any(moved.state is not State.RUNNING for moved in self._joint):
                self._holding.judge()
            raise
        if any(moved.hand_over for moved in self._joint):
            self.hand_over()

    def hurry(self) -> bool:
        """Whether a loop that saves rarely should save now."""
        return time.monotonic() - self._last_save > HURRY_AFTER


def _check_reminder(question: NewQuestion, ttl: timedelta) -> None:
    """A reminder of a question comes while it is open; known only here where the setting gives its time."""
    if question.remind_before is not None and question.remind_before >= ttl:
        raise InvalidInput("remind_before", f"must be less than the question's time ({ttl})")
