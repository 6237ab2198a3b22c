"""The closed list of refusals: whatever the library raises has its code there, and says nothing to a stranger."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import celery_supervise
from celery_supervise import errors
from celery_supervise.web.encoding import Ambiguous, decoded
from celery_supervise.web.problems import TITLES, problem_of

SOURCE = Path(celery_supervise.__file__).parent
RAISED = re.compile(r"(?:Conflict|QuestionClosed|NotAllowed)\(\s*\"(\w+)\"")


def test_every_code_is_in_the_list() -> None:
    """What the service refuses with, in whichever module, has a status and a title."""
    found = {code for path in SOURCE.rglob("*.py") for code in RAISED.findall(path.read_text(encoding="utf-8"))}
    assert {"already_final", "not_assigned"} <= found
    assert found <= {*TITLES[409], *TITLES[403]}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.JobNotFound("x"), 404),
        (errors.QuestionNotFound("x"), 404),
        (errors.InvalidInput("x", "no"), 422),
        (errors.TooLarge("x", size=2, limit=1), 413),
        (errors.NotSerialisable("$.x", "no"), 422),
        (errors.InvalidAnswer({"$": ["no"]}), 422),
        (errors.JobExists("x"), 422),
        (errors.NotAllowed("self_approval", "no"), 403),
        (errors.Conflict("busy", state="running", detail="no"), 409),
        (errors.QuotaExceeded("x", limit=1), 429),
        (errors.Unreadable("x", "no"), 409),
        (errors.DatabaseUnavailable("password=hunter2"), 503),
        (errors.NotMigrated("x", "no"), 503),
        (errors.ConfigError("x", "secret"), 500),
        (errors.PublishFailed("amqp://user:secret@host"), 500),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, Exception) else str(part),
)
def test_what_each_error_is(error: errors.SuperviseError, status: int) -> None:
    """Its status, a body of the documented shape, nothing of what a server of ours has said."""
    problem = problem_of(error)
    told = json.loads(bytes(problem.response().body))
    assert (problem.status, told["status"]) == (status, status)
    assert told["title"] == TITLES[status][problem.code]
    assert "secret" not in str(told)
    assert "hunter2" not in str(told)


@pytest.mark.parametrize(
    "text",
    [b'{"a": 1, "a": 1}', b'{"a": {"b": 1, "b": 2}}', b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"\xff", b"", b"{"],
    ids=lambda text: ascii(text)[:20],
)
def test_json_that_is_read_in_two_ways(text: bytes) -> None:
    """It is not read."""
    with pytest.raises(Ambiguous):
        decoded(text)
