"""The durable loops of one attempt: their rows, and the order in which these are saved. No iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from .guard import Guard
from .ledger import PLAIN_VALUES, Ledger
from .loop import Key, Loop, Record, check_carried, check_every
from .model import NodeKind

T = TypeVar("T")


class Loops:
    """The loops that an attempt has begun and not finished."""

    def __init__(self, ledger: Ledger, guard: Guard) -> None:
        self._ledger = ledger
        self._guard = guard
        self._open: dict[str, Loop[Any]] = {}
        self._flushing = False

    def begin(
        self,
        name: str,
        items: Iterable[T],
        *,
        key: Callable[[T], Key],
        every: int | timedelta,
        carried: Mapping[str, Any],
    ) -> Loop[T]:
        """A loop that goes on where its row says. Raises as `Body.each`."""
        check_carried(carried)
        loop = Loop(
            name,
            items,
            key=key,
            every=check_every(every),
            record=self._record(name, carried),
            keeper=_Row(name, self, self._ledger, self._guard),
        )
        self._open[name] = loop
        return loop

    def flush(self) -> None:
        """Save what loops have finished: what is saved after an item must never be found without it."""
        if self._flushing or self._ledger.in_block:
            return
        self._flushing = True
        for loop in tuple(self._open.values()):
            loop.flush()
        self._flushing = False

    def _record(self, name: str, carried: Mapping[str, Any]) -> Record:
        first = self._ledger.keep(dict(carried), f"each {name!r}", advice=PLAIN_VALUES).value
        if not self._ledger.decided(name, NodeKind.EACH):
            return Record(None, done=False, carried=first)
        row = self._ledger.recall(name, NodeKind.EACH)
        still = {carry: value for carry, value in row["carried"].items() if carry in carried}
        return Record(row["last"], row["done"], {**first, **still})

    def save(self, name: str, record: Record) -> None:
        """Commit the row of a loop."""
        row = {"last": record.last, "done": record.done, "carried": dict(record.carried)}
        kept = self._ledger.keep(row, f"each {name!r}", advice=PLAIN_VALUES)
        if record.done:
            del self._open[name]
        self.flush()
        self._ledger.save(name, NodeKind.EACH, kept.stored)


@dataclass(frozen=True)
class _Row:
    """What a loop needs of its attempt: `loop.Keeper`."""

    name: str
    loops: Loops
    ledger: Ledger
    guard: Guard

    def check(self) -> None:
        self.guard.check("each")

    def save(self, record: Record) -> None:
        with self.guard.fatal():
            self.guard.check("each")
            self.loops.save(self.name, record)

    def hurry(self) -> bool:
        return self.ledger.journal.hurry()

    def fail(self, error: Exception) -> NoReturn:
        self.guard.fail(error)
