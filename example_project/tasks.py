"""The payment run: read a file of vendors, ask above a limit, pay each once, write what was paid."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel

from celery_supervise import SupervisedTask
from example_project.app import app
from example_project.bank import Bank

LIMIT = Decimal(100_000)
"""A run that pays more than this needs somebody's approval."""


@dataclass(frozen=True)
class Payment:
    """One line of the file."""

    id: int
    vendor: str
    iban: str
    amount: Decimal


class Approval(BaseModel):
    """What the person who approves is asked for."""

    approved: bool
    note: str = ""


def read(file: str) -> list[Payment]:
    """The payments of a file."""
    with Path(file).open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return [Payment(int(row["id"]), row["vendor"], row["iban"], Decimal(row["amount"])) for row in rows]


def write_report(folder: str, batch: str, paid: int, total: Decimal) -> str:
    """Write the file that accounting picks up; the path of it."""
    report = Path(folder) / f"{batch}.csv"
    report.write_text(f"batch,payments,total\n{batch},{paid},{total}\n", encoding="utf-8")
    return str(report)


@app.task(base=SupervisedTask, bind=True)
def pay_vendors(self: SupervisedTask, batch: str, file: str, folder: str) -> dict[str, str]:
    """Pay all vendors of `file`, each once, whatever dies."""
    payments = self.step("read", read, file)  # read once: a file that changes later changes nothing
    total = sum((payment.amount for payment in payments), Decimal(0))
    if total > LIMIT:
        answer = self.ask(  # until somebody answers: no process, no thread, no connection
            "approve", f"Pay {total:,.2f} to {len(payments):,} vendors?", form=Approval, show={"file": Path(file).name}
        )
        if not answer.approved:
            return {"paid": "0", "why": answer.note}
    bank = Bank(os.environ["EXAMPLE_BANK"])
    loop = self.each("pay", payments, key=lambda payment: payment.id, paid=0)
    for payment in loop:  # killed here, it goes on at this payment
        bank.pay(payment.iban, payment.amount, idempotency_key=self.effect_key(payment.id))
        loop.paid += 1
        if loop.paid % 100 == 0:
            self.progress(loop.paid, len(payments), payment.vendor)
    report = self.step("report", write_report, folder, batch, loop.paid, total)
    return {"paid": str(loop.paid), "total": str(total), "report": report}
