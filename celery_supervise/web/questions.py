"""The routes of questions: the inbox, answers, and what owners do with questions. The service judges answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field

from celery_supervise.asked import asked
from celery_supervise.lookup import count_open_questions
from celery_supervise.model import Moved, Question
from celery_supervise.policy import Scope
from celery_supervise.words import answered, reassigned, voted, withdrawn

from .jobs import PageSize, whose
from .login import need
from .moves import GENERATION, Generation, Seconds, Steer, WhyText
from .reading import Body, Call, Jobs, NoParameters, Parameters, Post, Who, described
from .shapes import MovedShape, QuestionShape, QuestionsShape

QuestionId = Annotated[str, Path(description="The question's id.")]
SEEN: Final = ("seen", "expected_generation")

router = APIRouter(tags=["questions"])


class Inbox(Parameters):
    """Which open questions."""

    owner: Annotated[str | None, Field(description="Of those who see everybody's jobs only.")] = None
    limit: PageSize = 50


class GivenAnswer(Body):
    """An answer, and what was seen of the question: its digest, or the job's generation."""

    value: Any
    seen: Annotated[str | None, Field(description="The digest of what was shown.")] = None
    expected_generation: Generation = None


class Reassign(Steer):
    """To whom."""

    to: Annotated[list[str], Field(min_length=1)]
    why: WhyText = None


class Withdraw(Steer):
    """Why it is taken back."""

    why: WhyText = None


class ExtendQuestion(Steer):
    """Until when it can be answered: one of the two."""

    until: datetime | None = None
    by_seconds: Seconds | None = None


@router.get("/questions", response_model=QuestionsShape)
def inbox(who: Who, service: Jobs, given: Annotated[Inbox, Query()]) -> Any:
    """The open questions, oldest first, and exactly how many there are."""
    owner = whose(who, given.owner)
    found: Sequence[Question] = service.questions(owner=owner, page=given.limit)
    views = [asked(service, one).view for one in found]
    total = max(len(views), count_open_questions(service, owner=owner))
    return {"questions": views, "returned_count": len(views), "total_count": total}


@router.get("/questions/{question_id}", response_model=QuestionShape)
def question(question_id: QuestionId, who: Who, service: Jobs, _: NoParameters) -> Any:
    """One question, open or not."""
    return asked(service, service.question(question_id, owner=who.owner)).view


@router.post(
    "/questions/{question_id}/answer", status_code=202, response_model=MovedShape, openapi_extra=described(GivenAnswer)
)
def answer(question_id: QuestionId, call: Post) -> Any:
    """Answer it: the answer is durable with this 202, and only then the job goes on."""
    _seen(call, question_id, Scope.ANSWERER)
    given = call.raw.read(GivenAnswer, seen=SEEN)
    done: Moved = call.service.answer(
        question_id,
        given.value,
        **call.by,
        seen=given.seen,
        expected_generation=given.expected_generation,
    )
    said = answered(done) if done.question_id is None else _voted(call, done, question_id)
    return call.moved(done, lambda _done: said)


@router.post(
    "/questions/{question_id}/reassign", status_code=202, response_model=MovedShape, openapi_extra=described(Reassign)
)
def reassign(question_id: QuestionId, call: Post) -> Any:
    """Give an open question to other people."""
    _seen(call, question_id, Scope.OWNER)
    given = call.raw.read(Reassign, seen=GENERATION)
    done = call.service.reassign(
        question_id,
        to=given.to,
        **call.by,
        why=given.why,
        expected_generation=given.expected_generation,
    )
    return call.moved(done, lambda one: reassigned(one, given.to))


@router.post(
    "/questions/{question_id}/withdraw", status_code=202, response_model=MovedShape, openapi_extra=described(Withdraw)
)
def withdraw(question_id: QuestionId, call: Post) -> Any:
    """Take an open question back: the job goes on and asks anew."""
    _seen(call, question_id, Scope.OWNER)
    given = call.raw.read(Withdraw, seen=GENERATION)
    done = call.service.withdraw(
        question_id,
        **call.by,
        why=given.why,
        expected_generation=given.expected_generation,
    )
    return call.moved(done, withdrawn)


@router.post(
    "/questions/{question_id}/extend",
    status_code=202,
    response_model=MovedShape,
    openapi_extra=described(ExtendQuestion),
)
def extend(question_id: QuestionId, call: Post) -> Any:
    """Move the time until which it can be answered, before it is over."""
    _seen(call, question_id, Scope.OWNER)
    given = call.raw.read(ExtendQuestion, seen=GENERATION)
    done = call.service.extend_question(
        question_id,
        until=given.until,
        by=None if given.by_seconds is None else timedelta(seconds=given.by_seconds),
        **call.by,
        expected_generation=given.expected_generation,
    )
    return call.moved(done, lambda one: "the time is moved" if one.changed else "it is that already")


def _voted(call: Call, done: Moved, question_id: str) -> str:
    now = asked(call.service, call.service.question(question_id, owner=call.who.owner))
    return voted(done, now.question, differ=now.is_disputed)


def _seen(call: Call, question_id: str, scope: Scope) -> None:
    call.service.question(question_id, owner=call.who.owner)
    need(call.who, scope)
