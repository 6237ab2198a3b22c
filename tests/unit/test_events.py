"""The library's log records: readable in any format, and by their attributes."""

from __future__ import annotations

import logging

import pytest

from celery_supervise.events import events_of


def test_facts_are_in_the_text_and_in_attributes(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever format a shop has, it sees which job and why; nothing of a fact can forge a line of the log."""
    caplog.set_level(logging.INFO, "celery_supervise.here")  # a worker in this process may have set the root's
    logger = events_of("celery_supervise.here")
    logger.warning("supervise.dropped", extra={"job_id": "j-1", "why": "100 % used\nup", "empty": ""})
    (record,) = caplog.records
    assert record.getMessage() == r"supervise.dropped job_id=j-1 why='100 % used\nup' empty=''"
    assert (record.__dict__["event"], record.__dict__["job_id"]) == ("supervise.dropped", "j-1")
    assert record.name == "celery_supervise.here"


def test_an_event_without_facts(caplog: pytest.LogCaptureFixture) -> None:
    """Its name alone."""
    caplog.set_level(logging.INFO, "celery_supervise.here")
    events_of("celery_supervise.here").error("supervise.odd")
    assert [record.getMessage() for record in caplog.records] == ["supervise.odd"]
