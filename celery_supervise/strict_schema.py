"""JSON Schema (draft 2020-12) without coercion, and its complaints in words for people. Fetches nothing.

Stricter than jsonschema's own: 3.0 is no integer, `true` is neither 1 nor `enum`'s 1, formats are checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from pydantic import TypeAdapter
from referencing import Registry

from .compare import difference
from .wording import cut

_SHOWN: Final = 200

_Errors = Iterator[ValidationError]


def complaints(schema: Mapping[str, Any], value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with `value`, a plain JSON value, by `schema`: where (keys and indices), and how."""
    try:
        yield from map(_told, _Strict(schema, registry=Registry(), format_checker=_FORMATS).iter_errors(value))
    except RecursionError:
        yield (), "cannot be checked: it, or its schema, is nested too deeply"


def _told(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    return tuple(error.absolute_path), _message(error)


def _message(error: ValidationError) -> str:
    """One line. Of alternatives, what each would want of this very value."""
    here = [part.message for part in error.context or () if part.absolute_path == error.absolute_path]
    return " or ".join(dict.fromkeys(here)) or cut(error.message, _SHOWN)


def _type(validator: Validator, types: Any, instance: Any, _: Any) -> _Errors:
    wanted = [types] if isinstance(types, str) else types
    if not any(validator.is_type(instance, name) for name in wanted):
        yield ValidationError(f"must be {' or '.join(wanted)}")


def _enum(_: Validator, allowed: Any, instance: Any, __: Any) -> _Errors:
    if not any(difference(choice, instance) is None for choice in allowed):
        yield ValidationError(cut(f"must be one of {', '.join(map(repr, allowed))}", _SHOWN))


def _const(validator: Validator, allowed: Any, instance: Any, schema: Any) -> _Errors:
    return _enum(validator, [allowed], instance, schema)


def _required(validator: Validator, names: Any, instance: Any, _: Any) -> _Errors:
    if validator.is_type(instance, "object"):
        for name in names:
            if name not in instance:
                yield ValidationError("is required", path=(name,))


def _additional(validator: Validator, allowed: Any, instance: Any, schema: Any) -> _Errors:
    if allowed is not False or not validator.is_type(instance, "object"):
        yield from _DRAFT["additionalProperties"](validator, allowed, instance, schema)
        return
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for name in instance:
        if name not in known and not any(re.search(pattern, name) for pattern in patterns):
            yield ValidationError("is not a field of this form", path=(name,))


def _is_integer(_: Any, instance: Any) -> bool:
    return isinstance(instance, int) and not isinstance(instance, bool)


_DRAFT: Final[Mapping[str, Callable[..., Any]]] = Draft202012Validator.VALIDATORS

_Strict: Final = extend(  # type: ignore[no-untyped-call]  # by types-jsonschema 4.26
    Draft202012Validator,
    validators={
        "type": _type,
        "enum": _enum,
        "const": _const,
        "required": _required,
        "additionalProperties": _additional,
    },
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_integer),
)

# What jsonschema leaves unchecked, as pydantic will read it; a number of seconds in quotes is none of these.
_TIMES: Final = {
    "date-time": (r"\d{4}-\d\d-\d\d[Tt ]", datetime),
    "date": (r"\d{4}-\d\d-\d\d", date),
    "time": (r"\d\d:\d\d", time),
    "duration": (r"[+-]?P", timedelta),
}


def _is_time(pattern: str, adapter: TypeAdapter[Any], instance: object) -> bool:
    if isinstance(instance, str):
        return re.match(pattern, instance) is not None and adapter.validate_python(instance) is not None
    return True


def _formats() -> FormatChecker:
    checker = FormatChecker(formats=("email", "ipv4", "ipv6", "regex", "uuid"))
    for name, (pattern, type_) in _TIMES.items():
        checker.checks(name, raises=ValueError)(partial(_is_time, pattern, TypeAdapter(type_)))
    return checker


_FORMATS: Final = _formats()
