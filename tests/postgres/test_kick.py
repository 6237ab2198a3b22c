"""`kick`: one job's message is sent now; it hurries the broker, never the job's own rules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_supervise.errors import Conflict, InvalidInput, JobNotFound, PublishFailed
from celery_supervise.lifecycle import State
from celery_supervise.model import Lease
from celery_supervise.operating import Kicked
from celery_supervise.relay import Relay
from tests.postgres.looking import NO_TIME, execute, row, rows, unchanged, watching
from tests.postgres.races import Call, row_held, waiter
from tests.postgres.shop import Shop

HOUR = timedelta(hours=1)
ANN = "user:ann"


def sent(shop: Shop) -> list[object]:
    """The tickets that the broker was given since it was flushed."""
    return [message.id for message in shop.broker.messages]


def test_a_message_that_was_not_sent_is_sent_now(shop: Shop) -> None:
    """The broker is back, and nobody waits for the relay; the relay then has nothing to do."""
    shop.broker.down = True
    job = shop.pending()
    shop.broker.down = False
    assert shop.supervisor.kick(job.id, actor=ANN) == Kicked(job.id, "celery", sent=True)
    assert sent(shop) == [job.ticket_id]
    (copy,) = rows(shop, "outbox", job.id)
    assert (copy["published_at"] is not None, copy["publish_until"], copy["publish_count"]) == (True, None, 1)
    assert Relay(shop.door, shop.broker, settling=NO_TIME).run_once().published == 0


def test_a_message_that_was_lost_is_sent_again(shop: Shop) -> None:
    """The same ticket again: one of the two messages runs the job, and the job itself has not changed."""
    job = shop.pending()
    shop.broker.flush()
    with watching(shop, job.id) as seen:
        shop.supervisor.kick(job.id, actor=ANN)
    assert (sent(shop), seen.generation, seen.events) == ([job.ticket_id], 0, [])
    assert isinstance(shop.claim(job.id), Lease)
    assert job.ticket_id is not None
    assert shop.supervisor.claim(job.id, job.ticket_id, shop.claimer) is None


def test_one_that_waits_for_its_turn_goes_first(shop: Shop) -> None:
    """A job that was not let into its queue yet is, and can be claimed."""
    job = shop.pending()
    shop.broker.flush()
    execute(shop, "UPDATE supervise.jobs SET ticket_released_at = NULL WHERE id = :id", id=job.id)
    assert shop.claim(job.id) is None
    shop.supervisor.kick(job.id, actor=ANN)
    assert row(shop, job.id)["ticket_released_at"] is not None
    assert sent(shop) == [job.ticket_id]
    assert isinstance(shop.claim(job.id), Lease)


def test_a_parked_job_that_was_told_to_go_on(shop: Shop) -> None:
    """An answered or resumed job waits for a worker like any other."""
    job = shop.paused()
    shop.supervisor.resume(job.id, actor=ANN)
    shop.broker.flush()
    assert shop.supervisor.kick(job.id, actor=ANN).sent
    assert sent(shop) == [shop.job(job.id).ticket_id]


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda shop: shop.pending(due=HOUR).id, "starts at"),
        (lambda shop: shop.running().lease.job_id, "running on"),
        (lambda shop: shop.job_of(shop.asked()).id, "waits for an answer"),
        (lambda shop: shop.paused().id, "paused by"),
        (lambda shop: shop.supervisor.pause(shop.pending().id, actor=ANN).job_id, "will not start until resumed"),
        (lambda shop: shop.ended(State.COMPLETED).id, "completed"),
    ],
)
def test_there_is_nothing_to_send(shop: Shop, prepare: Callable[[Shop], str], why: str) -> None:
    """What waits for its time or a person, runs or has ended is left as it is; the refusal says why it stands."""
    job_id = prepare(shop)
    shop.broker.flush()
    with unchanged(shop, job_id), pytest.raises(Conflict, match=f"there is nothing to send: .*{why}") as refused:
        shop.supervisor.kick(job_id, actor=ANN)
    assert (refused.value.code, refused.value.state) == ("nothing_to_send", shop.job(job_id).state)
    assert sent(shop) == []


def test_a_broker_that_is_away_is_told(open_shop: Callable[..., Shop]) -> None:
    """Who kicks wants to know; the relay sends it when the broker is back."""
    shop = open_shop(publish_hold=NO_TIME)
    job = shop.pending()
    shop.broker.flush()
    shop.broker.down = True
    with pytest.raises(PublishFailed, match="connection refused"):
        shop.supervisor.kick(job.id, actor=ANN)
    shop.broker.down = False
    Relay(shop.door, shop.broker, settling=NO_TIME).run_once()
    assert sent(shop) == [job.ticket_id]


def test_without_a_publisher_the_relay_sends_at_once(shop: Shop) -> None:
    """A process that cannot send makes the message the relay's next."""
    job = shop.pending()
    shop.broker.flush()
    shop.supervisor._publisher = None
    assert not shop.supervisor.kick(job.id, actor=ANN).sent
    Relay(shop.door, shop.broker, settling=NO_TIME).run_once()
    assert sent(shop) == [job.ticket_id]


def test_behind_a_claim_there_is_nothing_to_send(shop: Shop) -> None:
    """It waits for the row, and then sees that the job runs: nothing is sent for a ticket that was used."""
    job = shop.pending()
    shop.broker.flush()
    with row_held(shop.engine, "jobs", "id", job.id) as gate:
        claim = Call(lambda: shop.claim(job.id))
        first = waiter(shop.engine, gate)
        kick = Call(lambda: shop.supervisor.kick(job.id, actor=ANN))
        waiter(shop.engine, first)
    assert isinstance(claim.outcome(), Lease)
    refused = kick.outcome()
    assert isinstance(refused, Conflict)
    assert refused.code == "nothing_to_send"
    assert "running on worker@test" in str(refused)
    assert sent(shop) == []


def test_kick_of_what_is_not_there(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """Foreign, of another app, or no name at all: not found; without an actor: refused."""
    job = shop.pending(owner_id="ann")
    kicks: list[Callable[[], object]] = [
        lambda: shop.supervisor.kick(job.id, actor=ANN, owner="bob"),
        lambda: open_shop(namespace="second").supervisor.kick(job.id, actor=ANN),
        lambda: shop.supervisor.kick("a\0b", actor=ANN),
    ]
    for kick in kicks:
        with unchanged(shop, job.id), pytest.raises(JobNotFound):
            kick()
    with unchanged(shop, job.id), pytest.raises(InvalidInput, match="actor"):
        shop.supervisor.kick(job.id, actor="")
