"""What a worker's threads do again and again: one that fails does not end them."""

from __future__ import annotations

import logging

import pytest

from celery_supervise.errors import AttemptEnded
from celery_supervise.worker import Duty


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), AttemptEnded(None, "over")])
def test_a_duty_outlives_what_it_calls(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Code of the shop's may exit: that would end the thread, without a word, and all its duties."""
    caplog.set_level(logging.WARNING, logger="celery_supervise")

    def act() -> None:
        raise error

    duty = Duty("relay", act, every=1.0)
    duty.run(1.0)
    assert duty.failing
    assert ["supervise.duty_failed" in record.getMessage() for record in caplog.records] == [True]
    duty.act = lambda: None
    duty.run(2.0)
    assert not duty.failing
