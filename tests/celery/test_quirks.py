"""What Celery does that this library works around, shown without it: a test that fails here says what can go.

Each work-around is in one place, and in the table of docs/decisions.md, with the versions that need it.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from inspect import unwrap
from time import time
from types import SimpleNamespace
from typing import Any

import celery
import click
import kombu
import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import TimeLimitExceeded
from billiard.pool import RUN
from celery import Celery, Task, chord
from celery._state import _task_stack
from celery.app.trace import build_tracer
from celery.bin.base import CLIContext, handle_preload_options
from celery.bin.celery import celery as command
from celery.concurrency.asynpool import AsynPool
from celery.contrib.testing.mocks import TaskMessage
from celery.events.state import State
from celery.exceptions import Ignore, Reject
from celery.signals import before_task_publish
from celery.worker.request import Request, create_request_cls
from click.testing import CliRunner
from kombu import Connection

from example_project import embedded
from tests.jobs import close

ID = "11111111-2222-3333-4444-555555555555"
called: list[Any] = []
sent: list[dict[str, Any]] = []


class TwoArguments(Ignore):
    """Cannot be rebuilt from what `Ignore` pickles."""

    def __init__(self, one: str, _other: str) -> None:
        super().__init__(one)


@pytest.fixture
def app() -> Iterator[Celery]:
    """A plain app, all in memory."""
    app = Celery("quirks", broker="memory://", backend="cache+memory://", set_as_current=False)
    yield app
    close(app)


@pytest.fixture(autouse=True)
def _forget() -> None:
    called.clear()
    sent.clear()


def task(app: Celery, **options: Any) -> Any:
    """A plain task of this app, bound, that notes its request."""

    @app.task(bind=True, shared=False, name="quirks.work", **options)
    def work(self: Task, *_: Any) -> None:
        called.append(self.request_stack.top)

    return app.tasks["quirks.work"]


def request_of(app: Celery, **message: Any) -> Request:
    """A worker's request for the task."""
    there = TaskMessage("quirks.work", **message)
    return Request(there, app=app, task=app.tasks["quirks.work"], hostname="w@host", connection_errors=())


def failed_with(error: BaseException) -> Any:
    """As the main process reads an exception that a child has told of."""
    try:
        raise error  # noqa: TRY301  # a traceback belongs to it
    except BaseException:  # whatever it is
        return pickle.loads(pickle.dumps(ExceptionInfo()))  # noqa: S301  # as the pool does


# --- a message's end --------------------------------------------------------------------------------------


def test_a_hard_time_limit_calls_errbacks_twice(app: Celery) -> None:
    """5.4-5.7: `on_failure` and `on_timeout` both tell of it. For `SupervisedRequest._told_once`."""
    task(app)

    @app.task(shared=False, name="quirks.errback")
    def errback(_request: Any, _error: Any, _traceback: Any) -> None:
        called.append("errback")

    request = request_of(app, errbacks=[errback.s()])
    request.time_start = time()
    request.on_failure(failed_with(TimeLimitExceeded(1)))
    request.on_timeout(soft=False, timeout=1)
    assert called == ["errback", "errback"]


def test_a_memory_error_ends_the_main_process(app: Celery) -> None:
    """5.4-5.7: the parent raises it again, and stops. For `outcomes.tellable`."""
    task(app)
    with pytest.raises(MemoryError):
        request_of(app).on_failure(failed_with(MemoryError()))


def test_a_rejected_message_fails_its_task(app: Celery) -> None:
    """Since 5.7. For `request.FAILS_REJECTED`."""
    task(app)
    request = request_of(app)
    request.on_failure(failed_with(Reject("no", requeue=False)))
    fails = app.backend.get_state(request.id) == "FAILURE"
    assert fails == (celery.VERSION >= (5, 7))


def test_an_exception_that_ends_a_task_silently_is_not_made_fit_for_the_pipe(app: Celery) -> None:
    """5.4-5.7: read by the main process it raises there, and ends it. For `execution`: a plain `Ignore`, always."""
    work = task(app)
    work.run = lambda *_: (_ for _ in ()).throw(TwoArguments("one", "other"))
    told = build_tracer(work.name, work, app=app)(ID, (), {}, {"id": ID, "delivery_info": {}})
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(told))  # noqa: S301  # as the pool does


def test_a_strategy_overrides_what_a_request_class_does(app: Celery) -> None:
    """5.4-5.7: `on_success` of the class is not called. For `SupervisedRequest.__init__`."""
    work = task(app)
    made = create_request_cls(Request, work, SimpleNamespace(apply_async=None), "w@host", None)
    assert made.on_success is not Request.on_success


def test_an_errback_that_raises_keeps_the_others_from_being_called(app: Celery) -> None:
    """Up to 5.6. For `publisher.call_errbacks`."""
    work = task(app)

    @app.task(shared=False, name="quirks.errback")
    def errback(_request: Any, _error: Any, _traceback: Any) -> None:
        called.append("errback")
        raise ValueError("no")

    request = request_of(app, errbacks=[errback.s(), errback.s()])
    try:
        work.backend.mark_as_failure(request.id, KeyError("no"), request=request._context)
    except ValueError:
        called.append("raised")
    assert called == (["errback", "raised"] if celery.VERSION < (5, 7) else ["errback", "errback"])


# --- a retry ----------------------------------------------------------------------------------------------


def test_a_retry_is_its_own_parent_and_forgets_things(app: Celery) -> None:
    """5.4-5.7: what hides its arguments; up to 5.6: that nobody wants its result. For `retrying`, `envelope`."""
    work = task(app, ignore_result=False)
    asked = {"ignore_result": True, "argsrepr": "hidden", "root_id": ID}
    work.push_request(id=ID, args=["secret"], kwargs={}, called_directly=False, delivery_info={}, retries=0, **asked)
    _task_stack.push(work)

    @before_task_publish.connect
    def note(headers: Any, **_: Any) -> None:
        sent.append(headers)

    try:
        work.retry(throw=False, countdown=0)
    finally:
        before_task_publish.disconnect(note)
        _task_stack.pop()
        work.pop_request()
    (headers,) = sent
    assert headers["parent_id"] == ID
    assert "secret" in headers["argsrepr"]
    assert bool(headers["ignore_result"]) == (celery.VERSION >= (5, 7))


def test_a_call_in_a_worker_puts_another_request_on_top(app: Celery) -> None:
    """5.4-5.7, outside of a pool's processes: the body would see another request. For `SupervisedTask._next`."""
    work = task(app)
    work.push_request(id=ID, called_directly=False)
    mine = work.request_stack.top
    try:
        Task.__call__(work)
    finally:
        work.pop_request()
    (seen,) = called
    assert seen is not mine


# --- what is around ---------------------------------------------------------------------------------------


def test_a_chord_s_keys_end_while_a_member_waits(redis_server: embedded.Redis, redis_url: str) -> None:
    """5.4-5.7: they are renewed only by members that return. For `lasting`."""
    app = Celery("quirks", broker="memory://", backend=redis_url, set_as_current=False)
    app.conf.result_expires = 1000
    work = task(app)
    chord([work.s(), work.s()])(work.s())
    header = TaskMessage(work.name, id=ID, group="the-group", chord=dict(work.s().set(chord_size=2)))
    request = Request(header, app=app, task=work, hostname="w@host", connection_errors=())
    try:
        app.backend.on_chord_part_return(request._context, "SUCCESS", 1)
        left = app.backend.client.ttl(app.backend.get_key_for_group("the-group", ".j"))
        assert 0 < left <= 1000
    finally:
        close(app)


def test_monitors_keep_a_state_that_they_do_not_know_before_revoked() -> None:
    """5.4-5.7: but not before RETRY, which REVOKED ends. For `publisher._show_end`."""
    state = State()
    event = {"uuid": ID, "hostname": "w@host", "timestamp": time(), "local_received": time(), "clock": 1}
    for number, kind in enumerate(("task-parked", "task-revoked"), 1):
        state.event({**event, "type": kind, "clock": number})
    assert state.tasks[ID].state == "PARKED"


def test_a_key_error_is_a_broken_connection_to_redis() -> None:
    """Since kombu 5.7. For `publisher._link_errors`."""
    with Connection("redis://") as connection:
        errors = (*connection.connection_errors, *connection.recoverable_connection_errors)
    assert any(issubclass(error, LookupError) for error in errors) == (kombu.VERSION >= (5, 7))


def test_a_connection_that_was_let_go_is_asked_for_its_address(redis_server: embedded.Redis) -> None:
    """5.4-5.7; only 5.7's consumer lets go before it closes. For `links.keep_from_ending`."""
    with Connection(redis_server.url) as connection:
        channel = connection.default_channel
        connection.transport.client = None
        with pytest.raises(AttributeError, match="hostname"):
            unwrap(type(channel)._connparams)(channel)
        connection.transport.client = connection


def test_sending_subscribes_to_a_result(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    """5.4-5.7: unless nobody wants it, a sender talks to the result backend. For `publisher._notify`."""
    monkeypatch.setattr(app.backend, "on_task_call", lambda *_: called.append("subscribed"))
    app.send_task("quirks.work", ignore_result=True)
    assert called == []
    app.send_task("quirks.work")
    assert called == ["subscribed"]


def test_a_pool_forgets_what_runs_when_its_worker_loses_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 5.5 the job; up to 5.6 that its child is busy. For `pools.keep_what_runs`."""
    pool = object.__new__(AsynPool)
    child = SimpleNamespace(inqW_fd=7, _is_alive=lambda: True)
    running = SimpleNamespace(_accepted=True, _write_to=child, _scheduled_for=child)
    pool.__dict__.update(_state=RUN, synack=False, outbound_buffer=deque(), _cache={1: running})
    pool.__dict__.update(_active_writers=set(), _active_writes=set(), _busy_workers={7})
    monkeypatch.setattr(pool, "maintain_pool", lambda: None)
    pool.flush()
    assert (1 in pool._cache) == (celery.VERSION >= (5, 6))
    assert (7 in pool._busy_workers) == (celery.VERSION >= (5, 7))


def test_the_parameter_of_a_command_is_the_app_itself() -> None:
    """Up to 5.4; since, it is what was typed. For `cli.commands`."""
    context = command.make_context("celery", ["-A", "tests.celery.cli_app", "report"])
    assert isinstance(context.params["app"], Celery) == (celery.VERSION < (5, 5))


def test_a_command_of_ours_that_knows_no_preload_options(app: Celery) -> None:
    """Up to 5.6 they are not there to be taken. For `cli`: on the group only."""
    app.user_options["preload"].add(click.Option(["--shop-site"]))

    @click.command
    @click.pass_context
    @handle_preload_options
    def verb(_ctx: click.Context) -> None:
        called.append("ran")

    ran = CliRunner().invoke(verb, obj=CLIContext(app=app, no_color=True, workdir=None))
    assert (called == ["ran"]) == (celery.VERSION >= (5, 7)), ran.output
