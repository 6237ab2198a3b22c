"""Whether an attempt may go on, and what ended it. Knows no journal, and none of the calls but by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

from .errors import AttemptEnded, InsideTransaction, OutsideAttempt, QuestionAsked
from .lifecycle import State

_ALONE: Final = frozenset({"ask", "each", "on_abandon", "transaction"})  # what cannot be in a transaction block
_READS: Final = frozenset({"progress", "decisions"})  # what the caller's own transaction does not concern
_ELSEWHERE: Final = "called in another thread than the task's body; call it in the body, with what the thread returned"


class Guard:
    """One attempt: its thread, and what ended it. Made in the thread in which the body runs.

    `in_block`: whether a transaction block of ours is open. `in_transaction`: whether the task's code has a
    transaction open that we know of.
    """

    def __init__(self, *, in_block: Callable[[], bool], in_transaction: Callable[[], bool]) -> None:
        self.dead: BaseException | None = None
        self._depth = 0
        self._in_block = in_block
        self._in_transaction = in_transaction
        self._thread = threading.get_ident()

    @property
    def busy(self) -> bool:
        """Whether code of ours is at work, which nobody may interrupt: see `limits`."""
        return self._depth > 0

    def check(self, call: str) -> None:
        """Raise unless `call` may be made here and now. Raises `BodyError`s, and `AttemptEnded`."""
        if threading.get_ident() != self._thread:
            self.fail(OutsideAttempt(call, _ELSEWHERE))
        self.check_alive()
        if self._apart(call):
            self.fail(InsideTransaction(call))

    def _apart(self, call: str) -> bool:
        """Whether `call` would commit apart from a transaction that is open."""
        if self._in_block():
            return call in _ALONE
        return call not in _READS and self._in_transaction()

    def check_alive(self) -> None:
        """Raise `AttemptEnded` if the attempt is over: again and again, whoever swallows it."""
        if self.dead is not None:
            raise AttemptEnded(_left_in(self.dead), _why(self.dead)) from self.dead

    def fail(self, error: BaseException) -> NoReturn:
        """Raise `error`, having marked the attempt as over."""
        self.ended_by(error)
        raise error

    def ended_by(self, error: BaseException) -> None:
        """Mark the attempt as over, unless it already was."""
        if self.dead is None:
            self.dead = error

    @contextmanager
    def fatal(self) -> Iterator[None]:
        """Around our own code: whatever leaves it ends the attempt, since nobody knows what was saved."""
        self._depth += 1
        try:
            yield
        except BaseException as error:
            self.ended_by(error)
            raise
        finally:
            self._depth -= 1


def _why(ended_by: BaseException) -> str:
    return ended_by.why if isinstance(ended_by, AttemptEnded) else f"{type(ended_by).__name__}: {ended_by}"


def _left_in(ended_by: BaseException) -> str | None:
    if isinstance(ended_by, QuestionAsked):
        return State.PARKED
    return ended_by.state if isinstance(ended_by, AttemptEnded) else None
