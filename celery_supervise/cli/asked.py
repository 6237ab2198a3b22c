"""A question with all that belongs to it, read once, for people and for programs. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from celery_supervise.errors import Unreadable
from celery_supervise.model import Question
from celery_supervise.moments import near
from celery_supervise.supervisor import Supervisor
from celery_supervise.values import decode

from .commands import command
from .render import block, escape, pairs, value_text
from .schemas import Field, fields, kind
from .views import View, question_view
from .words import may_answer

_EXAMPLES: Mapping[str, str] = {"true or false": "true", "whole number": "7", "number": "7.5", "text": "…"}


@dataclass(frozen=True)
class Asked:
    """A question, what it shows (or why that cannot be read), its answer, if any, as `{"answer": …}`, its votes."""

    question: Question
    content: Any
    answer: Mapping[str, Any]
    votes: Sequence[Mapping[str, Any]] = ()

    @property
    def view(self) -> View:
        """The question for programs."""
        return question_view(self.question, self.content, {**self.answer, "votes": self.votes})

    @property
    def is_disputed(self) -> bool:
        """Whether not all who voted said the same."""
        return len({json.dumps(vote.get("value"), sort_keys=True) for vote in self.votes}) > 1

    @property
    def prompt(self) -> str:
        """What is asked, in the task's words."""
        return str(self.content.get("prompt", "")) if isinstance(self.content, Mapping) else str(self.content or "")


def asked(supervisor: Supervisor, question: Question) -> Asked:
    """Read what a question shows and its answer."""
    try:
        content = supervisor.content(question)
        return Asked(question, content, _answer(supervisor, question), _votes(supervisor, question))
    except Unreadable as error:
        return Asked(question, str(error), {})


def _answer(supervisor: Supervisor, question: Question) -> Mapping[str, Any]:
    if question.answer is None:
        return {}
    return {"answer": decode(question.answer, codec=supervisor.codec, what=f"the answer to {question.key}")}


def _votes(supervisor: Supervisor, question: Question) -> Sequence[Mapping[str, Any]]:
    """Who has said what, and when; without the value once it is erased."""
    what = f"a vote on {question.key}"
    votes = supervisor.votes(question.id) if question.voted else ()
    return [
        {"person": vote.person, "at": vote.at}
        | ({"value": decode(vote.value, codec=supervisor.codec, what=what)} if vote.value else {})
        for vote in votes
    ]


def question_text(ctx: click.Context, one: Asked, now: datetime) -> str:
    """The question, in lines: what is asked and shown, what may be answered and how, or what was answered."""
    open_ = one.question.status == "pending"
    lines = [_heading(one, now), block(one.prompt, "  "), *_shown(one.content)]
    if open_:
        lines += [_form(one.question), *_how(ctx, one.question)]
    lines += _who(one, open_=open_)
    return "\n".join(lines)


def _heading(one: Asked, now: datetime) -> str:
    question = one.question
    named = f"{question.id} {escape(question.key)}"
    if question.status == "pending":
        to = f", for {escape(', '.join(question.to))}" if question.to else ""
        return f"{named}: open until {near(question.open_until, now)}{to}"
    if question.answered_at is None:
        return f"{named}: {question.status}"
    given = value_text(one.answer["answer"]) if one.answer else "a value that is no longer there"
    return f"{named}: {given}, by {escape(question.answered_by or '')} at {near(question.answered_at, now)}"


def _who(one: Asked, *, open_: bool) -> list[str]:
    """Who may answer, and what has been said where several must agree."""
    question = one.question
    rows = [("may answer", escape(may_answer(question)) if open_ else None)]
    if question.approvals > 1:
        rows.append(("must agree", f"{question.approvals}; {_said(one.votes)}"))
    return [pairs(rows, "  ")] if any(value for _, value in rows) else []


def _said(votes: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{escape(v['person'])}: {value_text(v['value']) if 'value' in v else 'erased'}" for v in votes]
    return f"{len(said)} voted ({', '.join(said)})" if said else "nobody has voted"


def _shown(content: Any) -> list[str]:
    shown = content.get("show") if isinstance(content, Mapping) else None
    if shown is None:
        return []
    if not isinstance(shown, Mapping):
        return [f"  {value_text(shown)}"]
    return [pairs([(escape(str(name)), value_text(value)) for name, value in shown.items()], "  ")]


def _form(question: Question) -> str:
    form = fields(question.schema)
    if not form:
        return f"  answer: {escape(kind(question.schema, question.schema))}"
    return pairs([(escape(field.name), _field(field)) for field in form], "  ")


def _field(field: Field) -> str:
    about = f" ({escape(field.about)})" if field.about else ""
    return escape(field.kind) + ("" if field.required else ", optional") + about


def _how(ctx: click.Context, question: Question) -> list[str]:
    """An example of an answer: only where the schema is so plain that it would be accepted or nearly so."""
    form = [field for field in fields(question.schema) if field.required] or fields(question.schema)[:1]
    words = [f"{field.name}={_example(field.kind)}" for field in form] or [
        _example(kind(question.schema, question.schema))
    ]
    by = command(ctx, "answer", str(question.id), *words)
    return [f"  answer it: {by}"] if by else []


def _example(kind_: str) -> str:
    if kind_ in _EXAMPLES:
        return _EXAMPLES[kind_]
    first = kind_.partition(" or ")[0].partition(",")[0]
    return _EXAMPLES.get(first, first)
