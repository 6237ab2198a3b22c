"""`stats` and metrics: every number is of what is there, of this app, and says where it stopped counting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry, generate_latest

from celery_supervise import metrics
from celery_supervise.engine import create_engine
from celery_supervise.errors import LeaseLost
from celery_supervise.lifecycle import State
from celery_supervise.metrics import SupervisorCollector
from celery_supervise.model import NodeKind
from celery_supervise.relay import Relay
from celery_supervise.stats import QueueLoad, Stats, stats
from celery_supervise.store.stats import ENDED, OPEN_JOBS, PARKED, REFUSED, RUNNABLE, STAGES
from tests.postgres.looking import NO_TIME, backdate, execute
from tests.postgres.shop import Shop, stored

HOUR = timedelta(hours=1)
ANN = "user:ann"
NOTHING: Mapping[str, Any] = {
    "jobs": dict.fromkeys(State, 0),
    "capped": (),
    "oldest_pending": None,
    "heartbeat_age": None,
    "progress_age": None,
    "stalled": 0,
    "stages": [],
    "parked": [],
    "parked_without_reason": 0,
    "lost_leases": 0,
    "refused_writes": 0,
    "republished": 0,
    "runnable": [],
}


def near(age: timedelta | None, hours: float) -> bool:
    """Whether an age is so many hours, give or take what the test took."""
    return age is not None and HOUR * hours <= age < HOUR * hours + timedelta(minutes=2)


def test_an_empty_shop(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """All states are told with 0, and no age; the jobs of another app are not counted."""
    other = open_shop(namespace="second")
    for _ in (other.pending(), other.paused(), other.running()):
        pass
    now = vars(shop.supervisor.stats())
    assert now.pop("at") is not None
    assert now == NOTHING


def test_jobs_by_state(shop: Shop) -> None:
    """Each state's number is exact."""
    for _ in range(3):
        shop.pending()
    shop.running()
    shop.asked()
    for state in (State.COMPLETED, State.COMPLETED, State.FAILED, State.EXPIRED, State.CANCELLED):
        shop.ended(state)
    assert {str(state): jobs for state, jobs in shop.supervisor.stats().jobs.items()} == {
        "pending": 3,
        "running": 1,
        "parked": 1,
        "completed": 2,
        "failed": 1,
        "expired": 1,
        "cancelled": 1,
    }


def test_counting_stops_and_says_so(shop: Shop) -> None:
    """Where there are more than it counts, the states are named; the ages are of the oldest all the same."""
    for age in (3, 1, 2):
        backdate(shop, shop.pending().id, "created_at", age * HOUR)
    shop.ended(State.FAILED)
    shop.ended(State.FAILED)
    now = stats(shop.door, most=2)
    assert (now.jobs[State.PENDING], now.jobs[State.FAILED], now.jobs[State.PARKED]) == (2, 2, 0)
    assert now.capped == (State.PENDING, State.FAILED)
    assert near(now.oldest_pending, 3)


def test_what_runs(shop: Shop) -> None:
    """By task and checkpoint, how long; since when nothing was heard of it, and since when it got no further."""
    hangs, works, fresh = shop.running(stall_after=HOUR), shop.running(task="shop.other"), shop.running()
    for holding in (hangs, works):
        holding.checkpoint("load", NodeKind.STEP, stored("1"))
    for column in ("stage_at", "progress_at"):
        backdate(shop, hangs.lease.job_id, column, 3 * HOUR)
    execute(
        shop,
        "UPDATE supervise.attempts SET heartbeat_at = heartbeat_at - interval '2 hours' WHERE token = :token",
        token=works.lease.token,
    )
    now = shop.supervisor.stats()
    assert [(stage.task, stage.after, stage.jobs) for stage in now.stages] == [
        ("shop.task", "load", 1),
        ("shop.task", None, 1),
        ("shop.other", "load", 1),
    ]
    assert (near(now.stages[0].longest, 3), near(now.stages[0].mean, 3), near(now.stages[2].longest, 0)) == (True,) * 3
    assert (near(now.progress_age, 3), near(now.heartbeat_age, 2), now.stalled) == (True, True, 1)
    fresh.complete(stored("1"))
    assert len(shop.supervisor.stats().stages) == 2


def test_what_is_parked(shop: Shop) -> None:
    """By why, and since when: since the attempt that parked it ended."""
    shop.paused()
    asked = shop.job_of(shop.asked()).id
    shop.asked()
    now = shop.supervisor.stats()
    assert [(one.reason, one.jobs) for one in now.parked] == [("awaiting_user_answer", 2), ("user_paused", 1)]
    assert all(near(one.oldest, 0) for one in now.parked)
    (ended,) = execute(
        shop, "SELECT clock_timestamp() - ended_at AS age FROM supervise.attempts WHERE job_id = :id", id=asked
    )
    assert abs(now.parked[0].oldest - ended["age"]) < timedelta(minutes=1)


def test_a_pause_before_the_first_attempt_counts_from_the_submit(shop: Shop) -> None:
    """It has no attempt whose end could be told."""
    job = shop.pending()
    shop.supervisor.pause(job.id, actor=ANN)
    shop.claim(job.id)
    backdate(shop, job.id, "created_at", 2 * HOUR)
    (parked,) = shop.supervisor.stats().parked
    assert (parked.reason, near(parked.oldest, 2)) == ("user_paused", True)


def test_parked_without_a_reason(shop: Shop) -> None:
    """The alarm of the mission is a number."""
    job = shop.paused()
    execute(shop, "UPDATE supervise.jobs SET watchdog_stop_reason = NULL WHERE id = :id", id=job.id)
    assert shop.supervisor.stats().parked_without_reason == 1
    execute(shop, "UPDATE supervise.jobs SET watchdog_stop_reason = 'user_paused' WHERE id = :id", id=job.id)
    assert shop.supervisor.stats().parked_without_reason == 0


def test_what_was_lost(open_shop: Callable[..., Shop]) -> None:
    """Lost attempts, their refused writes and messages sent again count while the job has not ended."""
    shop = open_shop(publish_hold=NO_TIME)
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.lose(holding)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            holding.complete(stored("1"))
    now = shop.supervisor.stats()
    assert (now.lost_leases, now.refused_writes, now.republished) == (1, 2, 0)
    relay = Relay(shop.door, shop.broker, settling=NO_TIME)
    relay.run_once()
    execute(shop, "UPDATE supervise.outbox SET published_at = NULL, publish_until = NULL WHERE job_id = :id", id=job_id)
    relay.run_once()
    assert shop.supervisor.stats().republished == 1
    shop.hold(job_id).complete(stored("1"))
    now = shop.supervisor.stats()
    assert (now.lost_leases, now.refused_writes, now.republished) == (0, 0, 0)


def test_what_workers_could_take(shop: Shop) -> None:
    """By queue: sent or about to be; not what runs, waits for its time or for a person."""
    first = shop.pending()
    shop.pending()
    shop.pending(queue="batch", due=HOUR)
    shop.running()
    shop.asked()
    shop.broker.down = True
    shop.pending(queue="batch")
    execute(shop, "UPDATE supervise.outbox SET due_at = due_at - interval '2 hours' WHERE job_id = :id", id=first.id)
    runnable = shop.supervisor.stats().runnable
    assert [(one.queue, one.runnable) for one in runnable] == [("batch", 1), ("celery", 2)]
    assert (near(runnable[0].oldest, 0), near(runnable[1].oldest, 2)) == (True, True)
    assert isinstance(runnable[0], QueueLoad)


PLANS = {
    ENDED: r"Index Only Scan using jobs_by_state",
    OPEN_JOBS: r"Index Scan using jobs_by_state",
    STAGES: r"jobs_by_state",
    PARKED: r"Index Scan using jobs_by_state",
    RUNNABLE: r"outbox_out(.|\n)*outbox_unpublished(.|\n)*jobs_due",
    REFUSED: r"jobs_by_state(.|\n)*log_pkey",
}


@pytest.mark.parametrize("statement", PLANS, ids=lambda statement: statement.name)
def test_each_number_has_its_index(shop: Shop, statement: Any) -> None:
    """No statement reads a whole table to find what it counts."""
    text = sa.text("EXPLAIN " + statement.render('"supervise"', joined=False))
    with shop.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        lines = connection.execute(text, {"namespace": "default", "most": 100, "counted": False}).scalars().all()
    plan = "\n".join(lines)
    assert re.search(PLANS[statement], plan), plan
    assert "Seq Scan" not in plan


# --- metrics ---------------------------------------------------------------------------------------------


def scraped(shop: Shop) -> Mapping[str, float]:
    """What Prometheus gets: the value of each series."""
    registry = CollectorRegistry()
    registry.register(SupervisorCollector(shop.supervisor))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_metrics_are_the_numbers_of_the_scrape(shop: Shop) -> None:
    """Each scrape asks anew; every metric is there with its labels."""
    assert scraped(shop)['supervise_jobs{namespace="default",state="pending"}'] == 0
    backdate(shop, shop.pending().id, "created_at", HOUR)
    shop.running()
    shop.paused()
    found = scraped(shop)
    one = 'namespace="default"'
    assert found[f"supervise_up{{{one}}}"] == 1
    assert found[f'supervise_jobs{{{one},state="pending"}}'] == 1
    assert found[f'supervise_runnable{{{one},queue="celery"}}'] == 1
    assert found[f'supervise_parked{{{one},reason="user_paused"}}'] == 1
    assert 3600 <= found[f"supervise_oldest_pending_seconds{{{one}}}"] < 3700
    assert {name.split("{")[0] for name in found} == set(metrics.METRICS)


def test_a_database_that_is_away_is_a_metric(shop: Shop) -> None:
    """The scrape works, and says that nothing can be said."""
    away = Shop(create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/nothing"))
    away.door.namespace = shop.door.namespace
    assert scraped(away) == {'supervise_up{namespace="default"}': 0.0}
    away.engine.dispose()


def test_to_be_registered_needs_no_database() -> None:
    """Its names are known before; the same names twice in a registry are refused by it."""
    away = Shop(create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/nothing"))
    registry = CollectorRegistry(auto_describe=True)
    registry.register(SupervisorCollector(away.supervisor))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(SupervisorCollector(away.supervisor))


def test_names_follow_the_conventions() -> None:
    """Prefix, seconds as the unit of every time, no `_total` on what may fall; help for each."""
    for name, (text, labels) in metrics.METRICS.items():
        assert re.fullmatch(r"supervise(_[a-z]+)+", name)
        assert ("age" in name.split("_") or "oldest" in name) == name.endswith("_seconds")
        assert not name.endswith("_total")
        assert text.endswith(".")
        assert "job_id" not in labels


def test_every_number_is_a_metric() -> None:
    """What `stats` tells, Prometheus is told, except when, and where counting stopped."""
    fields = set(Stats.__dataclass_fields__) - {"at", "capped"}
    words = " ".join(metrics.METRICS)
    for field in fields:
        assert field.removesuffix("s").replace("stage", "stage_age") in words, field
