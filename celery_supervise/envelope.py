"""Messages: what Celery would send, caught before it is sent; stored; sent later from any process. Decides nothing.

An envelope is a finished broker message: its body is already serialised, so that it can be published again
byte for byte, without the task's code and without unpickling anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from celery import Celery
from kombu import serialization
from kombu.exceptions import EncodeError
from kombu.utils.functional import maybe_list
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from .errors import Unreadable
from .results import dumps as dumps_body

HEADER = "supervise"
"""The header of our messages: version, namespace, ticket, what is asked for."""
FORMAT = 1


def ticket_of(header: Any) -> UUID | None:
    """The ticket in a header that came with a message; None where there is none that can be read."""
    try:
        return UUID(header["ticket"])
    except (LookupError, ValueError, TypeError, AttributeError):
        return None


DROPPED_PROPERTIES = frozenset({"expiration", "timeout", "confirm_timeout", "retry", "retry_policy", "declare"})
"""What is of one publish, not of the message. No message of ours expires (protocol 4)."""

CALL_ONLY = ("producer", "publisher", "connection", "router", "result_cls", "add_to_parent", "task_type", "route_name")


@dataclass(frozen=True)
class Envelope:
    """One message: where it goes, its headers and properties, its body in bytes."""

    task: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]
    body: bytes
    content_type: str
    content_encoding: str
    exchange: str
    routing_key: str
    compression: str | None
    queue: str

    def pack(self) -> bytes:
        """The envelope as it is stored. kombu's JSON, so that datetimes in headers survive."""
        fields = {**self.__dict__, "body": base64.b64encode(self.body).decode("ascii"), "v": FORMAT}
        return str(dumps(fields)).encode("utf-8")

    def with_ticket(self, header: Mapping[str, Any]) -> Envelope:
        """The same message with our header."""
        return replace(self, headers={**self.headers, HEADER: dict(header)})

    def content(self) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Arguments and callbacks. Only for tasks whose serialiser this process trusts."""
        args, kwargs, embed = serialization.loads(
            self.body, self.content_type, self.content_encoding, accept=[self.content_type]
        )
        return list(args), dict(kwargs), dict(embed or {})


def unpack(data: bytes) -> Envelope:
    """A stored envelope. Raises `Unreadable`."""
    try:
        fields = loads(data.decode("utf-8"))
        version = fields.pop("v")
        envelope = Envelope(**{**fields, "body": base64.b64decode(fields["body"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable("the message of a job", f"{type(error).__name__}: {error}") from error
    if version != FORMAT:
        raise Unreadable("the message of a job", f"its format is {version}, this library knows {FORMAT}")
    return envelope


class Catcher:
    """A producer that keeps the message Celery built instead of sending it."""

    def __init__(self, serializer: str) -> None:
        self.serializer = serializer
        self.caught: dict[str, Any] = {}
        self.body: Any = None

    def publish(self, body: Any, **options: Any) -> None:
        """Called by Celery's own `send_task_message`."""
        if not self.caught:
            self.body, self.caught = body, options


def of_call(  # noqa: PLR0917  # the shape of a call
    app: Celery, task: Any, task_id: str, args: Any, kwargs: Any, options: Mapping[str, Any], *, again: bool = False
) -> Envelope:
    """The message that `task.apply_async(args, kwargs, task_id=…, **options)` would send.

    Built by Celery's own message factory and router, so that headers, routes, stamps, priorities and the
    signals of publishing are Celery's. `again`: a retry, which is not its own child (Celery's is: 5.4-5.7).
    Raises what Celery raises for arguments that cannot be serialised.
    """
    given = {name: value for name, value in options.items() if name not in CALL_ONLY}
    if not again:
        given |= _family(app, given)
    routed = dict(app.amqp.router.route(given, task.name, args, kwargs, task))
    message = app.amqp.create_task_message(
        task_id,
        task.name,
        args,
        kwargs,
        callbacks=_identified(routed.pop("link", None)),
        errbacks=_identified(routed.pop("link_error", None)),
        reply_to=routed.pop("reply_to", None) or app.thread_oid,
        **{name: routed.pop(name) for name in MESSAGE_FIELDS if name in routed},
        **{name: routed[name] for name in SHOWN if name in routed},
        **_stamps(routed),
    )
    for stamp in routed.pop("stamped_headers", None) or ():
        routed.pop(stamp, None)
    return _caught(app, task.name, message, routed)


MESSAGE_FIELDS = (
    "group_id",
    "group_index",
    "retries",
    "chord",
    "time_limit",
    "soft_time_limit",
    "root_id",
    "parent_id",
    "shadow",
    "chain",
    "ignore_result",
    "replaced_task_nesting",
)
SHOWN = ("argsrepr", "kwargsrepr", "origin")
"""What callers may say that people see. Celery makes properties of the message of these, too."""


def _stamps(options: Mapping[str, Any]) -> dict[str, Any]:
    names = options.get("stamped_headers") or ()
    return {"stamped_headers": list(names), **{name: options.get(name) for name in names}} if names else {}


def _identified(callbacks: Any) -> list[Any] | None:
    """Callbacks with ids: one that is sent twice, because a worker died in between, runs once if it is ours (26)."""
    return None if callbacks is None else [_with_id(one) for one in maybe_list(callbacks)]


def _with_id(callback: Any) -> Any:
    made_of_many = callback.get("subtask_type")  # chains, groups, chords: their tasks get ids when they are sent
    if made_of_many or (callback["options"] or {}).get("task_id"):
        return callback
    return {**callback, "options": {**(callback["options"] or {}), "task_id": uuid()}}


def _family(app: Celery, options: Mapping[str, Any]) -> dict[str, Any]:
    """Root, parent and inherited priority, as `Celery.send_task` fills them in."""
    parent = app.current_worker_task
    if not parent:
        return {}
    request = parent.request
    found = {
        "root_id": options.get("root_id") or request.root_id or request.id,
        "parent_id": options.get("parent_id") or request.id,
    }
    inherited = (request.delivery_info or {}).get("priority") if app.conf.task_inherit_parent_priority else None
    if inherited is not None and options.get("priority") is None:
        found["priority"] = inherited
    return found


def _caught(app: Celery, name: str, message: Any, options: dict[str, Any]) -> Envelope:
    catcher = Catcher(app.conf.task_serializer)
    queue = options.get("queue")
    # retry=False: inside a worker's callbacks 5.7 would ask the producer for its connection to retry on
    app.amqp.send_task_message(catcher, name, message, **{**options, "retry": False})
    sent = catcher.caught
    content_type, content_encoding, body = dumps_body(catcher.body, sent["serializer"])
    kept = {"exchange", "routing_key", "headers", "serializer", "compression"} | DROPPED_PROPERTIES
    exchange = getattr(sent["exchange"], "name", sent["exchange"]) or ""
    return Envelope(
        task=name,
        headers=_own_headers(sent["headers"]),
        properties={key: value for key, value in sent.items() if key not in kept and value is not None},
        body=body,
        content_type=content_type,
        content_encoding=content_encoding,
        exchange=exchange,
        routing_key=sent["routing_key"] or "",
        compression=sent["compression"],
        queue=_queue_name(queue, exchange, sent["routing_key"]),
    )


def _own_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Without our own header of an earlier send, and without times: those are columns (protocol 4)."""
    return {**{key: value for key, value in headers.items() if key != HEADER}, "eta": None, "expires": None}


def _queue_name(queue: Any, exchange: str, routing_key: str | None) -> str:
    if queue is not None:
        return str(getattr(queue, "name", queue))
    return routing_key or exchange or "celery"


HEADER_FIELDS = (
    "lang",
    "task",
    "id",
    "shadow",
    "group",
    "group_index",
    "retries",
    "timelimit",
    "root_id",
    "parent_id",
    "argsrepr",
    "kwargsrepr",
    "origin",
    "ignore_result",
    "replaced_task_nesting",
    "stamped_headers",
    "stamps",
)


def of_request(app: Celery, task: Any, request: Any) -> Envelope:
    """The message that this request came by, for a job that is born when it is received."""
    fields = request.__dict__
    delivery = fields.get("delivery_info") or {}
    custom = {
        name: value
        for name, value in (request.headers or {}).items()
        if name != HEADER and not name.startswith("x-")  # x-death and its kin are the broker's
    }
    embed = {name: fields.get(name) for name in ("callbacks", "errbacks", "chain", "chord")}
    content_type, content_encoding, body = dumps_body(
        (list(request.args or ()), dict(request.kwargs or {}), embed),
        (fields.get(HEADER) or {}).get("serializer") or task.serializer or app.conf.task_serializer,
    )
    exchange, routing_key = delivery.get("exchange") or "", delivery.get("routing_key") or ""
    priority = delivery.get("priority")
    return Envelope(
        task=task.name,
        headers=_own_headers({**custom, **{name: fields[name] for name in HEADER_FIELDS if name in fields}}),
        properties={
            "correlation_id": fields.get("correlation_id") or request.id,
            "reply_to": fields.get("reply_to") or "",
            **({} if priority is None else {"priority": priority}),
        },
        body=body,
        content_type=content_type,
        content_encoding=content_encoding,
        exchange=exchange,
        routing_key=routing_key,
        compression=None,
        queue=routing_key or str(app.conf.task_default_queue),
    )


def input_digest(task: str, args: Any, kwargs: Mapping[str, Any] | None) -> str:
    """What identifies the input of a job: task and arguments, whatever serialises them, in any order of keywords."""
    given = [list(args or ()), sorted((kwargs or {}).items())]
    try:
        _, _, raw = dumps_body(given, "json")
    except EncodeError:
        _, _, raw = dumps_body(given, "pickle")
    return hashlib.sha256(task.encode("utf-8") + b"\0" + raw).hexdigest()
