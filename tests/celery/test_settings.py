"""Each setting does what `docs/settings.md` says of it: a setting that is accepted and ignored would be a lie."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from celery import Celery
from sqlalchemy.orm import Session

from celery_supervise import (
    ConfigError,
    Conflict,
    InvalidInput,
    JobFailed,
    JobNotFound,
    NotAllowed,
    Options,
    State,
    SupervisedTask,
    TooLarge,
)
from celery_supervise.cli.serving import application
from celery_supervise.config import Settings
from celery_supervise.errors import QuotaExceeded
from celery_supervise.migrate import migrate
from celery_supervise.model import Attempt, Claimer
from celery_supervise.policy import Identity
from celery_supervise.runtime import settings_of
from celery_supervise.sweeps import SHELVING, Pass
from celery_supervise.versions import leave
from celery_supervise.worker import Keeper
from tests.celery.site import Site, body_of, working
from tests.servers import RUNTIME, Database
from tests.tools import wait_for
from tests.web.conftest import served

OpenSite = Callable[..., Site]


class Reversing:
    """A codec that anybody can see at work."""

    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        """Backwards, under a key of this name."""
        return data[::-1], "mirror"

    def decode(self, data: bytes, key_id: str | None) -> bytes:
        """Forwards again."""
        assert key_id == "mirror"
        return data[::-1]


CODEC = Reversing()


def tenant() -> str:
    """Whose request this is."""
    return "acme"


def add(x: int, y: int = 0) -> int:
    """A task."""
    return x + y


def ask(self: SupervisedTask) -> str:
    """A task that asks."""
    return self.ask("approve", "Well?", choices=["yes", "no"])


def ask_finance(self: SupervisedTask) -> str:
    """A task that asks a group."""
    return self.ask("approve", "Well?", choices=["yes", "no"], to="group:finance")


def one(_owner: str) -> int:
    """Everybody may have one."""
    return 1


def groups_of(actor: str) -> list[str]:
    """Who is in which group."""
    return ["finance"] if actor == "user:ann" else []


READS = ["finance"]
"""No function."""


def hoard(self: SupervisedTask, size: int) -> int:
    """A task that remembers three times as much as it is told."""
    return sum(len(self.step(f"step {number}", str.ljust, "", size)) for number in range(3))


def supervised(site: Site, body: Callable[..., Any] = add) -> Any:
    """A supervised task of the app."""
    bound = next(iter(body.__code__.co_varnames), "") == "self"
    return site.app.task(base=SupervisedTask, bind=bound, shared=False, name=f"shop.{body.__name__}")(body)


def rows(site: Site, sql: str) -> list[Any]:
    """What the database says."""
    with site.runtime.engines().connect() as connection:
        return [row[0] for row in connection.exec_driver_sql(sql)]


def claimed(site: Site, job_id: str) -> Attempt:
    """Claim the job as a worker would."""
    service = site.supervise
    ticket = service.job(job_id).ticket_id
    assert ticket is not None
    service.claim(job_id, ticket, Claimer(uuid4(), "worker@test", 1))
    return service.attempts(job_id)[0]


# --- where jobs are, and whose ---------------------------------------------------------------------------


def test_database_url_is_needed() -> None:
    """`supervise_database_url`: without it the first call says which setting is missing."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    with pytest.raises(ConfigError, match="supervise_database_url"):
        app.task(base=SupervisedTask, shared=False, name="shop.add")(add).delay(1)


def test_schema(open_site: OpenSite, database: Database) -> None:
    """`supervise_schema`: jobs are in the tables of that schema, and of no other."""
    migrate(database.owner_url, schema="ours", runtime_role=RUNTIME)
    site = open_site(supervise_schema="ours")
    supervised(site).delay(1)
    assert rows(site, "SELECT count(*) FROM ours.jobs") == [1]
    assert rows(site, "SELECT count(*) FROM supervise.jobs") == [0]


def test_namespace(open_site: OpenSite) -> None:
    """`supervise_namespace`: an app does not see the jobs of another one on the same tables."""
    one, two = open_site(supervise_namespace="one"), open_site(supervise_namespace="two")
    result = supervised(one).delay(1)
    assert one.job(result).namespace == "one"
    with pytest.raises(JobNotFound):
        two.job(result)


def test_owner(open_site: OpenSite) -> None:
    """`supervise_owner`: the function says whose a job is, unless the call does."""
    site = open_site(supervise_owner=f"{__name__}:tenant")
    task = supervised(site)
    assert site.job(task.delay(1)).owner_id == "acme"
    assert site.job(task.apply_async((1,), supervise={"owner": "other"})).owner_id == "other"


def test_groups(open_site: OpenSite) -> None:
    """`supervise_groups`: its members may answer a question to a group, nobody else; asked only where it is set."""
    site, other = open_site(supervise_groups=f"{__name__}:groups_of"), open_site()
    task = supervised(site, ask_finance)
    with working(site):
        result = task.delay()
        question = wait_for(lambda: next(iter(site.supervise.questions()), None))
        with pytest.raises(NotAllowed):
            site.supervise.answer(question.id, "yes", actor="user:bob")
        with pytest.raises(NotAllowed):
            other.supervise.answer(question.id, "yes", actor="user:ann")
        site.supervise.answer(question.id, "yes", actor="user:ann")
        assert result.get(timeout=20) == "yes"


def test_without_groups_none_is_asked(open_site: OpenSite) -> None:
    """Without the setting a question to a group fails its job: nobody could answer it."""
    site = open_site()
    task = supervised(site, ask_finance)
    with working(site):
        result = task.delay()
        with pytest.raises(JobFailed, match="InvalidInput: to: names a group, and supervise_groups is not set"):
            result.get(timeout=20)


def test_groups_must_be_a_function(open_site: OpenSite) -> None:
    """What the setting names is found at the first use, and is a function."""
    site = open_site(supervise_groups=f"{__name__}:READS")
    with pytest.raises(ConfigError, match="supervise_groups"):
        site.supervise.jobs()


def test_codec(open_site: OpenSite) -> None:
    """`supervise_codec`: what is stored went through it, and comes back through it."""
    site = open_site(supervise_codec=f"{__name__}:CODEC")
    task = supervised(site)
    with working(site):
        result = task.delay(40, 2)
        assert result.get(timeout=20) == 42
    assert set(rows(site, "SELECT key_id FROM supervise.payloads")) == {"mirror"}
    assert site.supervise.result(result.id) == 42


# --- who makes the row -----------------------------------------------------------------------------------


def test_submit_row(open_site: OpenSite) -> None:
    """`supervise_submit = "row"`: the row is there when the call returns."""
    site = open_site(supervise_submit="row")
    assert site.job(supervised(site).delay(1)).state is State.PENDING


def test_submit_worker(open_site: OpenSite) -> None:
    """`supervise_submit = "worker"`: the message is Celery's own, without a row; the row is made on receipt."""
    site = open_site(supervise_submit="worker")
    result = supervised(site).delay(40, 2)
    (message,) = site.messages()
    assert "supervise" not in message["headers"]
    with pytest.raises(InvalidInput, match="supervise_submit"):
        supervised(site).apply_async((1, 1), supervise={"idempotency_key": "once"})
    assert body_of(message)[0] == [40, 2]
    with pytest.raises(JobNotFound):
        site.job(result)
    with working(site):
        assert result.get(timeout=20) == 42
        site.settled(result)
    submitted = site.entries(result)[0]
    assert (submitted.event, submitted.actor) == ("submitted", "message")


# --- times -----------------------------------------------------------------------------------------------


def test_lease(open_site: OpenSite) -> None:
    """`supervise_lease_seconds`: from its claim an attempt has so long."""
    site = open_site(supervise_lease_seconds=42.0)
    attempt = claimed(site, supervised(site).delay(1).id)
    assert attempt.lease_until - attempt.started_at == timedelta(seconds=42)


def test_periods(open_site: OpenSite) -> None:
    """`supervise_heartbeat_seconds`, `supervise_sweep_seconds`, `supervise_relay_seconds`: how often threads act."""
    site = open_site(supervise_heartbeat_seconds=0.9, supervise_sweep_seconds=7.0, supervise_relay_seconds=2.0)
    keeper = Keeper(site.runtime)
    every = {duty.name: duty.every for duty in (*keeper._pulse, *keeper._rounds)}
    assert (every["heartbeat"], every["relay"]) == (0.9, 2.0)
    assert {every[name] for name in ("expire", "reap", "lost")} == {7.0}


def test_lock_timeout(open_site: OpenSite) -> None:
    """`supervise_lock_timeout_seconds`: whoever waits for a row that long is told that it is busy."""
    site = open_site(supervise_lock_timeout_seconds=0.2)
    result = supervised(site).delay(1)
    with site.runtime.engines().begin() as connection:
        connection.exec_driver_sql("SELECT 1 FROM supervise.jobs FOR UPDATE")
        start = time.monotonic()
        with pytest.raises(Conflict) as refused:
            site.supervise.pause(result.id, actor="user:ann")
    assert refused.value.code == "busy"
    assert 0.2 <= time.monotonic() - start < 5


def test_republish(open_site: OpenSite) -> None:
    """`supervise_republish_seconds`: a message that is gone is sent again when it is older than that, not before."""
    patient, hasty = open_site(supervise_republish_seconds=60.0), open_site(supervise_republish_seconds=0.001)
    supervised(patient).delay(1)
    patient.broker.flushdb()
    for site, again in ((patient, 0), (hasty, 1)):
        assert sum(site.runtime.relay.find_lost() for _ in range(3)) == again


def test_question_ttl(open_site: OpenSite) -> None:
    """`supervise_question_ttl_seconds`: a question without a time of its own is open so long."""
    site = open_site(supervise_question_ttl_seconds=5400.0)
    task = supervised(site, ask)
    with working(site):
        question = site.parked(task.delay())
    assert question.expires_at - question.asked_at == timedelta(minutes=90)


def test_deadline(open_site: OpenSite) -> None:
    """`supervise_deadline_seconds`: a job that names no deadline has this one, from its submit."""
    site = open_site(supervise_deadline_seconds=7200.0)
    task = supervised(site)
    job = site.job(task.delay(1))
    assert job.deadline is not None
    assert job.deadline - job.created_at == timedelta(hours=2)
    own = site.job(task.apply_async((1,), supervise={"deadline": timedelta(hours=1)}))
    assert own.deadline is not None
    assert own.deadline - own.created_at == timedelta(hours=1)


# --- bounds ----------------------------------------------------------------------------------------------


def test_lost_attempts(open_site: OpenSite) -> None:
    """`supervise_lost_attempts`: the row knows how many may die. That it is kept to, `test_leases.py` shows."""
    site = open_site(supervise_lost_attempts=5)
    supervised(site).delay(1)
    assert rows(site, "SELECT lost_limit FROM supervise.jobs") == [5]


def test_stall_seconds(open_site: OpenSite) -> None:
    """`supervise_stall_seconds`: how long a job may stand still whose task does not say; it is only logged."""
    site = open_site(supervise_stall_seconds=90.0)
    supervised(site).delay(1)
    own = Options(stall_after=timedelta(hours=2), on_stall="fail")
    site.app.task(base=SupervisedTask, shared=False, name="shop.slow", supervise=own)(add).delay(1)
    found = rows(site, "SELECT extract(epoch FROM stall_after) || on_stall FROM supervise.jobs ORDER BY created_at")
    assert found == ["90.000000log", "7200.000000fail"]


@pytest.mark.parametrize(("seconds", "state"), [(0.001, State.PARKED), (60.0, State.PENDING)])
def test_version_grace_seconds(open_site: OpenSite, seconds: float, state: State) -> None:
    """`supervise_version_grace_seconds`: so long a job that no code can run stays as it is."""
    site = open_site(supervise_version_grace_seconds=seconds)
    job = site.job(supervised(site).delay(1))
    assert job.ticket_id is not None
    assert leave(site.runtime.door, job.id, job.ticket_id, versions=(2,), version=2)
    rows(site, "SELECT pg_sleep(0.01)")
    site.runtime.sweeper._move(Pass(SHELVING), [job.id])
    assert site.supervise.job(job.id).state is state


def test_max_value_bytes(open_site: OpenSite) -> None:
    """`supervise_max_value_bytes`: a longer value is refused at the call, with both numbers."""
    site = open_site(supervise_max_value_bytes=200)
    with pytest.raises(TooLarge) as refused:
        supervised(site).delay("x" * 200)
    assert (refused.value.limit, refused.value.size > 200) == (200, True)


def test_max_job_bytes(open_site: OpenSite) -> None:
    """`supervise_max_job_bytes`: what all steps together may store."""
    site = open_site(supervise_max_job_bytes=1000)
    task = supervised(site, hoard)
    with working(site):
        assert task.delay(300).get(timeout=20) == 900
        with pytest.raises(Exception, match="the limit is 1000"):
            task.delay(400).get(timeout=20)


@pytest.mark.parametrize("kept", [None, 0.001])
def test_retention(open_site: OpenSite, kept: float | None) -> None:
    """`supervise_retention_seconds`: a worker removes what ended longer ago; without it no sweep does."""
    site = open_site(supervise_sweep_seconds=0.1, supervise_retention_seconds=kept)
    task, sweeps = supervised(site), "SELECT name FROM supervise.sweeps WHERE last_ok_at IS NOT NULL"
    with working(site):
        assert task.delay(1).get(timeout=20) == 1
        wait_for(lambda: kept is None or rows(site, "SELECT id FROM supervise.jobs") == [])
        wait_for(lambda: "lost" in rows(site, sweeps))
    assert ("prune" in rows(site, sweeps)) is (kept is not None)


# --- how many --------------------------------------------------------------------------------------------


def test_release_window(open_site: OpenSite) -> None:
    """`supervise_release_window`: with so many out of a queue, calls are accepted and wait in their rows."""
    site = open_site(supervise_release_window=2)
    task = supervised(site)
    waiting = "SELECT id FROM supervise.jobs WHERE ticket_released_at IS NULL"
    last = wait_for(lambda: [one for one in [task.delay(1)] if rows(site, waiting)])[0]
    assert rows(site, waiting) == [last.id]
    assert last.id not in {message["headers"]["id"] for message in site.messages()}
    with working(site):
        assert last.get(timeout=20) == 1


@pytest.mark.parametrize(("limit", "sent"), [(2, 2), (f"{__name__}:one", 1)])
def test_owner_running(open_site: OpenSite, limit: int | str, sent: int) -> None:
    """`supervise_owner_running`: of one owner's jobs the relay sends so many; a number, or what a function says."""
    site = open_site(supervise_owner_running=limit, supervise_owner=f"{__name__}:tenant")
    task = supervised(site)
    results = [task.delay(number) for number in range(3)]
    assert site.messages() == []
    assert (site.runtime.relay.publish_once().published, len(site.messages())) == (sent, sent)
    with working(site):
        assert [result.get(timeout=20) for result in results] == [0, 1, 2]


@pytest.mark.parametrize(("limit", "accepted"), [(2, 2), (f"{__name__}:one", 1)])
def test_owner_open(open_site: OpenSite, limit: int | str, accepted: int) -> None:
    """`supervise_owner_open`: an owner's next call is refused; a number, or what a function says."""
    site = open_site(supervise_owner_open=limit, supervise_owner=f"{__name__}:tenant")
    task = supervised(site)
    jobs = [task.delay(number) for number in range(accepted)]
    with pytest.raises(QuotaExceeded, match=rf"'acme' has {accepted} open jobs?,"):
        task.delay(9)
    site.supervise.cancel(str(jobs[0].id), actor="user:ann")
    assert task.delay(9).id


@pytest.mark.parametrize(("mode", "kind"), [("raise", "JobResult"), ("wait", "AsyncResult")])
def test_get_parked(open_site: OpenSite, mode: str, kind: str) -> None:
    """`supervise_get_parked`: what results a call gives; what they do, `test_getting` shows."""
    assert type(supervised(open_site(supervise_get_parked=mode)).delay(1)).__name__ == kind


def test_session(open_site: OpenSite) -> None:
    """`supervise_session`: whose commit `delay_on_commit` waits for; here it never comes."""
    site = open_site(supervise_session=f"{__name__}:open_session")
    site.supervise.jobs()
    sessions.append(Session(site.runtime.engines()))
    result = supervised(site).delay_on_commit(1)
    sessions.pop().close()
    with pytest.raises(JobNotFound):
        site.job(result)


sessions: list[Session] = []


def open_session() -> Session:
    """The caller's."""
    return sessions[-1]


# --- machinery -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_worker_thread(open_site: OpenSite, wanted: bool) -> None:
    """`supervise_worker_thread`: whether a worker has the threads that keep leases, relay and sweep."""
    site = open_site(supervise_worker_thread=wanted)
    supervised(site)
    before = set(threading.enumerate())
    with working(site):
        assert bool(keepers(before)) == wanted
    wait_for(lambda: not keepers(before), what="their end")


def keepers(before: set[threading.Thread]) -> set[threading.Thread]:
    """The library's threads that were not there before."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("celery-supervise")} - before


def test_beat_and_queue(open_site: OpenSite) -> None:
    """`supervise_beat`, `supervise_queue`: entries that expire when the next is due, in that queue; or none at all."""
    entries = schedule(open_site(supervise_beat=True, supervise_queue="upkeep", supervise_sweep_seconds=7.0))
    assert entries["supervise.sweep"]["options"] == {"expires": 7.0, "queue": "upkeep"}
    assert entries["supervise.relay"]["options"] == {"expires": 5.0, "queue": "upkeep"}
    assert "queue" not in schedule(open_site())["supervise.sweep"]["options"]
    assert schedule(open_site(supervise_beat=False)) == {}


def schedule(site: Site) -> Mapping[str, Any]:
    """Beat's entries of ours, once the app is complete."""
    supervised(site)
    site.app.finalize()
    return {name: entry for name, entry in site.app.conf.beat_schedule.items() if name.startswith("supervise.")}


def test_notify(open_site: OpenSite) -> None:
    """`supervise_notify` names the task that is told of questions; without it nobody is, and no message is sent."""
    for named, told in (({}, []), ({"supervise_notify": "shop.tell"}, ["shop.tell"])):
        site = open_site(supervise_worker_thread=False, task_routes={"shop.tell": {"queue": "mail"}}, **named)
        task = site.app.task(base=SupervisedTask, bind=True, shared=False, name="shop.ask")(ask)
        result = task.delay()
        with working(site):
            site.parked(result)
        assert [message["headers"]["task"] for message in site.messages("mail")] == told


def knock(request: Any) -> Identity | None:
    """Who it is, by what they say."""
    name = request.headers.get("x-knock")
    return Identity(name) if name else None


def test_authenticate(open_site: OpenSite) -> None:
    """`supervise_authenticate`: who sends a request to the HTTP API, says this function."""
    site = open_site(supervise_authenticate=f"{__name__}:knock")
    with served(application(site.runtime, None)) as url:
        statuses = [httpx.get(f"{url}/jobs", headers=headers).status_code for headers in ({}, {"X-Knock": "ann"})]
    assert statuses == [401, 200]


# --- names -----------------------------------------------------------------------------------------------


def test_celerys_own_namespace() -> None:
    """Where an app reads its settings with the prefix CELERY_, ours have it too, the misspelt ones also."""
    app = Celery("shop", set_as_current=False)
    app.config_from_object(SimpleNamespace(CELERY_SUPERVISE_LEASE_SECONDS=45.0), namespace="CELERY")
    assert settings_of(app).lease_seconds == 45.0
    app = Celery("shop", set_as_current=False)
    app.config_from_object(SimpleNamespace(CELERY_SUPERVISE_LEASE_SECOND=45.0), namespace="CELERY")
    with pytest.raises(ConfigError, match="supervise_lease_seconds"):
        settings_of(app)


def test_every_setting_is_shown_here() -> None:
    """No setting is without a test that it does something."""
    text = Path(__file__).read_text(encoding="utf-8")
    assert [field.name for field in fields(Settings) if f"`supervise_{field.name}" not in text] == []
