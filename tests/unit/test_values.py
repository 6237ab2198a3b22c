"""Values come back as they went in, in value and type, or are refused at the line that made them."""

from __future__ import annotations

import enum
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from celery_supervise.compare import difference
from celery_supervise.errors import InvalidInput, NotSerialisable, TooLarge, Unreadable
from celery_supervise.hints import MISSING
from celery_supervise.model import Stored
from celery_supervise.values import (
    canonical,
    check_name,
    check_text,
    decode,
    digest,
    encode,
    encode_plain,
    keep,
)
from tests.tools import named

BIG = 1_000_000
UTC = timezone.utc
NAIVE = datetime(2026, 3, 29, 2, 30, 0, 123456)  # noqa: DTZ001  # what a shop has is naive, too


class Colour(enum.Enum):
    """An enum that JSON does not know."""

    RED = "red"


class Size(str, enum.Enum):
    """One that JSON takes for a text."""

    BIG = "big"


class Level(enum.IntEnum):
    """One that JSON takes for a number."""

    HIGH = 3


class Point(NamedTuple):
    """A named tuple."""

    x: int
    y: int


@dataclass
class Row:
    """A dataclass."""

    id: int
    amount: Decimal = Decimal("1.10")
    tags: frozenset[str] = frozenset()
    colour: Colour = Colour.RED


@dataclass
class Batch:
    """A dataclass in a dataclass, with a field that is not compared."""

    rows: list[Row]
    note: str = field(default="", compare=False)


class Vendor(BaseModel):
    """A pydantic model."""

    model_config = ConfigDict(extra="allow")
    name: str
    since: datetime | None = None
    shown_as: str = Field(default="", alias="shownAs")


class Secretive(BaseModel):
    """A model with state that is not stored."""

    name: str
    _cache: int = PrivateAttr(default=0)


class Text(str):
    """What Django's SafeString is: a text of another type."""

    __slots__ = ()


def back(value: Any, type_: Any = MISSING) -> Any:
    """`value`, stored and read back in another place of the code."""
    return decode(encode(value, limit=BIG, type_=type_), type_=type_, what="it")


AS_TYPED_JSON = [
    None,
    True,
    0,
    -1,
    2**70,
    0.1,
    -0.0,
    1e308,
    "",
    "a\0b",
    "é€𝄞",
    "\u2028",
    [],
    {},
    [1, [2, {"a": None}]],
    {"b": 1, "a": 2},
    {"__type__": "x"},
    {"__type__": "x", "__value__": 1, "more": 2},
    Decimal("1.10"),
    Decimal("1E+3"),
    Decimal("NaN"),
    UUID(int=7),
    b"",
    b"text",
    b"\xff\x00",
    date(2026, 3, 29),
    time(1, 2, 3, 4),
    time(1, 2, tzinfo=UTC),
    NAIVE,
    datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
    datetime(2026, 3, 29, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    datetime(2026, 3, 29, 2, 30, tzinfo=ZoneInfo("UTC")),
]


@pytest.mark.parametrize("value", AS_TYPED_JSON, ids=repr)
def test_plain_values_come_back_without_an_annotation(value: Any) -> None:
    """What typed JSON carries comes back equal, in value and type, also inside lists and dicts."""
    again = back({"in": [value]})["in"][0]
    assert difference(value, again) is None
    assert type(again) is type(value)


UNDER_AN_ANNOTATION = [
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (dict[int, str], {1: "a", 2: "b"}),
    (dict[date, Decimal], {date(2026, 1, 1): Decimal("1.10")}),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset("a")),
    (deque[int], deque([1, 2])),
    (OrderedDict[str, int], OrderedDict(a=1)),
    (Counter[str], Counter("aab")),
    (Point, Point(1, 2)),
    (Colour, Colour.RED),
    (Size, Size.BIG),
    (Level, Level.HIGH),
    (timedelta, timedelta(days=-1, microseconds=7)),
    (Path, Path("a/b")),
    (IPv4Address, IPv4Address("192.0.2.1")),
    (Row, Row(1, tags=frozenset({"x"}))),
    (list[Row], [Row(1), Row(2)]),
    (dict[str, list[Row] | None], {"a": [Row(1)], "b": None}),
    (Batch, Batch([Row(1)], note="kept")),
    (Vendor, Vendor.model_validate({"name": "Acme", "since": NAIVE, "shownAs": "ACME", "more": 1})),
    (Vendor | None, None),
    (int | str, "7"),
    (Annotated[tuple[int, ...], []], (1,)),  # unhashable metadata
    (type(None), None),
]


@pytest.mark.parametrize(("type_", "value"), UNDER_AN_ANNOTATION, ids=named)
def test_an_annotation_brings_back_what_json_cannot(type_: Any, value: Any) -> None:
    """Dataclasses, models, enums, sets, tuples come back equal in value and type under their annotation."""
    again = back(value, type_)
    assert again == value
    assert type(again) is type(value)


REFUSED = [
    ((1, 2), "$", "a tuple comes back as a list"),
    ({"rows": [{"pair": (1, 2)}]}, "$.rows[0].pair", "a tuple comes back as a list"),
    ({"a": {1: "x"}}, "$.a[1]", "its key: an int comes back as a str"),
    ({"a": {None: "x"}}, "$.a[NoneType]", "its key: None comes back as a str"),
    ({"a": {True: "x"}}, "$.a[True]", "its key: a bool comes back as a str"),
    ({1: "a", "1": "b"}, "$[1]", "its key"),
    ({(1, 2): "x"}, "$", "has no JSON form"),
    ([0.5, math.nan], "$[1]", "NaN and Infinity are not JSON"),
    ({"x": -math.inf}, "$.x", "NaN and Infinity are not JSON"),
    ({"first name": "\ud800"}, "$['first name']", "lone surrogate"),
    ({"\ud800": 1}, "$", "has no JSON form"),
    ([{"__type__": "bytes", "__value__": "a"}], "$[0]", "a dict comes back as a bytes"),
    ([{"__type__": "nosuch", "__value__": 1}], "$[0]", "read as a type tag"),
    ([{"__type__": "decimal", "__value__": "x"}], "$[0]", "read as a type tag"),
    ([{"__type__": [], "__value__": 1}], "$[0]", "read as a type tag"),
    ({"s": {1, 2}}, "$.s", "a set has no JSON form"),
    ([timedelta(1)], "$[0]", "a datetime.timedelta has no JSON form"),
    ([object()], "$[0]", "an object has no JSON form"),
    ([Colour.RED], "$[0]", "has no JSON form"),
    ([Size.BIG], "$[0]", "comes back as a str"),
    ([Level.HIGH], "$[0]", "comes back as an int"),
    ([Text("x")], "$[0]", "comes back as a str"),
    ([Point(1, 2)], "$[0]", "comes back as a list"),
    ([Row(1)], "$[0]", "has no JSON form"),
    (OrderedDict(a=1), "$", "a collections.OrderedDict comes back as a dict"),
    (MappingProxyType({}), "$", "a mappingproxy has no JSON form"),
    (bytearray(b"a"), "$", "a bytearray has no JSON form"),
    ([NAIVE.replace(fold=1)], "$[0]", "fold"),
    ([datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))], "$[0]", "convert it to UTC first"),
    ([time(2, fold=1)], "$[0]", "fold"),
]


@pytest.mark.parametrize(("value", "path", "problem"), REFUSED, ids=named)
def test_what_does_not_come_back_is_refused_with_its_path(value: Any, path: str, problem: str) -> None:
    """The error names the innermost part that is lost, and says to annotate the return type."""
    with pytest.raises(NotSerialisable) as caught:
        encode(value, limit=BIG)
    assert caught.value.path == path
    assert problem in caught.value.problem
    assert "annotate the return type" in str(caught.value)


def test_an_int_that_json_cannot_read_back_is_refused() -> None:
    """Python limits the digits of a text that becomes an int; the refusal does not trip on that."""
    with pytest.raises(NotSerialisable, match=r"\$\.n: an int with that many digits"):
        encode({"n": 10**5000}, limit=BIG)


def test_a_cycle_and_a_deep_nest_are_refused() -> None:
    """Neither ends in a RecursionError."""
    cycle: dict[str, Any] = {"a": []}
    cycle["a"].append(cycle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NotSerialisable, match=r"\$\.a\[0\]: it contains itself"):
        encode(cycle, limit=BIG)
    with pytest.raises(NotSerialisable, match="nested too deeply"):
        encode(deep, limit=BIG)


def test_values_do_not_appear_in_messages() -> None:
    """A message tells type and path: values may be secret, and messages are logged."""
    with pytest.raises(NotSerialisable) as caught:
        encode({"iban": [{"s3cret"}]}, limit=BIG)
    assert "s3cret" not in str(caught.value)


UNHELPFUL = [
    (int, True, None),  # typed JSON brings it back all the same
    (list[Any], [Decimal("1.10")], None),
    (dict[str, Any], {"a": datetime(2026, 1, 1, tzinfo=UTC)}, None),
    (float, 3, None),
    (bytes, b"\xff", None),
    (Any, (1, 2), "$: a tuple comes back as a list; under its annotation: a tuple comes back as a list"),
    (list[Row], [Point(1, 2)], r"$[0]"),
    (Row, Row(1, amount=1), "$.amount: an int comes back as a decimal.Decimal"),  # type: ignore[arg-type]
    (Batch, Batch([Row(1, tags={"a"})]), "$.rows[0].tags"),  # type: ignore[arg-type]
    (
        float,
        math.nan,
        "$: NaN and Infinity are not JSON; under its annotation: Input should be a valid number",
    ),
    (range, range(3), "pydantic cannot use its annotation (PydanticSchemaGenerationError)"),
    (Iterator[int], iter([1]), "has no JSON form"),
    (list[str], ["ok", "\ud800"], "$[1]: text with a lone surrogate"),
    (datetime, NAIVE.replace(fold=1), "fold"),
    (datetime, datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), "convert it to UTC first"),
]


@pytest.mark.parametrize(("type_", "value", "problem"), UNHELPFUL, ids=named)
def test_under_an_annotation_the_value_is_compared_too(type_: Any, value: Any, problem: str | None) -> None:
    """An annotation that does not bring the value back is not believed; typed JSON may still carry it."""
    if problem is None:
        assert difference(value, back(value, type_)) is None
        return
    with pytest.raises(NotSerialisable) as caught:
        encode(value, limit=BIG, type_=type_)
    assert problem in str(caught.value)


def test_state_that_is_not_stored_is_missed() -> None:
    """A model whose private state is lost does not pass for the same; a cached property is no state."""
    model = Secretive(name="a")
    assert back(model, Secretive) == model
    model._cache = 7
    with pytest.raises(NotSerialisable, match=r"\$\._cache"):
        encode(model, limit=BIG, type_=Secretive)


JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=st.just(UTC)).map(lambda when: when.replace(fold=0)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_any_value_comes_back_or_is_refused(value: Any) -> None:
    """There is no third outcome: a value that is accepted comes back the same."""
    try:
        stored = encode(value, limit=BIG)
    except NotSerialisable:
        assert _has_tag(value)
        return
    assert difference(value, decode(stored, what="it")) is None


def _has_tag(value: Any) -> bool:
    if isinstance(value, dict):
        return value.keys() == {"__type__", "__value__"} or any(map(_has_tag, value.values()))
    return isinstance(value, list) and any(map(_has_tag, value))


DIFFERENT = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (Decimal("1.1"), Decimal("1.10")),
    ([1], [1, 2]),
    ([1], (1,)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({1}, {True}),
    ({1, 2}, {1}),
    ((1, [2]), (1, [2.0])),
    (Row(1), Row(2)),
    (Batch([], note="a"), Batch([], note="b")),  # not compared by ==
    (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    (NAIVE, NAIVE.replace(tzinfo=UTC)),
    (object(), object()),
]


@pytest.mark.parametrize(("before", "after"), DIFFERENT, ids=named)
def test_what_python_calls_equal_may_differ(before: Any, after: Any) -> None:
    """The comparison is of value and type, all the way down."""
    assert difference(before, after) is not None
    assert difference(after, before) is not None


def test_a_comparison_that_raises_is_a_difference() -> None:
    """An array of numpy's refuses to be true or false."""

    class Array:
        def __eq__(self, other: object) -> Any:
            raise ValueError("the truth value of an array is ambiguous")

        __hash__ = None  # type: ignore[assignment]

    assert difference(Array(), Array()) is not None


# --- reading back ----------------------------------------------------------------------------------------


@dataclass
class OldRow:
    """A dataclass as it was when it was stored."""

    id: int
    name: str


@dataclass
class NewRow:
    """The same after a change that the stored bytes do not satisfy."""

    id: int
    name: str
    iban: str


def test_s23_a_value_whose_class_changed_is_unreadable() -> None:
    """It is never silently something else: not None, not a dict, not a coerced number."""
    stored = encode(OldRow(1, "a"), limit=BIG, type_=OldRow)
    with pytest.raises(Unreadable, match=r"step 'load' cannot be read back: .*iban.*Field required"):
        decode(stored, type_=NewRow, what="step 'load'")
    with pytest.raises(Unreadable, match="there is none now"):
        decode(stored, what="step 'load'")
    with pytest.raises(Unreadable):
        decode(encode((1, "7"), limit=BIG, type_=tuple[int, str]), type_=tuple[int, int], what="step 'load'")
    assert decode(stored, type_=OldRow, what="step 'load'") == OldRow(1, "a")


@pytest.mark.parametrize("type_", [dict, list, Any, dict[str, Any], object], ids=str)
def test_s23_a_looser_annotation_does_not_bring_back_a_hollow_value(type_: Any) -> None:
    """Where a row was stored, a dict of its fields is not what was stored."""
    stored = encode([OldRow(1, "a")], limit=BIG, type_=list[OldRow])
    with pytest.raises(Unreadable):
        decode(stored, type_=type_, what="step 'load'")
    with pytest.raises(Unreadable):
        decode(stored, type_=list[type_], what="step 'load'")


def test_s23_a_renamed_class_reads_what_it_would_have_written() -> None:
    """The bytes name no class: moving or renaming one strands nothing."""
    renamed = type("Renamed", (OldRow,), {"__annotations__": OldRow.__annotations__})
    again = decode(encode(OldRow(1, "a"), limit=BIG, type_=OldRow), type_=dataclass(renamed), what="it")
    assert (type(again).__name__, again.id, again.name) == ("Renamed", 1, "a")


def test_plain_values_stay_readable_when_the_annotation_changes() -> None:
    """What typed JSON carries does not depend on the code that made it."""
    stored = encode({"total": Decimal("1.10")}, limit=BIG, type_=dict[str, Decimal])
    assert decode(stored, what="it") == {"total": Decimal("1.10")}
    assert decode(stored, type_=int, what="it") == {"total": Decimal("1.10")}


@pytest.mark.parametrize(
    "stored",
    [
        Stored(b"{", "json+kombu"),
        Stored(b'{"__type__":"gone","__value__":1}', "json+kombu"),
        Stored(b"\xff", "json"),
        Stored(b"1", "msgpack"),
    ],
    ids=str,
)
def test_s23_bytes_that_cannot_be_read_are_unreadable(stored: Stored) -> None:
    """Damaged bytes, a type tag that nobody knows, an unknown encoding: the library's error, never None."""
    with pytest.raises(Unreadable) as caught:
        decode(stored, what="step 'load'")
    assert caught.value.what == "step 'load'"


class Vault:
    """A codec with keys, as a shop would write one."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        """Encrypt, so to say, with the newest key."""
        return data[::-1], self.keys[-1]

    def decode(self, data: bytes, key_id: str | None) -> bytes:
        """Decrypt with the key that was used."""
        if key_id not in self.keys:
            raise LookupError(f"no key {key_id}")
        return data[::-1]


def test_the_codec_sees_every_byte_and_its_key_is_kept() -> None:
    """Bytes go through the codec; a newer key reads what an older one wrote, a lost key is told."""
    stored = encode({"a": 1}, limit=BIG, codec=Vault("k1"))
    assert stored.key_id == "k1"
    assert stored.data == b'}1:"a"{'
    assert decode(stored, codec=Vault("k1", "k2"), what="it") == {"a": 1}
    with pytest.raises(Unreadable, match="no key k1"):
        decode(stored, codec=Vault("k2"), what="step 'a'")


def test_what_else_the_codec_raises_passes() -> None:
    """A key server that is away is no reason to fail the job: the task's own retries see the error."""

    class Away(Vault):
        def decode(self, data: bytes, key_id: str | None) -> bytes:
            raise ConnectionError(f"key server: {len(data)} bytes of {key_id}")

    with pytest.raises(ConnectionError):
        decode(encode(1, limit=BIG, codec=Away("k")), codec=Away("k"), what="it")


# --- sizes -----------------------------------------------------------------------------------------------


def test_s68_the_limit_counts_bytes_of_the_encoding() -> None:
    """Text of four-byte characters counts four bytes each; up to the limit all is kept."""
    text = "𝄞" * 100
    assert back(text) == text
    assert encode(text, limit=402).data == f'"{text}"'.encode()
    with pytest.raises(TooLarge) as caught:
        keep(text, limit=401, what="step 'sing'")
    assert (caught.value.field, caught.value.size, caught.value.limit) == ("step 'sing'", 402, 401)


@pytest.mark.parametrize("make", [lambda size: "x" * size, lambda size: ("x" * size,)], ids=["typed", "model"])
def test_s68_the_limit_holds_for_every_encoding(make: Callable[[int], Any]) -> None:
    """A value that needs its annotation is measured in that encoding."""
    type_ = type(make(0)) if isinstance(make(0), str) else tuple[str]
    frame = len(encode(make(0), limit=BIG, type_=type_).data)
    assert len(encode(make(8_000), limit=8_000 + frame, type_=type_).data) == 8_000 + frame
    with pytest.raises(TooLarge):
        encode(make(8_001), limit=8_000 + frame, type_=type_)


# --- plain JSON, digests, names --------------------------------------------------------------------------


def test_plain_json_has_no_type_tags() -> None:
    """What a person sends cannot name a type: a dict that looks like a tag stays a dict."""
    tag = {"__type__": "bytes", "__value__": "a"}
    assert decode(encode_plain(tag, limit=BIG), what="it") == tag


@pytest.mark.parametrize("value", [Decimal(1), b"a", (1,), {1: 2}, math.inf, "\ud800"], ids=ascii)
def test_plain_json_refuses_what_is_not_json(value: Any) -> None:
    """Nothing is converted on the way."""
    with pytest.raises(NotSerialisable):
        encode_plain(value, limit=BIG)


def test_a_digest_depends_on_the_value_alone() -> None:
    """Order of keys does not count, types do."""
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(1) != digest("1") != digest(Decimal(1))
    assert digest("a", "b") != digest("ab")
    assert len(digest(None)) == 64
    assert canonical({"b": [1.5, None], "a": "é"}) == '{"a":"é","b":[1.5,null]}'.encode()
    with pytest.raises(NotSerialisable, match=r"\$\.a\[0\]: a set has no JSON form"):
        canonical({"a": [{1}]})


@pytest.mark.parametrize("name", ["a", "x" * 255, "é" * 127, " a ", "a/b:c", "\n", "1"])
def test_s69_names_up_to_255_bytes_are_taken(name: str) -> None:
    """Any text that is not blank, has no NUL and fits an index."""
    if name.strip():
        assert check_name("step name", name) == name
    else:
        with pytest.raises(InvalidInput, match="must not be blank"):
            check_name("step name", name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "must not be blank"),
        ("  \t", "must not be blank"),
        ("a\0", "must not contain NUL"),
        ("\ud800", "must not contain a lone surrogate"),
        (7, "must be a str, not an int"),
        (None, "must be a str, not None"),
        (b"a", "must be a str, not a bytes"),
        ("x" * 256, "256 bytes, the limit is 255"),
        ("é" * 128, "256 bytes, the limit is 255"),
        ("x" * 10_000, "10000 bytes, the limit is 255"),
    ],
    ids=lambda part: ascii(part)[:20],
)
def test_s69_other_names_are_refused(name: object, problem: str) -> None:
    """The error names the field, before anything is written."""
    with pytest.raises(InvalidInput, match=problem) as caught:
        check_name("step name", name)
    assert caught.value.field == "step name"


def test_s69_two_spellings_are_two_names() -> None:
    """NFC and NFD of one text are told apart everywhere, as Postgres does."""
    assert check_name("key", "\u00e9") != check_name("key", "e\u0301")


def test_a_name_that_is_an_enum_is_its_text() -> None:
    """What is stored and compared later is a plain str."""
    assert type(check_name("key", Size.BIG)) is str
    assert check_name("key", Size.BIG) == "big"


def test_a_text_is_bounded_in_bytes() -> None:
    """Beside names: messages."""
    assert check_text("message", "é", limit=2) == "é"
    with pytest.raises(TooLarge):
        check_text("message", "é", limit=1)
