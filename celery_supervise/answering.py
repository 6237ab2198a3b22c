"""How people decide: the rules of who may answer what, that no route goes round. Losers are told precisely."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.engine import Connection

from . import queries, refusals
from .forms import check_answer
from .holding import moved
from .intake import check_actor, check_digest, check_generation
from .model import Moved, Question, Stored
from .service import Session
from .store.joining import Joined
from .store.people import ANSWER
from .values import encode_plain
from .voting import Given, Voting


class Answering(Voting):
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
        using: str | None = None,
    ) -> Moved:
        """Give the answer: it is durable when this returns, and only then is the job told to go on.

        Where a question needs several (`approvals`), this is a vote: it replaces an earlier one of the same person, and
        decides if with it enough people have said the same. `question_id` of what is returned names the question that
        is open still.

        `actor`: who answers, by your authentication; `user:ann` and `cli:ann` are the person `ann`. `seen`: the digest
        of what was shown to them. Raises `QuestionNotFound`, `NotAllowed` (``self_approval``: it is their own job;
        ``not_assigned``: it is for others), `InvalidAnswer`, `QuestionClosed` (answered, expired, ended, withdrawn),
        `QuestionChanged` (not what was seen), `Conflict` (stale, busy). Nothing has changed then.
        """
        joined = self._joins(session, using)
        question = self._question(question_id, owner, joined)
        who = self._answerer(check_actor(actor), question)
        if refused := refusals.not_open(question, late=False) or refusals.not_allowed(question, who):
            raise refused
        digest, generation = check_digest(seen), check_generation(expected_generation)
        given = Given(value, self._checked(question, value), who, owner, digest, generation)
        if question.approvals > 1:
            return self._vote(question, given, joined)
        return self._answer(question, given, joined)

    def _answer(self, question: Question, given: Given, joined: Joined | None) -> Moved:
        params = self._answering(question, given, joined)
        row, again = self._commit(lambda: self.door.one(ANSWER, joined, **params), joined)
        if row is None and again and queries.issued(self.door, question.job_id, params["ticket_id"]):
            return self._publish_moved(self._issued(question.job_id, params["ticket_id"]), joined)
        if row is None or row["verdict"] == "expire":
            now, given = self._as_now(question, given, joined)
            raise given.refused(now, late=row is not None)
        return self._publish_moved(moved(row), joined)

    def _checked(self, question: Question, value: Any) -> Stored:
        check_answer(question.schema, value, limit=self.max_value_bytes)
        return encode_plain(value, path="answer", what="answer", limit=self.max_value_bytes, codec=self.codec)
