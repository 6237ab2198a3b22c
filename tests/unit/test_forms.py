"""What `ask` asks for becomes a schema; an answer fits it without coercion, or is refused with reasons."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from celery_supervise.asking import Terms, compose
from celery_supervise.errors import InvalidAnswer, InvalidInput, TooLarge
from celery_supervise.forms import build, check_answer, plain
from celery_supervise.model import NewQuestion
from celery_supervise.seen import seen
from celery_supervise.values import IDENTITY, decode
from tests.tools import named

BIG = 1_000_000


class Speed(Enum):
    """A choice in a form."""

    SLOW = "slow"
    FAST = "fast"


class Line(BaseModel):
    """A part of a form."""

    amount: Decimal


class Approval(BaseModel):
    """A form as a shop writes it."""

    approved: bool
    count: Annotated[int, Field(ge=1, le=5)] = 1
    note: str = ""
    limit: int | None = None
    lines: list[Line] = []
    speed: Speed = Speed.SLOW
    kind: Literal["a", "b"] = "a"


class Times(BaseModel):
    """Texts with a format."""

    at: datetime | None = None
    on: date | None = None
    clock: time | None = None
    span: timedelta | None = None
    id: UUID | None = None


class Open(BaseModel):
    """A form that takes more than it names."""

    model_config = ConfigDict(extra="allow")
    approved: bool


class Even(BaseModel):
    """A form whose rule no schema tells."""

    number: int

    @model_validator(mode="after")
    def check(self) -> Even:
        """The rule."""
        if self.number % 2:
            raise ValueError("must be even")
        return self


def complaints(form: Any, answer: Any) -> Any:
    """What is wrong with `answer`; None if nothing is."""
    try:
        form.decode(answer)
    except InvalidAnswer as error:
        return error.errors
    return None


ONE_TO_FIVE = build(schema={"type": "integer", "minimum": 1, "maximum": 5})


@pytest.mark.parametrize("answer", ["7", 7, 3.0, 1e2, True, {"a": 1}, None, [], float("nan"), float("inf")])
def test_s28_an_answer_that_does_not_fit_is_refused(answer: Any) -> None:
    """Nothing is coerced: text is no number, true is not 1, 3.0 is no integer."""
    with pytest.raises(InvalidAnswer) as caught:
        ONE_TO_FIVE.decode(answer)
    assert list(caught.value.errors) == ["$"]


def test_s28_one_that_fits_is_taken() -> None:
    """The next answer is accepted as it is."""
    assert ONE_TO_FIVE.decode(3) == 3


def test_s28_an_answer_that_is_too_large_is_refused_by_its_size() -> None:
    """Before its content is looked at: two megabytes of text."""
    with pytest.raises(TooLarge) as caught:
        check_answer(ONE_TO_FIVE.schema, "x" * 2_000_000)
    assert (caught.value.field, caught.value.size) == ("answer", 2_000_002)


@pytest.mark.parametrize("answer", [False, 0, "", [], {}, None, True, 1, 1.5])
def test_s13_every_plain_value_is_an_answer(answer: Any) -> None:
    """Falsy ones too, and each comes back with its own type."""
    again = build(schema={}).decode(answer)
    assert again == answer
    assert type(again) is type(answer)


def test_reasons_are_told_by_field() -> None:
    """One answer, all that is wrong with it, under the names that a form shows."""
    answer = {
        "aproved": True,
        "count": 9,
        "limit": "x",
        "lines": [{"amount": []}, {}],
        "speed": "warp",
        "kind": "c",
    }
    assert complaints(build(form=Approval), answer) == {
        "approved": ["is required"],
        "aproved": ["is not a field of this form"],
        "count": ["9 is greater than the maximum of 5"],
        "limit": ["must be integer or must be null"],
        "lines[0].amount": ["must be number or must be string"],
        "lines[1].amount": ["is required"],
        "speed": ["must be one of 'slow', 'fast'"],
        "kind": ["must be one of 'a', 'b'"],
    }


def test_a_form_becomes_its_model() -> None:
    """JSON text becomes what the fields say."""
    answer = {"approved": True, "lines": [{"amount": "1.10"}, {"amount": 2}], "speed": "fast"}
    assert build(form=Approval).decode(answer) == Approval(
        approved=True, lines=[Line(amount=Decimal("1.10")), Line(amount=Decimal(2))], speed=Speed.FAST
    )


GOOD = {
    "at": ["2026-03-29T02:30:00Z", "2026-03-29T02:30:00+02:00", "2026-03-29 02:30:00"],
    "on": ["2026-03-29"],
    "clock": ["02:30:00"],
    "span": ["PT1H", "-P1D"],
    "id": ["6f0d6c52-0f2b-4c5c-9f0a-3f6f3c1f7a51"],
}
BAD = {
    "at": ["1700000000", "2026-03-29", "yesterday", "2026-13-29T02:30:00Z"],
    "on": ["1700000000", "29.3.2026", "2026-02-30"],
    "clock": ["9", "25:00:00"],
    "span": ["1", "an hour"],
    "id": ["7", "6f0d6c52"],
}


@pytest.mark.parametrize(("field", "text"), [(field, text) for field in GOOD for text in GOOD[field]])
def test_a_format_that_the_schema_takes_the_model_takes(field: str, text: str) -> None:
    """The service accepts by the schema alone; the body can read what was accepted."""
    check_answer(build(form=Times).schema, {field: text})
    assert build(form=Times).decode({field: text}) is not None


@pytest.mark.parametrize(("field", "text"), [(field, text) for field in BAD for text in BAD[field]])
def test_a_text_of_another_format_is_refused_at_the_answer(field: str, text: str) -> None:
    """Not at resume, when nobody is there to correct it."""
    with pytest.raises(InvalidAnswer) as caught:
        check_answer(build(form=Times).schema, {field: text})
    assert list(caught.value.errors) == [field]


def test_unknown_fields_pass_only_where_the_form_says_so() -> None:
    """A typo is an error; `extra="allow"` is the author's word."""
    assert complaints(build(form=Approval), {"approved": True, "nott": 1}) == {"nott": ["is not a field of this form"]}
    assert build(form=Open).decode({"approved": True, "why": "x"}).model_extra == {"why": "x"}


def test_fields_may_be_known_by_a_pattern() -> None:
    """A schema of the author's own may name its fields so; values that are no text have no format."""
    schema = {"patternProperties": {"^x-": {"format": "date"}}, "additionalProperties": False}
    assert complaints(build(schema=schema), {"x-a": 7, "x-b": "2026-01-01"}) is None
    assert complaints(build(schema=schema), {"x-c": "soon", "y": 1}) == {
        "x-c": ["'soon' is not a 'date'"],
        "y": ["is not a field of this form"],
    }
    assert complaints(build(schema={"required": ["a"]}), 7) is None
    assert complaints(build(schema={"additionalProperties": {"type": "integer"}}), {"a": "1"}) == {
        "a": ["must be integer"]
    }


def test_a_rule_of_the_model_is_told_like_one_of_the_schema() -> None:
    """What only pydantic knows is refused by the body, with path and reason."""

    class Account(BaseModel):
        iban: str

        @field_validator("iban")
        @classmethod
        def check(cls, iban: str) -> str:
            raise ValueError(f"{iban[:2]} is no country")

    assert complaints(build(form=Account), {"iban": "XX1"}) == {"iban": ["Value error, XX is no country"]}
    check_answer(build(form=Even).schema, {"number": 7})
    assert complaints(build(form=Even), {"number": 7}) == {"$": ["Value error, must be even"]}


def test_choices_are_told_apart_by_type() -> None:
    """`True` is not `1`, `"1"` is not `1`; each is an answer where it is a choice."""
    form = build(choices=[1, True, "1"])
    assert [form.decode(choice) for choice in (1, True, "1")] == [1, True, "1"]
    assert [type(form.decode(choice)) for choice in (1, True, "1")] == [int, bool, str]
    for other in (1.0, False, "yes", None, [1]):
        assert complaints(form, other) == {"$": ["must be one of 1, True, '1'"]}


def test_a_constant_is_told_apart_by_type() -> None:
    """The same for `const` in a schema."""
    for other in (True, 1.0, "1"):
        assert complaints(build(schema={"const": 1}), other) == {"$": ["must be one of 1"]}


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ("a\0b", "$"),
        ({"a\0": 1}, "['a\\x00']"),
        ({"a": ["\0"]}, "a[0]"),
        ("\ud800", "$"),
        ({"a": float("nan")}, "a"),
        ({"a": (1,)}, "a"),
        ({1: "a"}, "[1]"),
        (b"a", "$"),
        (Decimal(1), "$"),
    ],
    ids=ascii,
)
def test_s66_s67_what_is_no_plain_json_is_refused(answer: Any, path: str) -> None:
    """NUL, lone surrogates, NaN, Python's own types: with path and reason, whatever the schema says."""
    with pytest.raises(InvalidAnswer) as caught:
        check_answer({}, answer)
    assert path in caught.value.errors


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_deep_answer_is_refused(depth: int) -> None:
    """Not with a RecursionError."""
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    with pytest.raises(InvalidAnswer, match="nested too deeply"):
        check_answer({}, deep)


def test_a_schema_that_never_ends_is_told() -> None:
    """One that calls itself for one and the same value."""
    with pytest.raises(InvalidAnswer, match="nested too deeply"):
        check_answer({"$ref": "#"}, 1)


def test_messages_do_not_quote_long_answers() -> None:
    """A reason is for reading."""
    with pytest.raises(InvalidAnswer) as caught:
        check_answer({"type": "string", "maxLength": 3}, "x" * 100_000)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({}, "ask", "give one of"),
        ({"form": Approval, "choices": ["a"]}, "ask", "give one of"),
        ({"form": int}, "form", "must be a pydantic model class"),
        ({"form": Approval(approved=True)}, "form", "must be a pydantic model class"),
        ({"choices": []}, "choices", "at least one"),
        ({"choices": "yes"}, "choices", "must be a list"),
        ({"choices": {"a"}}, "choices", "must be a list"),
        ({"choices": ["a", "a"]}, "choices", "has 'a' twice"),
        ({"choices": [1.5]}, "choices", "not a float"),
        ({"choices": [Speed.FAST]}, "choices", "must be str, int or bool"),
        ({"choices": ["a\0"]}, "choices", "NUL"),
        ({"choices": ["\ud800"]}, "choices", "surrogates"),
        ({"schema": []}, "schema", "must be a mapping"),
        ({"schema": {"type": "int"}}, "schema", "is no JSON Schema"),
        ({"schema": {"const": float("nan")}}, "schema", "is not JSON"),
        ({"schema": {"const": {1}}}, "schema", "is not JSON"),
        ({"schema": {"title": "a\0"}}, "schema", "NUL"),
        ({"schema": {"$ref": "#/$defs/gone"}}, "schema", "not in this schema"),
    ],
    ids=named,
)
def test_what_cannot_be_asked_for_is_refused_at_the_call(given: Any, field: str, problem: str) -> None:
    """Before anything is written, naming the argument."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        build(**given)
    assert caught.value.field == field


def test_a_form_without_a_schema_is_refused() -> None:
    """Pydantic has no JSON Schema for a function."""

    class Callback(BaseModel):
        call: Callable[[], None]

    with pytest.raises(InvalidInput, match="Callback has no JSON Schema"):
        build(form=Callback)


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to another place is refused at the call; one that a stored schema has is not followed."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    schema = {"$ref": "http://schemas.example/x.json"}
    with pytest.raises(InvalidInput, match="nothing is fetched"):
        build(schema=schema)
    with pytest.raises(Exception, match=r"schemas\.example"):
        check_answer(schema, 1)


def test_a_model_answers_as_a_person_would_have() -> None:
    """Tests and callers may give an instance of the form; it is checked as its JSON."""
    assert plain(Approval(approved=True))["speed"] == "slow"
    assert build(form=Approval).decode(plain(Approval(approved=True))) == Approval(approved=True)
    assert plain("x") == "x"


# --- the question itself ---------------------------------------------------------------------------------


def question(prompt: str = "Pay?", show: Any = None, form: Any = Approval, **terms: Any) -> NewQuestion:
    """A question as `ask` composes it."""
    asked_for = build(form=form)
    return compose("pay", prompt, form=asked_for, show=show, terms=Terms(**terms), codec=IDENTITY, limit=BIG)


class Reworded(BaseModel):
    """`Approval`, with another text for the person."""

    approved: bool = Field(description="tick if the money may leave")


class Count(BaseModel):
    """A form with a part of its own class."""

    count: int
    speed: Speed = Speed.SLOW


class Pace(Enum):
    """`Speed`, renamed and with another docstring."""

    SLOW = "slow"
    FAST = "fast"


class BoundedCount(BaseModel):
    """`Count`, renamed, with a bound that nobody sees and another docstring."""

    model_config = ConfigDict(extra="forbid")
    count: int = Field(le=5)
    speed: Pace = Pace.SLOW


CHANGES: list[dict[str, Any]] = [
    {"prompt": "Pay all?"},
    {"show": {"total": 2}},
    {"form": Reworded},
    {"to": "group:finance"},
    {"approvals": 2},
    {"self_approval": True},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_the_digest_covers_what_is_shown_and_who_decides(change: dict[str, Any]) -> None:
    """What was approved is what runs."""
    base: dict[str, Any] = {"show": {"total": 1}}
    assert question(**{**base, **change}).digest != question(**base).digest


def test_the_digest_leaves_out_what_nobody_sees() -> None:
    """Times, the order of recipients and keys, bounds, and the names and docstrings of classes."""
    base = question(show={"a": 1, "b": {"x", "y"}}, to=["user:1", "user:2"])
    again = question(
        show={"b": {"y", "x"}, "a": 1},
        to=["user:2", "user:1"],
        ttl=timedelta(days=1),
        remind_before=timedelta(hours=1),
        on_change="keep",
    )
    assert base.digest == again.digest
    assert base.id != again.id
    assert question(form=Count).digest == question(form=BoundedCount).digest


def test_the_digest_survives_another_pydantic() -> None:
    """Its versions wrap references and constants differently; the same form stays the same question."""
    classes = {"$defs": {"S": {"enum": ["x", "y"], "title": "S"}}}
    old = {"s": {"allOf": [{"$ref": "#/$defs/S"}], "default": "a"}, "k": {"const": "a"}}
    new = {"s": {"$ref": "#/$defs/S"}, "k": {"enum": ["a"], "type": "string"}}
    facts = seen({**classes, "properties": old})
    assert facts == seen({**classes, "properties": new, "additionalProperties": False})
    assert facts == [
        ("", "field", "k"),
        ("", "field", "s"),
        (".k", "enum", ["a"]),
        (".s", "enum", ["x", "y"]),
    ]


def test_a_form_that_contains_itself_has_a_digest() -> None:
    """A tree of parts ends where it repeats."""

    class Part(BaseModel):
        name: str
        parts: list[Part] = []

    assert question(form=Part).digest == question(form=Part).digest


def test_what_is_shown_is_json_for_reading() -> None:
    """Models, dataclasses, dates, decimals, tuples, sets: a person reads them, nobody decodes them."""
    shown = {"line": Line(amount=Decimal("1.10")), 7: (date(2026, 1, 1), {Speed.FAST}), "id": UUID(int=1)}
    content = decode(question(show=shown).content, what="question")
    assert content == {
        "prompt": "Pay?",
        "show": {
            "line": {"amount": "1.10"},
            "7": ["2026-01-01", ["fast"]],
            "id": "00000000-0000-0000-0000-000000000001",
        },
    }


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": "  "}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": "\ud800"}, "prompt"),
        ({"show": object()}, "show"),
        ({"show": {"a": float("nan")}}, "show"),
        ({"show": "\ud800"}, "show"),
        ({"to": 7}, "to"),
        ({"to": [""]}, "to"),
        ({"to": ["x" * 256]}, "to"),
        ({"approvals": 0}, "approvals"),
        ({"approvals": 1001}, "approvals"),
        ({"approvals": 2, "to": "ann"}, "to"),
        ({"approvals": 2, "to": ["ann", "user:ann"]}, "to"),
        ({"approvals": True}, "approvals"),
        ({"approvals": 1.0}, "approvals"),
        ({"self_approval": 1}, "self_approval"),
        ({"ttl": 60}, "ttl"),
        ({"ttl": timedelta(0)}, "ttl"),
        ({"remind_before": timedelta(-1)}, "remind_before"),
        ({"ttl": timedelta(1), "remind_before": timedelta(1)}, "remind_before"),
        ({"on_change": "ask"}, "on_change"),
        ({"show": "x" * BIG}, "show"),
    ],
    ids=named,
)
def test_a_question_that_cannot_be_put_names_the_argument(given: dict[str, Any], field: str) -> None:
    """At the call, before anything is written."""
    with pytest.raises(InvalidInput) as caught:
        question(**given)
    assert caught.value.field == field


def test_a_cycle_cannot_be_shown() -> None:
    """It is refused, not followed."""
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(InvalidInput, match="show"):
        question(show=cycle)
