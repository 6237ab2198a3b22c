"""Fairness: how much is out of a queue, whose turn it is, and how many of an owner's jobs run (protocol 25)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from celery_supervise.lifecycle import State
from celery_supervise.model import Lease
from celery_supervise.relay import Relay
from celery_supervise.releasing import Releaser
from celery_supervise.store.plans import PARAMETER
from celery_supervise.store.releasing import DUE_QUEUES, LOCK_QUEUE, OWNERS, RELEASE_SHARES
from celery_supervise.store.sql import Statement
from celery_supervise.windows import LimitOf
from tests.postgres.looking import NO_TIME, execute, unchanged
from tests.postgres.races import Call
from tests.postgres.shop import Shop, new_question, stored

WINDOW = 3
HOUR = timedelta(hours=1)
ACTOR = "user:ann"


@pytest.fixture
def shop(open_shop: Callable[..., Shop]) -> Shop:
    """Its processes let three tickets of a queue out; the relay sends at once what is left to it."""
    return open_shop(publish_hold=NO_TIME, window=WINDOW)


@pytest.fixture
def counted(open_shop: Callable[..., Shop]) -> Shop:
    """Here owners may only run so many, so that the relay alone lets their jobs out."""
    return open_shop(publish_hold=NO_TIME, counted=True)


def release(shop: Shop, *, window: int = WINDOW, running: LimitOf | None = None) -> int:
    """One pass of the relay's releases."""
    return Releaser(shop.door, window=window, running=running).release_once()


def out(shop: Shop, queue: str = "celery") -> list[str]:
    """The jobs of a queue that may be claimed, the first released first."""
    with shop.engine.connect() as connection:
        found = connection.execute(
            sa.text(
                "SELECT id FROM supervise.jobs WHERE queue = :queue AND ticket_released_at IS NOT NULL"
                " ORDER BY ticket_released_at, created_at"
            ),
            {"queue": queue},
        )
        return list(found.scalars())


def waiting(shop: Shop, number: int, owner: str | None = None, **changes: Any) -> list[str]:
    """So many jobs of an owner, due and not released."""
    ids = [shop.pending(owner_id=owner, **changes).id for _ in range(number)]
    for job_id in ids:
        execute(shop, "UPDATE supervise.jobs SET ticket_released_at = NULL WHERE id = :id", id=job_id)
        execute(shop, "DELETE FROM supervise.outbox WHERE job_id = :id", id=job_id)
    shop.broker.flush()
    return ids


def later(shop: Shop, which: str) -> None:
    """These jobs are not due yet."""
    execute(shop, f"UPDATE supervise.jobs SET ticket_due_at = ticket_due_at + interval '1 h' WHERE {which}")


def owners(shop: Shop, ids: Sequence[str]) -> Counter[str | None]:
    """How many of these jobs are whose."""
    return Counter(shop.job(job_id).owner_id for job_id in ids)


# --- the window ------------------------------------------------------------------------------------------


def test_a_full_queue_lets_no_more_out(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """A submit is accepted as ever; above the window its message waits in the row, and no worker can run it."""
    jobs = [shop.pending().id for _ in range(WINDOW)]
    another = open_shop(window=WINDOW)
    late = another.pending()
    assert (late.state, out(shop), another.broker.messages) == (State.PENDING, jobs, [])
    assert another.claim(late.id) is None


def test_a_process_counts_once_in_a_while(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it saw holds for a second, then it counts again: a bound that is soft, and costs next to nothing."""
    now = [0.0]
    windows = shop.supervisor._windows
    monkeypatch.setattr(windows, "_clock", lambda: now[0])
    for _ in range(WINDOW + 2):
        shop.pending()
    assert len(out(shop)) == WINDOW + 2
    now[0] = 2.0
    full = [shop.pending().id for _ in range(2)]
    assert len(out(shop)) == WINDOW + 2
    for job_id in out(shop):
        assert isinstance(shop.claim(job_id), Lease)
    now[0] = 2.5
    full.append(shop.pending().id)
    assert out(shop) == []
    now[0] = 4.0
    let_out = shop.pending().id
    assert out(shop) == [let_out]
    assert all(shop.job(job_id).state is State.PENDING for job_id in full)


def test_queues_are_full_apart(shop: Shop) -> None:
    """A batch lane that is full holds up no interactive one."""
    waiting(shop, 9, queue="batch")
    assert release(shop) == WINDOW
    shop.pending(queue="batch")
    interactive = shop.pending(queue="interactive")
    assert out(shop, "interactive") == [interactive.id]
    assert len(out(shop, "batch")) == WINDOW + 1  # this process had not counted before


def test_the_relay_fills_the_window_up(shop: Shop) -> None:
    """As workers take what is out, it lets out as much again, the longest due first."""
    ids = waiting(shop, 5)
    assert (release(shop), release(shop)) == (WINDOW, 0)
    assert sorted(out(shop)) == sorted(ids[:WINDOW])
    assert isinstance(shop.claim(ids[0]), Lease)
    assert release(shop) == 1
    assert sorted(out(shop)) == sorted(ids[1:4])


def test_a_pass_goes_on_until_nothing_is_due(shop: Shop) -> None:
    """A backlog goes out as fast as the broker takes it, not a batch a second."""
    waiting(shop, 250)
    done = Relay(shop.door, shop.broker, settling=NO_TIME, window=1000).publish_once()
    assert (done.released, done.published) == (250, 250)
    assert len({message.job_id for message in shop.broker.messages}) == 250


def test_an_unsent_ticket_takes_room(shop: Shop) -> None:
    """With the broker away the window fills with what is released and not sent, and then nothing more goes out."""
    waiting(shop, 9)
    shop.broker.down = True
    relay = Relay(shop.door, shop.broker, settling=NO_TIME, window=WINDOW)
    assert [relay.publish_once().released for _ in range(3)] == [WINDOW, 0, 0]


def test_one_relay_at_a_time(shop: Shop) -> None:
    """Who counts and releases holds the queue's lock; another relay leaves the queue to it, and waits for nothing."""
    ids = waiting(shop, 2)
    with shop.door.batch() as run:
        assert run(LOCK_QUEUE, queue="celery")
        with unchanged(shop, ids[0]):
            assert release(shop) == 0
    assert release(shop) == 2


def test_what_is_locked_is_left_for_later(shop: Shop) -> None:
    """A job that somebody holds just now is let out by the next pass; the others are not held up."""
    ids = waiting(shop, 2)
    with shop.engine.begin() as connection:
        connection.execute(sa.text("SELECT FROM supervise.jobs WHERE id = :id FOR UPDATE"), {"id": ids[0]})
        assert release(shop) == 1
    assert release(shop) == 1
    assert sorted(out(shop)) == sorted(ids)


# --- turns -----------------------------------------------------------------------------------------------


def test_owners_take_turns(shop: Shop) -> None:
    """One who comes late with two jobs does not wait behind the thousand of another."""
    waiting(shop, 20, "acme")
    waiting(shop, 2, "bolt")
    assert release(shop, window=4) == 4
    assert owners(shop, out(shop)) == {"acme": 2, "bolt": 2}


def test_jobs_without_an_owner_are_one_more(shop: Shop) -> None:
    """They take their turn like an owner's."""
    waiting(shop, 9, None)
    waiting(shop, 9, "acme")
    assert release(shop, window=4) == 4
    assert owners(shop, out(shop)) == {None: 2, "acme": 2}


def test_the_turn_goes_on_where_it_was(shop: Shop) -> None:
    """With room for one at a time every owner is served in turn, whatever its name."""
    names = ["acme", "bolt", "cone"]
    for name in names:
        waiting(shop, 3, name)
    served: list[str | None] = []
    for _ in range(9):
        assert release(shop, window=1) == 1
        (job_id,) = out(shop)
        served.append(shop.job(job_id).owner_id)
        assert isinstance(shop.claim(job_id), Lease)
    assert served == ["acme", "bolt", "cone"] * 3


def test_an_owner_who_is_served_last_comes_again(shop: Shop) -> None:
    """Alone in a queue an owner is served on and on."""
    waiting(shop, 4, "acme")
    for _ in range(4):
        assert release(shop, window=1) == 1
        assert isinstance(shop.claim(out(shop)[0]), Lease)


def test_what_is_held_takes_no_turn(shop: Shop) -> None:
    """The room of an owner who is held goes to the others."""
    waiting(shop, 5, "acme")
    waiting(shop, 5, "bolt")
    shop.supervisor.hold(owner="acme", reason="unpaid", actor=ACTOR)
    assert [release(shop, window=4) for _ in range(3)].count(0) < 3
    assert owners(shop, out(shop)).keys() == {"bolt"}


def test_many_owners_who_wait_for_a_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass looks at so many owners and no more; the next goes on behind them, so that nobody is left out."""
    monkeypatch.setattr("celery_supervise.releasing.LOOKED_AT", 4)
    waiting(shop, 5, "a-first")
    for number in range(10):
        waiting(shop, 1, f"later-{number}")
    later(shop, "owner_id LIKE 'later-%'")
    waiting(shop, 5, "z-last")
    for _ in range(6):
        release(shop, window=6)
    assert owners(shop, out(shop)).keys() == {"a-first", "z-last"}


# --- how many of an owner run ----------------------------------------------------------------------------


def two(_owner: str) -> int:
    """Everybody may run two."""
    return 2


def test_no_owner_runs_more_than_it_may(counted: Shop) -> None:
    """Released ones count; a worker that is free takes another owner's."""
    ids = waiting(counted, 6, "acme") + waiting(counted, 1, "bolt")
    assert release(counted, window=100, running=two) == 3
    assert owners(counted, out(counted)) == {"acme": 2, "bolt": 1}
    for job_id in out(counted):
        assert isinstance(counted.claim(job_id), Lease)
    assert release(counted, window=100, running=two) == 0
    assert sum(counted.job(job_id).state is State.RUNNING for job_id in ids) == 3


def test_relays_at_once_keep_the_limit(counted: Shop) -> None:
    """Each worker has one: what one releases the next has counted."""
    for number in range(10):
        waiting(counted, 4, f"owner-{number}")
    calls = [Call(lambda: release(counted, window=100, running=two)) for _ in range(8)]
    assert sum(call.outcome() for call in calls) == len(out(counted)) <= 20
    assert release(counted, window=100, running=two) + sum(call.outcome() for call in calls) == 20
    assert set(owners(counted, out(counted)).values()) == {2}


def test_one_that_ends_or_parks_makes_room(counted: Shop) -> None:
    """What does not run does not count: the next is let out, one for one."""
    waiting(counted, 5, "acme")
    release(counted, window=100, running=two)
    first, second = (counted.hold(job_id) for job_id in out(counted))
    assert release(counted, window=100, running=two) == 0
    first.complete(stored("1"))
    assert release(counted, window=100, running=two) == 1
    second.ask(new_question(), ttl=HOUR)
    assert release(counted, window=100, running=two) == 1
    assert release(counted, window=100, running=two) == 0


def test_a_new_job_of_a_counted_owner_is_left_to_the_relay(counted: Shop) -> None:
    """Its process cannot know how many run; jobs without an owner go out at once as ever."""
    owned, free = counted.pending(owner_id="acme"), counted.pending()
    assert out(counted) == [free.id]
    assert counted.claim(owned.id) is None
    assert release(counted, running=two) == 1
    assert isinstance(counted.claim(owned.id), Lease)


def test_who_goes_on_is_counted_again(counted: Shop) -> None:
    """A job that parked gave its place away, and waits for one when it is answered."""
    question = counted.asked()
    execute(counted, "UPDATE supervise.jobs SET owner_id = 'acme'")
    taken = waiting(counted, 2, "acme")
    assert release(counted, window=100, running=two) == 2
    assert counted.supervisor.answer(question.id, True, actor=ACTOR).state is State.PARKED
    assert release(counted, window=100, running=two) == 0
    counted.supervisor.cancel(taken[0], actor=ACTOR)
    assert release(counted, window=100, running=two) == 1
    assert owners(counted, out(counted)) == {"acme": 2}


def test_each_queue_counts_by_itself(counted: Shop) -> None:
    """An owner whose batch jobs all run still gets its interactive one."""
    waiting(counted, 3, "acme", queue="batch")
    interactive = waiting(counted, 1, "acme", queue="interactive")
    assert release(counted, window=100, running=two) == 3
    assert out(counted, "interactive") == interactive


def test_no_limit_for_some(counted: Shop) -> None:
    """The shop's function says who may run how many: None is no limit, 0 is none at all."""
    for owner in ("big", "small", "gone"):
        waiting(counted, 4, owner)
    said = {"big": None, "small": 1, "gone": 0}
    assert release(counted, window=100, running=said.__getitem__) == 5
    assert owners(counted, out(counted)) == {"big": 4, "small": 1}


def test_an_owner_of_whom_the_shop_cannot_tell(counted: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Their jobs wait, and that is told; nobody else's do."""
    caplog.set_level("WARNING", logger="celery_supervise")
    waiting(counted, 1, "acme")
    waiting(counted, 1, "bolt")
    assert release(counted, running={"acme": 1}.__getitem__) == 1
    assert owners(counted, out(counted)) == {"acme": 1}
    assert any("bolt" in record.getMessage() for record in caplog.records)


def test_a_function_that_exits_ends_no_relay(counted: Shop) -> None:
    """It is one that cannot tell."""
    waiting(counted, 1, "acme")

    def leaves(_owner: str) -> int:
        raise SystemExit(1)

    assert release(counted, running=leaves) == 0


def test_the_shops_function_holds_up_no_other_relay(counted: Shop) -> None:
    """It may take long, or hang: no lock is held while it is asked. What it said is not used where others went on."""
    waiting(counted, 3, "acme")
    others: list[int] = []

    def slow(_owner: str) -> int:
        others.append(release(counted, running=two))
        return 2

    assert release(counted, running=slow) == 0
    assert others == [2]
    assert release(counted, running=lambda _owner: 3) == 1


@pytest.mark.parametrize("statement", [OWNERS, RELEASE_SHARES], ids=lambda statement: statement.name)
def test_turns_have_their_index(shop: Shop, statement: Statement) -> None:
    """Also on a table without statistics: entered otherwise, each probe would sort all that waits."""
    text = sa.text("EXPLAIN " + statement.render('"supervise"', joined=False))
    given = {"namespace": "default", "queue": "celery", "since": "", "most": 9, "owners": ["acme"], "shares": [1]}
    with shop.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        lines = connection.execute(text, {name: given[name] for name in PARAMETER.findall(text.text)}).scalars().all()
    entered = set(re.findall(r"jobs_[a-z]\w+", "\n".join(lines)))
    assert entered <= {"jobs_due_of_owner", "jobs_pkey"}
    assert "jobs_due_of_owner" in entered


def test_due_queues_are_those_with_due_tickets(shop: Shop) -> None:
    """A queue whose jobs all wait for a time is not looked into."""
    waiting(shop, 1, queue="now")
    waiting(shop, 2, queue="later")
    later(shop, "queue = 'later'")
    assert [found["queue"] for found in shop.door.all(DUE_QUEUES)] == ["now"]
