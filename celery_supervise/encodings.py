"""The ways in which a value becomes bytes, and why one does not bring a value back. No limits, no codec."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from kombu.utils import json as typed_json
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from .compare import Difference, at, name_of
from .hints import MISSING
from .wording import REFUSALS, cut, shown

_SHOWN: Final = 200

TYPED: Final = "json+kombu"
MODEL: Final = "json+pydantic"
PLAIN: Final = "json"

# UTF-8, so that a limit in bytes is one of text too; NaN and Infinity are no JSON.
_STRICT: Final[dict[str, Any]] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
_TAG = {"__type__", "__value__"}


@dataclass(frozen=True)
class Way:
    """One way to bytes and back. Either may raise any of `REFUSALS`; `explain` then tells where and why."""

    encoding: str
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    explain: Callable[[Any, str, Exception], Difference]


def way(encoding: str, type_: Any = MISSING) -> Way:
    """The way that `encoding` names, for a value of `type_`.

    Raises `ValueError` if there is no such way, or none without a type; whatever pydantic raises for `type_`.
    """
    if encoding == MODEL:
        return _model(type_)
    if encoding not in _UNTYPED:
        raise ValueError(f"there is no encoding {shown(encoding)}")
    return _UNTYPED[encoding]


def dump_typed(value: Any, **options: Any) -> bytes:
    """`value` in kombu's typed JSON, in UTF-8."""
    text: str = typed_json.dumps(value, **_STRICT, **options)
    return text.encode()


def _dump_plain(value: Any) -> bytes:
    return json.dumps(value, **_STRICT).encode()


def _explain(again: Callable[[Any], object], value: Any, path: str, error: Exception) -> Difference:
    return _culprit(again, value, path, error, ())


def _culprit(
    again: Callable[[Any], object], value: Any, path: str, error: Exception, inside: tuple[int, ...]
) -> Difference:
    """The innermost part of `value` that `again` refuses, found by trying: no encoder says where it was."""
    inside = (*inside, id(value))
    for key, part in () if isinstance(error, RecursionError) else _parts(value):
        if id(part) in inside:
            return Difference(at(path, key), "it contains itself")
        if (refused := _refusal(again, part)) is not None:
            return _culprit(again, part, at(path, key), refused, inside)
    return Difference(path, _why(value, error))


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, (list, tuple)) else ()


def _refusal(again: Callable[[Any], object], value: Any) -> Exception | None:
    try:
        again(value)
    except REFUSALS as error:
        return error
    return None


def _why(value: Any, error: Exception) -> str:
    """Why JSON refuses `value`, without quoting it."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    match value:
        case dict() if value.keys() == _TAG:
            return "a dict with just the keys __type__ and __value__ would be read as a type tag"
        case str():
            return "text with a lone surrogate is not UTF-8"
        case float():
            return "NaN and Infinity are not JSON"
        case int():
            return "an int with that many digits cannot be read back"
    return f"{name_of(value)} has no JSON form ({error})"


def _untyped(encoding: str, dump: Callable[[Any], bytes], load: Callable[[bytes], Any]) -> Way:
    return Way(encoding, dump, load, partial(_explain, lambda value: load(dump(value))))


_UNTYPED: Final = {
    TYPED: _untyped(TYPED, dump_typed, typed_json.loads),
    PLAIN: _untyped(PLAIN, _dump_plain, json.loads),
}


def _model(type_: Any) -> Way:
    if type_ is MISSING:
        raise ValueError("it was stored under a type annotation, and there is none now")
    try:
        return _cached_model(type_)
    except TypeError:  # an unhashable annotation: Annotated[int, []]
        return _new_model(type_)


def _new_model(type_: Any) -> Way:
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    # Without warnings: what they warn of shows when the two values are compared.
    dump = partial(adapter.dump_json, by_alias=True, round_trip=True, warnings=False)
    # Strict: the text "7" that was stored must not turn into the number that today's annotation wants.
    return Way(MODEL, dump, partial(adapter.validate_json, strict=True), _explain_model)


# Building an adapter takes a millisecond, and a body may have ten thousand steps of one function.
_cached_model = lru_cache(maxsize=256)(_new_model)


def _explain_model(value: Any, path: str, error: Exception) -> Difference:
    first = _first(error)
    if first is None:
        return Difference(path, f"{name_of(value)} cannot be encoded ({reason(error)})")
    for key in first["loc"]:
        path = at(path, key)
    return Difference(path, first["msg"])


def reason(error: Exception) -> str:
    """What `error` says, in a line, without the values that pydantic quotes."""
    first = _first(error)
    said = str(error) if first is None else f"{'.'.join(map(str, first['loc']))}: {first['msg']}".lstrip(": ")
    return cut(f"{type(error).__name__}: {said}", _SHOWN)


def _first(error: Exception) -> ErrorDetails | None:
    if not isinstance(error, ValidationError):
        return None
    return error.errors(include_url=False, include_context=False, include_input=False)[0]
