"""What one attempt knows of its run's journal: what is decided, how large it is. Not whether it lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from .encodings import MODEL
from .errors import SecondSave, TooLarge, Unreadable
from .hints import MISSING, return_type
from .journal import Journal
from .model import Answer, NewQuestion, Node, NodeKind, Stored
from .values import ANNOTATE, Codec, Kept, decode, keep

PLAIN_VALUES: Final = "give plain values: str, numbers, None, Decimal, dates, UUID, bytes, lists and dicts of them"


@dataclass(frozen=True)
class Decisions:
    """The job's locked decisions: where its run is and what was decided on the way. Read-only.

    `node`: the node saved last. `bindings`: what the checkpoints saved, later ones winning. `visited`: every
    node that is decided, in order of first arrival. `run_id`: the same for all attempts with the same input.
    """

    node: str | None
    bindings: Mapping[str, Any]
    visited: tuple[str, ...]
    run_id: UUID


@dataclass(frozen=True)
class _Pending:
    name: str
    kind: NodeKind
    value: Stored | None


class Ledger:
    """The journal of a run, with its limits (bytes) and its codec."""

    def __init__(self, journal: Journal, *, codec: Codec, max_value_bytes: int, max_job_bytes: int) -> None:
        self.journal = journal
        self.codec = codec
        self.max_value_bytes = max_value_bytes
        self._max_job_bytes = max_job_bytes
        self._known: dict[str, Node] | None = None
        self._bytes = 0
        self._last: str | None = None
        self._block: list[_Pending] | None = None

    @property
    def in_block(self) -> bool:
        """Whether a transaction block is open."""
        return self._block is not None

    def decided(self, name: str, kind: NodeKind) -> bool:
        """Whether the node is decided. Raises `Unreadable` if what is decided is another kind of node."""
        node = self._nodes().get(name)
        if node is not None and node.kind is not kind:
            raise Unreadable(f"{kind} {name!r}", f"it was saved as a {node.kind}; choose another name")
        return node is not None

    def recall(self, name: str, kind: NodeKind, function: Callable[..., Any] | None = None) -> Any:
        """The value of a decided node, which `function` made. Raises `Unreadable`, also where it is gone."""
        what = f"{kind} {name!r}"
        stored = self.journal.read(name)
        if stored is None:
            if kind is NodeKind.CHECKPOINT:
                return {}
            raise Unreadable(what, "its value is gone")
        # resolving an annotation takes longer than reading most values
        type_ = return_type(function) if function and stored.encoding == MODEL else MISSING
        return decode(stored, codec=self.codec, type_=type_, what=what)

    def answer_value(self, answer: Answer) -> Any:
        """The plain JSON value of an answer. Raises `Unreadable`."""
        return decode(answer.value, codec=self.codec, what=f"the answer to question {answer.key!r}")

    def keep(self, value: Any, what: str, *, type_: Any = MISSING, advice: str = ANNOTATE) -> Kept:
        """Encode a value for this journal. Raises `NotSerialisable`, `TooLarge`."""
        return keep(value, limit=self.max_value_bytes, codec=self.codec, type_=type_, what=what, advice=advice)

    def save(self, name: str, kind: NodeKind, value: Stored | None) -> None:
        """Commit a node; in a transaction block, at the block's end. Raises what the journal does."""
        if self._block is None:
            self._commit(_Pending(name, kind, value))
            return
        if self._block:
            raise SecondSave(name)
        self._block.append(_Pending(name, kind, value))

    def ask(self, question: NewQuestion) -> Answer:
        """Ask, within the job's room. Raises what the journal does."""
        self._make_room(len(question.content.data))
        return self.journal.ask(question)

    @contextmanager
    def transaction(self, block: AbstractContextManager[Any]) -> Iterator[list[_Pending]]:
        """Commit what is saved inside together with `block`, as its last statement."""
        with self.journal.transaction(block):
            pending: list[_Pending] = []
            self._block = pending
            try:
                yield pending
            finally:
                self._block = None
            for one in pending:
                self._commit(one)

    def decisions(self) -> Decisions:
        """The locked decisions. Reads the bindings of every checkpoint."""
        bindings: dict[str, Any] = {}
        for name, node in self._nodes().items():
            if node.kind is NodeKind.CHECKPOINT:
                bindings.update(self.recall(name, node.kind))
        visited = tuple(self._nodes())
        last = self._last or (visited[-1] if visited else None)
        return Decisions(last, MappingProxyType(bindings), visited, self.journal.run_id)

    def _commit(self, pending: _Pending) -> None:
        known = self._nodes()
        before = known.get(pending.name)
        size = len(pending.value.data) if pending.value else 0
        self._make_room(size - (before.size if before else 0))
        self.journal.save(pending.name, pending.kind, pending.value)
        known[pending.name] = Node(pending.name, pending.kind, size)
        self._last = pending.name

    def _nodes(self) -> dict[str, Node]:
        """What is decided, in order of first arrival. The journal is asked for it once."""
        if self._known is None:
            self._known = dict(self.journal.nodes())
            self._bytes = sum(node.size for node in self._known.values())
        return self._known

    def _make_room(self, added: int) -> None:
        self._nodes()
        size = self._bytes + added
        if added > 0 and size > self._max_job_bytes:
            raise TooLarge("all that this job stores", size=size, limit=self._max_job_bytes)
        self._bytes = size
