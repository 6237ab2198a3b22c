"""The pytest plugin, as a shop's own suite uses it, with and without xdist and pytest-django."""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg2
import pytest

from tests import pages
from tests.pages import DOCS, ROOT
from tests.servers import Database

PLUGIN = ("-p", "pytest_celery_supervise")
XDIST = ("-p", "xdist", "-n", "2")
SHOP = """
    from celery import Celery
    from celery_supervise import SupervisedTask

    app = Celery("proj", broker="memory://", backend="cache+memory://")

    def pay_back(order, amount, key):
        return "paid"
"""
PREAMBLE = """
from datetime import timedelta
from celery_supervise import Options, Remembered, SupervisedTask
from proj import app, pay_back
"""
Suite = Callable[..., pytest.RunResult]


@pytest.fixture
def suite(pytester: pytest.Pytester, empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Runs tests of a shop in a process of their own."""
    monkeypatch.setenv("SUPERVISE_TEST_DATABASE_URL", empty_database.owner_url)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of the many here a shop has few
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), str(ROOT)]), prepend=os.pathsep)
    pytester.makeini("[pytest]\nsupervise_app = proj:app\n")
    pytester.makepyfile(proj=SHOP)

    def run(text: str = "", *options: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(**{"test_shop": text, **files})
        return pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", *options, timeout=200)

    return run


def schemas(database: Database) -> list[str]:
    """What is left of the kit's schemas."""
    with psycopg2.connect(database.owner_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'supervise%'")
        found = [name for (name,) in cursor.fetchall()]
    connection.close()
    return found


def with_fixtures() -> list[str]:
    """The tests of the page that take fixtures."""
    text = "".join(block.text for block in pages.blocks(DOCS / "testing.md", "python"))
    return [line for line in text.splitlines() if line.startswith("def test_") and "()" not in line]


def test_the_page(suite: Suite, empty_database: Database) -> None:
    """Every test that the page shows passes as a suite of its own, and leaves nothing in the database."""
    text = "".join(block.text for block in pages.blocks(DOCS / "testing.md", "python"))
    ran = suite(PREAMBLE + text)
    ran.assert_outcomes(passed=text.count("\ndef test_"))
    assert len(with_fixtures()) >= 5
    assert schemas(empty_database) == []


USES = """
    import pytest
    from datetime import timedelta
    from celery_supervise import SupervisedTask
    from proj import app

    @app.task(base=SupervisedTask, bind=True)
    def asks(self):
        return self.ask("ok", "Go on?", choices=["yes", "no"], ttl=timedelta(hours=2))
"""


def test_each_process_of_xdist_has_a_schema(suite: Suite, empty_database: Database) -> None:
    """No process sees another's jobs; each drops its schema."""
    ran = suite(
        USES
        + """
    @pytest.mark.parametrize("number", range(4))
    def test_one(number, supervised_worker, supervise, supervise_schema, human, worker_id):
        assert f"_{worker_id}_" in supervise_schema.name
        result = asks.delay()
        human.answers("ok", "yes")
        assert result.get(timeout=60) == "yes"
        assert supervise.jobs()[1] == 1
    """,
        *XDIST,
    )
    ran.assert_outcomes(passed=4)
    assert schemas(empty_database) == []


def test_what_is_not_so_fails(suite: Suite) -> None:
    """A question that nobody asks, a death that never comes, a broken rule, an answer that is too late.

    The app is afterwards what it was, on the database that it had.
    """
    ran = suite(
        USES
        + """
    from celery_supervise import JobExpired, QuestionClosed, Supervisor
    from celery_supervise.kit.human import Human
    from sqlalchemy import text

    app.conf.supervise_database_url = "postgresql://nobody@127.0.0.1:1/production"
    own = Supervisor.of(app)

    def test_placed(supervise, supervise_schema):
        assert supervise is Supervisor.of(app) is not own
        assert app.conf.supervise_database_url == supervise_schema.url

    def test_back():
        assert Supervisor.of(app) is own
        assert app.conf.supervise_database_url.endswith("/production")
        assert "supervise_namespace" not in app.conf.changes

    def test_asked_otherwise(supervise, supervised_worker):
        asks.delay()
        Human(supervise).asked("ok")
        Human(supervise, patience=timedelta(0)).answers("okay", "yes")

    def test_nobody_died(crash):
        crash.before("nowhere")

    def test_a_broken_rule(supervise, supervise_schema):
        made = asks.delay()
        with supervise.door.engine.begin() as connection:
            connection.execute(text(f'UPDATE "{supervise_schema.name}".jobs SET log_seq = 7'))

    def test_too_late(supervised_worker, human):
        result = asks.delay()
        with pytest.raises(QuestionClosed):
            human.answers("ok", "yes", after=timedelta(hours=2), job=result)
        with pytest.raises(JobExpired):
            result.get(timeout=60)
    """
    )
    ran.assert_outcomes(passed=5, failed=1, errors=2)
    ran.stdout.fnmatch_lines_random(
        [
            "*NeverAsked: nothing asked 'okay' within 0 s; open were 'ok'",
            "*NeverReached: no body came to crash.before('nowhere')",
            "*BrokenRules: not so: the log of a job is numbered from 1 without gaps: *",
        ]
    )


def test_a_suite_without_it_pays_nothing(suite: Suite) -> None:
    """Nothing of the library, nor what it needs, is imported before a fixture is used."""
    ran = suite(
        """
    import sys

    def test_light():
        heavy = {"celery", "sqlalchemy", "celery_supervise", "alembic", "psycopg2", "django"}
        assert heavy & set(sys.modules) == set()
    """
    )
    ran.assert_outcomes(passed=1)


def test_what_is_missing_is_said(suite: Suite, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an app or a database the fixture says what to write where. The app's own database is never taken."""
    monkeypatch.delenv("SUPERVISE_TEST_DATABASE_URL")
    pytester.makeini("[pytest]\n")
    ran = suite("""
    def test_no_app(supervise_app): ...
    def test_no_database(supervise_schema): ...
    """)
    ran.assert_outcomes(errors=2)
    ran.stdout.fnmatch_lines(["*name the Celery app: supervise_app = *"])
    ran.stdout.fnmatch_lines(["*name a Postgres database for tests: SUPERVISE_TEST_DATABASE_URL=*"])


DJANGO = """
    import os
    from urllib.parse import urlsplit

    at = urlsplit(os.environ["DJANGO_DATABASE"])
    SECRET_KEY = "of a test"
    INSTALLED_APPS = []
    DATABASES = {"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": at.path[1:], "HOST": at.hostname, "PORT": at.port,
        "USER": at.username, "PASSWORD": at.password or "",
    }}
"""


def test_django(suite: Suite, empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pytest-django is at work, its test database is the one, also in each of xdist's processes."""
    monkeypatch.delenv("SUPERVISE_TEST_DATABASE_URL")
    monkeypatch.setenv("DJANGO_DATABASE", empty_database.superuser_url)
    ran = suite(
        USES
        + """
    @pytest.mark.parametrize("number", range(2))
    @pytest.mark.django_db(transaction=True)
    def test_one(number, supervised_worker, supervise_schema, human):
        from django.db import connection

        assert supervise_schema.url.endswith("/" + connection.settings_dict["NAME"])
        assert "/test_" in supervise_schema.url
        result = asks.delay()
        human.answers("ok", "yes")
        assert result.get(timeout=60) == "yes"
    """,
        "-p",
        "django",
        "--ds=site_settings",
        *XDIST,
        site_settings=DJANGO,
    )
    ran.assert_outcomes(passed=2)
