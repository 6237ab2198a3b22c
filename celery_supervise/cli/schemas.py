"""What an answer's schema asks for, in words and by type. Pure; checks no answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Schema = Mapping[str, Any]

_WORDS: Final[Mapping[str, str]] = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "array": "list",
    "object": "fields",
    "null": "null",
}
_FORMATS: Final[Mapping[str, str]] = {
    "date": "date",
    "date-time": "time",
    "email": "mail address",
    "uuid": "UUID",
}
_LIMITS: Final[Mapping[str, str]] = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "pattern": "matching",
}
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")
_DEEPEST: Final = 20
"""A schema may refer to itself."""


@dataclass(frozen=True)
class Field:
    """One field of a form: its name, what goes into it, whether it must be given, what is said of it."""

    name: str
    kind: str
    required: bool
    about: str


def fields(schema: Schema) -> list[Field]:
    """The fields of a form, those first that must be given; none where the answer is a single value.

    (Postgres keeps no order of names in jsonb.)
    """
    form = next((part for part in _parts(schema, schema) if isinstance(part.get("properties"), Mapping)), {})
    required = form.get("required", ())
    found = [
        Field(name, kind(part, schema), name in required, _about(part, schema))
        for name, part in form.get("properties", {}).items()
    ]
    return sorted(found, key=lambda field: not field.required)


def kind(schema: Schema, root: Schema) -> str:
    """What a value may be: `true or false`, `whole number, at least 1`, `"skip" or "stop"`."""
    found = dict.fromkeys(word for part in _parts(schema, root) for word in _kinds(part, root))
    return " or ".join(found) or "any JSON value"


def types(schema: Schema, root: Schema) -> frozenset[str]:
    """The JSON types that `schema` names; empty where it names none, and so allows all."""
    return frozenset(name for part in _parts(schema, root) for name in _types(part))


def within(schema: Schema, root: Schema) -> Schema:
    """`schema`, which is a part of `root`, with the definitions that it may refer to."""
    return {**schema, "$defs": root.get("$defs", {})}


def part_of(schema: Schema, root: Schema, keyword: str) -> Schema | None:
    """What `schema` says under `keyword` (`items`, `properties`), None where it says nothing."""
    found = (part[keyword] for part in _parts(schema, root) if isinstance(part.get(keyword), Mapping))
    return next(found, None)


def _parts(schema: Any, root: Schema, depth: int = 0) -> Iterator[Schema]:
    """`schema` itself and all that it stands for: what it refers to, its alternatives."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    yield schema
    inner = [_target(schema["$ref"], root)] if "$ref" in schema else []
    for part in (*inner, *(part for word in _ALTERNATIVES for part in schema.get(word, ()))):
        yield from _parts(part, root, depth + 1)


def _target(reference: str, root: Schema) -> Any:
    found: Any = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        key = name.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if key and isinstance(found, Mapping) else found
    return found


def _types(part: Schema) -> Iterator[str]:
    named = part.get("type", ())
    yield from [named] if isinstance(named, str) else named
    yield from (_type_of(choice) for choice in _listed(part) or ())


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
    return "array" if isinstance(value, list) else "object"


def _listed(part: Schema) -> list[Any] | None:
    if "const" in part:
        return [part["const"]]
    listed = part.get("enum")
    return listed if isinstance(listed, list) else None


def _kinds(part: Schema, root: Schema) -> Iterator[str]:
    listed = _listed(part)
    if listed is not None:
        yield from (choice if isinstance(choice, str) else json.dumps(choice) for choice in listed)
        return
    limits = "".join(f", {words} {part[name]}" for name, words in _LIMITS.items() if name in part)
    for name in _types(part):
        word = (
            _FORMATS.get(part.get("format", ""), _WORDS.get(name, name)) if name == "string" else _WORDS.get(name, name)
        )
        items = f" of {kind(part['items'], root)}" if name == "array" and isinstance(part.get("items"), Mapping) else ""
        yield word + items + limits


def _about(part: Any, root: Schema) -> str:
    said = next((str(one["description"]) for one in _parts(part, root) if "description" in one), "")
    default = part.get("default") if isinstance(part, Mapping) else None
    usual = f"default {json.dumps(default, ensure_ascii=False)}" if default not in (None, [], {}) else ""
    return "; ".join(text for text in (said, usual) if text)
