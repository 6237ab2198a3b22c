"""Results as they are stored: by Celery's own serialisers, so that what a caller gets is what it always got."""

from __future__ import annotations

from typing import Any

from kombu import serialization

from .errors import TooLarge, Unreadable
from .model import Stored
from .values import Codec, opened

SAFE = frozenset({"application/json", "application/x-yaml", "application/x-msgpack"})
"""Content types that can be read without running anybody's code."""


def dumps(value: Any, serializer: str | None) -> tuple[str, str, bytes]:
    """Serialise with kombu: content type, content encoding, bytes. Raises kombu's `EncodeError`."""
    content_type, content_encoding, body = serialization.dumps(value, serializer)
    raw: Any = body
    return content_type, content_encoding, raw.encode("utf-8") if isinstance(raw, str) else raw


def pack(value: Any, *, serializer: str, codec: Codec, limit: int) -> Stored:
    """A result as it is stored. Raises what Celery would, and `TooLarge` (bytes)."""
    content_type, content_encoding, raw = dumps(value, serializer)
    if len(raw) > limit:
        raise TooLarge("result", size=len(raw), limit=limit)
    kept, key_id = codec.encode(raw)
    return Stored(kept, f"{content_type};{content_encoding}", key_id)


def unpack(stored: Stored, *, codec: Codec, trusted: bool = False) -> Any:
    """A stored result. A pickled one only where the caller trusts it: a worker of its task does."""
    content_type, _, content_encoding = stored.encoding.partition(";")
    if not trusted and content_type not in SAFE:
        raise Unreadable("result", f"it is {content_type}, which only a worker reads")
    data = opened(stored, codec=codec, what="result")
    return serialization.loads(data, content_type, content_encoding, accept=[content_type])
