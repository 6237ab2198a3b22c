"""`POST /jobs`: makes a job of a task that is meant for it. Arguments are checked as the task's own code says."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, get_type_hints

from celery import Celery
from fastapi import APIRouter, Header
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from celery_supervise.policy import Scope
from celery_supervise.task import SupervisedTask
from celery_supervise.views import job_view

from .login import need
from .moves import Seconds
from .problems import invalid
from .reading import Body, Post, described, told, unacceptable
from .shapes import JobShape

router = APIRouter(tags=["jobs"])


class NewJob(Body):
    """What to run. Whose it is, the login says."""

    task: Annotated[str, Field(description="A task that is declared with `supervise=Options(expose=True)`.")]
    args: Annotated[list[Any], Field(default_factory=list)]
    kwargs: Annotated[dict[str, Any], Field(default_factory=dict)]
    deadline: Annotated[datetime | None, Field(description="Or `deadline_seconds`.")] = None
    deadline_seconds: Seconds | None = None
    input_version: str | None = None


@dataclass(frozen=True)
class Exposed:
    """A task that may be submitted, and how each of its arguments is checked."""

    task: SupervisedTask
    signature: inspect.Signature
    types: Mapping[str, TypeAdapter[Any]]

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse what the task cannot be called with. Raises `Problem`, which names the argument."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise invalid("args", f"{self.task.name} cannot be called so: {error}") from None
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if name in self.types and kind not in {kind.VAR_POSITIONAL, kind.VAR_KEYWORD}:
                _check(name, self.types[name], value)


def _check(name: str, type_: TypeAdapter[Any], value: Any) -> None:
    try:
        type_.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise unacceptable([{**one, "loc": (name, *one["loc"])} for one in told(error)]) from None


def exposed(app: Celery) -> Mapping[str, Exposed]:
    """The tasks of the app that are meant to be submitted over HTTP. Needs its tasks' modules to be loaded."""
    tasks: Mapping[str, Any] = app.tasks
    return {
        name: _exposed(task)
        for name, task in tasks.items()
        if isinstance(task, SupervisedTask) and task.supervise.expose
    }


def _exposed(task: SupervisedTask) -> Exposed:
    signature = inspect.signature(task.run)
    try:
        hints = get_type_hints(task.run)
    except (NameError, TypeError):  # of names that exist for type checkers only
        hints = {}
    types = {name: found for name, hint in hints.items() if (found := _type(hint)) is not None}
    return Exposed(task, signature, types)


def _type(hint: Any) -> TypeAdapter[Any] | None:
    """How a value of this type is checked; None where pydantic knows no way."""
    try:
        return TypeAdapter(hint)
    except PydanticUserError:
        return None


@router.post("/jobs", status_code=202, response_model=JobShape, openapi_extra=described(NewJob))
def submit(
    call: Post, idempotency_key: Annotated[str | None, Header(description="The same key, the same job.")] = None
) -> Any:
    """Make a job. With an `Idempotency-Key` once, however often it is asked for."""
    need(call.who, Scope.OWNER)
    given = call.raw.read(NewJob)
    found: Exposed | None = call.request.app.state.exposed.get(given.task)
    if found is None:
        raise invalid("task", "there is none of this name that can be submitted here")
    found.check(given.args, given.kwargs)
    said = _said(given, call.who.owner, idempotency_key)
    result = found.task.apply_async(given.args, given.kwargs, supervise=said)
    call.accepted(result.id)
    return job_view(call.service.job(result.id, owner=call.who.owner))


def _said(given: NewJob, owner: str | None, idempotency_key: str | None) -> dict[str, Any]:
    if given.deadline is not None and given.deadline_seconds is not None:
        raise invalid("deadline", "give either deadline or deadline_seconds")
    span = None if given.deadline_seconds is None else timedelta(seconds=given.deadline_seconds)
    said = {
        "owner": owner,
        "deadline": given.deadline or span,
        "input_version": given.input_version,
        "idempotency_key": idempotency_key,
    }
    return {name: value for name, value in said.items() if value is not None}
