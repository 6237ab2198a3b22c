"""A database that cannot be used says why: what is wrong with the URL is not told as a server that is away."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, urlsplit

import pytest

from celery_supervise import errors, queries
from celery_supervise.doctor import examine
from celery_supervise.engine import create_engine
from celery_supervise.migrate import migrate
from example_project import embedded
from tests.postgres.looking import driven
from tests.postgres.shop import Shop
from tests.postgres.test_doctor import door_of, patient_of
from tests.servers import PASSWORD, execute

WRONG = "a-secret-that-is-wrong"


def _password(url: str) -> str:
    return url.replace(PASSWORD, WRONG)


def _user(url: str) -> str:
    return url.replace("supervise_runtime", "nobody_of_that_name")


def _crowded(url: str) -> str:
    return url.replace("supervise_runtime", "crowded")


def _closed(url: str) -> str:
    return url.replace(str(urlsplit(url).port), "1")


def _two_addresses(url: str) -> str:
    """One where nobody listens, then the server, which refuses."""
    return _password(url).replace("127.0.0.1", "127.0.0.2,127.0.0.1")


Way = tuple[Callable[[str], str], str, str]
WAYS: Mapping[str, Way] = {
    "no such database": (lambda url: url + "_gone", "no_database", "Postgres has no such database"),
    "wrong password": (_password, "login_refused", "Postgres refused the login"),
    "no such user": (_user, "login_refused", "Postgres refused the login"),
    "no password": (lambda url: url.replace(":" + PASSWORD, ""), "login_refused", "Postgres refused the login"),
    "no more connections": (_crowded, "refusing", "Postgres answers, but takes no work just now"),
    "nobody listens": (_closed, "unreachable", "Postgres cannot be reached"),
}


@pytest.fixture
def way(request: pytest.FixtureRequest, pg_server: embedded.Postgres) -> Iterator[Way]:
    """A URL that does not work, the code of why, and how its error begins."""
    execute(pg_server, f"CREATE ROLE crowded LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 0")
    yield WAYS[request.param]
    execute(pg_server, "DROP ROLE crowded")


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("driver", ["psycopg2", "psycopg"])
def test_why_a_database_cannot_be_used(database_url: str, driver: str, way: Way) -> None:
    """Told apart by a code and in words, with what helps; neither SQL nor password is in it."""
    make, code, begins = way
    engine = create_engine(driven(make(database_url), driver))
    with pytest.raises(errors.DatabaseUnavailable) as refused:
        door_of(engine).all(queries.CLOCK)
    engine.dispose()
    said = str(refused.value)
    assert (refused.value.code, refused.value.unknown) == (code, False)
    assert said.startswith(f"{begins} (")
    assert said.endswith(refused.value.advice)
    assert "\n" not in said
    assert not [word for word in (WRONG, PASSWORD, "SELECT") if word in said]
    assert WRONG not in "".join(traceback.format_exception(refused.value))


def test_of_two_addresses_the_one_that_answered_is_told(database_url: str) -> None:
    """Where nobody listens at the first one, why the second one refused is what matters."""
    engine = create_engine(_two_addresses(database_url))
    with pytest.raises(errors.DatabaseUnavailable, match="password authentication failed"):
        door_of(engine).all(queries.CLOCK)
    engine.dispose()


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_migrate_and_doctor_tell_it_too(shop: Shop, database_url: str, way: Way) -> None:
    """The same words wherever the database is needed."""
    make, code, begins = way
    url = make(database_url)
    with pytest.raises(errors.DatabaseUnavailable) as refused:
        migrate(url)
    assert (refused.value.code, str(refused.value).startswith(begins)) == (code, True)
    engine = create_engine(url)
    (found,) = next(one for one in examine(patient_of(shop, door=door_of(engine))) if one.check == "database").findings
    assert found.advice == refused.value.advice
    engine.dispose()


def test_a_standby_is_not_away(database_url: str) -> None:
    """A server that only reads says so, and is not told as one that cannot be reached."""
    engine = create_engine(f"{database_url}?options={quote('-c default_transaction_read_only=on')}")
    with pytest.raises(errors.DatabaseUnavailable, match=r"takes no work just now .*read-only") as refused:
        Shop(engine).pending()
    engine.dispose()
    assert refused.value.code == "refusing"
