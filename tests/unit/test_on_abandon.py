"""`on_abandon` and `attempt_id` without a database: as rehearsals, eager runs and direct calls have them."""

from __future__ import annotations

from typing import Any

import pytest

from celery_supervise.body import Body
from celery_supervise.errors import AttemptEnded, DuplicateName, InvalidInput
from celery_supervise.journal import MemoryJournal
from celery_supervise.testing import rehearse


def body(self: Any, *, stop: bool = False) -> str:
    """Registers, then works."""
    self.on_abandon("remove file", name="file")
    self.step("write", str, "file")
    if not stop:
        self.on_abandon(f"remove {self.attempt_id}", name="own")
    return "done"


def test_a_rehearsal_tells_what_would_be_sent() -> None:
    """By name, in order; nothing is sent."""
    found = rehearse(body, stop=True)
    assert (found.result, dict(found.cleanups)) == ("done", {"file": "remove file"})


def test_entered_again_it_is_registered_again() -> None:
    """A rehearsal that crashes everywhere comes to the same end."""
    found = rehearse(body, crash_everywhere=True)
    assert (found.crashes, list(found.cleanups)) == (1, ["file", "own"])


@pytest.mark.parametrize("mode", ["eager", "direct"])
def test_without_a_job_nothing_is_kept(mode: Any) -> None:
    """The name is checked, as everywhere."""
    journal = MemoryJournal()
    one = Body(journal, job_id="j", mode=mode)
    one.on_abandon("x", name="a")
    assert journal.cleanups == {}
    with pytest.raises(InvalidInput):
        one.on_abandon("x", name="")


def test_a_name_is_used_once_in_an_attempt() -> None:
    """Twice is an error that ends the attempt; steps have names of their own."""
    one = Body(MemoryJournal(), job_id="j")
    one.on_abandon("x", name="a")
    one.step("a", str)
    with pytest.raises(DuplicateName):
        one.on_abandon("x", name="a")
    with pytest.raises(AttemptEnded):
        one.attempt_id  # noqa: B018  # it raises


def test_each_attempt_has_its_id() -> None:
    """Another body, another attempt."""
    assert Body(MemoryJournal(), job_id="j").attempt_id != Body(MemoryJournal(), job_id="j").attempt_id
