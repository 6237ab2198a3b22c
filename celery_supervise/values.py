"""How values become bytes and come back the same: steps, bindings, questions, answers. No I/O, no Celery.

Three encodings, named in `Stored.encoding`, so that a value can be read back whatever the code says now:

* typed JSON, kombu's: Decimal, UUID, bytes, dates and times survive. (Its registry is the shop's: nothing
  is registered here, which would change the shop's messages.)
* pydantic's JSON, for what only a type annotation brings back: dataclasses, models, enums, sets, tuples.
* plain JSON, for what people send: an answer must not be able to name a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from .compare import Difference, difference, name_of
from .encodings import MODEL, PLAIN, TYPED, dump_typed, reason, way
from .errors import InvalidInput, NotSerialisable, TooLarge, Unreadable
from .hints import MISSING
from .model import MAX_ID_BYTES, Stored
from .wording import REFUSALS

MAX_VALUE_BYTES: Final = 1024 * 1024
"""Default of the longest value, in bytes of its encoding."""

MAX_JOB_BYTES: Final = 16 * 1024 * 1024
"""Default of all that one job stores, in bytes."""

ANNOTATE: Final = "annotate the return type of the function"


class Codec(Protocol):
    """What the setting `supervise_codec` names: bytes to bytes, for encryption or compression."""

    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        """`data` as it is to be stored, and the id of the key that `decode` will need."""

    def decode(self, data: bytes, key_id: str | None) -> bytes:
        """The bytes that `encode` was given. Raises `LookupError` or `ValueError` if they cannot be had."""


@dataclass(frozen=True)
class _Identity:
    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        return data, None

    def decode(self, data: bytes, key_id: str | None) -> bytes:  # noqa: ARG002  # named in the protocol
        return data


IDENTITY: Final[Codec] = _Identity()
"""The codec that changes nothing."""


@dataclass(frozen=True)
class Kept:
    """A value on its way to the store: its bytes, and the value as every later run will read it back."""

    stored: Stored
    value: Any


def keep(
    value: Any,
    *,
    limit: int,
    codec: Codec = IDENTITY,
    type_: Any = MISSING,
    path: str = "$",
    what: str = "value",
    advice: str = ANNOTATE,
) -> Kept:
    """Encode `value`, decode it again, compare the two in value and type.

    `limit` is in bytes of the encoding, before `codec`, so that it does not depend on a key. `type_` is the
    annotation under which the value was made. It is used only where typed JSON does not bring the value
    back: what typed JSON can carry stays readable when the function is moved, wrapped or loses it.

    Raises `NotSerialisable` (the path of what is lost, and `advice` where there is no `type_`) and
    `TooLarge` (naming `what`).

    >>> keep((1, 2), limit=99, type_=tuple[int, int]).value
    (1, 2)
    >>> keep({"pair": (1, 2)}, limit=99)
    Traceback (most recent call last):
    celery_supervise.errors.NotSerialisable: $.pair: a tuple comes back as a list; annotate ...
    """
    typed = _round_trip(value, TYPED, MISSING, path=path, limit=limit, what=what)
    if isinstance(typed, _Trip):
        return typed.kept(codec)
    if type_ is MISSING:
        raise NotSerialisable(typed.path, f"{typed.problem}; {advice}")
    model = _round_trip(value, MODEL, type_, path=path, limit=limit, what=what)
    if isinstance(model, _Trip):
        return model.kept(codec)
    raise NotSerialisable(*_told(typed, model))


def encode(value: Any, *, limit: int, codec: Codec = IDENTITY, type_: Any = MISSING, path: str = "$") -> Stored:
    """The bytes of `keep`."""
    return keep(value, limit=limit, codec=codec, type_=type_, path=path).stored


def encode_plain(value: Any, *, limit: int, codec: Codec = IDENTITY, path: str = "$", what: str = "value") -> Stored:
    """Encode a plain JSON value, such as an answer: `{"__type__": …}` is a dict like any other in it.

    Raises as `keep` does.
    """
    plain = _round_trip(value, PLAIN, MISSING, path=path, limit=limit, what=what)
    if isinstance(plain, Difference):
        raise NotSerialisable(*plain)
    return plain.kept(codec).stored


def decode(stored: Stored, *, codec: Codec = IDENTITY, type_: Any = MISSING, what: str) -> Any:
    """The value in `stored`; `type_` is what the code says now, where it was stored under an annotation.

    Raises `Unreadable`, naming `what`. Whatever else the codec raises (its key server is away) passes.
    """
    try:
        value = way(stored.encoding, type_).load(codec.decode(stored.data, stored.key_id))
    except REFUSALS as error:
        raise Unreadable(what, reason(error)) from error
    if stored.encoding == MODEL and _is_plain(value):
        raise Unreadable(what, "today's annotation makes plain data of what was stored; it was more than that")
    return value


def opened(stored: Stored, *, codec: Codec, what: str) -> bytes:
    """The bytes in `stored` as they were before the codec. Raises `Unreadable`, naming `what`, as `decode` does."""
    try:
        return codec.decode(stored.data, stored.key_id)
    except (LookupError, ValueError) as error:
        raise Unreadable(what, reason(error)) from error


def _is_plain(value: Any) -> bool:
    """Whether typed JSON carries `value`: then it would have been stored so, and this is only its shell."""
    typed = way(TYPED)
    try:
        return difference(value, typed.load(typed.dump(value))) is None
    except REFUSALS:
        return False


def canonical(value: Any) -> bytes:
    """The bytes by which `value` is recognised: typed JSON with sorted keys. Raises `NotSerialisable`.

    >>> canonical({"b": 1, "a": [None, "é"]}).decode()
    '{"a":[null,"é"],"b":1}'
    """
    try:
        return dump_typed(value, sort_keys=True)
    except REFUSALS as error:
        raise NotSerialisable(*way(TYPED).explain(value, "$", error)) from error


def digest(*values: Any) -> str:
    """SHA-256 of `values` in canonical form, in hexadecimal. Raises `NotSerialisable`.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return sha256(canonical(values)).hexdigest()


def check_name(field: str, text: object) -> str:
    """`text` as a name that the database can index: 1 to 255 bytes of UTF-8, not blank, without NUL.

    Two spellings of one text in Unicode (NFC, NFD) are two names. Raises `InvalidInput` for `field`.
    """
    name = check_text(field, text, limit=MAX_ID_BYTES)
    if not name.strip():
        raise InvalidInput(field, "must not be blank")
    return name


def check_text(field: str, text: object, *, limit: int) -> str:
    """`text` as Postgres can keep it: at most `limit` bytes of UTF-8, without NUL. Raises `InvalidInput`."""
    if not isinstance(text, str):
        raise InvalidInput(field, f"must be a str, not {name_of(text)}")
    plain = str.__str__(text)  # of a str that is also an Enum, its value
    if "\0" in plain:
        raise InvalidInput(field, "must not contain NUL")
    try:
        size = len(plain.encode())
    except UnicodeEncodeError:
        raise InvalidInput(field, "must not contain a lone surrogate") from None
    if size > limit:
        raise TooLarge(field, size=size, limit=limit)
    return plain


class _Trip(NamedTuple):
    """A value that came back the same: its bytes, and what came back."""

    encoding: str
    data: bytes
    value: Any

    def kept(self, codec: Codec) -> Kept:
        data, key_id = codec.encode(self.data)
        return Kept(Stored(data, self.encoding, key_id), self.value)


def _round_trip(value: Any, encoding: str, type_: Any, *, path: str, limit: int, what: str) -> _Trip | Difference:
    try:
        chosen = way(encoding, type_)
    except REFUSALS as error:
        return Difference(path, f"pydantic cannot use its annotation ({type(error).__name__})")
    try:
        data = chosen.dump(value)
        # a value that is far too large is not decoded first, to be refused then
        again = chosen.load(data) if len(data) <= limit else value
        lost = difference(value, again, path)
    except REFUSALS as error:
        return chosen.explain(value, path, error)
    if len(data) > limit:
        raise TooLarge(what, size=len(data), limit=limit)
    return lost or _Trip(encoding, data, again)


def _told(typed: Difference, model: Difference) -> Difference:
    """The more exact of two complaints about one value; both, unless the annotation's is the more exact."""
    if len(model.path) > len(typed.path):
        return model
    return Difference(typed.path, f"{typed.problem}; under its annotation: {model.problem}")
