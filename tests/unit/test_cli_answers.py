"""Answers typed on a command line become the JSON values that the question's schema asks for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from celery_supervise.cli.answers import answer_of, parse_json
from celery_supervise.errors import InvalidAnswer, InvalidInput
from celery_supervise.forms import build, check_answer


class Address(BaseModel):
    """A nested form."""

    city: str
    zip: int | None = None


class Order(BaseModel):
    """A form with a field of each kind."""

    approved: bool
    account: str = ""
    copies: int = 1
    factor: float = 1.0
    limit: Decimal | None = None
    size: Literal["small", "large"] = "small"
    tags: list[str] = []
    counts: list[int] = []
    address: Address = Field(default_factory=lambda: Address(city=""))
    other: Address | None = None
    extra: dict[str, int] = Field(default_factory=dict)


ORDER = build(form=Order).schema
CHOICES = build(choices=["skip", "stop", 3, True]).schema


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (["approved=true"], {"approved": True}),
        (["approved=no"], {"approved": False}),
        (["account=7"], {"account": "7"}),
        (["account=true"], {"account": "true"}),
        (["account="], {"account": ""}),
        (["account=a=b"], {"account": "a=b"}),
        (["copies=7"], {"copies": 7}),
        (["factor=7"], {"factor": 7}),
        (["factor=7.5"], {"factor": 7.5}),
        (["limit=12.50"], {"limit": "12.50"}),
        (["size=large"], {"size": "large"}),
        (["tags=a", "tags=7"], {"tags": ["a", "7"]}),
        (["tags=a"], {"tags": ["a"]}),
        (['tags=["a", "b"]'], {"tags": ["a", "b"]}),
        (["counts=1", "counts=2"], {"counts": [1, 2]}),
        (["address.city=Rome", "address.zip=7"], {"address": {"city": "Rome", "zip": 7}}),
        (["other=null"], {"other": None}),
        (["other.city=Rome"], {"other": {"city": "Rome"}}),
        (['extra={"a": 1}'], {"extra": {"a": 1}}),
    ],
)
def test_the_schema_says_what_a_word_is(words: list[str], value: object) -> None:
    """A word is a text where a text is asked for, else what the field's type makes of it."""
    assert answer_of(words, ORDER) == value


@pytest.mark.parametrize(
    ("schema", "word", "value"),
    [
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "integer"}, "7", 7),
        ({"type": "string"}, "7", "7"),
        ({"type": "string"}, "a=b", "a=b"),
        ({"type": "null"}, "null", None),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", [1]),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": "object"}, "note=7", {"note": "7"}),
        (CHOICES, "skip", "skip"),
        (CHOICES, "3", 3),
        (CHOICES, "true", True),
        ({}, "7", "7"),
        ({}, "note=7", {"note": "7"}),
    ],
)
def test_a_single_value(schema: Mapping[str, Any], word: str, value: object) -> None:
    """A question that asks for one value takes one word."""
    answer = answer_of([word], schema)
    assert (answer, type(answer)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "path", "problem"),
    [
        (["approved=maybe"], "approved", "must be boolean"),
        (["approved=true", "copies=7.5"], "copies", "must be integer"),
        (["approved=true", "copies=many"], "copies", "must be integer"),
        (["approved=true", "size=huge"], "size", "must be one of 'small', 'large'"),
        (["approved=true", "counts=1", "counts=x"], "counts[1]", "must be integer"),
        (["approved=true", "address.zip=7"], "address.city", "is required"),
        (["approved=true", "colour=red"], "colour", "is not a field of this form"),
        (["account=7"], "approved", "is required"),
    ],
)
def test_what_does_not_fit_is_left_to_the_service(words: list[str], path: str, problem: str) -> None:
    """A word that fits nothing stays what it is, and the service names the field and what is wrong with it."""
    with pytest.raises(InvalidAnswer) as refused:
        check_answer(ORDER, answer_of(words, ORDER))
    assert problem in refused.value.errors[path]


@pytest.mark.parametrize(
    ("words", "schema", "problem"),
    [
        ([], ORDER, "nothing was given"),
        (["true"], ORDER, "'true' does not say which field it is for"),
        (["=true"], ORDER, "does not say which field"),
        (["approved=true", "approved=false"], ORDER, "'approved' is given twice"),
        (["address.city=Rome", "address={}"], ORDER, "'address' is given as a whole and in parts"),
        (["skip", "stop"], CHOICES, "one value is asked for"),
    ],
)
def test_words_that_say_no_answer(words: list[str], schema: Mapping[str, Any], problem: str) -> None:
    """Where the words do not say what goes where, nothing is guessed."""
    with pytest.raises(InvalidInput, match=problem):
        answer_of(words, schema)


def test_a_field_may_have_a_dot_in_its_name() -> None:
    """A dot leads into a field only where there is no field of the whole name."""
    schema = {"type": "object", "properties": {"a.b": {"type": "integer"}, "a": {"type": "object"}}}
    assert answer_of(["a.b=7", "a.c=7"], schema) == {"a.b": 7, "a": {"c": "7"}}


def test_a_form_that_refers_to_itself() -> None:
    """A schema without an end is followed as far as the words go."""
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    assert answer_of(["next.next.name=x"], schema) == {"next": {"next": {"name": "x"}}}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_is_taken_as_it_is(value: object) -> None:
    """`--json` gives exactly the value that was typed."""
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [("{", "is no JSON"), ("NaN", "NaN is no JSON number"), ("[-Infinity]", "is no JSON number"), ("", "is no JSON")],
)
def test_what_is_no_json(text: str, problem: str) -> None:
    """What is no JSON is refused with the reason."""
    with pytest.raises(InvalidInput, match=problem):
        parse_json(text)


def test_s90_a_field_given_twice() -> None:
    """A name that is twice in one object is refused: it does not say which value is meant."""
    with pytest.raises(InvalidInput, match="has 'a' twice"):
        parse_json('{"b": {"a": 1, "a": 2}}')
