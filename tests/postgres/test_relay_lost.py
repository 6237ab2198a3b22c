"""What the broker has lost is found by evidence, per queue, and sent again; nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_supervise.lifecycle import State
from celery_supervise.relay import Relay
from celery_supervise.store.publishing import RESERVED
from tests.postgres.looking import NO_TIME, execute, rows
from tests.postgres.shop import Broker, Shop

HOUR = timedelta(hours=1)
ANN = "user:ann"
JOBS = 100_000


def relay(shop: Shop, *, settling: timedelta = NO_TIME) -> Relay:
    """The relay of this shop. `settling`: how old a published ticket must be to be called lost."""
    return Relay(shop.door, shop.broker, settling=settling)


def test_s15_a_flushed_broker_is_healed(shop: Shop) -> None:
    """In two sweeps running fewer messages than tickets: exactly those are sent again, with the same tickets."""
    pending = [shop.pending() for _ in range(5)]
    question = shop.asked()
    shop.supervisor.answer(question.id, value=True, actor=ANN)
    parked, running = shop.paused(), shop.running()
    shop.broker.flush()
    by = relay(shop)
    assert (by.find_lost(), by.find_lost()) == (0, 6)
    assert by.run_once().published == 6
    waiting = {job.id for job in pending} | {shop.job_of(question).id}
    assert {message.job_id for message in shop.broker.messages} == waiting
    for message in shop.broker.messages:
        assert shop.job(message.job_id).ticket_id == message.id
        assert (
            next(one for one in rows(shop, "outbox", message.job_id) if one["id"] == message.id)["publish_count"] == 2
        )
    assert (shop.job(parked.id).state, running.complete(None).state) == (State.PARKED, State.COMPLETED)
    assert (by.find_lost(), by.find_lost()) == (0, 0)


def test_a_broker_that_has_everything_is_left_alone(shop: Shop) -> None:
    """Nothing is sent twice where nothing is missing, however often one looks."""
    for _ in range(3):
        shop.pending()
    assert [relay(shop).find_lost() for _ in range(4)] == [0] * 4
    assert relay(shop).run_once().published == 0


def test_one_low_count_is_no_evidence(shop: Shop) -> None:
    """Once below, then right again: the count starts anew."""
    shop.pending()
    kept = list(shop.broker.messages)
    by = relay(shop)
    for _ in range(3):
        shop.broker.flush()
        assert by.find_lost() == 0
        shop.broker.messages.extend(kept)
        assert by.find_lost() == 0


def test_only_as_many_as_are_missing_are_sent_again(shop: Shop) -> None:
    """Two of five are gone: two are sent again, the oldest, since nobody can say which."""
    jobs = [shop.pending() for _ in range(5)]
    del shop.broker.messages[3:]
    by = relay(shop)
    assert (by.find_lost(), by.find_lost()) == (0, 2)
    by.run_once()
    assert [message.job_id for message in shop.broker.messages[3:]] == [job.id for job in jobs[:2]]


def test_fresh_messages_do_not_hide_lost_ones(shop: Shop) -> None:
    """A busy queue has messages of this very moment: they are counted on both sides, so that old losses show."""
    lost = [shop.pending() for _ in range(3)]
    execute(shop, "UPDATE supervise.outbox SET published_at = published_at - interval '1 minute'")
    shop.broker.flush()
    for _ in range(10):
        shop.pending()
    by = relay(shop, settling=timedelta(seconds=30))
    assert (by.find_lost(), by.find_lost()) == (0, 3)
    by.run_once()
    assert [message.job_id for message in shop.broker.messages[10:]] == [job.id for job in lost]


def test_what_workers_have_in_hand_is_not_lost(shop: Shop) -> None:
    """A broker counts what waits there: workers say what they have fetched, and that is neither lost nor sent."""
    fetched, lost = shop.pending(), shop.pending()
    shop.running()
    shop.broker.flush()
    reserve(shop, fetched.id)
    by = relay(shop)
    assert (by.find_lost(), by.find_lost()) == (0, 1)
    by.run_once()
    assert [message.job_id for message in shop.broker.messages] == [lost.id]


def reserve(shop: Shop, job_id: str) -> None:
    """A worker says that it has the job's message in hand."""
    shop.door.all(RESERVED, ids=[str(shop.job(job_id).ticket_id)])


def test_what_a_worker_had_in_hand_when_it_died_is_lost(open_shop: Callable[..., Shop]) -> None:
    """Nobody says any more that they have it: when the lease of that is over the message is sent again."""
    shop = open_shop(lease=timedelta(milliseconds=1))
    job = shop.pending()
    shop.broker.flush()
    reserve(shop, job.id)
    by = relay(shop)
    assert (by.find_lost(), by.find_lost()) == (0, 1)


def test_what_was_fetched_as_one_counted_is_not_lost(shop: Shop) -> None:
    """Short in two sweeps, but what was missing in the first was in a hand that said so later: nothing is sent."""
    first, second = shop.pending(), shop.pending()
    message = shop.broker.messages.pop(0)
    by = relay(shop)
    assert by.find_lost() == 0
    reserve(shop, first.id)
    shop.broker.messages[:] = []
    assert by.find_lost() == 0
    reserve(shop, second.id)
    assert [by.find_lost() for _ in range(3)] == [0] * 3
    assert message.job_id == first.id


def test_a_message_of_a_moment_ago_is_not_called_lost(shop: Shop) -> None:
    """Only what was published long enough ago is sent again."""
    shop.pending()
    shop.broker.flush()
    by = relay(shop, settling=HOUR)
    assert [by.find_lost() for _ in range(4)] == [0] * 4


def test_queues_are_judged_apart(shop: Shop) -> None:
    """A full queue does not hide an empty one."""
    shop.pending(queue="full")
    lost = shop.pending(queue="empty")
    shop.broker.messages[:] = [message for message in shop.broker.messages if message.queue == "full"]
    by = relay(shop)
    assert (by.find_lost(), by.find_lost()) == (0, 1)
    by.run_once()
    assert shop.broker.messages[-1].job_id == lost.id


def test_a_broker_that_cannot_be_counted_is_judged_by_age(open_shop: Callable[..., Shop]) -> None:
    """After five minutes without a claim the message is sent again, then after twice that, doubling."""
    shop = open_shop(broker=Broker(countable=False))
    job = shop.pending()
    by = relay(shop)
    for count, age in enumerate((5, 10, 20), start=1):
        age_copies(shop, timedelta(minutes=age) - timedelta(seconds=5))
        assert by.find_lost() == 0
        age_copies(shop, timedelta(minutes=age))
        assert by.find_lost() == 1
        by.run_once()
        assert rows(shop, "outbox", job.id)[0]["publish_count"] == count + 1


def age_copies(shop: Shop, by: timedelta) -> None:
    """Let all copies have been published so long ago."""
    execute(shop, "UPDATE supervise.outbox SET published_at = clock_timestamp() - CAST(:by AS interval)", by=by)


def test_messages_of_others_may_hide_lost_ones(open_shop: Callable[..., Shop]) -> None:
    """Where the queue has more than ours, and nobody can tell whose, what is old is sent again; else nothing is."""
    shop = open_shop(broker=Broker(exact=False))
    shop.pending()
    age_copies(shop, HOUR)
    assert [relay(shop).find_lost() for _ in range(4)] == [0] * 4
    shop.broker.others = 10
    assert relay(shop).find_lost() == 1


@pytest.mark.slow
def test_a_long_backlog_multiplies_by_less_than_a_twentieth(open_shop: Callable[..., Shop]) -> None:
    """100,000 jobs wait an hour where nobody can count their messages: however often one looks, few are copied.

    Time is moved, by a quarter of an hour; in between everybody looks until there is nothing to be found.
    """
    shop = open_shop(broker=Broker(exact=False, others=2 * JOBS))
    backlog(shop, shop.pending().id, JOBS)
    by, copies = relay(shop), 0
    for _ in range(4):
        execute(shop, "UPDATE supervise.outbox SET published_at = published_at - interval '15 minutes'")
        while by.find_lost():
            copies += by.publish_once().published
    assert 0 < copies < JOBS / 20
    (row,) = execute(shop, "SELECT sum(publish_count - 1) AS copies FROM supervise.outbox")
    assert row["copies"] == copies


def backlog(shop: Shop, job_id: str, count: int) -> None:
    """So many jobs like this one, as the service made it."""
    for table, own in (("jobs", "id"), ("outbox", "job_id"), ("payloads", "job_id"), ("log", "job_id")):
        (found,) = execute(
            shop,
            "SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) AS names FROM information_schema.columns"
            " WHERE table_schema = 'supervise' AND table_name = :table AND is_generated = 'NEVER'",
            table=table,
        )
        ticket = "CAST(md5(n::text) AS uuid)"
        new = {own: f"{own} || n", **({"ticket_id": ticket} if table == "jobs" else {"id": ticket})}
        columns = found["names"].split(", ")
        values = ", ".join(new.get(name, name) for name in columns)
        execute(
            shop,
            f"INSERT INTO supervise.{table} ({', '.join(columns)}) SELECT {values}"
            f" FROM supervise.{table}, generate_series(1, {count}) AS n WHERE {own} = :job_id",
            job_id=job_id,
        )


def test_a_broker_that_is_away_is_no_evidence(shop: Shop) -> None:
    """A count that fails is no count of zero: nothing is called lost because of it, however old it is."""
    shop.pending()
    age_copies(shop, HOUR)
    shop.broker.down = True
    assert [relay(shop).find_lost() for _ in range(4)] == [0] * 4


def test_one_process_a_period_counts(shop: Shop) -> None:
    """Ten workers that look at once are one look: what is low in one sweep is not low in two because of them."""
    shop.pending()
    shop.broker.flush()
    assert [shop.sweeper().find_lost(relay(shop)) for _ in range(10)] == [0] * 10
    assert shop.sweeper().find_lost(relay(shop), force=True) == 1
    (found,) = execute(shop, "SELECT last_count, last_ok_at FROM supervise.sweeps WHERE name = 'lost'")
    assert found["last_count"] == 1
    assert found["last_ok_at"] is not None
