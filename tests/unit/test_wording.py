"""What errors repeat of what was given, and the closed lists that they name."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest

from celery_supervise import errors, store
from celery_supervise.lifecycle import LOGGED
from celery_supervise.reasons import STOP_REASONS
from celery_supervise.store.sql import Plan, Statement
from celery_supervise.wording import LONGEST, cut, nearest, none_of, shown

LONG = "x" * 100_000


class Rude:
    """Something that cannot be written."""

    def __repr__(self) -> str:
        """Fails."""
        raise KeyError("rude")


@pytest.mark.parametrize("value", [LONG, LONG.encode(), [LONG], {LONG: 1}, 10**10_000, Rude()], ids=lambda _: "value")
def test_no_value_is_too_long_to_be_shown(value: object) -> None:
    """A few lines at most, whatever it is."""
    assert len(shown(value)) <= LONGEST + len("'…'")


def test_what_is_cut_has_a_mark() -> None:
    """Nobody takes a part for the whole."""
    assert shown(LONG) == repr("x" * (LONGEST - 1) + "…")
    assert cut("a" * LONGEST) == "a" * LONGEST


def test_a_word_that_is_none_of_many() -> None:
    """The nearest is named first, and all there are."""
    assert none_of("runing", ["a", "running"]) == "'runing' is none; did you mean 'running'? There are a, running"
    assert none_of(7, ["parked"]) == "7 is none; there are parked"
    assert nearest(LONG, ["parked"]) == ""


@pytest.mark.parametrize(
    "error",
    [
        errors.JobNotFound(LONG),
        errors.QuestionNotFound(LONG),
        errors.InvalidInput(LONG, "no"),
        errors.ConfigError(LONG, "no"),
        errors.NotSerialisable(LONG, "no"),
        errors.DuplicateName(LONG),
        errors.CursorLost("pay", LONG),
        errors.DuplicateKey("pay", LONG),
        errors.JobExists(LONG, idempotency_key=LONG),
        errors.QuotaExceeded(LONG, limit=1),
        errors.NeedsAnswer(LONG, given=[LONG]),
        errors.InvalidAnswer({LONG: ["no"]}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_error_repeats_a_long_text(error: BaseException) -> None:
    """Its attributes have all of it."""
    assert len(str(error)) < 1500
    assert LONG in str(vars(error))


def modules() -> Iterator[object]:
    """The modules of the store."""
    for found in pkgutil.iter_modules(store.__path__, store.__name__ + "."):
        yield importlib.import_module(found.name)


def test_every_stop_reason_of_a_statement_is_known() -> None:
    """The list that a filter is checked by has all that the statements write."""
    plans = [one for module in modules() for one in vars(module).values() if isinstance(one, Plan)]
    written = {found for plan in plans for sql in plan.reason.values() for found in re.findall(r"'([a-z_]+):?'", sql)}
    assert {"awaiting_user_answer", "stalled", "worker_lost"} <= written
    assert written <= set(STOP_REASONS)


def test_every_entry_that_a_statement_writes_is_known() -> None:
    """Likewise for the events of a log."""
    statements = [one for module in modules() for one in vars(module).values() if isinstance(one, Statement)]
    inserts = [part for one in statements for part in one.render("s", joined=False).split("INSERT INTO s.log ")[1:]]
    named = r"j\.id, [^,]+, '([a-z_]+)'|'([a-z_]+)' AS event"
    written = {found for part in inserts for pair in re.findall(named, part) for found in pair if found}
    assert {"submitted", "checkpoint", "refused", "reminded", "stalled", "settled", "lease_lost"} <= written
    assert written <= set(LOGGED)
