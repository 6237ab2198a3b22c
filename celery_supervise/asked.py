"""A question with all that belongs to it, read once, for people and for programs. Changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Unreadable
from .model import Question
from .reader import Reader
from .values import decode
from .views import View, question_view


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


def asked(reader: Reader, question: Question) -> Asked:
    """Read what a question shows and its answer."""
    try:
        content = reader.content(question)
        return Asked(question, content, _answer(reader, question), _votes(reader, question))
    except Unreadable as error:
        return Asked(question, str(error), {})


def _answer(reader: Reader, question: Question) -> Mapping[str, Any]:
    if question.answer is None:
        return {}
    return {"answer": decode(question.answer, codec=reader.codec, what=f"the answer to {question.key}")}


def _votes(reader: Reader, question: Question) -> Sequence[Mapping[str, Any]]:
    """Who has said what, and when; without the value once it is erased."""
    what = f"a vote on {question.key}"
    votes = reader.votes(question.id) if question.voted else ()
    return [
        {"person": vote.person, "at": vote.at}
        | ({"value": decode(vote.value, codec=reader.codec, what=what)} if vote.value else {})
        for vote in votes
    ]
