"""What a job remembers, as the migration of its task reads and changes it: by name. Writes nothing: see `migrating`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .encodings import MODEL, PLAIN
from .errors import InvalidInput, TooLarge, Unreadable
from .hints import MISSING
from .model import Node, NodeKind, Stored
from .values import IDENTITY, MAX_JOB_BYTES, MAX_VALUE_BYTES, Codec, check_name, decode, keep
from .wording import shown

GIVE_TYPE = "give its type: write(name, value, type_)"
LOOP = frozenset({"last", "done", "carried"})


@dataclass(frozen=True)
class Changed:
    """What a migration changed. `gone`: names that the run has no more, or has with another value.

    `renamed`: old and new names of what only has another name; `put`: what is to be stored anew, with its place in
    the order (None: after all others). `node`: the place that the job has reached, by its name now. `added`: bytes.
    """

    gone: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    put: tuple[tuple[str, NodeKind, str | None, Stored], ...]
    node: str | None
    added: int


@dataclass(frozen=True)
class _Entry:
    """A node under its name now. `origin`: its name before; `stored`: its value, where it has another one."""

    kind: NodeKind
    size: int
    origin: str | None = None
    stored: Stored | None = None


class Remembered:
    """What a job remembers that older code began: the steps, checkpoints and loops of its run, by name.

    A job may not have come as far as any of them: ask with `in`. `job_id` is the job's; `version` what its task's
    code had. `read`: gives the stored value of a node.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        read: Callable[[str], Stored | None],
        *,
        job_id: str,
        version: int,
        codec: Codec = IDENTITY,
        max_value_bytes: int = MAX_VALUE_BYTES,
        max_job_bytes: int = MAX_JOB_BYTES,
    ) -> None:
        self.job_id = job_id
        self.version = version
        self._before = dict(nodes)
        self._read = read
        self._codec = codec
        self._max_value_bytes = max_value_bytes
        self._max_job_bytes = max_job_bytes
        self._now = {name: _Entry(node.kind, node.size, origin=name) for name, node in nodes.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """All that is remembered, in order of first arrival."""
        return tuple(self._now)

    def __contains__(self, name: object) -> bool:
        """Whether the job remembers `name`."""
        return name in self._now

    def kind(self, name: str) -> str:
        """`"step"`, `"checkpoint"` or `"each"`. Raises `InvalidInput`."""
        return str(self._entry(name).kind)

    def read(self, name: str, type_: Any = None) -> Any:
        """The value: of a step what it returned, of a checkpoint its bindings, of a loop `last`, `done`, `carried`.

        What was stored under a type annotation comes as plain JSON, or as `type_`. Raises `InvalidInput` where there
        is no such name, `Unreadable`.
        """
        entry = self._entry(name)
        stored = entry.stored or self._read(str(entry.origin))
        if stored is None:
            if entry.kind is NodeKind.CHECKPOINT:
                return {}
            raise Unreadable(f"{entry.kind} {name!r}", "its value is gone")
        if stored.encoding == MODEL and type_ is None:
            stored = replace(stored, encoding=PLAIN)
        return decode(stored, codec=self._codec, type_=_hint(type_), what=f"{entry.kind} {name!r}")

    def rename(self, old: str, new: str) -> None:
        """Give a node another name; nothing where the job does not remember `old`. Raises `InvalidInput`."""
        check_name("new", new)
        if old not in self._now or old == new:
            return
        if new in self._now:
            raise InvalidInput("new", f"{new!r} is remembered, too: forget one of them")
        self._now = {new if name == old else name: entry for name, entry in self._now.items()}

    def forget(self, name: str) -> None:
        """Forget a node, so that it is done again; nothing where the job does not remember it."""
        self._now.pop(name, None)

    def write(self, name: str, value: Any, type_: Any = None) -> None:
        """Give a node another value, of the shape that `read` gives; a name that is not there becomes a step.

        `type_`: the annotation under which the code reads it. Raises `InvalidInput`, `NotSerialisable`, `TooLarge`.
        """
        check_name("name", name)
        before = self._now.get(name) or _Entry(NodeKind.STEP, 0)
        _check_shape(before.kind, value)
        what = f"{before.kind} {name!r}"
        kept = keep(
            value, limit=self._max_value_bytes, codec=self._codec, type_=_hint(type_), what=what, advice=GIVE_TYPE
        ).stored
        self._now[name] = replace(before, size=len(kept.data), stored=kept)
        self._check_room()

    def changed(self, reached: str | None) -> Changed:
        """What is to be stored. `reached`: the place that the job has reached, by its name before."""
        origins = {entry.origin: name for name, entry in self._now.items() if entry.origin and not entry.stored}
        renamed = tuple((old, new) for old, new in origins.items() if old and old != new)
        places = {entry.origin: name for name, entry in self._now.items() if entry.origin}
        return Changed(
            gone=tuple(old for old in self._before if origins.get(old) != old),
            renamed=renamed,
            put=tuple((name, one.kind, one.origin, one.stored) for name, one in self._now.items() if one.stored),
            node=(places.get(reached) if reached else None) or next(reversed(places.values()), None),
            added=self._size() - sum(node.size for node in self._before.values()),
        )

    def _entry(self, name: str) -> _Entry:
        if name not in self._now:
            raise InvalidInput("name", f"the job does not remember {name!r}; it remembers {', '.join(self._now)}")
        return self._now[name]

    def _size(self) -> int:
        return sum(entry.size for entry in self._now.values())

    def _check_room(self) -> None:
        if self._size() > self._max_job_bytes:
            raise TooLarge("all that this job stores", size=self._size(), limit=self._max_job_bytes)


Migration = Callable[[Remembered], None]
"""What makes of the memory of an older version what this one expects: a function without effects of its own."""


def migrate(migration: Migration, remembered: Remembered, *, reached: str | None) -> Changed:
    """What `migration` makes of what is remembered. Raises whatever that does.

    And `InvalidInput` where it gives something back: it meant to change by that, or is a coroutine, which has not run.
    """
    given: Any = migration(remembered)  # type: ignore[func-returns-value]  # that is what is looked at
    if given is not None:
        if inspect.iscoroutine(given):
            given.close()
        raise InvalidInput("migrate", f"must return None and change what it is given, not return {shown(given)}")
    return remembered.changed(reached)


def _hint(type_: Any) -> Any:
    return MISSING if type_ is None else type_


def _check_shape(kind: NodeKind, value: Any) -> None:
    """Refuse what the code that reads it could not read."""
    if kind is NodeKind.CHECKPOINT and not (isinstance(value, dict) and all(isinstance(name, str) for name in value)):
        raise InvalidInput("value", "of a checkpoint must be a dict of its bindings")
    if kind is NodeKind.EACH and not (isinstance(value, dict) and set(value) == LOOP):
        raise InvalidInput("value", "of a loop must be a dict with last, done and carried, as it is read")
