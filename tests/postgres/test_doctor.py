"""`doctor` on a real database: each ailment is found, said what it means, and what helps; health is not mistaken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from celery_supervise import ailments, versions
from celery_supervise.brokers import Broker
from celery_supervise.config import Settings
from celery_supervise.doctor import Examined, Finding, Patient, Severity, Surroundings, examine
from celery_supervise.engine import create_engine
from celery_supervise.lifecycle import State
from celery_supervise.relay import Relay
from celery_supervise.store.door import Door
from celery_supervise.store.time import STAMP_BAD
from celery_supervise.sweeps import SWEEPS, Sweeper, run_all
from tests.postgres.operations import told
from tests.postgres.shop import Shop, some_uuid
from tests.servers import RUNTIME, Database

DAY = timedelta(days=1)
NO_TIME = timedelta(0)
SETTINGS = Settings(sweep_seconds=60.0)
AROUND = Surroundings(queue="celery", transport="redis", visibility=DAY, prefetch=1)


def patient_of(shop: Shop, **changes: Any) -> Patient:
    """A shop as it comes to the doctor."""
    return replace(Patient(SETTINGS, shop.door, shop.broker, AROUND, Broker(shop.door, lambda: "db:6379/0")), **changes)


def sweep(shop: Shop, *, lease: timedelta = timedelta(milliseconds=1)) -> None:
    """One pass of every sweep. With a short lease a server that has just started counts as old."""
    door = door_of(shop.engine, lease=lease)
    sweeper = Sweeper(door, period=timedelta(seconds=SETTINGS.sweep_seconds))
    run_all(sweeper, force=True)
    sweeper.find_lost(Relay(door, shop.broker, settling=NO_TIME), force=True)


def door_of(engine: Engine, *, lease: timedelta = timedelta(seconds=60)) -> Door:
    """A door to the database of an engine."""
    second = timedelta(seconds=1)
    return Door(
        lambda: engine, schema="supervise", namespace="default", lease=lease, lock_timeout=second, publish_hold=second
    )


def findings(patient: Patient, check: str) -> list[Finding]:
    """What one check finds."""
    return list(next(examined for examined in examine(patient) if examined.check == check).findings)


def only(patient: Patient, check: str, severity: Severity) -> Finding:
    """The one finding of a check, of this severity; what is no health says what it means and what helps."""
    found = findings(patient, check)
    assert [finding.severity for finding in found] == [severity], found
    if severity in {Severity.ERROR, Severity.WARNING}:
        assert found[0].meaning
        assert found[0].advice
    return found[0]


@contextmanager
def tampered(database: Database, break_it: str, mend_it: str) -> Iterator[None]:
    """The database while its owner has done what nobody should."""
    owner = create_engine(database.owner_url)
    try:
        with owner.begin() as connection:
            connection.exec_driver_sql(break_it)
        yield
    finally:
        with owner.begin() as connection:
            connection.exec_driver_sql(mend_it)
        owner.dispose()


def test_a_shop_that_is_well(shop: Shop) -> None:
    """With jobs in every state, swept a moment ago, every check finds health."""
    shop.pending()
    shop.running()
    shop.asked()
    shop.paused()
    for state in (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED):
        shop.ended(state)
    sweep(shop)
    assert [
        finding for one in examine(patient_of(shop)) for finding in one.findings if finding.severity != Severity.OK
    ] == []


# --- the foundation --------------------------------------------------------------------------------------


def test_a_database_that_is_away(shop: Shop) -> None:
    """It is an error that it is away; what needs it is not checked, what does not is."""
    away = create_engine("postgresql://nobody@127.0.0.1:1/nothing")
    examined = {one.check: one for one in examine(patient_of(shop, door=door_of(away)))}
    assert examined["database"].unreachable
    assert severities(examined["database"]) == [Severity.ERROR]
    assert severities(examined["broker"]) == [Severity.OK]
    for name in ("schema", "role", "rules", "sweeps", "jobs", "celery"):
        assert severities(examined[name]) == [Severity.UNCHECKED]
        assert not examined[name].unreachable


def severities(examined: Examined) -> list[Severity]:
    """How bad what a check found is."""
    return [finding.severity for finding in examined.findings]


def test_a_database_that_is_not_migrated(shop: Shop, empty_database_url: str) -> None:
    """Missing tables are one error, with the command that makes them."""
    empty = create_engine(empty_database_url)
    patient = patient_of(shop, door=door_of(empty))
    assert "supervise migrate" in only(patient, "schema", Severity.ERROR).advice
    only(patient, "rules", Severity.UNCHECKED)
    empty.dispose()


def test_few_connections_left(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Postgres that is nearly full is a warning."""
    monkeypatch.setattr(ailments, "FEW_CONNECTIONS", 0.0)
    assert "max_connections" in findings(patient_of(shop), "database")[1].advice


def test_an_application_that_owns_its_log(shop: Shop, database: Database) -> None:
    """A role that could take the log away is a warning, a superuser too."""
    for url in (database.owner_url, database.superuser_url):
        engine = create_engine(url)
        assert "--runtime-role" in only(patient_of(shop, door=door_of(engine)), "role", Severity.WARNING).advice
        engine.dispose()


def test_a_role_that_lacks_a_right(shop: Shop, database: Database) -> None:
    """What Postgres refuses is an error of that check, the others go on."""
    table = "supervise.sweeps"
    with tampered(database, f"REVOKE SELECT ON {table} FROM {RUNTIME}", f"GRANT SELECT ON {table} TO {RUNTIME}"):
        found = only(patient_of(shop), "sweeps", Severity.ERROR)
        only(patient_of(shop), "rules", Severity.OK)
    assert (found.what, "--runtime-role" in found.advice) == ("permission denied for table sweeps", True)


# --- rules and loops -------------------------------------------------------------------------------------


def test_a_parked_job_without_a_reason(shop: Shop, database: Database) -> None:
    """The mission's alarm: a job that stands still and does not say why is an error, and named."""
    job = shop.paused()
    change = f"UPDATE supervise.jobs SET watchdog_stop_reason = {{}} WHERE id = '{job.id}'"
    with tampered(database, change.format("NULL"), change.format("'user_paused'")):
        found = [finding.what for finding in findings(patient_of(shop), "rules")]
    assert f"parked_has_reason: 1 job ({job.id})" in found


def test_many_jobs_break_one_rule(shop: Shop, database: Database) -> None:
    """They are one finding, with their number and the first of them."""
    jobs = [shop.paused() for _ in range(6)]
    change = "UPDATE supervise.jobs SET watchdog_stop_reason = {}"
    with tampered(database, change.format("''"), change.format("'user_paused'")):
        found = [finding.what for finding in findings(patient_of(shop), "rules")]
    told = next(what for what in found if what.startswith("parked_has_reason: 6 jobs ("))
    assert sum(job.id in told for job in jobs) == 5
    assert told.endswith(", …)")


def test_sweeps_that_never_ran(shop: Shop) -> None:
    """Before there is a job it is a warning, then an error: nothing would expire."""
    every = ", ".join(ailments.SWEEPS.values())
    assert every in only(patient_of(shop), "sweeps", Severity.WARNING).what
    shop.pending()
    assert "supervise sweep" in only(patient_of(shop), "sweeps", Severity.ERROR).advice


def test_sweeps_that_have_stopped(shop: Shop) -> None:
    """A sweep whose last good pass is older than three periods is an error."""
    sweep(shop)
    only(patient_of(shop), "sweeps", Severity.OK)
    late = findings(patient_of(shop, settings=replace(SETTINGS, sweep_seconds=1e-6)), "sweeps")
    assert sorted(finding.what.split(":")[0] for finding in late) == sorted(ailments.SWEEPS.values())
    assert {finding.severity for finding in late} == {Severity.ERROR}


def test_sweeps_that_hold_back(shop: Shop) -> None:
    """A sweep that mistrusts what it sees is an error as long as it does, with its reason."""
    sweep(shop, lease=DAY)
    found = findings(patient_of(shop), "sweeps")
    assert [finding.what for finding in found] == [
        f"{name}: holds back, since Postgres has just started: heartbeats may have failed before"
        for key, name in sorted(ailments.SWEEPS.items())
        if key in {one.name for one in SWEEPS if one.count}
    ]


def test_a_job_that_makes_a_sweep_fail(shop: Shop) -> None:
    """A row that was set aside is an error, and named."""
    job = shop.pending()
    shop.door.one(STAMP_BAD, job_id=job.id, backoff=DAY)
    assert job.id in only(patient_of(shop), "jobs", Severity.ERROR).what


# --- what waits too long ---------------------------------------------------------------------------------


def test_ends_that_were_not_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ended long ago and whose caller waits still is an error, until Celery has been told."""
    job = shop.ended(State.FAILED)
    only(patient_of(shop), "jobs", Severity.OK)
    monkeypatch.setattr(ailments, "UNTOLD_AFTER", NO_TIME)
    assert f"1 job ({job.id}) ended" in only(patient_of(shop), "jobs", Severity.ERROR).what


def test_messages_that_were_not_sent(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose message is late is an error with the broker's last word; one that is not due yet is none."""
    shop.broker.down = True
    shop.pending(due=timedelta(hours=1))
    monkeypatch.setattr(ailments, "UNSENT_AFTER", NO_TIME)
    only(patient_of(shop), "jobs", Severity.OK)
    shop.pending()
    assert only(patient_of(shop), "jobs", Severity.ERROR).what.startswith("1 message waits to be sent")


def test_jobs_that_no_worker_takes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that wait in a queue for long are a warning by queue, with the command for a worker."""
    shop.pending(queue="batch")
    shop.pending(queue="batch")
    shop.running(queue="other")
    monkeypatch.setattr(ailments, "UNSTARTED_AFTER", NO_TIME)
    found = only(patient_of(shop), "jobs", Severity.WARNING)
    assert found.what.startswith("2 jobs wait in queue batch")
    assert "worker -Q batch" in found.advice


def test_jobs_that_no_worker_can_run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that workers have left for long are a warning by task and version."""
    job = shop.pending(task_version=2)
    assert versions.leave(shop.door, job.id, job.ticket_id or some_uuid(), versions=(1,), version=1)
    only(patient_of(shop), "jobs", Severity.OK)
    monkeypatch.setattr(ailments, "UNSTARTED_AFTER", NO_TIME)
    found = only(patient_of(shop), "jobs", Severity.WARNING)
    assert found.what.startswith("1 job waits (shop.task, version 2) for up to ")


# --- holds -----------------------------------------------------------------------------------------------


def test_a_hold_that_was_forgotten(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is older than a day is a warning, with who made it and the command that ends it."""
    shop.supervisor.hold(task="shop.task", reason="the bank is down", actor="user:ann")
    assert only(patient_of(shop), "holds", Severity.OK).what == "1 held, none for longer than 1 d"
    monkeypatch.setattr(ailments, "FORGOTTEN_AFTER", NO_TIME)
    found = only(patient_of(shop), "holds", Severity.WARNING)
    assert re.fullmatch(r"task shop\.task is held by user:ann for \d+ s: the bank is down", found.what)
    assert found.advice.endswith("supervise release --task=shop.task")


# --- retention -------------------------------------------------------------------------------------------


def test_old_jobs_that_nothing_removes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a retention setting, old jobs are a warning with the setting and the command; young ones are none."""
    told(shop)
    assert only(patient_of(shop), "retention", Severity.OK).what == "no ended job is older than 90 days"
    monkeypatch.setattr(ailments, "OLD_AFTER", NO_TIME)
    found = only(patient_of(shop), "retention", Severity.WARNING)
    assert found.what.startswith("1 job ended more than")
    assert "supervise_retention_seconds" in found.advice
    assert "prune --older-than" in found.advice


def test_jobs_that_retention_leaves(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting, a job that is still there a day after its time is a warning."""
    told(shop)
    keeping = replace(SETTINGS, retention_seconds=0.001)
    only(patient_of(shop, settings=keeping), "retention", Severity.OK)
    monkeypatch.setattr(ailments, "LATE_AFTER", NO_TIME)
    monkeypatch.setattr(ailments, "MANY", 1)
    found = only(patient_of(shop, settings=keeping), "retention", Severity.WARNING)
    assert found.what.startswith("1 or more jobs are older than supervise_retention_seconds")


def test_a_retention_that_was_switched_off_is_not_late(shop: Shop) -> None:
    """Its sweep is looked at only while it is wanted."""
    sweep(shop)
    Sweeper(shop.door, period=NO_TIME).prune(DAY, force=True)
    shift = "UPDATE supervise.sweeps SET last_ok_at = last_ok_at - interval '1 day' WHERE name = 'prune'"
    with shop.engine.begin() as connection:
        connection.exec_driver_sql(shift)
    only(patient_of(shop), "sweeps", Severity.OK)
    keeping = replace(SETTINGS, retention_seconds=1.0)
    assert only(patient_of(shop, settings=keeping), "sweeps", Severity.ERROR).what.startswith(
        "retention: last ran well"
    )


# --- broker and Celery -----------------------------------------------------------------------------------


def test_a_broker_that_is_away(shop: Shop) -> None:
    """It is an error, and says that no job is lost by it."""
    shop.broker.down = True
    found = only(patient_of(shop), "broker", Severity.ERROR)
    assert "connection refused" in found.what
    assert "kept" in found.meaning


def test_the_broker_is_counted_where_it_can_be(shop: Shop) -> None:
    """How many messages of ours wait is told where the broker can tell."""
    shop.pending()
    assert only(patient_of(shop), "broker", Severity.OK).what == "redis answers, 1 of our messages in queue celery"
    shop.broker.countable = False
    assert only(patient_of(shop), "broker", Severity.OK).what == "redis answers"


def test_jobs_longer_than_the_visibility_timeout(shop: Shop) -> None:
    """A job that runs longer than the broker waits is a warning; where the broker does not wait there is none."""
    shop.running()
    only(patient_of(shop), "celery", Severity.OK)
    short = replace(AROUND, visibility=NO_TIME)
    assert "visibility_timeout" in only(patient_of(shop, around=short), "celery", Severity.WARNING).advice
    rabbit = replace(short, transport="amqp")
    assert "consumer_timeout" in only(patient_of(shop, around=rabbit), "celery", Severity.WARNING).advice
    only(patient_of(shop, around=replace(short, transport="memory")), "celery", Severity.OK)


def test_a_worker_that_takes_more_than_it_runs(shop: Shop) -> None:
    """A prefetch multiplier above one is advised against: jobs would wait behind a long one."""
    found = only(patient_of(shop, around=replace(AROUND, prefetch=4)), "celery", Severity.WARNING)
    assert "worker_prefetch_multiplier = 1" in found.advice
