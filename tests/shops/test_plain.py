"""An ordinary Celery project, with its own test-suite: green as it is, and green when only `base=` was added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from example_project import embedded
from tests.servers import Database
from tests.shops.suites import add, copy, edit, jobs_of, passed, run

SUITES = ("suite_eager.py", "suite_worker.py")
TASKS = 12
BODY = "    stock[sku] -= count\n"
QUESTION = """\
    if count > 3 and self.ask("large", f"Reserve {count}?", choices=["yes", "no"]) == "no":
        return stock[sku]
"""
ASKING = (
    ("@app.task(base=Audited)\ndef reserve(", "@app.task(base=Audited, bind=True)\ndef reserve(self: Any, "),
    (BODY, QUESTION + BODY),
)


@pytest.mark.parametrize("suite", SUITES)
def test_only_base_was_added(
    suite: str, tmp_path: Path, redis_url: str, redis_server: embedded.Redis, database: Database
) -> None:
    """The shop's own tests pass before and after, as many of them."""
    before = passed(run(copy("plain", tmp_path / "before"), [f"plain/{suite}"], redis_server, {}))
    after = copy("plain", tmp_path / "after")
    supervise(after / "plain" / "tasks.py")
    url = {"SHOP_DATABASE": database.url} if suite == "suite_worker.py" else {}
    assert passed(run(after, [f"plain/{suite}"], redis_server, url)) == before >= 15
    assert jobs_of(database) >= 40 if url else jobs_of(database) == 0


def test_one_of_its_tasks_asks(
    tmp_path: Path, redis_url: str, redis_server: embedded.Redis, database: Database
) -> None:
    """With a question in one task the shop's own tests pass still, and those of the question."""
    folder = copy("plain", tmp_path)
    supervise(folder / "plain" / "tasks.py")
    edit(folder / "plain" / "tasks.py", *ASKING)
    add("plain", folder, "plain_suite.py", to="suite_asks.py")
    suites = ["plain/suite_worker.py", "plain/suite_asks.py"]
    assert passed(run(folder, suites, redis_server, {"SHOP_DATABASE": database.url})) >= 17
    assert jobs_of(database) >= 42


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
