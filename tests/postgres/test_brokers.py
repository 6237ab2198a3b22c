"""One namespace, one broker: remembered by the first relay; another one refuses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from celery import Celery

from celery_supervise import brokers
from celery_supervise.brokers import Broker
from celery_supervise.errors import ConfigError
from celery_supervise.place import broker_place
from celery_supervise.relay import Relay
from tests.postgres.looking import execute
from tests.postgres.races import at_once
from tests.postgres.shop import Shop

HOUR = timedelta(hours=1)


def relay(shop: Shop, place: str) -> Relay:
    """A relay whose app has this broker."""
    return Relay(shop.door, shop.broker, settling=HOUR, allowed=Broker(shop.door, lambda: place).check)


def test_a_relay_with_another_broker_refuses(shop: Shop, open_shop: Callable[..., Shop]) -> None:
    """It sends nothing, finds nothing lost and tells nothing; the namespace's own goes on. Others have their own."""
    relay(shop, "redis:6379/0").run_once()
    shop.pending()
    shop.broker.flush()
    other = relay(shop, "rabbit:5672/shop")
    for act in (other.run_once, other.publish_once, other.settle_once, other.find_lost):
        with pytest.raises(ConfigError, match="rabbit:5672/shop is not the broker that namespace 'default' has"):
            act()
    assert shop.broker.messages == []
    relay(shop, "redis:6379/0").run_once()
    relay(open_shop(namespace="second"), "rabbit:5672/shop").run_once()


def test_what_is_remembered_names_nobody(shop: Shop) -> None:
    """A digest: who reads the tables does not learn where the broker is."""
    relay(shop, "redis:6379/0").run_once()
    (row,) = execute(shop, "SELECT value FROM supervise.meta WHERE name = 'broker:default'")
    assert len(row["value"]) == 64
    assert "redis" not in row["value"]


def test_a_broker_that_has_moved(shop: Shop) -> None:
    """Said once, by a person: the new one's relay works, the old one's refuses from its next look on."""
    old, new = (Broker(shop.door, lambda place=place: place) for place in ("old:6379/0", "new:6379/0"))  # type: ignore[misc]
    old.check()
    assert new.differs()
    new.move()
    new.check()
    assert old.differs()
    old.check()  # it has looked a moment ago


def test_it_is_looked_at_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was so is taken for granted for a while, not for ever."""
    monkeypatch.setattr(brokers, "LOOK_AGAIN", 0.0)
    old, new = (Broker(shop.door, lambda place=place: place) for place in ("old:6379/0", "new:6379/0"))  # type: ignore[misc]
    old.check()
    new.move()
    with pytest.raises(ConfigError, match="--move-broker"):
        old.check()


def test_of_two_that_come_first_together_one_is(shop: Shop) -> None:
    """The other finds out at once."""
    both = [Broker(shop.door, lambda place=place: place) for place in ("a:1/", "b:1/")]  # type: ignore[misc]
    assert sorted(at_once([one.is_ours for one in both])) == [False, True]


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://:secret@Redis/1", "redis:6379/1"),
        ("redis://127.0.0.1:6380", "localhost:6380/0"),
        ("rediss://cache:6380/0", "cache:6380/0"),
        ("amqp://shop:secret@rabbit//", "rabbit:5672/"),
        ("pyamqp://rabbit/shop", "rabbit:5672/shop"),
        (["amqp://b/shop", "amqp://a/shop"], "a:5672/shop, b:5672/shop"),
        ("sentinel://s2:26379;sentinel://s1:26379", "s1:26379/0, s2:26379/0"),
    ],
    ids=str,
)
def test_a_place_is_written_in_one_way(url: str, place: str) -> None:
    """However its URL is: without user and password, with what need not be said."""
    app = Celery("proj", broker=url, set_as_current=False)
    assert broker_place(app) == place
    app.close()
