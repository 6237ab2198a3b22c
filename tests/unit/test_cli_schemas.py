"""A form is told in words that a person can answer by."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from celery_supervise.cli.schemas import Field as Told
from celery_supervise.cli.schemas import fields, kind, types
from celery_supervise.forms import build


class Amount(BaseModel):
    """A nested form."""

    value: int
    currency: Literal["EUR", "USD"] = "EUR"


class Approval(BaseModel):
    """A form."""

    note: str | None = Field(None, description="For the books.")
    approved: bool
    amount: Amount | None = None
    copies: int = Field(1, ge=1, le=9)
    tags: list[str] = []


def test_a_form_in_words() -> None:
    """Each field has a name, a kind, whether it must be given, and what its author says of it."""
    assert fields(build(form=Approval).schema) == [
        Told("approved", "true or false", required=True, about=""),
        Told("note", "text or null", required=False, about="For the books."),
        Told("amount", "fields or null", required=False, about="A nested form."),
        Told("copies", "whole number, at least 1, at most 9", required=False, about="default 1"),
        Told("tags", "list of text", required=False, about=""),
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (build(choices=["skip", "stop"]).schema, "skip or stop"),
        (build(choices=[True, 3]).schema, "true or 3"),
        ({"const": "yes"}, "yes"),
        ({"enum": [None, 1.5]}, "null or 1.5"),
        ({"type": "array"}, "list"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": ["number", "null"]}, "number or null"),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "whole number or true or false"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "list of a or b"),
        ({}, "any JSON value"),
    ],
)
def test_a_single_value_in_words(schema: dict[str, Any], words: str) -> None:
    """A question without fields is told by what its one value may be."""
    assert fields(schema) == []
    assert kind(schema, schema) == words


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    """A definition that is its own alternative is followed only so far."""
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}}}
    assert types(schema, schema) == {"null"}


def test_choices_have_types() -> None:
    """Values that are listed say which types an answer may have."""
    listed = {"enum": [None, True, 1, 1.5, "a", [1], {"a": 1}]}
    assert types(listed, listed) == {"null", "boolean", "integer", "number", "string", "array", "object"}


def test_a_reference_to_nowhere_says_nothing() -> None:
    """A schema that was made elsewhere may refer to what is not there; it then is any value."""
    assert kind({"$ref": "#/$defs/Gone"}, {}) == "any JSON value"
