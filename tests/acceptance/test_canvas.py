"""Chains, groups, chords and links around jobs that park: as if they had never parked."""

from __future__ import annotations

import pytest
from celery import chain, chord, group
from celery.result import AsyncResult

from tests.acceptance.bodies import Broken
from tests.acceptance.shop import Shop
from tests.tools import wait_for


def test_s24_chain_around_a_job_that_parks(shop: Shop) -> None:
    """What comes next runs once, after the answer, with the result."""
    result = chain(shop.task("hurried").s(1), shop.task("add").s(10), shop.task("record").s())()
    first = result.parent.parent
    shop.parked(first)
    assert shop.effects() == []
    shop.answer(first, 5)
    assert result.get(timeout=30) == 15
    assert shop.effects() == ["answered 1", "add 5 10", "record 15"]


def test_s24_chord_with_members_that_park(shop: Shop) -> None:
    """The body runs once, after the last answer, with all results in order."""
    add, hurried = shop.task("add"), shop.task("hurried")
    result = chord([add.s(1, 0), hurried.s(2), add.s(3, 0), hurried.s(4)])(shop.task("total").s())
    members = list(result.parent.results)
    shop.answer(members[1], 20)
    assert members[1].get(timeout=20) == 20
    shop.parked(members[3])
    assert shop.effects("total") == []
    shop.answer(members[3], 40)
    assert result.get(timeout=30) == 64
    assert shop.effects("total") == ["total 64"]


def test_s33_two_questions_in_parallel(shop: Shop) -> None:
    """The body of a chord of two asking tasks waits for both answers."""
    result = chord(group(shop.task("hurried").s(number) for number in range(2)))(shop.task("total").s())
    first, second = result.parent.results
    for member in (first, second):
        shop.parked(member)
    shop.answer(first, 1)
    assert first.get(timeout=20) == 1
    assert shop.effects("total") == []
    shop.answer(second, 2)
    assert result.get(timeout=30) == 3
    assert shop.effects("total") == ["total 3"]


def test_link_of_a_job_that_parked(shop: Shop) -> None:
    """A callback runs once, when the job ends."""
    result = shop.send("hurried", 1, link=shop.task("record").s())
    shop.answer(result, 5)
    assert result.get(timeout=20) == 5
    wait_for(lambda: shop.effects("record"), what="the callback")
    shop.settled(result)
    assert shop.effects() == ["answered 1", "record 5"]


def test_a_failed_member_fails_the_chord(shop: Shop) -> None:
    """The chord's errback runs, its body does not."""
    body = shop.task("total").s().on_error(shop.task("alarm").s())
    result = chord([shop.task("add").s(1, 0), shop.task("fail").s("no")])(body)
    wait_for(lambda: shop.effects("alarm"), what="the errback")
    with pytest.raises(Exception, match="no"):
        result.get(timeout=20)
    assert shop.effects("total") == []


def test_cancelled_member_ends_the_chain(shop: Shop) -> None:
    """Nothing after a cancelled job runs."""
    result = chain(shop.task("hurried").s(1), shop.task("record").s())()
    first: AsyncResult = result.parent
    shop.parked(first)
    shop.supervise.cancel(first.id, actor="user:ann")
    shop.settled(first)
    assert first.state == "REVOKED"
    assert shop.effects() == []


def test_failed_member_fails_the_chain(shop: Shop) -> None:
    """The end of a chain fails with the exception of the member that failed."""
    result = chain(shop.task("fail").s("no"), shop.task("record").si(1))()
    with pytest.raises(Broken, match="no"):
        result.get(timeout=20)
