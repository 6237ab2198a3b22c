"""A shop in FastAPI and asynchronous SQLAlchemy: green as it is, with `base=` added, and with one question."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from example_project import embedded
from tests.servers import Database
from tests.shops.suites import add, copy, edit, jobs_of, passed, run

SUITE = "fast/suite.py"
TASKS = 7
BODY = "    with unit() as session:\n        session.get_one(Order, order_id).refunded"
QUESTION = """\
    if amount > LIMIT and self.ask("large", f"Give back {amount}?", choices=["yes", "no"]) == "no":
        return 0
"""
ASKING = (
    ("(base=SupervisedTask)\ndef refund(", "(base=SupervisedTask, bind=True)\ndef refund(self: SupervisedTask, "),
    (BODY, QUESTION + BODY),
)
IMPORT = "from celery.result import AsyncResult\n"


@pytest.fixture
def environment(database: Database) -> dict[str, str]:
    """The shop may make its own tables in the database that ours are in."""
    owner = sa.create_engine(make_url(database.owner_url).set(drivername="postgresql+psycopg2"))
    with owner.begin() as connection:
        connection.exec_driver_sql("GRANT CREATE ON SCHEMA public TO PUBLIC")
    owner.dispose()
    return {"SHOP_DB": database.url, "SHOP_DATABASE": database.url}


def test_as_it_is_and_with_base(
    tmp_path: Path, redis_url: str, redis_server: embedded.Redis, database: Database, environment: dict[str, str]
) -> None:
    """The shop's own tests pass before and after `base=` was added, as many of them; after it their tasks are jobs."""
    before = passed(run(copy("fast", tmp_path / "before"), [SUITE], redis_server, environment))
    assert jobs_of(database) == 0
    after = copy("fast", tmp_path / "after")
    supervise(after)
    assert passed(run(after, [SUITE], redis_server, environment)) == before >= 10
    assert jobs_of(database) >= 15


def test_one_of_its_tasks_asks(
    tmp_path: Path, redis_url: str, redis_server: embedded.Redis, database: Database, environment: dict[str, str]
) -> None:
    """A large refund is approved in a route, in the shop's own transaction; the shop's own tests pass still."""
    folder = copy("fast", tmp_path)
    supervise(folder)
    edit(folder / "fast" / "tasks.py", *ASKING)
    add("fast", folder, "fast_questions.py", to="questions.py")
    add("fast", folder, "fast_suite.py", to="suite_asks.py")
    with (folder / "conftest.py").open("a", encoding="utf-8") as fixtures:
        fixtures.write("\n\nfrom fast.questions import router\n\napi.include_router(router)\n")
    assert passed(run(folder, [SUITE, "fast/suite_asks.py"], redis_server, environment)) >= 12
    assert jobs_of(database) >= 17


def supervise(folder: Path) -> None:
    """What the shop's developer does: `base=` for each task, and the one setting."""
    path = folder / "fast" / "tasks.py"
    text = path.read_text(encoding="utf-8")
    text, with_options = re.subn(r"^@app\.task\(", "@app.task(base=SupervisedTask, ", text, flags=re.MULTILINE)
    text, bare = re.subn(r"^@app\.task$", "@app.task(base=SupervisedTask)", text, flags=re.MULTILINE)
    assert with_options + bare == TASKS
    path.write_text(text, encoding="utf-8")
    edit(
        path,
        (IMPORT, IMPORT + "from celery_supervise import SupervisedTask\n"),
        ("result_extended=True)", 'result_extended=True, supervise_database_url=os.environ["SHOP_DATABASE"])'),
    )
