"""Sweeps: one run a period, bounded, holding back where an outage of ours looks like the workers' end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
import sqlalchemy as sa

from celery_supervise.engine import create_engine
from celery_supervise.errors import NotMigrated
from celery_supervise.lifecycle import State
from celery_supervise.model import Moved
from celery_supervise.sweeps import BATCH, EXPIRY, REAPING, SWEEPS, Own, Sweep, Sweeper, Swept, run_all
from tests.postgres.looking import Rows, backdate, execute, lapse, now, unchanged, wait_until
from tests.postgres.shop import Shop
from tests.servers import Database

HOUR = timedelta(hours=1)
SHORT = timedelta(milliseconds=300)


def sweeper(shop: Shop, *, period: timedelta = HOUR) -> Sweeper:
    """A process that sweeps, of its own."""
    return Sweeper(shop.door, period=period, identity=uuid4())


def record(shop: Shop, sweep: Sweep = REAPING) -> Rows:
    """The row of a sweep."""
    (found,) = execute(shop, "SELECT * FROM supervise.sweeps WHERE name = :name AND namespace = :ns",
                       name=sweep.name, ns=shop.door.namespace)  # fmt: skip
    return found


def lapsed(shop: Shop, count: int) -> list[str]:
    """So many jobs whose leases have ended."""
    ids = [shop.running().lease.job_id for _ in range(count)]
    for job_id in ids:
        lapse(shop, job_id)
    return ids


@pytest.fixture
def quick(open_shop: Callable[..., Shop]) -> Shop:
    """A shop with a lease so short that a hold-back is soon over, and that this Postgres is older than it."""
    shop = open_shop(lease=SHORT)
    started = execute(shop, "SELECT pg_postmaster_start_time() AS at")[0]["at"]
    wait_until(shop, started + SHORT)
    return shop


# --- one run a period ------------------------------------------------------------------------------------


def test_one_process_a_period_sweeps(quick: Shop) -> None:
    """Whoever comes within the period of another's run has nothing to do; the row says who ran."""
    first, second = sweeper(quick), sweeper(quick)
    assert first.run_once(REAPING).ran
    with_nothing = second.run_once(REAPING)
    assert (with_nothing.ran, with_nothing.held) == (False, None)
    assert record(quick)["claimed_by"] == first._identity
    assert second.run_once(REAPING, force=True).ran
    assert record(quick)["claimed_by"] == second._identity


def test_the_next_period_is_anybodys(quick: Shop) -> None:
    """When the period is over, another process runs: nobody has to be alive for it."""
    period = timedelta(milliseconds=100)
    sweeper(quick, period=period).run_once(REAPING)
    wait_until(quick, record(quick)["claimed_at"] + period)
    assert sweeper(quick, period=period).run_once(REAPING).ran


def test_sweeps_and_namespaces_have_periods_of_their_own(quick: Shop, open_shop: Callable[..., Shop]) -> None:
    """An expiry does not use up the reaping's period, nor one namespace another's."""
    assert sweeper(quick).run_once(REAPING).ran
    assert sweeper(quick).run_once(EXPIRY).ran
    assert sweeper(open_shop(lease=SHORT, namespace="second")).run_once(REAPING).ran


def test_a_run_is_recorded(quick: Shop) -> None:
    """How many it moved and when it last went well, for whoever wants to know that the sweeps live."""
    lapsed(quick, 2)
    swept = sweeper(quick).run_once(REAPING)
    assert [moved.state for moved in swept.moved] == [State.PENDING, State.PENDING]
    found = record(quick)
    assert (found["last_count"], found["last_error"]) == (2, None)
    assert found["last_ok_at"] >= found["claimed_at"]


def test_run_all_tells_of_each_job(quick: Shop) -> None:
    """Every sweep runs once, and each job that moved is handed on."""
    (job_id,) = lapsed(quick, 1)
    late = quick.pending(deadline=HOUR)
    backdate(quick, late.id, "expires_at")
    told: list[Moved] = []
    done = run_all(sweeper(quick), then=told.append)
    assert [swept.name for swept in done] == [sweep.name for sweep in SWEEPS]
    assert [(moved.job_id, moved.state) for moved in told] == [
        (late.id, State.EXPIRED),
        (job_id, State.PENDING),
    ]


def test_a_backlog_is_swept_in_bounded_batches(quick: Shop) -> None:
    """More than a batch is done in one run, batch by batch, where it is no mass of what is alive."""
    late = [quick.pending(deadline=HOUR).id for _ in range(BATCH + 5)]
    alive = 4 * len(late)
    execute(
        quick,
        "INSERT INTO supervise.jobs (id, namespace, task, queue, current_state, watchdog_stop_reason, run_id,"
        " input_digest, expires_at, log_seq) SELECT 'alive-' || n, 'default', 't', 'q', 'parked', 'user_paused',"
        " gen_random_uuid(), 'i', clock_timestamp() + interval '1 day', 1 FROM generate_series(1, :n) AS n",
        n=alive,
    )
    execute(
        quick,
        "INSERT INTO supervise.log (job_id, sequence_num, event, actor, at)"
        " SELECT 'alive-' || n, 1, 'submitted', 'test', clock_timestamp() FROM generate_series(1, :n) AS n",
        n=alive,
    )
    execute(
        quick,
        "INSERT INTO supervise.payloads (job_id, kind, ref, data, encoding)"
        " SELECT 'alive-' || n, 'envelope', gen_random_uuid(), 'x', 'json' FROM generate_series(1, :n) AS n",
        n=alive,
    )
    execute(quick, "UPDATE supervise.jobs SET expires_at = clock_timestamp() WHERE id = ANY(:ids)", ids=late)
    swept = sweeper(quick).run_once(EXPIRY)
    assert {moved.job_id for moved in swept.moved} == set(late)
    assert [quick.events(job_id).count("expired") for job_id in late] == [1] * len(late)


# --- holding back ----------------------------------------------------------------------------------------


def held_then_not(shop: Shop, by: Sweeper, sweep: Sweep = REAPING) -> Swept:
    """A sweep that holds back, for one lease and no longer; the run after it."""
    held = by.run_once(sweep, force=True)
    assert (held.ran, list(held.moved)) == (False, [])
    assert held.held is not None
    found = record(shop, sweep)
    assert found["hold_reason"] == held.held
    assert found["hold_until"] - now(shop) < shop.door.lease
    again = by.run_once(sweep, force=True)
    assert again.held == held.held or now(shop) > found["hold_until"]
    wait_until(shop, found["hold_until"])
    return by.run_once(sweep, force=True)


def test_it_holds_back_when_postgres_has_just_started(open_shop: Callable[..., Shop]) -> None:
    """Within a lease of the server's start heartbeats may have failed that will come now: nobody is reaped."""
    shop = open_shop(lease=timedelta(days=365))
    ids = lapsed(shop, 1)
    with unchanged(shop, ids[0]):
        swept = sweeper(shop).run_once(REAPING)
    assert (swept.ran, swept.held) == (False, "Postgres has just started: heartbeats may have failed before")


def test_it_holds_back_when_the_sweeps_stood_still(quick: Shop) -> None:
    """After a standstill the workers get one lease to show that they live; then what is over is over."""
    by = sweeper(quick, period=timedelta(seconds=1))
    by.run_once(REAPING)
    (job_id,) = lapsed(quick, 1)
    execute(quick, "UPDATE supervise.sweeps SET last_ok_at = last_ok_at - interval '4 s'")
    assert [moved.job_id for moved in held_then_not(quick, by).moved] == [job_id]


def test_a_short_pause_between_sweeps_is_no_standstill(quick: Shop) -> None:
    """Two periods without a run are a slow worker, not an outage."""
    by = sweeper(quick, period=timedelta(seconds=10))
    by.run_once(REAPING)
    lapsed(quick, 1)
    execute(quick, "UPDATE supervise.sweeps SET last_ok_at = last_ok_at - interval '20 s'")
    assert len(by.run_once(REAPING, force=True).moved) == 1


def test_a_pass_that_stands_still_ends_no_lease_that_lasted_when_it_began(quick: Shop) -> None:
    """Between two of its statements a process may stop for long: of what came meanwhile it knows nothing."""
    by = sweeper(quick, period=timedelta(seconds=1))
    job_id = quick.running().lease.job_id

    def standing_still() -> list[str]:
        execute(quick, "UPDATE supervise.attempts SET lease_until = clock_timestamp() WHERE job_id = :id", id=job_id)
        execute(quick, "UPDATE supervise.sweeps SET claimed_at = claimed_at - interval '4 s'")
        return []

    swept = by.run_once(REAPING, own=Own(uuid4(), standing_still))
    assert (swept.ran, swept.moved) == (True, [])
    assert quick.job(job_id).state is State.RUNNING
    assert [moved.job_id for moved in held_then_not(quick, by).moved] == [job_id]


def test_a_pass_ends_no_lease_of_what_its_own_process_runs(quick: Shop) -> None:
    """A process that stood still as a whole finds its own leases over, and knows better; of another's it does not."""
    (job_id,) = lapsed(quick, 1)
    by = sweeper(quick)
    with unchanged(quick, job_id):
        own = Own(quick.claimer.incarnation, lambda: [job_id])
        assert by.run_once(REAPING, own=own).moved == []
    swept = by.run_once(REAPING, force=True, own=Own(uuid4(), lambda: [job_id]))
    assert [moved.job_id for moved in swept.moved] == [job_id]


def test_it_holds_back_when_the_clock_jumps(quick: Shop) -> None:
    """The database's clock went on by more than the time that passed: leases have not really ended."""
    by = sweeper(quick)
    by.run_once(REAPING)
    (job_id,) = lapsed(quick, 1)
    at, _ = by._clocks.seen["reap"]
    by._clocks.seen["reap"] = (at - HOUR, time.monotonic())
    assert [moved.job_id for moved in held_then_not(quick, by).moved] == [job_id]


@pytest.mark.parametrize("sweep", [REAPING, EXPIRY], ids=lambda sweep: sweep.name)
def test_it_holds_back_once_before_a_mass_end(quick: Shop, sweep: Sweep) -> None:
    """More than a fifth at once looks like our own outage: one lease of patience, then a batch a pass, and on."""
    count = BATCH + 5
    if sweep is REAPING:
        lapsed(quick, count)
    else:
        for _ in range(count):
            backdate(quick, quick.pending(deadline=HOUR).id, "expires_at")
    by = sweeper(quick)
    assert len(held_then_not(quick, by, sweep).moved) == BATCH
    wait_until(quick, record(quick, sweep)["hold_until"] + 2 * SHORT)
    last = by.run_once(sweep, force=True)
    assert (last.held, len(last.moved)) == (None, 5)


def test_a_mass_that_goes_on_is_not_held_again(quick: Shop) -> None:
    """A backlog that takes many passes is worked off at the same pace, however long that takes."""
    lapsed(quick, 21)
    by = sweeper(quick, period=timedelta(seconds=10))
    assert len(held_then_not(quick, by).moved) == 21
    wait_until(quick, record(quick)["hold_until"] + 2 * SHORT)
    lapsed(quick, 21)
    again = by.run_once(REAPING, force=True)
    assert (again.held, len(again.moved)) == (None, 21)


def test_another_mass_is_held_again(quick: Shop) -> None:
    """A second outage, long after the first, is judged anew."""
    lapsed(quick, 21)
    by = sweeper(quick, period=timedelta(seconds=10))
    held_then_not(quick, by)
    execute(
        quick,
        "UPDATE supervise.sweeps SET mass_seen_at = mass_seen_at - interval '1 day',"
        " hold_until = hold_until - interval '1 day'",
    )
    lapsed(quick, 21)
    assert len(held_then_not(quick, by).moved) == 21


def test_a_few_are_no_mass(quick: Shop) -> None:
    """Up to twenty end at once, however few are alive."""
    assert len(lapsed(quick, 20)) == len(sweeper(quick).run_once(REAPING).moved)


def test_a_small_share_is_no_mass(quick: Shop) -> None:
    """Twenty-one of more than a hundred that live are no outage."""
    for _ in range(90):
        quick.beat(quick.running())
    execute(quick, "UPDATE supervise.attempts SET lease_until = clock_timestamp() + interval '1 hour'")
    lapsed(quick, 21)
    assert len(sweeper(quick).run_once(REAPING).moved) == 21


# --- what fails ------------------------------------------------------------------------------------------


@contextmanager
def forbidding(database: Database, job_id: str, state: str) -> Iterator[None]:
    """While open, the database refuses to let this job get into that state."""
    engine = create_engine(database.owner_url)
    rule = f"ALTER TABLE supervise.jobs ADD CONSTRAINT bad CHECK (NOT (id = '{job_id}' AND current_state = '{state}'))"
    with engine.begin() as connection:
        connection.exec_driver_sql(rule)
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE supervise.jobs DROP CONSTRAINT bad")
    engine.dispose()


@pytest.mark.parametrize("sweep", [REAPING, EXPIRY], ids=lambda sweep: sweep.name)
def test_a_bad_row_does_not_stop_a_batch(
    quick: Shop, database: Database, caplog: pytest.LogCaptureFixture, sweep: Sweep
) -> None:
    """One job that cannot be moved is told of, stamped and left out for a while; all others are moved."""
    if sweep is REAPING:
        ids, state = lapsed(quick, 5), "pending"
    else:
        ids, state = [quick.pending(deadline=HOUR).id for _ in range(5)], "expired"
        for job_id in ids:
            backdate(quick, job_id, "expires_at")
    bad = sorted(ids)[2]
    with forbidding(database, bad, state):
        swept = sweeper(quick).run_once(sweep)
        assert {moved.job_id for moved in swept.moved} == set(ids) - {bad}
        failed = [one for one in caplog.records if one.__dict__.get("event") == "supervise.sweep_row_failed"]
        assert [vars(one)["job_id"] for one in failed] == [bad]
        caplog.clear()
        assert list(sweeper(quick).run_once(sweep, force=True).moved) == []
        assert caplog.records == [], "left out, not tried again in every pass"
    execute(quick, "UPDATE supervise.jobs SET sweep_after = clock_timestamp() WHERE id = :id", id=bad)
    assert [moved.job_id for moved in sweeper(quick).run_once(sweep, force=True).moved] == [bad]


def test_a_sweep_that_fails_is_recorded_and_raises(quick: Shop, database: Database) -> None:
    """What went wrong stands in the row; the last good time stays, so that a standstill is seen."""
    by = sweeper(quick)
    by.run_once(REAPING)
    before = record(quick)
    lapsed(quick, 1)
    engine = create_engine(database.owner_url)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE supervise.outbox RENAME TO elsewhere"))
    with pytest.raises(NotMigrated):
        by.run_once(REAPING, force=True)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE supervise.elsewhere RENAME TO outbox"))
    engine.dispose()
    after = record(quick)
    assert (after["last_ok_at"], after["last_count"]) == (before["last_ok_at"], 0)
    assert "migrate" in after["last_error"]
    assert after["last_error_at"] > before["last_ok_at"]
    assert len(by.run_once(REAPING, force=True).moved) == 1
