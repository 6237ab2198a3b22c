"""The shop's questions: who may decide sees them, and answers in the shop's own transaction."""

from __future__ import annotations

from typing import Any

from fast.db import Order
from fast.tasks import app
from fast.web import Db
from fastapi import APIRouter, HTTPException
from pydantic import BaseModel

from celery_supervise import InvalidAnswer, QuestionClosed, QuestionNotFound, Supervisor

router = APIRouter()
supervise = Supervisor.of(app)


class Decision(BaseModel):
    """What somebody says."""

    order: int
    value: Any


@router.get("/questions")
async def questions() -> list[dict[str, Any]]:
    found = []
    for question in await supervise.aio.questions():
        content = await supervise.aio.content(question)
        found.append({"id": str(question.id), "prompt": content["prompt"], "job": question.job_id})
    return found


@router.post("/questions/{question_id}", status_code=202)
async def answer(question_id: str, decision: Decision, session: Db) -> dict[str, Any]:
    order = await session.get_one(Order, decision.order)
    order.state = "refund decided"
    try:
        moved = await supervise.aio.answer(question_id, decision.value, actor="user:bea", session=session)
    except QuestionNotFound as error:
        raise HTTPException(404) from error
    except QuestionClosed as error:
        raise HTTPException(409, {"by": error.answered_by}) from error
    except InvalidAnswer as error:
        raise HTTPException(422, dict(error.errors)) from error
    await session.commit()
    return {"state": moved.state}
