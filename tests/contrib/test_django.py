"""Django's side, in a Django project: with both of its drivers, with aware times and with naive ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import Database

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).with_name("site")
# the collector must not wait for Redis here either (tests/results.py); pytest-django would keep tests from the
# database, pytest-celery make an app of its own the current one
PLUGINS = (
    *("-p", "no:cacheprovider", "-p", "no:django", "-p", "no:celery", "-p", "no:docker_tools"),
    *("-p", "proj.ready", "-p", "tests.results"),
)
# as setup.cfg has it, which would make this folder a part of its own suite
WARNINGS = ("-W", "error", "-W", "ignore:Call to :DeprecationWarning", "-W", "ignore:unclosed <socket:ResourceWarning")
WITHOUT_PSYCOPG_3 = "import sys; sys.modules['psycopg'] = None; import pytest; sys.exit(pytest.main())"


@pytest.mark.parametrize(("driver", "use_tz"), [("psycopg", True), ("psycopg2", False)], ids=["psycopg", "psycopg2"])
def test_django(driver: str, use_tz: bool, redis_url: str, database: Database, empty_database: Database) -> None:
    """Every test of the project's suite passes; what failed is shown."""
    place = {
        "database": database.superuser_url,
        "empty": empty_database.superuser_url,
        "broker": redis_url,
        "backend": urlsplit(redis_url)._replace(path="/1").geturl(),
        "use_tz": use_tz,
        "driver": driver,
    }
    ran = run(driver, place)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def run(driver: str, place: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """The suite, in a process of its own: Django is set up once in one."""
    start = ["-m", "pytest"] if driver == "psycopg" else ["-c", WITHOUT_PSYCOPG_3]
    return subprocess.run(
        [sys.executable, *start, "-q", *PLUGINS, "-c", os.devnull, *WARNINGS, "suite.py"],
        cwd=SITE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "DJANGO_SETTINGS_MODULE": "proj.settings",
            "SITE": json.dumps(place),
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
