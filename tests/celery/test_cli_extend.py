"""`supervise extend`: more time, from a terminal."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from celery_supervise.lifecycle import State
from tests.celery.test_cli import Desk, desk

HOUR = timedelta(hours=1)

__all__ = ["desk"]


def test_a_deadline_is_moved(desk: Desk) -> None:
    """By a span or to a time; the new deadline is said, with how far it is."""
    job_id = desk.pending(supervise={"deadline": HOUR})
    before = desk.shop.job(job_id).deadline
    assert before is not None
    ran = desk.run("extend", job_id[:8], "--by", "1d", "--as", "ann")
    assert ran.stdout.startswith(f"{job_id}: its deadline is ")
    assert ran.stdout.endswith("(in 1 d) (generation 2)\n")
    assert desk.shop.job(job_id).deadline == before + timedelta(days=1)
    desk.run("extend", job_id, "--to", "2099-01-01T00:00Z", "--as", "ann")
    again = desk.run("extend", job_id, "--to", "2099-01-01T01:00+01:00", "--as", "ann").stdout
    assert "as before, its deadline is 2099-01-01 00:00:00Z" in again


def test_a_question_gets_more_time(desk: Desk) -> None:
    """With --question the id is a question's."""
    question = desk.asked()
    before = desk.shop.supervisor.question(question.id).expires_at
    said = desk.run("extend", "--question", str(question.id)[:8], "--by", "2h", "--as", "ann").stdout
    assert said.startswith(f"{question.id}: can be answered until ")
    assert desk.shop.supervisor.question(question.id).expires_at == before + 2 * HOUR


def test_programs_are_told_in_json(desk: Desk) -> None:
    """As other requests: what the job is now, and the words for people."""
    told = desk.read("extend", desk.pending(), "--to", "2h", "--as", "ann")
    assert (told["state"], told["generation"], told["changed"]) == ("pending", 2, True)
    assert told["said"].startswith("its deadline is ")


@pytest.mark.parametrize(
    "words",
    [[], ["--by", "1h", "--to", "2h"], ["--by", "1"], ["--to", "2026-12-01T18:00"], ["--to", "2020-01-01T00:00Z"]],
)
def test_what_is_no_time_is_wrong_usage(desk: Desk, words: list[str]) -> None:
    """Neither or both, no unit, no zone, past: nothing is changed, the exit code is 2."""
    job_id = desk.pending(supervise={"deadline": HOUR})
    before = desk.shop.job(job_id)
    desk.run("extend", job_id, *words, "--as", "ann", code=2)
    assert desk.shop.job(job_id) == before


def test_s42_what_has_ended_gets_no_time(desk: Desk) -> None:
    """An ended job is refused with its state, and an old generation with both numbers; the exit code is 1."""
    job = desk.shop.ended(State.EXPIRED)
    told = json.loads(desk.run("extend", job.id, "--to", "1h", "--as", "ann", "--json", code=1).stderr)["error"]
    assert (told["code"], told["state"]) == ("already_final", State.EXPIRED)
    stale = desk.run("extend", desk.pending(), "--to", "1h", "--as", "ann", "--expected-generation", "7", code=1)
    assert "generation 1, not 7" in stale.stderr
