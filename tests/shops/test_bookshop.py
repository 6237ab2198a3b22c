"""An ordinary Django project with its own tests: green as it is, with `base=` added, and with a question."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from example_project import embedded
from tests.servers import Database

ROOT = Path(__file__).resolve().parents[2]
PROJECT = Path(__file__).with_name("bookshop")
TASKS = 5
RAN = re.compile(r"Ran (\d+) tests? in .*\n\nOK\n")
ASKS = """\
@shared_task(base=SupervisedTask, bind=True, ignore_result=True)
def restock(self, title, count):
    if count > 1000 and self.ask("large", f"Really {count} of {title}?", choices=["yes", "no"]) == "no":
        return
"""


def test_only_base_was_added(
    tmp_path: Path, redis_server: embedded.Redis, redis_url: str, empty_database: Database
) -> None:
    """The project's own tests pass before and after, as many of them; and once more with one supervised question."""
    plain = copy(tmp_path / "plain")
    before = passed(run(plain, redis_server, empty_database))
    after = copy(tmp_path / "after")
    supervise(after)
    assert passed(run(after, redis_server, empty_database)) == before >= 20
    ask(after)
    assert passed(run(after, redis_server, empty_database)) == before + 3


def copy(folder: Path) -> Path:
    """The project, in a folder of its own."""
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", "question.py"))
    (folder / "__init__.py").unlink()
    return folder


def supervise(folder: Path) -> None:
    """What the project's developer does: `base=` for each task, an app and a setting."""
    path = folder / "orders" / "tasks.py"
    text = path.read_text(encoding="utf-8")
    text, with_options = re.subn(r"^@shared_task\(", "@shared_task(base=SupervisedTask, ", text, flags=re.MULTILINE)
    text, bare = re.subn(r"^@shared_task$", "@shared_task(base=SupervisedTask)", text, flags=re.MULTILINE)
    assert with_options + bare == TASKS
    path.write_text(f"from celery_supervise import SupervisedTask\n{text}", encoding="utf-8")
    settings = folder / "bookshop" / "settings.py"
    added = 'INSTALLED_APPS += ["celery_supervise.contrib.django"]\nCELERY_SUPERVISE_DATABASE = "default"\n'
    settings.write_text(settings.read_text(encoding="utf-8") + added, encoding="utf-8")


def ask(folder: Path) -> None:
    """One task asks where a delivery is large; the project has tests for it."""
    path = folder / "orders" / "tasks.py"
    plain = "@shared_task(base=SupervisedTask, ignore_result=True)\ndef restock(title, count):\n"
    text = path.read_text(encoding="utf-8")
    assert plain in text
    path.write_text(text.replace(plain, ASKS), encoding="utf-8")
    shutil.copy(PROJECT / "question.py", folder / "orders" / "tests_question.py")


def run(folder: Path, server: embedded.Redis, database: Database) -> subprocess.CompletedProcess[str]:
    """The project's own tests, as its developers run them."""
    backend = urlsplit(server.url)._replace(path="/1").geturl()
    return subprocess.run(
        [sys.executable, "manage.py", "test", "--noinput", "--pattern=tests*.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "SHOP_BROKER": server.url,
            "SHOP_BACKEND": backend,
            "SHOP_DATABASE": database.superuser_url,
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def passed(ran: subprocess.CompletedProcess[str]) -> int:
    """How many tests passed; none may have failed."""
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-6000:]
    found = RAN.search(ran.stderr)
    assert found is not None, ran.stderr[-4000:]
    return int(found[1])
