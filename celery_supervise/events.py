"""The library's own log records: an event's name, and its facts, in the text and as attributes. Sets up no handler."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class Events(logging.LoggerAdapter):  # type: ignore[type-arg]  # generic from Python 3.11 on
    """Writes the facts of `extra` behind the event's name, so that every format shows them.

    The record's attributes: `event`, and each fact by its name.
    """

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        """The text of a record, and its attributes."""
        facts = dict(kwargs.get("extra") or {})
        kwargs["extra"] = {**facts, "event": str(msg)}
        text = " ".join([str(msg), *(f"{name}={_legible(value)}" for name, value in facts.items())])
        return text, kwargs


def events_of(name: str) -> Events:
    """The events of a module, by its logger's name."""
    return Events(logging.getLogger(name), {})


def _legible(value: object) -> str:
    """On one line, whatever is in it."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
