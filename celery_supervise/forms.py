"""What `ask` asks for, as a JSON Schema, and answers checked against it. No coercion, no I/O.

The service checks an answer by the stored schema alone, without the task's code; the body then makes of it
what its own code wants: a model, one of the choices, the plain value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError
from pydantic import BaseModel, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from .compare import at, difference, name_of
from .encodings import reason
from .errors import InvalidAnswer, InvalidInput, NotSerialisable
from .strict_schema import complaints
from .values import MAX_VALUE_BYTES, encode_plain
from .wording import REFUSALS, cut, shown

_CHOICE_TYPES: Final = (str, int, bool)
_Keys = tuple[str | int, ...]
_REFERENCES: Final = ("$ref", "$dynamicRef")


@dataclass(frozen=True)
class Form:
    """What is asked for: the JSON Schema of an answer, and the model that the body gets it as, if any."""

    schema: Mapping[str, Any]
    model: type[BaseModel] | None = None

    def decode(self, answer: Any) -> Any:
        """What the body gets for `answer`, a plain JSON value. Raises `InvalidAnswer`."""
        check_answer(self.schema, answer, limit=sys.maxsize)  # it was bounded where it was accepted
        if self.model is None:
            return answer
        try:
            return self.model.model_validate_json(json.dumps(answer))
        except ValidationError as error:
            told = error.errors(include_url=False, include_context=False, include_input=False)
            raise InvalidAnswer(_by_field((one["loc"], one["msg"]) for one in told)) from error


def build(
    *,
    form: type[BaseModel] | None = None,
    choices: Sequence[Any] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Form:
    """The form of exactly one of a pydantic model, a list of choices, a JSON Schema (draft 2020-12).

    Fields that a model does not know are refused, unless it allows extra ones. Raises `InvalidInput`.

    >>> build(choices=["skip", "stop"]).schema
    {'enum': ['skip', 'stop']}
    """
    if [form, choices, schema].count(None) != 2:  # noqa: PLR2004  # one of the three is given
        raise InvalidInput("ask", "give one of form=, choices= and schema=")
    if form is not None:
        return Form(_of_model(form), form)
    return Form(_of_choices(choices) if choices is not None else _checked("schema", schema))


def check_answer(schema: Mapping[str, Any], answer: Any, *, limit: int = MAX_VALUE_BYTES) -> None:
    """Refuse an answer that does not fit `schema`, is no plain JSON, or is longer than `limit` bytes.

    Strict: `"7"` is not 7, `true` is not 1, 3.0 is no integer. Raises `InvalidAnswer`, whose `errors` map a
    path (`lines[0].amount`; `$` for the whole) to what is wrong there, and `TooLarge`.

    >>> check_answer({"type": "object", "required": ["approved"]}, {})
    Traceback (most recent call last):
    celery_supervise.errors.InvalidAnswer: the answer was not accepted: approved: is required
    """
    try:
        encode_plain(answer, limit=limit, what="answer")
    except NotSerialisable as error:
        raise InvalidAnswer({error.path.removeprefix("$").removeprefix(".") or "$": [error.problem]}) from error
    found = [*_nul(answer, ()), *complaints(schema, answer)]
    if found:
        raise InvalidAnswer(_by_field(found))


def plain(answer: Any) -> Any:
    """An answer as JSON: a pydantic model as what a person would have sent for it, all else as it is."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json", by_alias=True, round_trip=True)
    return answer


def _of_model(form: Any) -> dict[str, Any]:
    if not (isinstance(form, type) and issubclass(form, BaseModel)):
        raise InvalidInput("form", f"must be a pydantic model class, not {name_of(form)}")
    try:
        schema = form.model_json_schema()
    except REFUSALS as error:
        raise InvalidInput("form", f"{form.__qualname__} has no JSON Schema ({reason(error)})") from error
    return _checked("form", _closed(schema))


def _closed(schema: Any) -> Any:
    """`schema` in which an object refuses unknown fields, unless it says otherwise: typos are errors."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed


def _of_choices(choices: Any) -> dict[str, Any]:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not choices:
        raise InvalidInput("choices", "must be a list with at least one choice")
    for number, choice in enumerate(choices):
        if type(choice) not in _CHOICE_TYPES:
            raise InvalidInput("choices", f"must be str, int or bool, not {name_of(choice)}")
        if any(difference(choice, other) is None for other in choices[:number]):
            raise InvalidInput("choices", f"has {shown(choice)} twice")
    return _checked("choices", {"enum": list(choices)})


def _checked(field: str, schema: Any) -> dict[str, Any]:
    """`schema` as plain JSON that Postgres takes as jsonb, and that can be used without fetching anything."""
    if not isinstance(schema, Mapping):
        raise InvalidInput(field, f"must be a mapping, not {name_of(schema)}")
    try:
        copy: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
        Draft202012Validator.check_schema(copy)
        json.dumps(copy, ensure_ascii=False).encode()
    except SchemaError as error:
        raise InvalidInput(field, f"is no JSON Schema: {error.message} (at {error.json_path})") from error
    except REFUSALS as error:
        raise InvalidInput(field, f"is not JSON ({reason(error)})") from error
    for problem in (*(problem for _, problem in _nul(copy, ())), *_unresolved(copy)):
        raise InvalidInput(field, problem)
    return copy


def finder(schema: Mapping[str, Any]) -> Callable[[str], Any]:
    """What a `$ref` in `schema` stands for, by its text; raises `Unresolvable`. Fetches nothing."""
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    return lambda reference: resolver.lookup(reference).contents


def _unresolved(schema: dict[str, Any]) -> Iterator[str]:
    for reference in _references(schema):
        try:
            finder(schema)(reference)
        except Unresolvable:
            yield f"{shown(reference)} is not in this schema, and nothing is fetched"


def _references(schema: Any) -> Iterator[str]:
    for name, part in _parts(schema):
        if name in _REFERENCES and isinstance(part, str):
            yield part
        elif isinstance(part, (dict, list)):
            yield from _references(part)


def _nul(value: Any, keys: _Keys) -> Iterator[tuple[_Keys, str]]:
    if isinstance(value, str) and "\0" in value:
        yield keys, "must not contain NUL"
    for key, part in _parts(value):
        yield from _nul(key, (*keys, key))
        yield from _nul(part, (*keys, key))


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _by_field(problems: Iterable[tuple[_Keys, str]]) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for keys, problem in problems:
        errors.setdefault(_field(keys), []).append(problem)
    return errors


def _field(keys: _Keys) -> str:
    """How a form names a part of its answer: `lines[0].amount`; a field by its very name; `$` for the whole."""
    if not keys:
        return "$"
    first = keys[0]
    path = cut(first) if isinstance(first, str) and first.isprintable() else at("", first)
    for key in keys[1:]:
        path = at(path, key)
    return path
