"""Stored messages with another id: of a job that is run again, of a cleanup. Sends nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kombu.serialization import registry  # type: ignore[attr-defined]  # not in its stubs
from kombu.utils.uuid import uuid

from .envelope import Envelope
from .errors import Unreadable
from .results import dumps

CONTINUATIONS = ("callbacks", "errbacks", "chain", "chord")
GROUP = ("group", "group_index")  # a member of a group counts for its chord


def renewed(
    envelope: Envelope, job_id: str, *, with_callbacks: bool, completed: bool, accept: Collection[str]
) -> Envelope:
    """`envelope` for a new job.

    Without `with_callbacks` nothing is called when it ends. With it, all that the old one had: what was sent
    already gets new ids (errbacks where it did not complete, the rest where it did), so that a supervised one runs
    again; what was not keeps its ids, for whoever waits for them. Raises `Unreadable` for a content type that this
    process does not `accept`.
    """
    if envelope.content_type not in accept:
        raise Unreadable("the message of the job", f"it is {envelope.content_type}, which is not accepted here")
    args, kwargs, embed = envelope.content()
    sent = {"errbacks": not completed}
    kept = {
        name: _with_new_ids(embed.get(name)) if sent.get(name, completed) else embed.get(name)
        for name in CONTINUATIONS
        if with_callbacks
    }
    _, _, body = dumps((args, kwargs, {**embed, **dict.fromkeys(CONTINUATIONS), **kept}), _name(envelope))
    return replace(
        envelope,
        body=body,
        headers=_headers(envelope.headers, job_id, in_group=with_callbacks),
        properties={**envelope.properties, "correlation_id": job_id},
    )


def _name(envelope: Envelope) -> str:
    name: str = registry.type_to_name[envelope.content_type]
    return name


def _headers(old: Mapping[str, Any], job_id: str, *, in_group: bool) -> dict[str, Any]:
    root = job_id if old.get("root_id") == old.get("id") else old.get("root_id")
    group = {} if in_group else {name: None for name in GROUP if name in old}
    return {**old, "id": job_id, "root_id": root, "retries": 0, **group}


def _with_new_ids(part: Any) -> Any:
    """The same signatures, each task with an id that nothing else has."""
    if isinstance(part, Mapping):
        return {name: uuid() if name == "task_id" and value else _with_new_ids(value) for name, value in part.items()}
    return [_with_new_ids(one) for one in part] if isinstance(part, (list, tuple)) else part


def addressed(envelope: Envelope, message_id: str) -> Envelope:
    """The message with its id."""
    root = envelope.headers.get("root_id") or message_id
    return replace(
        envelope,
        headers={**envelope.headers, "id": message_id, "root_id": root},
        properties={**envelope.properties, "correlation_id": message_id},
    )
