"""How a question is put and its answer taken: which answer counts, when to ask again. Composes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

from .asking import AGAIN, KEEP, REASK
from .errors import InvalidAnswer, QuestionChanged
from .forms import Form
from .ledger import Ledger
from .loops import Loops
from .model import Answer, NewQuestion


class Questions:
    """The questions of one attempt."""

    def __init__(self, ledger: Ledger, loops: Loops) -> None:
        self._ledger = ledger
        self._loops = loops

    def answer_to(self, question: NewQuestion, form: Form) -> Any:
        """The answer as `form` wants it; asks where there is none that counts. Raises as `Body.ask`."""
        answer = self._ledger.journal.answer(question.key)
        if answer is None or _is_outdated(answer, question):
            answer = self._put(question)
        try:
            return form.decode(self._ledger.answer_value(answer))
        except InvalidAnswer:
            answer = self._put(replace(question, id=uuid4(), on_change=AGAIN))
        return form.decode(self._ledger.answer_value(answer))

    def _put(self, question: NewQuestion) -> Answer:
        self._loops.flush()
        return self._ledger.ask(question)


def _is_outdated(answer: Answer, question: NewQuestion) -> bool:
    """Whether to ask anew. Raises `QuestionChanged` where the author has not said what to do."""
    if answer.digest == question.digest or question.on_change == KEEP:
        return False
    if question.on_change == REASK:
        return True
    raise QuestionChanged(question.key, stored=answer.digest, now=question.digest)
