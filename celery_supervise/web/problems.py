"""What a request is told that is refused: RFC 9457 problems with a code of one closed list. Knows no route.

Whoever may not see a job is told exactly what is told of one that does not exist, whatever else was wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import Response

from celery_supervise.errors import (
    AlreadyRerun,
    Conflict,
    DatabaseUnavailable,
    InvalidAnswer,
    InvalidInput,
    JobExists,
    JobNotFound,
    NotAllowed,
    NotMigrated,
    NotSerialisable,
    QuestionClosed,
    QuestionNotFound,
    QuotaExceeded,
    SuperviseError,
    TooLarge,
    Unreadable,
)

from .encoding import encoded

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 5
"""When to try again what the database could not answer."""

CONFLICTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "stale_generation": "The job has changed since it was looked at",
        "already_final": "The job has ended",
        "already_answered": "The question was answered",
        "question_closed": "The question takes no answer any more",
        "question_open": "The job waits for an answer",
        "question_changed": "The question is another one than was shown",
        "expired": "Its time is over",
        "not_parked": "The job is not parked",
        "already_resumed": "The job was resumed",
        "busy": "Something else is being done with the job",
        "not_completed": "The job has no result",
        "not_final": "The job has not ended",
        "already_rerun": "The job was run again",
        "erased": "What this needs was erased",
        "not_ended": "The job has not ended",
        "not_told": "Celery has not been told of its end yet",
        "nothing_to_send": "There is no message to send",
        "unreadable": "It cannot be read back",
    }
)

TITLES: Final[Mapping[int, Mapping[str, str]]] = MappingProxyType(
    {
        400: {"unparseable": "The request cannot be read"},
        401: {"unauthenticated": "Who are you?"},
        403: {
            "forbidden": "You may not do this",
            "self_approval": "It is your own job",
            "not_assigned": "The question is for others",
            "self_assignment": "Nobody makes themselves one who may answer",
        },
        404: {"not_found": "There is no such thing"},
        405: {"method_not_allowed": "Not with this method"},
        409: CONFLICTS,
        413: {"too_large": "That is too much"},
        415: {"unsupported_media_type": "Bodies are application/json"},
        422: {
            "invalid": "It was understood, and cannot be used",
            "invalid_answer": "The answer does not fit the question",
            "key_reused": "This idempotency key is another request's",
        },
        428: {"precondition_required": "Say what you have seen"},
        429: {"quota_exceeded": "Too many open jobs"},
        500: {"internal": "That went wrong here"},
        503: {"unavailable": "The database is away"},
    }
)
"""Every code that there is, by status."""


class Problem(Exception):  # RFC 9457's word
    """A refusal. `facts`: what else is told, by name."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str | None = None,
        facts: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.facts = facts or {}
        self.headers = headers or {}

    def response(self) -> Response:
        """As it goes out."""
        told = {"type": "about:blank", "title": TITLES[self.status][self.code], "status": self.status}
        said = {} if self.detail is None else {"detail": self.detail}
        body = encoded({**told, "code": self.code, **said, **self.facts})
        return Response(body, self.status, self.headers, MEDIA_TYPE)


def not_found() -> Problem:
    """The same for what is not there and for what may not be seen."""
    return Problem(404, "not_found")


def unauthenticated() -> Problem:
    """Nobody is known to have sent it."""
    return Problem(401, "unauthenticated", headers={"WWW-Authenticate": "Bearer"})


def invalid(field_: str, detail: str) -> Problem:
    """Something was understood and cannot be used; `field_` names it."""
    return Problem(422, "invalid", f"{field_}: {detail}", {"errors": {field_: [detail]}})


def forbidden(detail: str) -> Problem:
    """Somebody who may see a job may not do this with it."""
    return Problem(403, "forbidden", detail)


def problem_of(error: SuperviseError) -> Problem:  # noqa: C901, PLR0911  # one line an error
    """What somebody is told of a refusal of the service."""
    match error:
        case JobNotFound() | QuestionNotFound():
            return not_found()
        case TooLarge():
            return Problem(413, "too_large", str(error), {"size": error.size, "limit": error.limit})
        case InvalidAnswer():
            return Problem(422, "invalid_answer", str(error), {"errors": dict(error.errors)})
        case NotSerialisable():
            return invalid(error.path, error.problem)
        case JobExists():
            return Problem(422, "key_reused", str(error))
        case NotAllowed():
            return Problem(403, error.code, str(error))
        case Conflict():
            return Problem(409, error.code, str(error), _conflict(error))
        case InvalidInput():
            return invalid(error.field, error.problem)
        case QuotaExceeded():
            return Problem(429, "quota_exceeded", str(error), {"limit": error.limit})
        case Unreadable():
            return Problem(409, "unreadable", str(error))
        case DatabaseUnavailable() | NotMigrated():
            return _away(error)
    logger.error("supervise.request_failed", exc_info=error)
    return Problem(500, "internal")


def _conflict(error: Conflict) -> dict[str, Any]:
    facts = {"state": error.state, "generation": error.actual}
    match error:
        case QuestionClosed():
            return {**facts, "answered_by": error.answered_by, "answered_at": error.answered_at}
        case AlreadyRerun():
            return {**facts, "successor": error.successor}
    return facts


def _away(error: DatabaseUnavailable | NotMigrated) -> Problem:
    """Never what the database said: that is for the log."""
    logger.warning("supervise.unavailable", extra={"why": str(error)})
    unknown = isinstance(error, DatabaseUnavailable) and error.unknown
    said = "what was asked for may have been done all the same: look, then try again" if unknown else None
    return Problem(503, "unavailable", said, headers={"Retry-After": str(RETRY_SECONDS)})
