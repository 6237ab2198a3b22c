"""The shop's database: asynchronous for the web, synchronous for the workers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

URL = make_url(os.environ["SHOP_DB"])

web = create_async_engine(URL.set(drivername="postgresql+asyncpg"), poolclass=NullPool)
work = create_engine(URL.set(drivername="postgresql+psycopg2"), poolclass=NullPool)


class Base(DeclarativeBase):
    """The shop's tables."""


class Order(Base):
    """What somebody has ordered."""

    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="new")
    refunded: Mapped[int] = mapped_column(default=0)


async def db() -> AsyncIterator[AsyncSession]:
    """A session for a request."""
    async with AsyncSession(web, expire_on_commit=False) as session:
        yield session


@contextmanager
def unit() -> Iterator[Session]:
    """A session for a task, which commits."""
    with Session(work) as session, session.begin():
        yield session
