"""The shop's API."""

from __future__ import annotations

from typing import Annotated, Any

from celery.exceptions import OperationalError
from celery.result import AsyncResult
from fast import tasks
from fast.db import Order, db
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

api = FastAPI()
Db = Annotated[AsyncSession, Depends(db)]


class NewOrder(BaseModel):
    """What somebody orders."""

    customer: str
    amount: int
    jams: int = 0


class Refund(BaseModel):
    """How much goes back."""

    amount: int


@api.post("/orders", status_code=202)
async def place(new: NewOrder, session: Db) -> dict[str, Any]:
    order = Order(customer=new.customer, amount=new.amount)
    session.add(order)
    await session.commit()
    return {"order": order.id, "task": tasks.process(order.id, jams=new.jams).id}


@api.get("/orders/{order_id}")
async def look(order_id: int, session: Db) -> dict[str, Any]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404)
    return {"state": order.state, "refunded": order.refunded}


@api.post("/orders/{order_id}/refund", status_code=202)
async def give_back(order_id: int, refund: Refund, session: Db) -> dict[str, Any]:
    if await session.get(Order, order_id) is None:
        raise HTTPException(404)
    try:
        return {"task": tasks.refund.delay(order_id, refund.amount).id}
    except OperationalError as error:
        raise HTTPException(503, "try again") from error


@api.get("/tasks/{task_id}")
async def task(task_id: str) -> dict[str, Any]:
    result = AsyncResult(task_id, app=tasks.app)
    return {"state": result.state, "result": result.result if result.successful() else None}


@api.post("/turnover", status_code=202)
async def turnover(session: Db) -> dict[str, Any]:
    orders = list((await session.execute(select(Order.id))).scalars())
    return {"task": tasks.turnover(orders).id}
