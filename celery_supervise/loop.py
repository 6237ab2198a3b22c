"""A durable loop: which item comes next, what its row holds. It does not know where the row is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from .compare import name_of
from .errors import BodyError, CursorLost, DuplicateKey, DuplicateName, InvalidInput
from .wording import shown

T = TypeVar("T")
Key = str | int


class Keeper(Protocol):
    """What a loop needs of its body."""

    def check(self) -> None:
        """Raise unless the loop may go on: the attempt lives, this is its thread, no transaction is open."""

    def save(self, record: Record) -> None:
        """Commit the loop's row."""

    def hurry(self) -> bool:
        """Whether to save now, however rarely the loop saves."""

    def fail(self, error: BodyError | InvalidInput) -> NoReturn:
        """Raise `error`: the attempt is over."""


@dataclass(frozen=True)
class Record:
    """The row of a loop: the key of the last finished item, whether all are finished, the carried values."""

    last: Key | None
    done: bool
    carried: Mapping[str, Any]


class _Pace:
    """When to save: every so many items, or when so much time has passed since the last save."""

    def __init__(self, every: int | timedelta) -> None:
        self._every = every
        self.saved()

    def due(self) -> bool:
        """Count one finished item; whether it is time to save."""
        self._items += 1
        if isinstance(self._every, timedelta):
            return time.monotonic() - self._since >= self._every.total_seconds()
        return self._items >= self._every

    def saved(self) -> None:
        self._items = 0
        self._since = time.monotonic()


class Loop(Generic[T]):
    """The items of a durable loop that are still to do, with its carried values as attributes and items.

    Iterate over it once. An item is finished when the next one is requested, so that after a crash, a
    `break` or an exception the loop goes on with the item in which it was. What is carried is saved together
    with the cursor: assign it (`loop.paid = loop.paid + 1`, `loop["paid"]`) before the item ends.
    """

    def __init__(
        self,
        name: str,
        items: Iterable[T],
        *,
        key: Callable[[T], Key],
        every: int | timedelta,
        record: Record,
        keeper: Keeper,
    ) -> None:
        self._name = name
        self._items = items
        self._key = key
        self._pace = _Pace(every)
        self._last, self._done = record.last, record.done
        self._carried = dict(record.carried)
        self._keeper = keeper
        self._entered = self._unsaved = False

    def __iter__(self) -> Iterator[T]:
        if self._entered:
            self._keeper.fail(DuplicateName(self._name))
        self._entered = True
        return self._remaining()

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_carried"][name]
        except KeyError:
            raise AttributeError(f"this loop does not carry {shown(name)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif name in self._carried:
            self._carried[name] = value
        else:
            raise AttributeError(f"this loop does not carry {shown(name)}: give each() its first value")

    def __getitem__(self, name: str) -> Any:
        return self._carried[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._carried:
            raise KeyError(name)
        self._carried[name] = value

    def flush(self) -> None:
        """Save what is finished and not saved yet: something that comes after it is about to be saved."""
        if self._unsaved:
            self._save()

    def _remaining(self) -> Iterator[T]:
        self._keeper.check()
        if self._done:  # whatever the items are now: they were finished
            return
        for key, item in self._after_cursor():
            yield item
            self._finished(key)
        self._done = True
        self._save()

    def _after_cursor(self) -> Iterator[tuple[Key, T]]:
        seen: set[Key] = set()
        cursor = self._last
        for item in self._items:
            key = self._checked(self._key(item), seen)
            if cursor is None:
                yield key, item
            elif key == cursor:
                cursor = None
        if cursor is not None:
            self._keeper.fail(CursorLost(self._name, cursor))

    def _checked(self, given: Key, seen: set[Key]) -> Key:
        key = _plain(given)
        if key is None:
            problem = f"each({self._name!r}) needs keys that are str or int, not {name_of(given)}"
            self._keeper.fail(InvalidInput("key", problem))
        if key in seen:
            self._keeper.fail(DuplicateKey(self._name, key))
        seen.add(key)
        return key

    def _finished(self, key: Key) -> None:
        self._keeper.check()
        self._last, self._unsaved = key, True
        if self._pace.due() or self._keeper.hurry():
            self._save()

    def _save(self) -> None:
        self._unsaved = False  # before the save, which first saves whatever else is unsaved
        self._keeper.save(Record(self._last, self._done, self._carried))
        self._pace.saved()


def _plain(key: object) -> Key | None:
    """A key as JSON brings it back (of a str Enum, its value); None if it is neither str nor int."""
    if isinstance(key, str):
        return str.__str__(key)
    return int(key) if isinstance(key, int) and not isinstance(key, bool) else None


def check_every(every: object) -> int | timedelta:
    """How often a loop saves, in items or in time. Raises `InvalidInput`."""
    if isinstance(every, timedelta) and every > timedelta(0):
        return every
    if type(every) is int and every >= 1:
        return every
    raise InvalidInput("every", "must be an int of at least 1, or a timedelta of more than nothing")


def check_carried(names: Iterable[str]) -> None:
    """What a loop carries is read and written as its attributes. Raises `InvalidInput`."""
    for name in names:
        if name.startswith("_") or hasattr(Loop, name):
            raise InvalidInput("each", f"cannot carry {shown(name)}: a loop has an attribute of that name itself")
