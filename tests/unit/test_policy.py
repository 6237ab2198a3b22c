"""Who somebody is, and what is said of a Django database where there is no Django."""

from __future__ import annotations

from typing import Any

import pytest

from celery_supervise import InvalidInput, aliases, config
from celery_supervise.aliases import Aliases
from celery_supervise.errors import ConfigError
from celery_supervise.policy import Identity, Scope


@pytest.mark.parametrize("wanted", list(Scope))
def test_a_wider_scope_has_what_a_narrower_one_has(wanted: Scope) -> None:
    """An operator may do all that others may, a reader nothing else than look."""
    assert Scope.OPERATOR.covers(wanted)
    assert Scope.READONLY.covers(wanted) == (wanted is Scope.READONLY)


@pytest.mark.parametrize(
    "given", [{"subject": " "}, {"subject": "a\0"}, {"subject": "ann", "owner": " "}, {"subject": "a" * 255}]
)
def test_an_identity_can_stand_in_the_log(given: dict[str, Any]) -> None:
    """What could not is refused where it is made, with its way in counted."""
    with pytest.raises(InvalidInput):
        Identity(**given)


def test_an_alias_where_django_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a call it is wrong input, of the setting a wrong setting; and no transaction is open."""

    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="django")

    monkeypatch.setattr(aliases, "import_module", missing)
    monkeypatch.setattr(aliases, "USED", "no.such.module")
    with pytest.raises(InvalidInput, match="django is not installed"):
        Aliases("supervise").joined("default")
    with pytest.raises(ConfigError, match="supervise_database: names a database of Django's"):
        aliases.url_of("default")
    with pytest.raises(InvalidInput, match="not set up"):
        aliases.on_commit(None, (), {}, using=None, database=None, options={})
    assert not aliases.in_transaction()


def test_the_database_is_named_once() -> None:
    """By its URL, or by Django's alias."""
    given = {"supervise_database": "default", "supervise_database_url": "postgresql://db/shop"}
    with pytest.raises(ConfigError, match="both set"):
        config.load(given.get, given)
