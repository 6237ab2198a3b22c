"""Runs an ordinary project's own test-suite in a process of its own, as it is or with what its developer changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from celery import Celery

from example_project import embedded
from tests.jobs import Jobs, close
from tests.servers import Database

ROOT = Path(__file__).resolve().parents[2]
SHOPS = Path(__file__).parent
# the collector must not wait for Redis here either (tests/results.py); these shops know no pytest-celery, whose plugin
# makes an app of its own the current one
PLUGINS = ("-p", "no:cacheprovider", "-p", "tests.results", "-p", "no:celery", "-p", "no:docker_tools")
PASSED = re.compile(r"(\d+) passed")


def copy(shop: str, folder: Path) -> Path:
    """The project, in a folder of its own."""
    shutil.copytree(SHOPS / shop, folder / shop, ignore=shutil.ignore_patterns("__pycache__"))
    # under its own name it would be a conftest of this suite, too
    (folder / shop / "fixtures.py").rename(folder / "conftest.py")
    return folder


def add(shop: str, folder: Path, name: str, *, to: str) -> None:
    """One more file, of those for a task that asks."""
    shutil.copy(SHOPS / "asks" / name, folder / shop / to)


def edit(path: Path, *changes: tuple[str, str]) -> None:
    """Replace each text, which stands there once, by another."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, (path, old)
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def run(
    folder: Path, suites: Sequence[str], server: embedded.Redis, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """The project's own tests."""
    backend = urlsplit(server.url)._replace(path="/1").geturl()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGINS, "-c", os.devnull, *suites],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SHOP_BROKER": server.url,
            "SHOP_BACKEND": backend,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def passed(ran: subprocess.CompletedProcess[str]) -> int:
    """How many tests passed; none may have failed."""
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    found = PASSED.search(ran.stdout)
    assert found is not None
    return int(found[1])


def jobs_of(database: Database) -> int:
    """How many jobs the suites have made; all of them are in order."""
    app = Celery("looks", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.supervise_database_url = database.url
    jobs = Jobs(app)
    jobs.check()
    _, count = jobs.supervise.jobs(page=1)
    close(app)
    return count
