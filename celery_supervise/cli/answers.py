"""Words of a command line as the JSON value that a question asks for: `approved=true note="all fine"`.

The schema says what the words are: `7` is a text where a text is asked for, a number where a number is. Nothing
is judged here: a word that fits nothing stays a text, and the service says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

from celery_supervise.errors import InvalidInput
from celery_supervise.strict_schema import complaints
from celery_supervise.wording import shown

from .schemas import Schema, part_of, types, within

_YES_NO: Final[Mapping[str, bool]] = {"true": True, "yes": True, "false": False, "no": False}
_JSON_TYPES: Final[Mapping[type, tuple[str, ...]]] = {
    bool: ("boolean",),
    int: ("integer", "number"),
    float: ("number",),
    str: ("string",),
    list: ("array",),
    dict: ("object",),
    type(None): ("null",),
}


def answer_of(words: Sequence[str], schema: Schema) -> Any:
    """The answer that `words` give: fields (`name=value`, `address.city=Rome`), or one value.

    A field that is a list takes several words: `tag=a tag=b`. Raises `InvalidInput` where the words do not
    say which field they are for.
    """
    if not words:
        _refuse("nothing was given; say what you answer")
    if _is_form(words, schema):
        return _object([_assigned(word) for word in words], schema, schema)
    if len(words) > 1:
        _refuse("one value is asked for")
    return typed(words[0], schema, schema)


def parse_json(text: str) -> Any:
    """JSON as it was typed. Raises `InvalidInput` for what is none, for NaN, and for a field given twice."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("--json", f"is no JSON that can be read: {error}") from error


def typed(text: str, schema: Schema, root: Schema) -> Any:
    """What `text` stands for where `schema` is asked for."""
    allowed = types(schema, root)
    values = [value for value in _readings(text) if not allowed or allowed & {*_JSON_TYPES[type(value)]}]
    whole = within(schema, root)
    # A text where a text fits: digits that are an account number, or a decimal that no float holds.
    fitting = (value for value in values if next(complaints(whole, value), None) is None)
    return next(fitting, values[0] if values else text)


def _readings(text: str) -> Iterator[Any]:
    yield text
    if text in _YES_NO:
        yield _YES_NO[text]
        return
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError, InvalidInput):
        return
    if not isinstance(value, str):
        yield value


def _is_form(words: Sequence[str], schema: Schema) -> bool:
    allowed = types(schema, schema)
    if "object" not in allowed:
        return not allowed and all("=" in word for word in words)
    return all("=" in word for word in words) or allowed == {"object"}


def _assigned(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        _refuse(f"{shown(word)} does not say which field it is for; write name=value")
    return name, value


def _object(assigned: Sequence[tuple[str, str]], schema: Schema, root: Schema) -> dict[str, Any]:
    properties = part_of(schema, root, "properties") or {}
    grouped: dict[str, list[tuple[str, str]]] = {}
    for name, value in assigned:
        head, rest = _split(name, properties)
        grouped.setdefault(head, []).append((rest, value))
    return {name: _field(name, given, properties.get(name, {}), root) for name, given in grouped.items()}


def _split(name: str, properties: Schema) -> tuple[str, str]:
    """A dotted name leads into a field that has fields itself, unless a field has just that name."""
    head, dot, rest = name.partition(".")
    return (head, rest) if dot and name not in properties and head in properties else (name, "")


def _field(name: str, given: list[tuple[str, str]], schema: Schema, root: Schema) -> Any:
    inner = [rest for rest, _ in given]
    if all(inner):
        return _object(given, schema, root)
    if any(inner):
        _refuse(f"{shown(name)} is given as a whole and in parts")
    values = [value for _, value in given]
    allowed = types(schema, root)
    if "array" in allowed and not (len(values) == 1 and "[" in values[0][:1]):
        items = part_of(schema, root, "items") or {}
        return [typed(value, items, root) for value in values]
    if len(values) > 1:
        _refuse(f"{shown(name)} is given twice")
    return typed(values[0], schema, root)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. A name given twice is a mistake: it does not say which of the two is meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput("--json", f"has {shown(twice)} twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise InvalidInput("--json", f"{text} is no JSON number")


def _refuse(problem: str) -> NoReturn:
    raise InvalidInput("answer", problem)
