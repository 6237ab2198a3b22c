"""Whether a stored value came back the same, in value and in type, and where not. Pure; encodes nothing."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from datetime import datetime, time, tzinfo
from decimal import Decimal
from functools import singledispatch
from typing import Any, NamedTuple

from pydantic import BaseModel

from .wording import REFUSALS, cut, shown

_ABSENT = object()


class Difference(NamedTuple):
    """Where two values differ (`$.rows[3].total`), and how, in words that do not quote the values."""

    path: str
    problem: str


def difference(before: Any, after: Any, path: str = "$") -> Difference | None:
    """The first place where `after` is not what `before` was; None if value and type are the same.

    Stricter than `==`: `1`, `1.0` and `True` differ, so do `Decimal("1.1")` and `Decimal("1.10")`, and
    dicts in another order. A float that JSON does not know (NaN, Infinity) differs from everything.

    >>> difference({"rows": [1, (2, 3)]}, {"rows": [1, [2, 3]]})
    Difference(path='$.rows[1]', problem='a tuple comes back as a list')
    >>> difference([1, None, "a"], [1, None, "a"]) is None
    True
    """
    if type(before) is not type(after):
        return Difference(path, f"{name_of(before)} comes back as {name_of(after)}")
    return _compare(before, after, path)


def at(path: str, key: Any) -> str:
    """The path of the part `key` of what is at `path`.

    >>> at("$", "rows"), at("$.rows", 3), at("$", "first name")
    ('$.rows', '$.rows[3]', "$['first name']")
    """
    return f"{path}.{cut(key)}" if isinstance(key, str) and key.isidentifier() else f"{path}[{_label(key)}]"


def name_of(value: Any) -> str:
    """What kind of thing `value` is, with its article: values themselves never go into a message.

    >>> name_of(1), name_of((1,)), name_of(None)
    ('an int', 'a tuple', 'None')
    """
    if value is None:
        return "None"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _label(key: Any) -> str:
    return shown(key) if isinstance(key, (str, int)) else type(key).__name__


@singledispatch
def _compare(before: Any, after: Any, path: str) -> Difference | None:
    """Two values of one type that has no rule of its own: a dataclass by its fields, all others by `==`."""
    if is_dataclass(before):
        return _parts(path, _fields(before, after))
    return _unless(_equal(before, after), path, f"{name_of(before)} comes back changed")


@_compare.register
def _text(before: str, after: str, path: str) -> Difference | None:
    return _unless(before == after, path, "the text comes back changed")


@_compare.register
def _float(before: float, after: float, path: str) -> Difference | None:
    if not math.isfinite(before):
        return Difference(path, "NaN and Infinity are not JSON")
    return _unless(repr(before) == repr(after), path, "the float comes back changed")  # repr knows -0.0


@_compare.register
def _decimal(before: Decimal, after: Decimal, path: str) -> Difference | None:
    return _unless(before.as_tuple() == after.as_tuple(), path, "the Decimal comes back changed")


@_compare.register(datetime)
@_compare.register(time)
def _clock(before: datetime | time, after: datetime | time, path: str) -> Difference | None:
    if not _same_zone(before.tzinfo, after.tzinfo):
        return Difference(path, "its time zone comes back as a fixed offset; convert it to UTC first")
    same = before == after and before.utcoffset() == after.utcoffset() and before.fold == after.fold
    return _unless(same, path, f"{name_of(before)} comes back changed (fold?)")


@_compare.register(dict)
def _dict(before: dict[Any, Any], after: dict[Any, Any], path: str) -> Difference | None:
    for key, other in zip(before, after, strict=False):
        if (found := difference(key, other, at(path, key))) is not None:
            return Difference(found.path, f"its key: {found.problem}")
    if len(before) != len(after):
        return Difference(path, f"{len(before)} keys come back as {len(after)}")
    return _parts(path, ((key, before[key], after[key]) for key in before))


@_compare.register(list)
@_compare.register(tuple)
@_compare.register(deque)
def _items(before: Any, after: Any, path: str) -> Difference | None:
    if len(before) != len(after):
        return Difference(path, f"{len(before)} items come back as {len(after)}")
    return _parts(path, zip(range(len(before)), before, after, strict=True))


@_compare.register(set)
@_compare.register(frozenset)
def _members(before: Any, after: Any, path: str) -> Difference | None:
    kept = {member: member for member in after}
    if len(before) != len(kept) or not before <= kept.keys():
        return Difference(path, f"{name_of(before)} comes back changed")
    return next(filter(None, (difference(member, kept[member], path) for member in before)), None)


@_compare.register
def _model(before: BaseModel, after: BaseModel, path: str) -> Difference | None:
    return difference(_state(before), _state(after), path)


def _state(model: BaseModel) -> dict[str, Any]:
    # by field: __dict__ also has what a cached_property has computed
    named = {name: model.__dict__.get(name, _ABSENT) for name in type(model).model_fields}
    return {**named, **(model.__pydantic_extra__ or {}), **(model.__pydantic_private__ or {})}


def _fields(before: Any, after: Any) -> Iterable[tuple[str, Any, Any]]:
    names = (field.name for field in fields(before))
    return ((name, getattr(before, name, _ABSENT), getattr(after, name, _ABSENT)) for name in names)


def _parts(path: str, parts: Iterable[tuple[Any, Any, Any]]) -> Difference | None:
    for key, before, after in parts:
        if (found := difference(before, after, at(path, key))) is not None:
            return found
    return None


def _unless(same: bool, path: str, problem: str) -> Difference | None:  # noqa: FBT001  # the verdict, not an option
    return None if same else Difference(path, problem)


def _equal(before: Any, after: Any) -> bool:
    try:
        return bool(before == after)
    except REFUSALS:  # a foreign __eq__ (numpy's): then nobody can tell
        return False


def _same_zone(before: tzinfo | None, after: tzinfo | None) -> bool:
    """Whether both are naive, or both have one offset for ever (`timezone.utc`, pydantic's `TzInfo`)."""
    if before is None or after is None:
        return before is after
    fixed = before.utcoffset(None), after.utcoffset(None)
    return fixed[0] is not None and fixed[0] == fixed[1]
