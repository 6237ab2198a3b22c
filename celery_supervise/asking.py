"""A question as a body asks it, composed and checked before anything is written. No I/O.

Its digest is of what the person sees and of who decides: what was approved is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict
from uuid import uuid4

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from .encodings import reason
from .errors import InvalidInput, NotSerialisable
from .forms import Form
from .model import NewQuestion, Stored
from .recipients import check_recipients, recipients
from .seen import seen
from .values import Codec, canonical, digest, encode_plain
from .wording import REFUSALS, nearest

OnChange = Literal["reask", "keep"]
"""What to do when a question that was answered is asked with other content. Without it: `QuestionChanged`."""

MAX_APPROVALS: Final = 1000
FAIL: Final = "fail"
REASK: Final = "reask"
KEEP: Final = "keep"
AGAIN: Final = "again"
"""Set the accepted answer aside even if the content is the same: today's form refuses it."""


class AskOptions(TypedDict, total=False):
    """The options of `ask`, beside what is asked for: what is shown with it, and its `Terms`."""

    show: Any
    to: str | Sequence[str]
    approvals: int
    self_approval: bool
    ttl: timedelta | None
    remind_before: timedelta | None
    on_change: OnChange | None


@dataclass(frozen=True)
class Terms:
    """Who answers a question, and by when.

    `to`: assignees; empty for whoever may. `approvals`: how many must agree. `self_approval`: whether the
    job's owner counts. `ttl`: how long it may stay open; None for the setting's. `remind_before`: how long
    before its end to remind. `on_change`: see `OnChange`.
    """

    to: str | Sequence[str] = ()
    approvals: int = 1
    self_approval: bool = False
    ttl: timedelta | None = None
    remind_before: timedelta | None = None
    on_change: OnChange | None = None


_TERMS: Final = tuple(field.name for field in fields(Terms))


def terms_of(given: Mapping[str, Any]) -> Terms:
    """The terms of a call of `ask`. Raises `InvalidInput` for a name that is none."""
    for name in given:
        if name not in _TERMS:
            raise InvalidInput(name, f"is no option of ask{nearest(name, _TERMS)}")
    return Terms(**given)


def compose(key: str, prompt: str, *, form: Form, show: Any, terms: Terms, codec: Codec, limit: int) -> NewQuestion:
    """The question to store. Raises `InvalidInput` or `TooLarge`, naming the argument of `ask`."""
    terms, to = _checked(terms), recipients(terms.to)
    check_recipients(to, approvals=terms.approvals, barred=None, groups=True)  # the store knows of owner and groups
    content = {"prompt": _prompt(prompt), "show": _shown(show)}
    stored = _encoded(content, form, codec=codec, limit=limit)
    return NewQuestion(
        id=uuid4(),
        key=key,
        content=stored,
        schema=form.schema,
        digest=digest(content, seen(form.schema), sorted(to), terms.approvals, terms.self_approval),
        ttl=terms.ttl,
        remind_before=terms.remind_before,
        to=to,
        approvals=terms.approvals,
        self_approval=terms.self_approval,
        on_change=terms.on_change or FAIL,
    )


def _checked(terms: Terms) -> Terms:
    for name in ("ttl", "remind_before"):
        _check_time(name, getattr(terms, name))
    if terms.ttl and terms.remind_before and terms.remind_before >= terms.ttl:
        raise InvalidInput("remind_before", f"must be less than ttl ({terms.ttl})")
    if type(terms.approvals) is not int or not 1 <= terms.approvals <= MAX_APPROVALS:
        raise InvalidInput("approvals", f"must be an int from 1 to {MAX_APPROVALS}")
    if not isinstance(terms.self_approval, bool):
        raise InvalidInput("self_approval", "must be a bool")
    if terms.on_change not in (None, REASK, KEEP):
        raise InvalidInput("on_change", f"must be {REASK!r} or {KEEP!r}")
    return terms


def _check_time(name: str, time: object) -> None:
    if time is not None and not (isinstance(time, timedelta) and time > timedelta(0)):
        raise InvalidInput(name, "must be a timedelta of more than nothing")


def _prompt(prompt: object) -> str:
    if not isinstance(prompt, str) or not prompt.strip():
        raise InvalidInput("prompt", "must be a text that is not blank")
    return str.__str__(prompt)


def _shown(value: Any) -> Any:
    """`value` as JSON to be read: it need not come back as it was, but must be the same at re-entry."""
    try:
        return _json(value)
    except REFUSALS as error:
        raise InvalidInput("show", f"cannot be shown ({reason(error)})") from error


def _json(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _json(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(to_jsonable_python(key)): _json(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(_json, value), key=canonical)  # a set of str has another order in each process
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _json(getattr(value, field.name)) for field in fields(value)}
    return to_jsonable_python(value)


def _encoded(content: dict[str, Any], form: Form, *, codec: Codec, limit: int) -> Stored:
    encode_plain(form.schema, limit=limit, what="form")
    try:
        return encode_plain(content, limit=limit, codec=codec, what="show")
    except NotSerialisable as error:
        raise InvalidInput("prompt" if error.path == "$.prompt" else "show", error.problem) from error
