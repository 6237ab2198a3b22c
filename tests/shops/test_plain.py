"""An ordinary Celery project, with its own test-suite: green as it is, and green when only `base=` was added."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from celery import Celery

from example_project import embedded
from tests.jobs import Jobs, close
from tests.servers import Database

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).with_name("plain")
SUITES = ("suite_eager.py", "suite_worker.py")
# the collector must not wait for Redis here either (tests/results.py)
PLUGINS = ("-p", "no:cacheprovider", "-p", "tests.results")
TASKS = 12
PASSED = re.compile(r"(\d+) passed")


@pytest.mark.parametrize("suite", SUITES)
def test_only_base_was_added(
    suite: str, tmp_path: Path, redis_url: str, redis_server: embedded.Redis, database: Database
) -> None:
    """The shop's own tests pass before and after, as many of them."""
    before = passed(run(copy(tmp_path / "before"), suite, redis_server, {}))
    after = copy(tmp_path / "after")
    supervise(after / "plain" / "tasks.py")
    url = {"SHOP_DATABASE": database.url} if suite == "suite_worker.py" else {}
    assert passed(run(after, suite, redis_server, url)) == before >= 15
    assert jobs_of(database) >= 40 if url else jobs_of(database) == 0


def jobs_of(database: Database) -> int:
    """How many jobs the suite has made; all of them are in order."""
    app = Celery("looks", broker="memory://", backend="cache+memory://", set_as_current=False)
    app.conf.supervise_database_url = database.url
    jobs = Jobs(app)
    jobs.check()
    _, count = jobs.supervise.jobs(page=1)
    close(app)
    return count


def copy(folder: Path) -> Path:
    """The project, in a folder of its own."""
    shutil.copytree(PROJECT, folder / "plain", ignore=shutil.ignore_patterns("__pycache__"))
    # under its own name it would be a conftest of this suite, too
    (folder / "plain" / "fixtures.py").rename(folder / "conftest.py")
    return folder


def supervise(path: Path) -> None:
    """What the shop's developer does: `base=` for each task, and the one setting."""
    text = path.read_text(encoding="utf-8")
    options = r"^@(app\.task|shared_task)\((?!base)"
    text, with_options = re.subn(options, r"@\1(base=SupervisedTask, ", text, flags=re.MULTILINE)
    text, bare = re.subn(r"^@(app\.task|shared_task)$", r"@\1(base=SupervisedTask)", text, flags=re.MULTILINE)
    text, bases = re.subn(r"^class Audited\(Task\):", "class Audited(SupervisedTask):", text, flags=re.MULTILINE)
    assert (with_options + bare, bases) == (TASKS - 1, 1)
    setting = (
        "\nfrom celery_supervise import SupervisedTask\n\n"
        'app.conf.supervise_database_url = os.environ.get("SHOP_DATABASE")\n'
    )
    path.write_text(text.replace("\napp.conf.update(", f"{setting}app.conf.update(", 1), encoding="utf-8")


def run(
    folder: Path, suite: str, server: embedded.Redis, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The shop's own tests, in a process of their own."""
    backend = urlsplit(server.url)._replace(path="/1").geturl()
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *PLUGINS, "-c", os.devnull, f"plain/{suite}"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "SHOP_BROKER": server.url,
            "SHOP_BACKEND": backend,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def passed(ran: subprocess.CompletedProcess[str]) -> int:
    """How many tests passed; none may have failed."""
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    found = PASSED.search(ran.stdout)
    assert found is not None
    return int(found[1])
