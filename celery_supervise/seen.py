"""What a person sees of a form, out of its JSON Schema: the form's part of the digest of a question. Pure.

Bounds, patterns and formats are left out, and so are the names and docstrings of the classes behind a form:
nobody sees them, they change with every release of pydantic or of the shop, and an answer that today's form
refuses is asked for again anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .forms import finder
from .values import canonical

_TEXTS: Final = ("title", "description")
_NESTED: Final = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties")

Fact = tuple[str, str, Any]


def seen(schema: Mapping[str, Any]) -> list[Fact]:
    """The fields, their names and texts, the choices: path, what it is, value; sorted.

    >>> seen({"properties": {"n": {"anyOf": [{"type": "integer", "maximum": 5}, {"enum": ["none"]}]}}})
    [('', 'field', 'n'), ('.n', 'enum', ['none'])]
    """
    facts = {canonical(fact): fact for fact in _Facts(finder(schema)).of(schema, "")}
    return [facts[key] for key in sorted(facts)]


@dataclass(frozen=True)
class _Facts:
    find: Callable[[str], Any]
    inside: tuple[str, ...] = ()

    def of(self, schema: Any, path: str, *, of_class: bool = False) -> Iterator[Fact]:
        if not isinstance(schema, Mapping):
            return
        if not of_class and "properties" not in schema:
            yield from ((path, name, schema[name]) for name in _TEXTS if name in schema)
        yield from _choices(schema, path)
        for field, inner in schema.get("properties", {}).items():
            yield path, "field", field
            yield from self.of(inner, f"{path}.{field}")
        # Alternatives and wrappers count as the place they stand in: pydantic's versions nest differently.
        for inner in _nested(schema):
            yield from self.of(inner, path)
        if "$ref" in schema:
            yield from self._behind(schema["$ref"], path)

    def _behind(self, reference: str, path: str) -> Iterator[Fact]:
        if reference in self.inside:
            yield path, "again", self.inside.index(reference)
            return
        inner = _Facts(self.find, (*self.inside, reference))
        yield from inner.of(self.find(reference), path, of_class=True)


def _choices(schema: Mapping[str, Any], path: str) -> Iterator[Fact]:
    if "const" in schema:
        yield path, "enum", [schema["const"]]
    elif "enum" in schema:
        yield path, "enum", schema["enum"]


def _nested(schema: Mapping[str, Any]) -> Iterator[Any]:
    for name in _NESTED:
        part = schema.get(name)
        yield from part if isinstance(part, list) else [part]
