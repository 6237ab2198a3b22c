"""The verbs of operators, on a real app and a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.celery.test_cli import INSIDE_WORDS, Desk
from tests.celery.test_cli import desk as a_desk

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
