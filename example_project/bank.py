"""A bank, as far as a payment run sees it: it keeps its own books and pays an idempotency key once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, key TEXT NOT NULL, iban TEXT, amount TEXT);
CREATE TABLE IF NOT EXISTS payments (key TEXT PRIMARY KEY, iban TEXT, amount TEXT);
"""


class Bank:
    """Another company's system, reached here through a file. `orders` is all it was asked, `payments` what it did."""

    def __init__(self, path: str) -> None:
        self._books = sqlite3.connect(path, timeout=10, isolation_level=None)
        self._books.execute("PRAGMA synchronous = OFF")  # its durability is not what is shown
        with closing(self._books.cursor()) as cursor:
            cursor.executescript(SCHEMA)

    def pay(self, iban: str, amount: Decimal, *, idempotency_key: str) -> None:
        """Pay, unless this key was paid before."""
        with self._books:
            self._books.execute("BEGIN IMMEDIATE")
            order = (idempotency_key, iban, str(amount))
            self._books.execute("INSERT INTO orders (key, iban, amount) VALUES (?, ?, ?)", order)
            self._books.execute("INSERT OR IGNORE INTO payments VALUES (?, ?, ?)", order)

    def count(self, table: str) -> int:
        """How many orders or payments there are."""
        query = {"orders": "SELECT count(*) FROM orders", "payments": "SELECT count(*) FROM payments"}[table]
        found: int = self._books.execute(query).fetchone()[0]
        return found

    def last_order(self) -> tuple[str, str]:
        """The newest order: its key and IBAN."""
        query = "SELECT key, iban FROM orders ORDER BY number DESC LIMIT 1"
        found: tuple[str, str] = self._books.execute(query).fetchone()
        return found

    def counts_of(self, key: str) -> tuple[int, int]:
        """How often this key was ordered, and how often it was paid."""
        query = "SELECT (SELECT count(*) FROM orders WHERE key = ?), (SELECT count(*) FROM payments WHERE key = ?)"
        found: tuple[int, int] = self._books.execute(query, (key, key)).fetchone()
        return found

    def paid_twice(self) -> int:
        """How many keys were paid more than once."""
        query = "SELECT count(*) FROM (SELECT key FROM payments GROUP BY key HAVING count(*) > 1)"
        found: int = self._books.execute(query).fetchone()[0]
        return found
