"""How an open question is given to other people, or taken back. Neither answers it; both are in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from . import queries, refusals
from .errors import InvalidInput
from .holding import moved
from .intake import check_actor, check_generation, check_why
from .model import Moved, Question
from .recipients import Answerer, check_recipients, recipients
from .service import AT_ONCE
from .store.door import repeated
from .store.handing import REASSIGN, WITHDRAW
from .store.people import LOCK
from .voting import Voting


class Handing(Voting):
    """What owners and operators do with open questions."""

    def reassign(
        self,
        question_id: UUID | str,
        *,
        to: str | Sequence[str],
        actor: str,
        owner: str | None = None,
        why: str | None = None,
        expected_generation: int | None = None,
    ) -> Moved:
        """Give an open question to other people: from then on they may answer, and nobody else.

        Votes that were given are void. The question stays as it was asked, and its digest with it. They are told, as of
        a question that was asked (`supervise_notify`). To the same people again changes nothing. Raises
        `QuestionNotFound`, `InvalidInput` (nobody, or people who could never decide), `NotAllowed`
        (``self_assignment``: nobody makes themselves one who may answer), `QuestionClosed`, `Conflict` (stale, busy).
        """
        given = recipients(to)
        question, params = self._handing(question_id, owner, actor, why, expected_generation)
        if set(given) == set(question.to):
            if refused := refusals.stale(question, expected_generation):
                raise refused
            return self._still_open(question, changed=False)
        self._check_handing(question, given, self._member(actor, (*question.to, *given)))
        params |= {"to": list(given), "before": list(question.to), "notice_id": uuid4()}
        row, again = repeated(lambda: self.door.locked(LOCK, REASSIGN, **params))
        self.publish_notice(params["notice_id"])
        if row is None or row["verdict"] == "expire":
            now = self._question(question.id, owner, None)
            if again and now.status == "pending" and now.to == given:
                return self._still_open(now, changed=True)
            raise refusals.cannot_hand(now, expected_generation, late=row is not None)
        return moved(row)

    def withdraw(
        self,
        question_id: UUID | str,
        *,
        actor: str,
        owner: str | None = None,
        why: str | None = None,
        expected_generation: int | None = None,
    ) -> Moved:
        """Take an open question back: nobody can answer it any more, and the body goes on and asks anew.

        Raises `QuestionNotFound`, `QuestionClosed` (answered, expired, ended, withdrawn), `Conflict` (stale, busy).
        """
        question, params = self._handing(question_id, owner, actor, why, expected_generation)
        row, again = repeated(lambda: self.door.one(WITHDRAW, **params))
        if row is None and again and queries.issued(self.door, question.job_id, params["ticket_id"]):
            return self._publish_moved(self._issued(question.job_id, params["ticket_id"]), None)
        if row is None or row["verdict"] == "expire":
            now = self._question(question.id, owner, None)
            raise refusals.cannot_hand(now, expected_generation, late=row is not None)
        return self._publish_moved(moved(row), None)

    def _handing(
        self, question_id: UUID | str, owner: str | None, actor: str, why: str | None, expected_generation: int | None
    ) -> tuple[Question, dict[str, Any]]:
        """The question, open, and what both statements need."""
        question = self._question(question_id, owner, None)
        params: dict[str, Any] = {
            "job_id": question.job_id,
            "question_id": question.id,
            "ticket_id": uuid4(),
            "actor": check_actor(actor),
            "why": check_why(why),
            "expected_generation": check_generation(expected_generation),
            "settle_after": AT_ONCE,
            **self._hold(None),
        }
        if refused := refusals.not_open(question, late=False):
            raise refused
        return question, params

    def _check_handing(self, question: Question, to: Sequence[str], who: Answerer) -> None:
        if not to:
            raise InvalidInput("to", "names nobody")
        barred = None if question.self_approval else question.owner_id
        check_recipients(to, approvals=question.approvals, barred=barred, groups=self._groups is not None)
        after = replace(question, to=tuple(to))
        if refusals.not_allowed(question, who) and not refusals.not_allowed(after, who):
            raise refusals.self_assignment(who)
