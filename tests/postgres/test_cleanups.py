"""Cleanups (`on_abandon`): kept before the effect, sent when the job does not complete, and only what nobody needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from celery_supervise.body import Body
from celery_supervise.errors import AttemptEnded, InsideTransaction, LeaseLost
from celery_supervise.holding import Holding
from celery_supervise.lifecycle import State
from celery_supervise.model import Message, MessageKind, NodeKind
from celery_supervise.relay import Relay, Told, mark_settled
from tests.postgres.looking import backdate, rows, unchanged, watching
from tests.postgres.races import in_order
from tests.postgres.shop import NO_TIME, Shop, failure, retry, stored
from tests.postgres.test_journal import journal

ANN = "user:ann"
HOUR = NO_TIME.resolution * 3_600_000_000


def expire(shop: Shop, holding: Holding) -> None:
    """The sweep finds its deadline over."""
    backdate(shop, holding.lease.job_id, "expires_at")
    assert len(shop.expire().moved) == 1


ENDS: dict[str, Callable[[Shop, Holding], object]] = {
    "failed": lambda _, holding: holding.fail(failure()),
    "cancelled": lambda shop, holding: (
        shop.supervisor.cancel(holding.lease.job_id, actor=ANN),
        holding.checkpoint("next", NodeKind.STEP, None),
    ),
    "expired": expire,
    "given up": lambda shop, holding: shop.lose(holding),
    "cancelled where nobody runs it": lambda shop, holding: (
        holding.hand_over(),
        shop.supervisor.cancel(holding.lease.job_id, actor=ANN),
    ),
}
"""Ways to an end that is not completed."""


def registered(shop: Shop, *names: str, **changes: Any) -> Holding:
    """An attempt that has registered these cleanups."""
    holding = shop.running(**{"deadline": HOUR, **changes})
    for name in names:
        holding.register(name, stored(f'"{name}"'))
    return holding


def relay(shop: Shop, times: int = 2) -> list[Message]:
    """Passes of the relay; the cleanups that have been sent by then."""
    one = Relay(shop.door, shop.broker, settling=NO_TIME)
    for _ in range(times):
        one.run_once()
    return sent(shop)


def sent(shop: Shop) -> list[Message]:
    """The cleanups that were sent."""
    return [message for message in shop.broker.messages if message.kind is MessageKind.CLEANUP]


def texts(messages: list[Message]) -> list[str]:
    """What was sent, in order of its text."""
    return sorted(message.envelope.data.decode().strip('"') for message in messages)


def fate(shop: Shop, job_id: str) -> list[tuple[str, bool, bool]]:
    """Each cleanup: whether it was sent, whether it was dropped."""
    found = rows(shop, "cleanups", job_id)
    fates = ((one["name"], one["dispatched_at"] is not None, one["dropped_at"] is not None) for one in found)
    return sorted(fates)


def finish(shop: Shop, job_id: str) -> None:
    """Celery is told of the end: by the worker, as it would be."""
    job = shop.job(job_id)
    assert mark_settled(shop.door, [Told(job_id, job.settle_id)], actor="worker") == [job_id]


@pytest.mark.parametrize("end", ENDS)
def test_a_cleanup_is_sent_when_the_job_does_not_complete(shop: Shop, end: str) -> None:
    """Whoever ends it, and as what: each cleanup goes out through the outbox, once."""
    holding = registered(shop, "a", "b", lost_limit=1)
    job_id = holding.lease.job_id
    assert relay(shop) == []
    ENDS[end](shop, holding)
    if shop.job(job_id).settle_id == holding.lease.token:
        finish(shop, job_id)
    assert texts(relay(shop)) == ["a", "b"]
    assert fate(shop, job_id) == [("a", True, False), ("b", True, False)]
    assert len(relay(shop)) == 2


def test_a_cleanup_is_dropped_when_the_job_completes(shop: Shop) -> None:
    """What was made is wanted: nothing is sent, for ever."""
    holding = registered(shop, "a")
    holding.complete(stored("1"))
    finish(shop, holding.lease.job_id)
    assert relay(shop) == []
    assert fate(shop, holding.lease.job_id) == [("a", False, True)]


def test_a_result_backend_that_is_away_delays_no_cleanup(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ended and Celery cannot be told: its cleanups are sent all the same."""
    holding = registered(shop, "a")
    shop.supervisor.cancel(holding.lease.job_id, actor=ANN)
    shop.lose(holding)
    monkeypatch.setattr(shop.broker, "tell", lambda _: False)
    assert texts(relay(shop)) == ["a"]
    assert shop.job(holding.lease.job_id).settled_at is None
    finish(shop, holding.lease.job_id)
    assert len(relay(shop)) == 1


def test_a_broker_that_is_away_loses_no_cleanup(shop: Shop) -> None:
    """It stays owed until the broker has taken it, with an id that stays the same."""
    holding = registered(shop, "a")
    job_id = holding.lease.job_id
    holding.fail(failure())
    finish(shop, job_id)
    shop.broker.down = True
    assert relay(shop) == []
    assert fate(shop, job_id) == [("a", False, False)]
    (waiting,) = [one["id"] for one in rows(shop, "outbox", job_id) if one["kind"] == "cleanup"]
    shop.broker.down = False
    shop.door.publish_hold = NO_TIME
    with shop.engine.begin() as connection:
        connection.execute(sa.text("UPDATE supervise.outbox SET publish_until = NULL"))
    (message,) = relay(shop)
    assert message.id == waiting


def test_the_ids_of_two_cleanups_differ(shop: Shop) -> None:
    """By job and by name; they are the same whoever computes them."""
    for job_id, names in (("ab", ("c", "d")), ("a", ("bc",)), ("abc", ("x",))):
        holding = shop.hold(shop.pending(job_id).id)
        for name in names:
            holding.register(name, stored())
        holding.fail(failure())
        finish(shop, job_id)
    ids = {message.id for message in relay(shop)}
    assert len(ids) == 4


# --- registering -----------------------------------------------------------------------------------------


def test_it_is_durable_before_the_effect(shop: Shop) -> None:
    """Registered, the process dies at once: the next attempt need not come to it."""
    holding = registered(shop, "a")
    shop.lose(holding)
    shop.hold(holding.lease.job_id).fail(failure())
    finish(shop, holding.lease.job_id)
    assert texts(relay(shop)) == ["a"]


def test_registered_again_it_is_one(shop: Shop) -> None:
    """A later attempt registers the same name, and the newest signature is sent."""
    holding = registered(shop, "a")
    job_id = holding.lease.job_id
    holding.retry(retry(), failure())
    again = shop.hold(job_id)
    again.register("a", stored('"newer"'))
    again.fail(failure())
    finish(shop, job_id)
    assert texts(relay(shop)) == ["newer"]


def test_registering_changes_nothing_that_clients_see(shop: Shop) -> None:
    """No generation, no log entry, no state."""
    holding = shop.running()
    before = rows(shop, "jobs", holding.lease.job_id)
    holding.register("a", stored())
    assert rows(shop, "jobs", holding.lease.job_id) == before


@pytest.mark.parametrize("lost", [lambda shop, job_id: shop.reap_now(job_id), lambda shop, _: shop.expire()])
def test_a_stale_attempt_registers_nothing(shop: Shop, lost: Callable[[Shop, str], object]) -> None:
    """It is told that it is over, before the effect."""
    holding = shop.running(deadline=HOUR)
    backdate(shop, holding.lease.job_id, "expires_at")
    lost(shop, holding.lease.job_id)
    with pytest.raises(LeaseLost):
        holding.register("a", stored())
    assert rows(shop, "cleanups", holding.lease.job_id) == []


def test_a_registration_behind_the_end_is_refused(shop: Shop) -> None:
    """It waited for the row while the job was cancelled: refused, or it would never be sent."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    ended, refused = in_order(shop.engine, job_id, lambda: shop.lose(holding), lambda: holding.register("a", stored()))
    assert ended.state is State.CANCELLED
    assert isinstance(refused, LeaseLost)
    assert rows(shop, "cleanups", job_id) == []


def test_an_end_behind_the_registration_sends_it(shop: Shop) -> None:
    """It ended while the registration committed, in an older snapshot: the cleanup is sent all the same."""
    holding = shop.running()
    job_id = holding.lease.job_id
    shop.supervisor.cancel(job_id, actor=ANN)
    registered, ended = in_order(
        shop.engine, job_id, lambda: holding.register("a", stored('"a"')), lambda: shop.lose(holding)
    )
    assert registered is None
    assert ended.state is State.CANCELLED
    assert texts(relay(shop)) == ["a"]


def test_the_journal_registers(shop: Shop) -> None:
    """What a body calls; its attempt's id is that of this attempt alone."""
    holding = shop.running()
    one = journal(shop, holding)
    one.register("a", '"from the body"')
    assert one.attempt_id == str(holding.lease.token)
    assert [
        row["data"].tobytes() if isinstance(row["data"], memoryview) else row["data"]
        for row in rows(shop, "cleanups", holding.lease.job_id)
    ] == [b'"from the body"']


# --- attempts that lost their job ------------------------------------------------------------------------


def own(holding: Holding) -> str:
    """The name of what this attempt alone makes."""
    return f"upload-{holding.lease.token}"


def test_a_loser_does_not_take_away_what_the_winner_needs(shop: Shop) -> None:
    """The job goes on: of a stale attempt that is refused only what is its own is taken back."""
    stale = registered(shop, "shared")
    job_id = stale.lease.job_id
    stale.register(own(stale), stored('"own"'))
    shop.reap_now(job_id)
    winner = shop.hold(job_id)
    winner.register(own(winner), stored('"winner"'))
    assert relay(shop) == []
    with pytest.raises(LeaseLost):
        stale.complete(stored("1"))
    assert texts(relay(shop)) == ["own"]
    winner.complete(stored("2"))
    finish(shop, job_id)
    assert texts(relay(shop)) == ["own"]
    assert fate(shop, job_id) == sorted(
        [("shared", False, True), (own(stale), True, False), (own(winner), False, True)]
    )


def test_what_only_a_dead_attempt_had_made_is_cleaned_up_in_the_end(shop: Shop) -> None:
    """Its process died and will never be refused: when the job completes, what was its own is nobody's."""
    dead = registered(shop, "shared")
    job_id = dead.lease.job_id
    dead.register(own(dead), stored('"own"'))
    shop.lose(dead)
    shop.hold(job_id).complete(stored("2"))
    finish(shop, job_id)
    assert texts(relay(shop)) == ["own"]


def test_a_late_effect_is_taken_back(shop: Shop) -> None:
    """The job ended and was cleaned up while a frozen attempt still uploaded: when it is refused, once more."""
    holding = registered(shop, "a")
    job_id = holding.lease.job_id
    ENDS["expired"](shop, holding)
    (first,) = relay(shop)
    holding.complete(stored('"late"'))
    second = relay(shop)
    assert texts(second) == ["a", "a"]
    assert {message.id for message in second} > {first.id}
    holding.complete(stored('"late"'))
    with watching(shop, job_id) as seen, pytest.raises(LeaseLost):
        holding.register("b", stored())
    assert seen.events == ["refused"]
    assert len(relay(shop)) == 2


def test_a_loser_of_a_completed_job_takes_back_its_own(shop: Shop) -> None:
    """The winner's output stays; the shared cleanup was dropped."""
    stale = registered(shop, "shared")
    job_id = stale.lease.job_id
    stale.register(own(stale), stored('"own"'))
    shop.reap_now(job_id)
    shop.hold(job_id).complete(stored("2"))
    finish(shop, job_id)
    relay(shop)
    with pytest.raises(LeaseLost):
        stale.complete(stored("1"))
    assert set(texts(relay(shop))) == {"own"}


def test_a_stranger_sends_nothing(shop: Shop) -> None:
    """A call with a token of no attempt is no rejection of one."""
    holding = registered(shop, "a")
    ENDS["failed"](shop, holding)
    with unchanged(shop, holding.lease.job_id), pytest.raises(LeaseLost):
        Holding(
            shop.door, shop.running().lease.__class__(**{**vars(holding.lease), "token": UUID(int=7)}), worker="w"
        ).complete(stored("1"))


def test_a_plain_replacement_needs_what_was_made(shop: Shop) -> None:
    """What is no job goes on in the place of this one, which is completed at once: nothing of it is taken away."""
    holding = registered(shop, "a")
    holding.register(own(holding), stored('"own"'))
    holding.replace_plain("shop.plain")
    assert relay(shop) == []
    job_id = holding.lease.job_id
    assert fate(shop, job_id) == [("a", False, True), (own(holding), False, True)]
    assert [one["kind"] for one in rows(shop, "outbox", job_id)] == []


def test_what_a_lost_attempt_alone_made_is_no_replacements(shop: Shop) -> None:
    """It goes by its attempt's own name, so that nobody needs it."""
    holding = registered(shop, "a")
    holding.register(own(holding), stored('"own"'))
    shop.lose(holding)
    shop.hold(holding.lease.job_id).replace_plain("shop.plain")
    assert texts(relay(shop)) == ["own"]
    assert fate(shop, holding.lease.job_id) == [("a", False, True), (own(holding), True, False)]


# --- erase and prune -------------------------------------------------------------------------------------


def erase(shop: Shop, job_id: str) -> None:
    """Take the job's values away."""
    with shop.engine.begin() as connection:
        connection.execute(sa.text("SELECT supervise.erase_job(:id, 'user:ann')"), {"id": job_id})


def test_erase_leaves_what_is_still_to_be_sent(shop: Shop) -> None:
    """The data of a cleanup goes once the broker has it."""
    holding = registered(shop, "a")
    job_id = holding.lease.job_id
    holding.fail(failure())
    finish(shop, job_id)
    erase(shop, job_id)
    assert texts(relay(shop)) == ["a"]
    erase(shop, job_id)
    assert rows(shop, "cleanups", job_id)[0]["data"] is None


def test_prune_waits_for_what_is_still_to_be_sent(shop: Shop) -> None:
    """A job is not removed before its cleanups are sent."""
    holding = registered(shop, "a")
    job_id = holding.lease.job_id
    holding.fail(failure())
    finish(shop, job_id)
    prune = sa.text("SELECT supervise.prune_jobs(ARRAY[:id])")
    with shop.engine.begin() as connection:
        assert connection.execute(prune, {"id": job_id}).scalar_one() == []
    relay(shop)
    with shop.engine.begin() as connection:
        assert connection.execute(prune, {"id": job_id}).scalar_one() == [job_id]


def test_it_is_no_part_of_a_transaction_block(shop: Shop) -> None:
    """In the block it would commit before the effect does, or never: refused."""
    holding = shop.running()
    body = Body(journal(shop, holding), job_id=holding.lease.job_id)
    with (
        shop.engine.connect() as connection,
        pytest.raises((InsideTransaction, AttemptEnded)),
        body.transaction(connection),
    ):
        body.on_abandon('"x"', name="a")
    assert rows(shop, "cleanups", holding.lease.job_id) == []
