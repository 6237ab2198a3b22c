"""Sends messages and tells outcomes, for `relay` and `supervisor`, through Celery. Changes no job.

Sending is bounded in time: a broker that does not answer delays a caller by a moment, once in a while, and
nothing else. What is not sent is still in the row.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from amqp.exceptions import NotFound
from celery import Celery
from celery.app.task import Context
from kombu import Connection, Producer
from kombu.exceptions import OperationalError
from kombu.serialization import prepare_accept_content
from kombu.utils.json import loads

from .envelope import FORMAT, HEADER, Envelope, unpack
from .errors import (
    Conflict,
    ControlFlow,
    DatabaseUnavailable,
    JobExpired,
    JobFailed,
    JobLost,
    PublishFailed,
    Unreadable,
)
from .events import events_of
from .lifecycle import State
from .model import Depth, Message, MessageKind, Settlement, Stored
from .renewing import addressed, renewed
from .telling import telling
from .values import Codec, opened

logger = events_of(__name__)

PATIENCE = 0.25  # seconds that one step of a publish may take
SKIP = 5.0  # seconds for which a broker that did not answer is left alone
PEEK = 2000  # messages that are looked at, to count ours among them

REVOKED: Mapping[str, Any] = {"terminated": False, "signum": None, "expired": False}
AMQP = "amqp"  # kombu's name for RabbitMQ
RUN = MessageKind.RUN.value
SETTLE = MessageKind.SETTLE.value


@dataclass
class Link:
    """This process's connections to the broker, and until when it is left alone."""

    pools: dict[int, Any] = field(default_factory=dict)
    skip_until: float = 0.0


class CeleryPublisher:
    """Publishes for one app and namespace."""

    def __init__(self, app: Celery, *, namespace: str, codec: Codec) -> None:
        self._app = app
        self._namespace = namespace
        self._codec = codec
        self._link = Link()
        self._watched: Callable[[], bool] = lambda: bool(app.conf.worker_send_task_events)

    # --- publishing --------------------------------------------------------------------------------------

    def publish(self, message: Message) -> None:
        """Send the job's message with this ticket, a cleanup of it, or a notice. Raises `PublishFailed`."""
        if message.kind is MessageKind.NOTIFY:
            self._notify(message)
            return
        envelope = self.open(message.envelope)
        if message.kind is MessageKind.CLEANUP:
            self._clean_up(addressed(envelope, str(message.id)))
            return
        if message.kind is not MessageKind.RUN:
            raise PublishFailed(f"a row of kind {message.kind} is no message: ends are told to Celery by `settle`")
        self._send(envelope.with_ticket(self._header(RUN, message.id)), tells=message.state is State.PENDING)

    def _clean_up(self, sent: Envelope) -> None:
        """As a job where its task is supervised and known here; else as a message, of which its worker makes one."""
        accept = getattr(self._app.tasks.get(sent.task), "accept", None)
        try:
            if accept is None or not accept(sent):
                self._send(sent, tells=True)
        except (Conflict, DatabaseUnavailable) as error:
            raise PublishFailed(str(error)) from error

    def _notify(self, message: Message) -> None:
        """Call the shop's task by its name, wherever it lives, supervised or not. Its id is the notice's.

        A copy of a notice to a supervised task is found to be one. Its result is not asked for: Celery would talk to
        the result backend here, with no bound (5.4-5.7).
        """
        args = (dict(message.detail),)
        try:  # outside of the producer: a route that cannot be is not a broker that is away
            self._app.amqp.router.route({}, message.task, args, {})
        except Exception as error:
            raise PublishFailed(f"no way to {message.task}: {type(error).__name__}: {error}") from error
        with self._producer() as producer:
            self._app.send_task(
                message.task,
                args,
                task_id=str(message.id),
                producer=producer,
                retry=False,
                ignore_result=True,
                root_id=message.job_id,
                parent_id=message.job_id,
                add_to_parent=False,
            )

    def open(self, envelope: Stored) -> Envelope:
        """A stored envelope. One that cannot be read cannot be sent: raises `PublishFailed`."""
        try:
            return unpack(self._codec.decode(envelope.data, envelope.key_id))
        except Exception as error:  # also a codec's whose key server is away
            raise PublishFailed(str(error)) from error

    def renew(self, envelope: Stored, job_id: str, *, with_callbacks: bool, completed: bool) -> Stored:
        """The message of a job that is run again. Raises `Unreadable`."""
        try:
            old = self.open(envelope)
        except PublishFailed as error:
            raise Unreadable("the message of the job", error.detail) from error
        new = renewed(old, job_id, with_callbacks=with_callbacks, completed=completed, accept=accepted(self._app))
        data, key_id = self._codec.encode(new.pack())
        return Stored(data, envelope.encoding, key_id)

    def _header(self, kind: str, identity: UUID) -> dict[str, Any]:
        return {"v": FORMAT, "ns": self._namespace, "kind": kind, "ticket": str(identity)}

    def _send(self, sent: Envelope, *, tells: bool = False) -> None:
        with self._producer() as producer:
            producer.publish(
                sent.body,
                exchange=sent.exchange,
                routing_key=sent.routing_key,
                content_type=sent.content_type,
                content_encoding=sent.content_encoding,
                compression=sent.compression,
                headers=dict(sent.headers),
                declare=self._declared(sent),
                retry=False,
                **sent.properties,
            )
            if tells and self._app.conf.task_send_sent_event:
                self._tell_sent(producer, sent)

    def _tell_sent(self, producer: Producer, sent: Envelope) -> None:
        """The event by which monitors know of a task before a worker does, as Celery sends it (5.4-5.7)."""
        told = {name: sent.headers.get(name) for name in ("root_id", "parent_id", "retries", "eta", "expires")}
        self._app.events.Dispatcher(enabled=False).publish(
            "task-sent",
            {
                **told,
                "uuid": sent.headers.get("id"),
                "name": sent.task,
                "args": sent.headers.get("argsrepr"),
                "kwargs": sent.headers.get("kwargsrepr"),
                "queue": sent.queue,
                "exchange": sent.exchange,
                "routing_key": sent.routing_key,
            },
            producer,
            retry=False,
        )

    def _declared(self, envelope: Envelope) -> list[Any]:
        queue = self._app.amqp.queues.get(envelope.queue)
        if queue is None and not envelope.exchange:
            queue = self._app.amqp.queues[envelope.routing_key]  # made where the app may create queues
        return [queue] if queue is not None else []

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        """A producer whose every step is bounded. One that failed is not used again."""
        if time.monotonic() < self._link.skip_until:
            raise PublishFailed("the broker did not answer a moment ago")
        try:
            with self._pool().acquire(block=True, timeout=PATIENCE) as connection:
                try:
                    yield Producer(connection.default_channel, auto_declare=False)
                except Exception as error:
                    connection.collect()
                    if not isinstance(error, (OperationalError, OSError, *_link_errors(connection))):
                        # of this message alone: the broker is there for others
                        raise PublishFailed(f"it cannot be sent: {type(error).__name__}: {error}") from error
                    raise
        except PublishFailed:
            raise
        except Exception as error:
            self._link.skip_until = time.monotonic() + SKIP
            raise PublishFailed(f"{type(error).__name__}: {error}") from error

    def _pool(self) -> Any:
        pool = self._link.pools.get(os.getpid())
        if pool is None:
            pool = self._connection().Pool(limit=self._app.conf.broker_pool_limit or 10)
            self._link.pools = {os.getpid(): pool}  # one that was inherited is the parent's
        return pool

    def close(self) -> None:
        """Close this process's connections; the next publish makes new ones."""
        pool = self._link.pools.pop(os.getpid(), None)
        if pool is not None:
            pool.force_close_all()

    def _connection(self) -> Connection:
        options = dict(self._app.conf.broker_transport_options or {})
        bounded = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE, "max_retries": 0}
        return self._app.connection_for_write(connect_timeout=PATIENCE, transport_options={**options, **bounded})

    def reachable(self) -> bool:
        """Whether the broker answers just now."""
        try:
            with self._producer() as producer:
                channel: Any = producer.channel
                client = _redis_client(producer)
                if client is not None:
                    client.ping()
                else:
                    channel.basic_qos(0, 0, False)  # noqa: FBT003  # a question that changes nothing; AMQP answers it
        except PublishFailed:
            return False
        return True

    # --- counting ----------------------------------------------------------------------------------------

    def depth(self, queue: str) -> Depth | None:
        """What the broker has for `queue`: counted by ticket where there is little in Redis, else by message."""
        with self._producer() as producer:
            if _redis_client(producer) is not None:
                return self._redis_depth(producer.channel, queue)
            return _amqp_depth(producer, queue) if _driver(producer) == AMQP else None

    def _redis_depth(self, channel: Any, queue: str) -> Depth:
        # kombu has no public name for the keys of a queue's priorities (5.4-5.7)
        keys = [channel._q_for_pri(queue, priority) for priority in channel.priority_steps]  # noqa: SLF001
        every = sum(channel.client.llen(key) for key in keys)
        if every > PEEK:
            return Depth(every, exact=False)
        waiting = [item for key in keys for item in channel.client.lrange(key, 0, -1)]
        return Depth(sum(self._is_ours(loads(item)) for item in waiting))

    def _is_ours(self, message: Mapping[str, Any]) -> bool:
        header = (message.get("headers") or {}).get(HEADER) or {}
        return bool(header.get("ns") == self._namespace and header.get("kind") == RUN)

    # --- telling -----------------------------------------------------------------------------------------

    def tell(self, settlement: Settlement) -> bool:
        """Tell Celery how a job ended. A completed one is told by a worker, which calls what was linked to it."""
        if settlement.envelope is None:
            return True
        envelope = self.open(settlement.envelope)
        if settlement.job.state is State.COMPLETED:
            # its body does not run again: limits that no worker can read must not kill those that tell
            told = replace(envelope, headers={**envelope.headers, "timelimit": [None, None]})
            self._send(told.with_ticket(self._header(SETTLE, settlement.settle_id)))
            return False
        try:
            with telling():
                self._store_end(settlement, envelope)
        except Exception as error:
            raise PublishFailed(f"the result backend did not take it: {type(error).__name__}: {error}") from error
        self._show_end(settlement)
        return True

    # --- monitors ----------------------------------------------------------------------------------------

    def watch(self, watched: Callable[[], bool]) -> None:
        """Ask this, from now on, whether this process sends events: in a worker monitors can turn them on."""
        self._watched = watched

    def announce(self, event: str, job_id: str, worker: str, **fields: Any) -> None:
        """Send a task event of a worker's. One that cannot be sent costs nothing but what people see."""
        try:
            with self._producer() as producer:
                dispatcher = self._app.events.Dispatcher(enabled=False, hostname=worker)
                dispatcher.publish(event, {"uuid": job_id, **fields}, producer, retry=False)
        except PublishFailed as error:
            logger.debug("supervise.not_announced", extra={"job_id": job_id, "why": error.detail})

    def _show_end(self, settlement: Settlement) -> None:
        """As the worker that had it last would: one that nobody knows would appear as another worker."""
        job, worker = settlement.job, settlement.worker
        if worker is None or not self._watched():
            return
        if job.state is State.CANCELLED:
            # to monitors a state that they do not know, as PARKED, comes before REVOKED, but not before RETRY (5.4-5.7)
            self.announce("task-retried", job.id, worker, exception="cancelled", traceback="")
            self.announce("task-revoked", job.id, worker, **REVOKED)
        else:
            self.announce("task-failed", job.id, worker, exception=repr(self.error_of(settlement)), traceback="")

    def _store_end(self, settlement: Settlement, envelope: Envelope) -> None:
        request = context_of(envelope)
        backend = self._backend(envelope.task)
        stores = not request.ignore_result
        if settlement.job.state is State.CANCELLED:
            backend.mark_as_revoked(settlement.job.id, "cancelled", request=request, store_result=stores)
        else:
            error = self.error_of(settlement)
            backend.mark_as_failure(settlement.job.id, error, request=request, store_result=stores, call_errbacks=False)
            call_errbacks(backend, request, error)

    def _backend(self, task: str) -> Any:
        known = self._app.tasks.get(task)
        return known.backend if known is not None else self._app.backend

    def error_of(self, settlement: Settlement) -> BaseException:
        """The exception of a job that failed or expired."""
        job = settlement.job
        if job.state is State.EXPIRED:
            return JobExpired(job.stop_reason or "expired")
        if settlement.outcome is None and job.stop_reason == "stalled":
            return JobFailed("stalled: it made no progress for longer than it may")
        if settlement.outcome is None:
            return JobLost(job.stop_reason or "its workers died")
        return self.rebuilt(settlement.outcome)

    def rebuilt(self, stored: Stored) -> BaseException:
        """A stored exception, as Celery's own result backend would rebuild it."""
        told = json.loads(opened(stored, codec=self._codec, what="error"))
        error: Any = self._app.backend.exception_to_python(told)
        if isinstance(error, BaseException):
            return error
        return JobFailed(f"{told.get('exc_type')}: {told.get('exc_message')}")


def call_errbacks(backend: Any, request: Context, error: BaseException) -> None:
    """Call or send a job's errbacks, one by one: one that fails must not keep the others, nor be called for ever.

    Celery calls some inline, and lets their errors through (up to 5.6). Raises what keeps one from being sent.
    """
    errbacks = list(request.errbacks or ())
    for errback in errbacks:
        request.errbacks = [errback]
        try:
            backend._call_task_errbacks(request, error, None)  # noqa: SLF001  # no public name for it (5.4-5.7)
        except (OperationalError, OSError, DatabaseUnavailable, Conflict):
            raise
        except (Exception, SystemExit, ControlFlow) as why:  # it is the shop's code that Celery calls here
            named = errback.get("task")
            logger.exception(
                "supervise.errback_failed", extra={"job_id": request.id, "errback": named, "why": str(why)}
            )


def accepted(app: Celery) -> frozenset[str]:
    """The content types that this app reads."""
    return frozenset(prepare_accept_content(app.conf.accept_content) or ())


def _link_errors(connection: Any) -> tuple[type[BaseException], ...]:
    """What the transport raises where its connection is at fault, not a message.

    Redis' has KeyError among them (kombu 5.7), which is what a message with an unknown compression raises, too.
    """
    every = (*connection.connection_errors, *connection.recoverable_connection_errors)
    return tuple(kind for kind in every if not issubclass(kind, LookupError))


def sends_task_events(dispatcher: Any) -> bool:
    """Whether a worker tells monitors of tasks; without -E it tells them of itself alone, until they ask for more."""
    return bool(dispatcher and dispatcher.enabled and (not dispatcher.groups or "task" in dispatcher.groups))


def _driver(producer: Producer) -> str:
    """The kind of broker, as kombu calls it."""
    connection: Any = producer.connection
    kind: str = connection.transport.driver_type
    return kind


def _redis_client(producer: Producer) -> Any:
    """The Redis client behind a producer; None with another broker."""
    return getattr(producer.channel, "client", None) if _driver(producer) == "redis" else None


def _amqp_depth(producer: Producer, queue: str) -> Depth:
    """The messages that are ready, others' included. On a channel of its own: a queue that is not there ends it."""
    connection: Any = producer.connection
    channel = connection.channel()
    try:
        ready: int = channel.queue_declare(queue, passive=True).message_count
    except NotFound:
        return Depth(0, exact=False)
    channel.close()
    return Depth(ready, exact=False)


def context_of(envelope: Envelope) -> Context:
    """The request of a message, for what Celery's backends want to know of it."""
    args, kwargs, embed = envelope.content()
    delivery = {"exchange": envelope.exchange, "routing_key": envelope.routing_key}
    return Context(
        {
            **envelope.headers,
            **envelope.properties,
            **embed,
            "args": args,
            "kwargs": kwargs,
            "delivery_info": delivery,
            "hostname": None,
        }
    )
