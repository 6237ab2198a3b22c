"""Which broker a namespace has, as the schema remembers it: a digest among its facts. Decides nothing."""

from __future__ import annotations

from typing import Final

from .sql import Statement

_NAME: Final = "'broker:' || CAST(:namespace AS text)"

BROKER = Statement("broker", f"SELECT value AS digest FROM {{s}}.meta WHERE name = {_NAME}")

FIRST_BROKER = Statement(
    "first_broker",
    f"INSERT INTO {{s}}.meta (name, value) VALUES ({_NAME}, :digest) ON CONFLICT (name) DO NOTHING",
)
"""Of relays that come first together one is; what it has written is read by a new statement."""

MOVE_BROKER = Statement(
    "move_broker",
    f"INSERT INTO {{s}}.meta (name, value) VALUES ({_NAME}, :digest)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
)
