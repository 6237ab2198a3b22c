"""The settings: what is refused at start-up, in which words, and what the defaults promise. No Celery."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from celery_supervise.config import Settings, load
from celery_supervise.errors import ConfigError


def settings(**given: Any) -> Settings:
    """Load settings as an app has them."""
    conf: Mapping[str, Any] = {f"supervise_{name}": value for name, value in given.items()}
    return load(conf.get, conf)


def refusal(**given: Any) -> ConfigError:
    """The error that these settings are refused with."""
    with pytest.raises(ConfigError) as refused:
        settings(**given)
    return refused.value


def test_the_defaults_of_the_design() -> None:
    """An app that sets nothing gets what the design's list says, and that is consistent."""
    loaded = settings()
    assert loaded == Settings()
    assert (loaded.lease, loaded.heartbeat_seconds, loaded.sweep_seconds) == (timedelta(seconds=60), 10, 10)
    assert (loaded.republish_seconds, loaded.lost_attempts) == (30, 3)
    assert loaded.question_ttl == timedelta(days=7)
    assert (loaded.max_value_bytes, loaded.max_job_bytes) == (1024 * 1024, 16 * 1024 * 1024)
    assert (loaded.namespace, loaded.schema, loaded.submit) == ("default", "supervise", "row")
    assert loaded.deadline_seconds is None
    assert loaded.lock_timeout == timedelta(seconds=5)


def test_every_setting_can_be_given() -> None:
    """Each is read by its own name."""
    given = {
        "database_url": "postgresql://db/shop",
        "namespace": "second",
        "submit": "worker",
        "lease_seconds": 30.5,
        "heartbeat_seconds": 5,
        "lost_attempts": 7,
        "beat": False,
    }
    loaded = settings(**given)
    assert {name: getattr(loaded, name) for name in given} == given


def test_limits_are_numbers_or_functions() -> None:
    """A number for every owner, or the path of a function that knows; the window is a number."""
    loaded = settings(owner_running=5, owner_open="shop.tenancy.open", release_window=10)
    assert (loaded.owner_running, loaded.owner_open, loaded.release_window) == (5, "shop.tenancy.open", 10)
    assert (settings().owner_running, settings().owner_open, settings().release_window) == (None, None, 1000)


@pytest.mark.parametrize("name", ["owner_running", "owner_open"])
@pytest.mark.parametrize("value", [0, -1, True, 2.5, "", " ", [1], 2**31])
def test_what_is_no_limit(name: str, value: object) -> None:
    """Refused at start-up, with the setting's name."""
    refused = refusal(**{name: value})
    assert refused.setting == f"supervise_{name}"


@pytest.mark.parametrize("value", [0, -1, True, 2.5, "many", 2**31])
def test_what_is_no_window(value: object) -> None:
    """A queue that lets nothing out would never run anything."""
    assert refusal(release_window=value).setting == "supervise_release_window"


def test_an_unset_setting_has_its_default() -> None:
    """None means "not set", as everywhere in Celery's own settings."""
    assert settings(lease_seconds=None, namespace=None) == Settings()


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("supervise_databse_url", "supervise_database_url"),
        ("supervise_lease_second", "supervise_lease_seconds"),
        ("SUPERVISE_NAMESPCE", "supervise_namespace"),
    ],
)
def test_a_misspelt_setting_is_refused(misspelt: str, meant: str) -> None:
    """An unknown `supervise_*` key is an error that names the nearest one: silence would mean a default."""
    with pytest.raises(ConfigError) as refused:
        load(lambda _: None, [misspelt])
    assert refused.value.setting == misspelt
    assert meant in str(refused.value)


def test_nothing_is_guessed_for_a_setting_that_is_near_none() -> None:
    """A name that resembles no setting is refused without a suggestion."""
    with pytest.raises(ConfigError) as refused:
        load(lambda _: None, ["supervise_zzzzzzzzzzzzzz"])
    assert "did you mean" not in str(refused.value)


def test_other_settings_are_the_shops_own() -> None:
    """Only the prefix is ours: task_acks_late and supervisor_url are not looked at."""
    assert load(lambda _: None, ["task_acks_late", "supervisor_url"]) == Settings()


@pytest.mark.parametrize("name", ["lease_seconds", "heartbeat_seconds", "question_ttl_seconds", "lost_attempts"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "30", True, [30], timedelta(seconds=30)])
def test_s72_a_number_that_is_none_is_refused(name: str, value: object) -> None:
    """0, a negative, no number at all: refused at start-up with the setting's name and the value."""
    refused = refusal(**{name: value})
    assert refused.setting == f"supervise_{name}"
    assert repr(value) in refused.problem


@pytest.mark.parametrize(
    "name", [name for name in vars(Settings()) if name.endswith("_seconds")] + ["lost_attempts", "release_window"]
)
@pytest.mark.parametrize("value", [10**12, 2**70])
def test_s72_a_number_that_the_database_cannot_have_is_refused(name: str, value: int) -> None:
    """At start-up: each call, sweep or renewal would fail with it."""
    assert refusal(**{name: value}).setting == f"supervise_{name}"


@pytest.mark.parametrize(("lease", "beat"), [(30, 30), (30, 15), (30, 10.1), (5, 10)])
def test_s72_a_heartbeat_slower_than_the_lease_allows(lease: float, beat: float) -> None:
    """A lease that two lost heartbeats would end is refused, with both numbers in the message."""
    refused = refusal(lease_seconds=lease, heartbeat_seconds=beat)
    assert refused.setting == "supervise_heartbeat_seconds"
    assert f"{lease:g}" in str(refused)
    assert f"{beat:g}" in str(refused)


def test_s72_the_default_outlives_two_lost_heartbeats() -> None:
    """With the defaults two heartbeats in a row may be lost, and there is time left for the third."""
    loaded = settings()
    assert loaded.heartbeat_seconds * 3 <= loaded.lease_seconds


def test_a_wait_for_a_lock_is_over_before_the_lease_is() -> None:
    """A lock timeout above a sixth of the lease is refused: a lease could end while a checkpoint waits."""
    refused = refusal(lease_seconds=60, lock_timeout_seconds=10.01)
    assert refused.setting == "supervise_lock_timeout_seconds"
    assert "10.01" in str(refused)
    assert "60" in str(refused)
    assert settings(lease_seconds=60, lock_timeout_seconds=10).lock_timeout == timedelta(seconds=10)


@pytest.mark.parametrize("lease", [1, 1.1, 2.5, 3, 7, 10, 10.01, 13, 17.7, 20, 29.99, 31, 60, 3600])
def test_the_default_lock_timeout_fits_every_lease(lease: float) -> None:
    """What we compute ourselves is never refused, however a sixth of the lease rounds; it is never "no limit"."""
    loaded = settings(lease_seconds=lease, heartbeat_seconds=lease / 4)
    assert timedelta(milliseconds=1) <= loaded.lock_timeout <= timedelta(seconds=5)


def test_a_lock_timeout_that_postgres_would_take_for_none() -> None:
    """Postgres counts in milliseconds, and 0 means for ever: less than one is refused."""
    assert refusal(lock_timeout_seconds=0.0009).setting == "supervise_lock_timeout_seconds"


@pytest.mark.parametrize("name", ["lost_attempts", "max_value_bytes", "max_job_bytes"])
def test_what_is_counted_is_whole(name: str) -> None:
    """Half an attempt and half a byte are refused, not rounded."""
    assert refusal(**{name: 2.5}).setting == f"supervise_{name}"
    assert getattr(settings(**{name: 7}), name) == 7


@pytest.mark.parametrize("value", ["sometimes", 1, ["row"], {}])
def test_a_choice_is_one_of_its_words(value: object) -> None:
    """Anything but the words of a choice is refused, and the message lists them."""
    refused = refusal(submit=value)
    assert refused.setting == "supervise_submit"
    assert "row, worker" in refused.problem


@pytest.mark.parametrize("name", ["database_url", "namespace", "schema", "queue", "owner", "codec"])
@pytest.mark.parametrize("value", ["", "  ", 7, b"x"])
def test_a_text_is_not_empty(name: str, value: object) -> None:
    """An empty environment variable that became a setting is refused, not taken for a name."""
    assert refusal(**{name: value}).setting == f"supervise_{name}"


@pytest.mark.parametrize("name", ["namespace", "queue", "schema"])
@pytest.mark.parametrize("value", ["x" * 256, "ü" * 128, "a\0b"])
def test_a_name_the_database_cannot_hold(name: str, value: str) -> None:
    """Names go into indexed columns: too long a one fails at start-up, not at the first submit."""
    assert refusal(**{name: value}).setting == f"supervise_{name}"


def test_a_schema_name_is_an_identifier() -> None:
    """Postgres would cut a longer one at 63 bytes, silently."""
    assert refusal(schema="x" * 64).setting == "supervise_schema"
    assert settings(schema="x" * 63).schema == "x" * 63


@pytest.mark.parametrize("name", ["beat", "worker_thread"])
@pytest.mark.parametrize("value", [0, "no", "False"])
def test_a_switch_is_true_or_false(name: str, value: object) -> None:
    """The text "False" is not taken for true."""
    assert refusal(**{name: value}).setting == f"supervise_{name}"


def test_every_setting_has_a_check() -> None:
    """No setting is accepted as whatever it is: an object is refused by each."""
    for field in fields(Settings):
        assert refusal(**{field.name: object()}).setting == f"supervise_{field.name}"
