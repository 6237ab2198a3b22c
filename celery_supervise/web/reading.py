"""What a request brings, read strictly, and only when its handler asks: ownership comes before bodies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import quote

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, ValidationError

from celery_supervise.model import Moved
from celery_supervise.policy import Identity
from celery_supervise.service import Service
from celery_supervise.views import View, moved_view
from celery_supervise.wording import cut

from .encoding import Ambiguous, decoded
from .problems import Problem

JSON: Final = "application/json"
SLACK: Final = 4096
"""Bytes that a body may have beside a value of the largest size."""

RETRY_AFTER: Final = "1"
"""Seconds after which it is worth looking what came of it."""

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """What a body may say: nothing that is not named, nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class Raw:
    """A body that nobody has looked into. `content`: None where it was longer than `limit` bytes."""

    content: bytes | None
    media_type: str
    limit: int

    def read(self, model: type[M], *, seen: Collection[str] = ()) -> M:
        """The body as `model`. `seen`: of these fields one must say what was seen. Raises `Problem`."""
        if self.content is None:
            raise Problem(413, "too_large", f"the body is longer than {self.limit} bytes", {"limit": self.limit})
        if self.media_type != JSON:
            raise Problem(415, "unsupported_media_type", f"send {JSON}")
        data = self._data()
        if seen and isinstance(data, Mapping) and not any(name in data for name in seen):
            raise Problem(428, "precondition_required", f"say {' or '.join(seen)}: what you have seen of it")
        try:
            # as JSON again: strictness differs, JSON has no tuples and times are texts there
            return model.model_validate_json(self.content)
        except ValidationError as error:
            raise unacceptable(told(error)) from None

    def _data(self) -> Any:
        try:
            return decoded(self.content or b"")
        except Ambiguous as error:
            raise Problem(400, "unparseable", f"the body cannot be read: {error}") from None


def told(error: ValidationError) -> Sequence[Mapping[str, Any]]:
    """What pydantic complains of, without what was given."""
    return error.errors(include_url=False, include_context=False, include_input=False)


def unacceptable(complaints: Sequence[Mapping[str, Any]], *, skip: int = 0) -> Problem:
    """A refusal that names each field."""
    errors: dict[str, list[str]] = {}
    for one in complaints:
        place = ".".join(cut(str(part)) for part in one["loc"][skip:]) or "$"
        errors.setdefault(place, []).append(one["msg"])
    said = "; ".join(f"{place}: {', '.join(why)}" for place, why in errors.items())
    return Problem(422, "invalid", said, {"errors": errors})


async def raw(request: Request) -> Raw:
    """The body, up to the limit of this application."""
    limit: int = request.app.state.max_body_bytes
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > limit:
            return Raw(None, media_type, limit)
    return Raw(bytes(content), media_type, limit)


def identity(request: Request) -> Identity:
    """Who sends it: `Login` has seen to that."""
    found: Identity = request.state.identity
    return found


def service(request: Request) -> Service:
    """The one way to change a job."""
    found: Service = request.app.state.service
    return found


async def no_nul(request: Request) -> None:
    """Refuse an address with a text in it that no database holds. Raises `Problem`."""
    texts = [request.url.path, *(part for pair in request.query_params.multi_items() for part in pair)]
    if any("\0" in text for text in texts):
        raise Problem(400, "unparseable", "there is a NUL in the address")


class Parameters(BaseModel):
    """Query parameters of a route: no other ones. Of one that has none, this."""

    model_config = ConfigDict(extra="forbid")


def described(model: type[BaseModel]) -> dict[str, Any]:
    """The body of a route for the API's description, since its handler reads it by itself."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _inlined(schema, schema.pop("$defs", {}))}}}}


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without references: those of pydantic are to a document of their own."""
    if isinstance(part, list):
        return [_inlined(one, definitions) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(definitions[part["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(one, definitions) for name, one in part.items()}


NoParameters = Annotated[Parameters, Query()]
RawBody = Annotated[Raw, Depends(raw)]
Who = Annotated[Identity, Depends(identity)]
Jobs = Annotated[Any, Depends(service)]


@dataclass(frozen=True)
class Asking:
    """A request to look: who asks, whom, and the response that is being made."""

    who: Identity
    service: Any
    request: Request
    response: Response


@dataclass(frozen=True)
class Call(Asking):
    """A request that changes something."""

    raw: Raw

    @property
    def by(self) -> dict[str, Any]:
        """Who does it, for the service."""
        return {"actor": self.who.actor, "owner": self.who.owner}

    def accepted(self, job_id: str) -> None:
        """202: where to look, and when. Without a host, since nobody can be sure of that here."""
        root = str(self.request.scope.get("root_path", ""))
        self.response.headers["Location"] = f"{root}/jobs/{quote(job_id, safe='')}"
        self.response.headers["Retry-After"] = RETRY_AFTER

    def moved(self, done: Moved, say: Callable[[Moved], str]) -> View:
        """What came of it."""
        self.accepted(done.job_id)
        return moved_view(done, say(done))


def _looking(who: Who, service: Jobs, request: Request, response: Response) -> Asking:
    return Asking(who, service, request, response)


def _calling(who: Who, service: Jobs, request: Request, response: Response, raw: RawBody, _: NoParameters) -> Call:
    return Call(who, service, request, response, raw)


Look = Annotated[Asking, Depends(_looking)]
Post = Annotated[Call, Depends(_calling)]
