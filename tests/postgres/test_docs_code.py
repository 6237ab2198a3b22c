"""The code in the pages runs as it stands there: each page's Python blocks in order, in one namespace.

What a page takes for granted (an app, a bank, jobs) is given here, under the names that it uses.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from celery import Celery
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from celery_supervise import Options, Remembered, State, SupervisedTask, Supervisor
from celery_supervise.model import NewQuestion
from celery_supervise.runtime import ATTRIBUTE, is_supervised
from celery_supervise.testing import rehearse
from tests import pages
from tests.celery import test_encryption
from tests.contrib import test_django
from tests.jobs import close
from tests.pages import DOCS, PAGES, README
from tests.postgres.operations import told
from tests.postgres.shop import Shop, new_question
from tests.web.conftest import served

Names: TypeAlias = dict[str, Any]
APPROVAL = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


class BankDown(Exception):
    """The bank does not answer."""


class Approval(BaseModel):
    """A form."""

    approved: bool


@dataclass(frozen=True)
class Row:
    """A line of a file."""

    id: int
    vendor: str
    amount: int


def rows_of(_source: int | str) -> list[Row]:
    """Three of them."""
    return [Row(1, "Ada", 20), Row(2, "Bob", 10), Row(3, "Cyd", 12)]


@dataclass
class Bank:
    """Pays a key once."""

    keys: set[str] = field(default_factory=set)
    paid: Counter[str] = field(default_factory=Counter)

    def pay(self, row: Row, *, idempotency_key: str) -> None:
        """Pay, unless this key was paid before."""
        self.paid[row.vendor] += idempotency_key not in self.keys
        self.keys.add(idempotency_key)


@pytest.fixture
def app(database_url: str) -> Iterator[Celery]:
    """A shop's app on this test's database, with a broker in memory."""
    made = Celery("proj", broker="memory://", set_as_current=False)
    made.conf.supervise_database_url = database_url
    Supervisor.of(made)  # from now on, whatever URL a page sets
    yield made
    close(made)


def run(page: Path, names: Names) -> Names:
    """Run the page's blocks, then the tests that they define. Those with fixtures: see tests/celery/test_kit.py."""
    for block in pages.blocks(page, "python"):
        exec(block.compiled(), names)  # type: ignore[arg-type]  # noqa: S102  # our own pages
    for name, test in list(names.items()):
        if name.startswith("test_") and not inspect.signature(test).parameters:
            test()
    return names


def asked(shop: Shop, **changes: Any) -> NewQuestion:
    """A job that waits for an approval."""
    question = new_question(schema=APPROVAL)
    holding = shop.running(**changes)
    holding.ask(question, ttl=timedelta(hours=1))
    return question


def test_readme(app: Celery, shop: Shop) -> None:
    """The example is rehearsed; its test passes; a job is answered, paused, resumed, extended and cancelled."""
    question = asked(shop)
    job_id = shop.job_of(question).id
    given: Names = {
        "app": app,
        "bank": Bank(),
        "load_rows": rows_of,
        "Approval": Approval,
        "BankDown": BankDown,
        "SupervisedTask": SupervisedTask,
        "timedelta": timedelta,
        "rehearse": rehearse,
        "question_id": question.id,
        "job_id": job_id,
    }
    names = run(README, given)
    assert names["test_everybody_is_paid_whatever_dies"]
    assert shop.job(job_id).state is State.CANCELLED
    assert shop.events(job_id)[3:] == ["answered", "pause_requested", "pause_withdrawn", "extended", "cancelled"]


class Table(DeclarativeBase):
    """The shop's own tables."""


class Order(Table):
    """One of them."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class Note(Table):
    """Another one."""

    __tablename__ = "notes"
    question: Mapped[str] = mapped_column(primary_key=True)


def test_calling(app: Celery, shop: Shop, engine: Engine, database_owner: Engine, database_url: str) -> None:
    """Jobs are accepted, and a question is answered, with the shop's commit; coroutines do the same."""
    with database_owner.begin() as connection:
        Table.metadata.create_all(connection)
        connection.execute(text("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC"))

    def ship(order_id: int) -> int:
        return order_id

    task = app.task(base=SupervisedTask, shared=False, name="shop.ship")(ship)
    given = {"app": app, "Supervisor": Supervisor, "AsyncSession": AsyncSession, "Session": Session, "ship": task}
    names = run(DOCS / "calling.md", {**given, "Order": Order, "Note": Note})
    question = asked(shop)
    with Session(engine) as session:
        names["place"](session, Order(id=7))

    async def main() -> None:
        made = create_async_engine(make_url(database_url).set(drivername="postgresql+asyncpg"))
        async with AsyncSession(made) as db:
            await names["decide"](str(question.id), True, "ann", db)
        await names["order"](8)
        await made.dispose()

    asyncio.run(main())
    Supervisor.of(app).aio.close()
    assert [job.task for job in shop.supervisor.jobs()[0]] == ["shop.ship"] * 3 + ["shop.task"]
    assert shop.job_of(question).stop_reason == "answered:approve"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM notes")).scalar() == 1


def test_concepts(app: Celery) -> None:
    """Both examples come to the same end wherever they die."""
    stored: list[list[Row]] = []
    uploads: dict[str, str] = {}

    def store_rows(rows: list[Row]) -> None:
        stored.append(rows)

    given: Names = {
        "app": app,
        "log": logging.getLogger("proj"),
        "datetime": datetime,
        "timezone": timezone,
        "Row": Row,
        "store_rows": store_rows,
        "read_rows": rows_of,
        "uploads": uploads,
        "upload": lambda key: uploads.update({key: "report"}),
        "SupervisedTask": SupervisedTask,
    }
    names = run(DOCS / "concepts.md", given)
    exported = rehearse(names["export"], 7)
    assert list(uploads) == [exported.result]
    for cleanup in exported.cleanups.values():
        cleanup.type.run(*cleanup.args)
    assert uploads == {}
    assert names["read_rows"].__annotations__ == {"path": str, "return": list[Row]}
    names["read_rows"] = rows_of  # the page shows how to write it, not what it does
    assert rehearse(names["import_file"], "vendors.csv").result == 3
    assert stored == [rows_of("")]
    assert rehearse(names["add_up"], "vendors.csv", crash_everywhere=True).result == 42


PUBLIC = {"Options": Options, "Remembered": Remembered, "SupervisedTask": SupervisedTask}


def test_testing(app: Celery) -> None:
    """Every test that the page shows passes, those with fixtures in tests/celery/test_kit.py."""

    def pay_back(_order: str, _amount: int, _key: str) -> str:
        return "paid"

    names = run(DOCS / "testing.md", {**PUBLIC, "app": app, "pay_back": pay_back})
    assert sum(name.startswith("test_") for name in names) == 19


def test_adopting(app: Celery, database_url: str) -> None:
    """The page's code, in its order: who makes a call's row changes with each step, in, and out again."""
    names: Names = {**PUBLIC, "app": app, "pay_back": lambda *_: "paid", "rehearse": rehearse}
    rows = []
    for block in pages.blocks(DOCS / "adopting.md", "python"):
        deployed_anew(app)
        exec(block.compiled(), names)  # type: ignore[arg-type]  # noqa: S102  # our own pages
        app.conf.supervise_database_url = database_url
        if "refund" in names:
            before = Supervisor.of(app).jobs()[1]
            names["refund"].delay("A1", 5)
            rows.append(Supervisor.of(app).jobs()[1] - before)
    names["test_a_large_refund_is_asked_for"]()
    assert rows == [0, 1, 1, 0]


def deployed_anew(app: Celery) -> None:
    """The app in the processes of the next deploy: with other settings, with other code under the same names."""
    runtime = app.__dict__.pop(ATTRIBUTE, None)
    if runtime is not None:
        runtime.publisher.close()
        runtime.engines.dispose()
    for name, task in list(app.tasks.items()):
        if is_supervised(name, task) and name.endswith(".refund"):
            del app.tasks[name]


def test_operating(
    app: Celery, shop: Shop, engine: Engine, database_owner: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    """The inbox is read and answered, alone and in a transaction of the caller's; an owner's old values go."""
    with database_owner.begin() as connection:
        connection.execute(text("CREATE TABLE invoices AS SELECT 7 AS id, 'open' AS state"))
        connection.execute(text("GRANT ALL ON invoices TO PUBLIC"))
    first, second = asked(shop, owner_id="acme"), asked(shop)
    old = told(shop, owner_id="acme")
    of_two = shop.asked(question=new_question(approvals=2))
    stuck, wrong = shop.asked(question=new_question(to=("ann",))), shop.asked()
    ids = {
        "question_id": first.id,
        "next_question_id": second.id,
        "payment_question_id": of_two.id,
        "stuck_question_id": stuck.id,
        "wrong_question_id": wrong.id,
    }
    run(DOCS / "operating.md", {**PUBLIC, "app": app, "engine": engine, **ids})
    assert shop.supervisor.question(of_two.id).voted == ("ann",)
    assert shop.supervisor.question(stuck.id).to == ("bob", "dora")
    assert shop.supervisor.question(wrong.id).status == "withdrawn"
    assert "Pay?" in capsys.readouterr().out
    for question in (first, second):
        assert shop.job_of(question).stop_reason == "answered:approve"
    with engine.begin() as connection:
        assert connection.execute(text("SELECT state FROM invoices")).scalar_one() == "approved"
    assert shop.job(old.job_id).erased_at is not None


def test_settings(app: Celery) -> None:
    """The options of a task and of its calls reach the rows; who is told gets what a notice has."""
    mailed: list[tuple[str, str]] = []
    given: Names = {
        "app": app,
        "Options": Options,
        "SupervisedTask": SupervisedTask,
        "timedelta": timedelta,
        "mail": lambda person, said: mailed.append((person, said)),
    }
    names = run(DOCS / "settings.md", given)
    names["notify"]({"assignees": ["ann"], "task": "t", "key": "k", "kind": "asked", "deadline": "2026-11-30"})
    assert mailed == [("ann", "t: k (asked), until 2026-11-30")]
    second, first = Supervisor.of(app).jobs()[0]
    assert (first.owner_id, first.idempotency_key, first.task_version) == ("acme", "2026-11-30", 2)
    for job, hours in ((first, 8), (second, 2)):
        assert job.deadline is not None
        assert job.deadline - job.created_at == timedelta(hours=hours)


def test_http(app: Celery) -> None:
    """The API is mounted under another application, with its login."""
    site = run(DOCS / "http.md", {"app": app})["site"]
    with served(site) as url:
        assert httpx.get(f"{url}/supervise/jobs").status_code == HTTPStatus.UNAUTHORIZED


TESTED: dict[Path, Callable[..., None]] = {
    README: test_readme,
    DOCS / "calling.md": test_calling,
    DOCS / "adopting.md": test_adopting,
    DOCS / "concepts.md": test_concepts,
    DOCS / "django.md": test_django.test_django,  # in a Django project
    DOCS / "encryption.md": test_encryption.test_the_page_runs,  # with a worker
    DOCS / "operating.md": test_operating,
    DOCS / "http.md": test_http,
    DOCS / "settings.md": test_settings,
    DOCS / "testing.md": test_testing,
}


def test_every_page_with_code_is_run() -> None:
    """No page has Python or SQL that nothing runs."""
    with_code = {page for page in PAGES if pages.blocks(page, "python") or pages.blocks(page, "sql")}
    assert with_code == set(TESTED)


def test_every_block_is_of_a_language_that_is_checked() -> None:
    """A block without a language, or in another, would be run by nothing."""
    known = {"python", "sql", "sh", "diff", "text", "pycon", "mermaid", "{toctree}"}
    assert {block.language for page in PAGES for block in pages.every_block(page)} <= known
