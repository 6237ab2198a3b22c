"""The verbs of operators, on a real app and a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_supervise.model import NodeKind
from tests.celery.test_cli import INSIDE_WORDS, Desk
from tests.celery.test_cli import desk as a_desk
from tests.postgres.shop import stored

ANN = ("--as", "ann")


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this test's database."""
    yield from a_desk.__wrapped__(database_url)  # type: ignore[attr-defined]  # pytest wraps a fixture's function


# --- why -------------------------------------------------------------------------------------------------


def test_why_says_it_in_a_sentence_with_the_command(desk: Desk) -> None:
    """A person reads why the job stands, and can copy what moves it; a beginning of the id is enough."""
    question = desk.asked()
    job_id = desk.job_of(question)
    said, by = desk.run("why", job_id[:12]).stdout.splitlines()
    assert said.startswith(f"{job_id} (parked): waits for an answer to approve until 20")
    assert by == f"  celery -A proj supervise answer {question.id} ANSWER"
    assert not INSIDE_WORDS.search(said)


def test_why_for_programs(desk: Desk) -> None:
    """The same as fields; a job that needs nothing has no command."""
    job_id = desk.running().lease.job_id
    told = desk.read("why", job_id)
    assert (told["job_id"], told["state"], told["command"]) == (job_id, "running", None)
    assert told["why"].startswith("running on worker@test (attempt 1)")


def test_why_of_no_job(desk: Desk) -> None:
    """A line and an exit code."""
    assert desk.run("why", "nothing", code=1).stderr == "Error: there is no job 'nothing'\n"


# --- log -------------------------------------------------------------------------------------------------


def test_log_of_some_events(desk: Desk) -> None:
    """Only what was asked for, as people or as programs call it; the counts are of these."""
    holding = desk.running()
    for number in range(3):
        holding.checkpoint(f"n{number}", NodeKind.STEP, stored("1"))
    desk.shop.lose(holding)
    job_id = holding.lease.job_id
    lines = desk.run("log", job_id, "--event", "checkpoint", "--event", "worker lost").stdout.splitlines()
    assert [line.split()[3] for line in lines[1:-1]] == ["checkpoint"] * 3 + ["worker"]
    assert lines[-1] == "4 entries of checkpoint, worker lost"
    lines = desk.run("log", job_id, "--event", "checkpoint", "--limit", "1").stdout.splitlines()
    assert lines[-1] == (
        "1 of 3 entries of checkpoint; 2 withheld: --before 5 shows those before, --all shows all of them"
    )
    whole = desk.read("log", job_id, "--event", "checkpoint", "--all")
    assert [entry["sequence_num"] for entry in whole["entries"]] == [3, 4, 5]
    page = desk.read("log", job_id, "--event", "checkpoint", "--before", "4")
    assert ([entry["sequence_num"] for entry in page.pop("entries")], page) == (
        [3],
        {"returned_count": 1, "total_count": 3, "withheld_count": 2, "truncated": True},
    )
