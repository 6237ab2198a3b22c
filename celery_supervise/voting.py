"""How several people decide one question: each votes, and the vote that makes enough agree is the answer.

Votes are compared in the open, by value, outside of any transaction: the codec is the shop's code. The statement finds
no row where the job has changed since they were read, and the vote is then counted anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import uuid4

from . import queries, refusals
from .errors import SuperviseError
from .holding import moved
from .model import Moved, Question, Stored
from .recipients import Answerer, names_groups
from .service import AT_ONCE, Service, unchanged
from .store.door import Row
from .store.joining import Joined
from .store.people import LOCK
from .store.voting import VOTE
from .values import decode, digest

ROUNDS: Final = 20
"""How often a vote is counted anew; each time something else was accepted meanwhile."""

Ballots = Mapping[str, Any]
"""What each person has said."""


@dataclass(frozen=True)
class Given:
    """An answer as somebody gives it: the value, the same as it is stored, and what they had before their eyes."""

    value: Any
    stored: Stored
    who: Answerer
    owner: str | None
    seen: str | None
    expected_generation: int | None

    def decides(self, question: Question, ballots: Ballots) -> bool:
        """Whether this vote makes enough that agree. A person's new vote replaces their old one."""
        others = (value for voter, value in ballots.items() if voter != self.who.person)
        return 1 + sum(_same(value, self.value) for value in others) >= question.approvals

    def is_among(self, ballots: Ballots) -> bool:
        """Whether this person has said just this."""
        return self.who.person in ballots and _same(ballots[self.who.person], self.value)

    def refused(self, question: Question, *, late: bool) -> SuperviseError:
        """Why it was refused, from the question as it is now."""
        return refusals.cannot_answer(question, self.who, seen=self.seen, expected=self.expected_generation, late=late)


def _same(one: Any, other: Any) -> bool:
    """Whether two answers are one, in whatever order their fields are. 1, 1.0 and true are three."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


class Voting(Service):
    """What becomes of an answer that is allowed and fits."""

    def _answerer(self, actor: str, question: Question) -> Answerer:
        """The actor, with their groups where the question is for one. The shop's function runs outside our commit."""
        return self._member(actor, question.to)

    def _member(self, actor: str, to: Sequence[str]) -> Answerer:
        if self._groups is None or not names_groups(to):
            return Answerer(actor)
        return Answerer(actor, frozenset(self._groups(actor)))

    def _as_now(self, question: Question, given: Given, joined: Joined | None) -> tuple[Question, Given]:
        """The question as it is now, and the person with the groups that it may now be for."""
        now = self._question(question.id, given.owner, joined)
        return now, replace(given, who=self._answerer(given.who.actor, now))

    def _answering(self, question: Question, given: Given, joined: Joined | None) -> dict[str, Any]:
        return {
            "job_id": question.job_id,
            "question_id": question.id,
            "ticket_id": uuid4(),
            "data": given.stored.data,
            "encoding": given.stored.encoding,
            "key_id": given.stored.key_id,
            "answer_digest": digest(given.stored.data),
            "actor": given.who.actor,
            "names": given.who.names,
            "selves": given.who.selves,
            "seen": given.seen,
            "expected_generation": given.expected_generation,
            "settle_after": AT_ONCE,
            **self._hold(joined),
        }

    def _vote(self, question: Question, given: Given, joined: Joined | None) -> Moved:
        """Cast a vote; the last one that is needed is the answer. The same vote again changes nothing."""
        if given.expected_generation not in (None, question.generation):
            raise given.refused(question, late=False)
        params = self._answering(question, given, joined)
        for _ in range(ROUNDS):
            ballots = self._ballots(question, joined)
            if given.is_among(ballots):
                return self._still_open(question, joined, changed=False)
            row, again = self._cast(params | _counted(question, given, ballots), joined)
            if row is not None and row["verdict"] != "expire":
                return self._publish_moved(moved(row), joined)
            if again and queries.issued(self.door, question.job_id, params["ticket_id"]):
                return self._publish_moved(self._issued(question.job_id, params["ticket_id"]), joined)
            if again and given.is_among(self._ballots(question, joined)):
                return self._still_open(question, joined, changed=True)
            before = question.generation
            question, given = self._as_now(question, given, joined)
            refused = given.refused(question, late=row is not None)
            if not refusals.is_busy(refused) or question.generation == before:
                break
        raise refused

    def _cast(self, params: dict[str, Any], joined: Joined | None) -> tuple[Row | None, bool]:
        return self._commit(lambda: self.door.locked(LOCK, VOTE, joined, **params), joined)

    def _ballots(self, question: Question, joined: Joined | None) -> Ballots:
        votes = queries.votes(self.door, question.id, joined=joined)
        what = f"a vote on {question.key}"
        return {v.person: decode(v.value, codec=self.codec, what=what) for v in votes if v.value is not None}

    def _still_open(self, question: Question, joined: Joined | None = None, *, changed: bool) -> Moved:
        """What is told of what stands already; `changed`: by this call, whose first reply was lost."""
        job = self._job(question.job_id, None, joined)
        return replace(unchanged(job), changed=changed, question_id=job.question_id)


def _counted(question: Question, given: Given, ballots: Ballots) -> dict[str, Any]:
    """A vote with the votes that it was counted with, by the generation of then."""
    return {
        "names": given.who.names,
        "voter": given.who.person,
        "needed": question.approvals,
        "decides": given.decides(question, ballots),
        "expected_generation": question.generation,
    }
