"""`.delay()` and `.apply_async()` for callers that were there before: what they get, what goes out, what it costs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Task, group, signals
from celery.canvas import StampingVisitor
from celery.result import AsyncResult
from celery.utils.time import maybe_iso8601, maybe_make_aware
from kombu.exceptions import EncodeError

from celery_supervise import (
    DatabaseUnavailable,
    InvalidInput,
    JobExists,
    JobNotFound,
    NotMigrated,
    State,
    SupervisedTask,
    TooLarge,
)
from tests.celery.site import Site, body_of
from tests.servers import Database
from tests.tools import wait_for


def add(x: int, y: int = 0) -> int:
    """A task."""
    return x + y


def supervised(site: Site, **options: Any) -> Any:
    """The task, supervised."""
    return site.app.task(base=SupervisedTask, shared=False, **{"name": "shop.add", **options})(add)


def plain(site: Site, **options: Any) -> Any:
    """The same task, of Celery alone."""
    return site.app.task(shared=False, **{"name": "shop.plain", **options})(add)


# --- what callers get ------------------------------------------------------------------------------------


def test_returns_an_async_result(site: Site) -> None:
    """The result is the one that Celery gives: same class, the job's id, a backend."""
    result = supervised(site).delay(1, 2)
    assert type(result) is type(plain(site).delay(1, 2))
    assert isinstance(result, AsyncResult)
    assert (result.state, site.job(result).state) == ("PENDING", State.PENDING)
    assert next(message["headers"]["id"] for message in site.messages()) == result.id


def test_ignored_results_are_marked(site: Site) -> None:
    """With `ignore_result` the result says that there will be none."""
    task = supervised(site)
    assert task.apply_async((1,), ignore_result=True).ignored
    assert not task.apply_async((1,)).ignored


def test_wrong_arguments_are_refused(site: Site) -> None:
    """Celery's own check of the signature: a TypeError at the call, nothing written."""
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        supervised(site).delay()
    assert (site.supervise.jobs()[1], site.messages()) == (0, [])


def test_wrong_arguments_pass_where_typing_is_off(site: Site) -> None:
    """`typing=False` leaves the check to the worker."""
    assert site.job(supervised(site, typing=False).delay()).state is State.PENDING


def test_inverted_time_limits_are_refused(site: Site) -> None:
    """As by Celery: a soft limit above the hard one."""
    with pytest.raises(ValueError, match="soft_time_limit"):
        supervised(site, time_limit=1, soft_time_limit=2).delay(1)


def test_arguments_that_cannot_be_sent(site: Site) -> None:
    """What Celery raises for them, before anything is written."""
    with pytest.raises(EncodeError):
        supervised(site).delay(object())
    assert site.supervise.jobs()[1] == 0


def test_arguments_that_are_too_large(site: Site) -> None:
    """Refused by name and size at the call."""
    with pytest.raises(TooLarge, match="arguments"):
        supervised(site).delay("x" * 1_100_000)
    assert (site.supervise.jobs()[1], site.messages()) == (0, [])


# --- the message -----------------------------------------------------------------------------------------

UTC = timezone.utc
CALLS: dict[str, Callable[[Site], dict[str, Any]]] = {
    "plain": lambda _: {},
    "shadow": lambda _: {"shadow": "shown.as"},
    "headers": lambda _: {"headers": {"tenant": "acme"}},
    "priority": lambda _: {"priority": 3},
    "queue": lambda _: {"queue": "elsewhere"},
    "routing key": lambda _: {"routing_key": "elsewhere", "exchange": ""},
    "serializer": lambda _: {"serializer": "pickle"},
    "compression": lambda _: {"compression": "zlib"},
    "ignore_result": lambda _: {"ignore_result": True},
    "limits": lambda _: {"time_limit": 30, "soft_time_limit": 20},
    "link": lambda site: {"link": plain(site).s(), "link_error": [plain(site).si(1)]},
    "stamps": lambda _: {"stamped_headers": ["ticket"], "ticket": ["t1"]},
    "expires": lambda _: {"expires": 300},
    "reply_to": lambda _: {"reply_to": "somewhere"},
    "correlation": lambda _: {"root_id": "r", "parent_id": "p", "group_id": "g", "group_index": 2},
    "delivery_mode": lambda _: {"delivery_mode": 1},
    "argsrepr": lambda _: {"argsrepr": "(***)", "kwargsrepr": "{}"},
}


@pytest.mark.parametrize("name", CALLS)
def test_message_is_celerys_own(site: Site, name: str) -> None:
    """Field by field what a plain task would have sent, but for our header and the times, which are in the row."""
    options = CALLS[name](site)
    theirs = sent_by(site, plain(site, name="shop.one"), options)
    ours = sent_by(site, supervised(site, name="shop.two"), options)
    assert ours["headers"].pop("supervise")["kind"] == "run"
    assert ours["headers"].pop("expires") is None
    theirs["headers"].pop("expires")
    assert ours["headers"].pop("eta") is theirs["headers"].pop("eta") is None
    theirs["properties"].pop("expiration", None)
    for message in (ours, theirs):
        message["headers"].pop("task")
        message["properties"].pop("delivery_tag")
        message["body"] = without_ids(body_of(message))
    assert ours == theirs


def sent_by(site: Site, task: Task, options: dict[str, Any]) -> dict[str, Any]:
    """The one message that a call sends."""
    site.broker.flushdb()
    task.apply_async((1,), {"y": 2}, task_id="the-id", **options)
    (message,) = site.messages()
    return message


def without_ids(body: Any) -> Any:
    """A body without the ids of its callbacks: ours are made when the job is accepted."""
    _args, _kwargs, embed = body
    for callback in [*(embed["callbacks"] or ()), *(embed["errbacks"] or ())]:
        callback["options"].pop("task_id", None)
    return body


def test_stamping_visitors_see_our_tasks(site: Site) -> None:
    """A stamp that a visitor puts on is in the message, as with a plain task."""

    class Visitor(StampingVisitor):  # type: ignore[misc]  # untyped
        def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:  # noqa: ARG002  # Celery's signature
            return {"release": "r7"}

    stamps = []
    for task in (plain(site), supervised(site)):
        site.broker.flushdb()
        signature = task.s(1)
        signature.stamp(visitor=Visitor())
        signature.apply_async()
        (message,) = site.messages()
        stamps.append((message["headers"]["stamps"], message["headers"]["stamped_headers"]))
    assert stamps[0] == stamps[1]
    assert stamps[1][0] == {"release": "r7"}


def test_routes_of_the_app_are_followed(open_site: Callable[..., Site]) -> None:
    """`task_routes` sends a supervised task where it sends any other, and the row knows the queue."""
    site = open_site(task_routes={"shop.add": {"queue": "vip", "priority": 1}})
    result = supervised(site).delay(1)
    assert site.job(result).queue == "vip"
    assert [message["properties"]["priority"] for message in site.messages("vip")] == [1]


def test_task_options_are_followed(site: Site) -> None:
    """Serializer and compression of the task's decorator."""
    supervised(site, serializer="pickle", compression="zlib").delay(1)
    (message,) = site.messages()
    assert message["content-type"] == "application/x-python-serialize"
    assert message["headers"]["compression"] == "application/x-gzip"
    assert body_of(message)[0] == (1,)


def test_signals_of_publishing_fire_once(site: Site) -> None:
    """`before_task_publish` and `after_task_publish`, with the task's name and its headers."""
    seen: list[tuple[str, Any, str]] = []

    def before(sender: Any, headers: Any, **_: Any) -> None:
        seen.append(("before", sender, headers["id"]))

    def after(sender: Any, headers: Any, **_: Any) -> None:
        seen.append(("after", sender, headers["id"]))

    signals.before_task_publish.connect(before)
    signals.after_task_publish.connect(after)
    try:
        result = supervised(site).delay(1)
    finally:
        signals.before_task_publish.disconnect(before)
        signals.after_task_publish.disconnect(after)
    assert seen == [("before", "shop.add", result.id), ("after", "shop.add", result.id)]


def test_a_header_set_by_a_signal_is_sent(site: Site) -> None:
    """Shops put tenant or trace ids into headers in `before_task_publish`."""

    def trace(headers: Any, **_: Any) -> None:
        headers["trace"] = "t-1"

    signals.before_task_publish.connect(trace)
    try:
        supervised(site).delay(1)
    finally:
        signals.before_task_publish.disconnect(trace)
    assert site.messages()[0]["headers"]["trace"] == "t-1"


def test_the_event_of_sending(open_site: Callable[..., Site]) -> None:
    """With `task_send_sent_event` monitors hear of our tasks what they hear of any other, once."""
    site = open_site(task_send_sent_event=True)
    heard: list[dict[str, Any]] = []
    with site.app.connection_for_read() as connection:
        receiver = site.app.events.Receiver(connection, handlers={"task-sent": heard.append})
        with receiver.consumer_context(wakeup=False) as (listening, *_):
            drained(listening)  # it subscribes when it first listens
            for task in (plain(site), supervised(site)):
                task.apply_async((1,), {"y": 2}, task_id="the-id")
            wait_for(lambda: drained(listening) and len(heard) == 2, what="both events")
    theirs, ours = ({name: event[name] for name in SENT} for event in heard)
    assert ours == {**theirs, "name": "shop.add"}


SENT = ("uuid", "name", "args", "kwargs", "queue", "exchange", "routing_key", "root_id", "parent_id", "retries")


def drained(connection: Any) -> bool:
    """Take what has arrived at a connection."""
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.1)
    return True


def test_a_producer_of_the_callers(site: Site) -> None:
    """`producer=` is taken, as before; the message goes out once."""
    with site.app.producer_pool.acquire(block=True) as producer:
        result = supervised(site).apply_async((1,), producer=producer)
    assert [message["headers"]["id"] for message in site.messages()] == [result.id]


# --- times -----------------------------------------------------------------------------------------------


def in_a_minute(zone: timezone = UTC) -> datetime:
    """A minute from now, in a zone."""
    return datetime.now(zone) + timedelta(seconds=60)


@pytest.mark.parametrize("app_zone", ["UTC", "Asia/Tokyo"])
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(lambda: {"countdown": 60}, id="countdown"),
        pytest.param(lambda: {"eta": in_a_minute()}, id="aware"),
        pytest.param(lambda: {"eta": in_a_minute(timezone(timedelta(hours=9)))}, id="of another zone"),
        pytest.param(lambda: {"eta": in_a_minute().isoformat()}, id="text"),
        pytest.param(lambda: {"eta": in_a_minute().replace(tzinfo=None)}, id="naive, which Celery reads as UTC"),
        pytest.param(lambda: {"eta": in_a_minute().replace(tzinfo=None).isoformat()}, id="naive text"),
    ],
)
def test_later_start_is_a_time_in_the_row(
    open_site: Callable[..., Site], given: Callable[[], dict[str, Any]], app_zone: str
) -> None:
    """The time is the one at which Celery's own worker would start it; nothing goes to the broker before."""
    site = open_site(timezone=app_zone)
    options = given()
    plain(site).apply_async((1,), **options)
    (theirs,) = site.messages()
    meant = maybe_make_aware(maybe_iso8601(theirs["headers"]["eta"]), site.app.timezone)
    site.broker.flushdb()
    job = site.job(supervised(site).apply_async((1,), **options))
    assert job.starts_at is not None
    assert abs(job.starts_at - meant) < timedelta(seconds=5)
    site.runtime.relay.run_once()
    assert site.messages() == []


def test_a_time_that_is_past_starts_at_once(site: Site) -> None:
    """An `eta` before now, and a negative countdown, are no error: as with Celery."""
    task = supervised(site)
    task.apply_async((1,), eta=datetime.now(UTC) - timedelta(hours=1))
    task.apply_async((1,), countdown=-5)
    assert len(site.messages()) == 2


@pytest.mark.parametrize(
    "given",
    [lambda: 60, lambda: 60.5, lambda: timedelta(seconds=60), in_a_minute],
    ids=["int", "float", "span", "time"],
)
def test_expires_is_a_time_in_the_row(site: Site, given: Callable[[], Any]) -> None:
    """Judged on the database's clock at the claim; the message does not carry it."""
    result = supervised(site).apply_async((1,), expires=given())
    with site.runtime.engines().connect() as connection:
        found = connection.exec_driver_sql("SELECT start_by - created_at FROM supervise.jobs").scalar_one()
    assert timedelta(seconds=50) < found < timedelta(seconds=61)
    assert site.messages()[0]["headers"]["expires"] is None
    assert site.job(result).state is State.PENDING


# --- ids -------------------------------------------------------------------------------------------------


def test_own_ids(site: Site) -> None:
    """Any text that Celery takes as an id is a job's id."""
    result = supervised(site).apply_async((1,), task_id="invoice 2026/11 ü")
    assert (result.id, site.job(result).id) == ("invoice 2026/11 ü", "invoice 2026/11 ü")


@pytest.mark.parametrize("bad", ["", " ", "nul\0", "x" * 256, 7])
def test_impossible_ids_are_refused(site: Site, bad: Any) -> None:
    """What the database cannot index is refused at the call; an empty id means none, as with Celery."""
    if bad == "":
        assert supervised(site).apply_async((1,), task_id=bad).id
        return
    with pytest.raises(InvalidInput, match="task_id"):
        supervised(site).apply_async((1,), task_id=bad)


def test_same_id_and_input_is_the_same_job(site: Site) -> None:
    """A second call with the id of a job and its input finds that job, and sends nothing."""
    task = supervised(site)
    first = task.apply_async((1,), {"y": 2}, task_id="one")
    second = task.apply_async((1,), {"y": 2}, task_id="one", countdown=60)
    assert first.id == second.id
    assert (site.supervise.jobs()[1], len(site.messages())) == (1, 1)


def test_same_id_and_other_input_is_refused(site: Site) -> None:
    """The id of a job does not stand for two different things."""
    task = supervised(site)
    task.apply_async((1,), task_id="one")
    with pytest.raises(JobExists) as refused:
        task.apply_async((2,), task_id="one")
    assert refused.value.job_id == "one"
    assert len(site.messages()) == 1


def test_idempotency_key(site: Site) -> None:
    """Two calls with one key are one job, told by its id."""
    task = supervised(site)
    first = task.apply_async((1,), supervise={"idempotency_key": "order-7"})
    second = task.apply_async((1,), supervise={"idempotency_key": "order-7"})
    assert first.id == second.id
    with pytest.raises(JobExists):
        task.apply_async((2,), supervise={"idempotency_key": "order-7"})


# --- our own options -------------------------------------------------------------------------------------


def test_options_of_a_call(site: Site) -> None:
    """`supervise=` is for us: Celery's message has none of it. Signatures carry it, too."""
    task = supervised(site)
    first = task.apply_async((1,), supervise={"owner": "acme", "deadline": timedelta(hours=1)})
    second = task.s(1).set(supervise={"owner": "acme"}).apply_async()
    assert site.job(first).owner_id == site.job(second).owner_id == "acme"
    assert site.job(first).deadline is not None
    assert "owner" not in str(site.messages()[0])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"ownr": "acme"}, "did you mean 'owner'"),
        ({"deadline": datetime(2030, 1, 1)}, "time zone"),  # noqa: DTZ001  # that is what is refused
        ({"deadline": -timedelta(seconds=1)}, "greater than 0, not -1 s"),
        ({"owner": ""}, "owner"),
    ],
)
def test_wrong_options_are_refused(site: Site, given: dict[str, Any], told: str) -> None:
    """At the call, naming what is wrong; nothing is written."""
    with pytest.raises(InvalidInput, match=told):
        supervised(site).apply_async((1,), supervise=given)
    assert site.supervise.jobs()[1] == 0


def test_a_deadline_that_is_past_is_refused(site: Site) -> None:
    """By the database's clock."""
    with pytest.raises(InvalidInput, match="past"):
        supervised(site).apply_async((1,), supervise={"deadline": datetime(2020, 1, 1, tzinfo=UTC)})


# --- what it costs ---------------------------------------------------------------------------------------


def test_two_round_trips(site: Site) -> None:
    """A submit is one statement, its publish, and one statement more."""
    task = supervised(site)
    task.delay(1)
    with site.statements() as sent:
        task.delay(2)
    assert len(sent) == 2
    assert len(site.messages()) == 2


def test_groups(site: Site) -> None:
    """Each member of a group is a job, published once."""
    task = supervised(site)
    result = group(task.s(number) for number in range(5)).apply_async()
    assert len(result.results) == 5
    assert {site.job(one).state for one in result.results} == {State.PENDING}
    assert len(site.messages()) == 5
    assert {message["headers"]["group"] for message in site.messages()} == {result.id}


# --- what is away ----------------------------------------------------------------------------------------


def test_database_away(open_site: Callable[..., Site]) -> None:
    """The call is refused at once, and nothing was sent: no message without a row."""
    site = open_site(supervise_database_url="postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable):
        supervised(site).delay(1)
    assert site.messages() == []


def test_schema_not_migrated(open_site: Callable[..., Site], empty_database: Database) -> None:
    """The call says what to do."""
    site = open_site(supervise_database_url=empty_database.owner_url)
    with pytest.raises(NotMigrated, match="supervise migrate"):
        supervised(site).delay(1)


def test_result_backend_away(open_site: Callable[..., Site]) -> None:
    """A submit does not ask the result backend: one that is down refuses nothing."""
    site = open_site(result_backend="redis://127.0.0.1:1/0")
    result = supervised(site).delay(1)
    assert site.job(result).state is State.PENDING
    assert len(site.messages()) == 1


def test_an_unknown_job_is_no_result(site: Site) -> None:
    """Looking for an id that nobody gave out finds nothing."""
    with pytest.raises(JobNotFound):
        site.supervise.job("nobody")
