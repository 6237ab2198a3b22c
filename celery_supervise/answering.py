"""How people decide: the rules of who may answer what, that no route goes round. Losers are told precisely."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.engine import Connection

from . import queries, refusals
from .forms import check_answer
from .holding import moved
from .intake import check_actor
from .model import Moved, Question, Stored
from .recipients import Answerer, names_groups
from .service import AT_ONCE, Service, Session, connection_of
from .store.people import ANSWER
from .values import digest, encode_plain


class Answering(Service):
    """What people do with questions."""

    def answer(
        self,
        question_id: UUID | str,
        value: Any,
        *,
        actor: str,
        owner: str | None = None,
        seen: str | None = None,
        expected_generation: int | None = None,
        session: Session | Connection | None = None,
    ) -> Moved:
        """Give the answer: it is durable when this returns, and only then is the job told to go on.

        `actor`: who answers, by your authentication; `user:ann` and `cli:ann` are the person `ann`. `seen`: the digest
        of what was shown to them. Raises `QuestionNotFound`, `NotAllowed` (``self_approval``: it is their own job;
        ``not_assigned``: it is for others), `InvalidAnswer`, `QuestionClosed` (answered, expired, ended, withdrawn),
        `Conflict` (stale, busy). Nothing has changed then.
        """
        joined = connection_of(session)
        question = self._question(question_id, owner, joined)
        who = self._answerer(check_actor(actor), question)
        if refused := refusals.not_open(question, late=False) or refusals.not_allowed(question, who):
            raise refused
        stored = self._checked(question, value)
        params = self._answering(question, stored, who, seen, expected_generation) | self._hold(joined)
        row, again = self._commit(lambda: self.door.one(ANSWER, joined, **params), joined)
        if row is None and again and queries.issued(self.door, params["ticket_id"]):
            return self._publish_moved(self._issued(question.job_id, params["ticket_id"]), joined)
        if row is None or row["verdict"] == "expire":
            now = self._question(question_id, owner, joined)
            who = self._answerer(actor, now)
            raise refusals.cannot_answer(now, who, seen=seen, expected=expected_generation, late=row is not None)
        return self._publish_moved(moved(row), joined)

    def _answerer(self, actor: str, question: Question) -> Answerer:
        """The actor, with their groups where the question is for one. The shop's function runs outside our commit."""
        if self._groups is None or not names_groups(question.to):
            return Answerer(actor)
        return Answerer(actor, frozenset(self._groups(actor)))

    def _checked(self, question: Question, value: Any) -> Stored:
        check_answer(question.schema, value, limit=self.max_value_bytes)
        return encode_plain(value, path="answer", what="answer", limit=self.max_value_bytes, codec=self.codec)

    def _answering(
        self, question: Question, stored: Stored, who: Answerer, seen: str | None, expected_generation: int | None
    ) -> dict[str, Any]:
        return {
            "job_id": question.job_id,
            "question_id": question.id,
            "ticket_id": uuid4(),
            "data": stored.data,
            "encoding": stored.encoding,
            "key_id": stored.key_id,
            "answer_digest": digest(stored.data),
            "actor": who.actor,
            "names": who.names,
            "selves": who.selves,
            "seen": seen,
            "expected_generation": expected_generation,
            "settle_after": AT_ONCE,
        }
