"""Names in `to=`: who is meant, who is one person, and which recipients could never decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_supervise import refusals
from celery_supervise.errors import ConfigError, InvalidInput
from celery_supervise.model import Question
from celery_supervise.recipients import Answerer, asked_of, check_recipients, person

NOTHING: dict[str, Any] = dict.fromkeys(Question.__dataclass_fields__)
QUESTION = Question(**{**NOTHING, "to": (), "approvals": 1, "self_approval": False})


def may(question: Question, who: Answerer) -> str | None:
    """The code of the refusal, None where this person may answer."""
    refused = refusals.not_allowed(question, who)
    return None if refused is None else refused.code


@given(name=st.text(min_size=1), ways=st.lists(st.sampled_from(["user:", "cli:"])))
def test_the_way_somebody_came_in_is_not_who_they_are(name: str, ways: list[str]) -> None:
    """However many ways stand before a name, it is the same person: no second way is a second vote."""
    assert person("".join(ways) + name) == person(name)


@pytest.mark.parametrize("actor", ["worker:w@host", "sweep", "user:", "group:finance", "Ann"])
def test_all_else_is_a_name_of_its_own(actor: str) -> None:
    """Other prefixes are part of the name, and case counts."""
    assert person(actor) == actor


@pytest.mark.parametrize(
    ("to", "who", "code"),
    [
        ((), Answerer("user:ann"), None),
        (("ann",), Answerer("user:ann"), None),
        (("user:ann",), Answerer("cli:ann"), None),
        (("cli:ann", "bob"), Answerer("ann"), None),
        (("ann",), Answerer("user:Ann"), "not_assigned"),
        (("ann",), Answerer("user:anna"), "not_assigned"),
        (("group:finance",), Answerer("user:ann"), "not_assigned"),
        (("group:finance",), Answerer("user:ann", frozenset({"it"})), "not_assigned"),
        (("group:finance",), Answerer("user:ann", frozenset({"it", "finance"})), None),
        (("group:finance",), Answerer("user:ann", frozenset({"group:finance"})), None),
        (("group:finance", "ann"), Answerer("user:ann"), None),
        (("finance",), Answerer("user:ann", frozenset({"finance"})), "not_assigned"),
        (("group:finance",), Answerer("cli:group:finance"), "not_assigned"),
        (("group:finance",), Answerer("group:finance"), "not_assigned"),
    ],
)
def test_who_is_meant(to: tuple[str, ...], who: Answerer, code: str | None) -> None:
    """Nobody named: whoever may call. Else the persons named, and the members of the groups; no name is a group's."""
    assert may(replace(QUESTION, to=to), who) == code


@pytest.mark.parametrize(
    ("owner", "allowed", "code"),
    [
        ("ann", False, "self_approval"),
        ("user:ann", False, "self_approval"),
        ("ann", True, None),
        ("acme", False, None),
        (None, False, None),
    ],
)
@pytest.mark.parametrize("actor", ["ann", "user:ann", "cli:ann"])
def test_nobody_answers_for_their_own_job(owner: str | None, allowed: bool, code: str | None, actor: str) -> None:  # noqa: FBT001  # a parameter of the test
    """By whatever way the owner comes, and though they are named; a tenant is nobody's name."""
    question = replace(QUESTION, owner_id=owner, self_approval=allowed, to=("ann", "bob"))
    assert may(question, Answerer(actor)) == code


@pytest.mark.parametrize(
    ("to", "given"),
    [
        (("group:finance",), {"groups": False}),
        (("ann",), {"barred": "ann"}),
        (("user:ann",), {"barred": "ann"}),
        (("ann",), {"approvals": 2}),
        (("ann", "user:ann", "cli:ann"), {"approvals": 2}),
        (("ann", "bob"), {"approvals": 2, "barred": "bob"}),
    ],
)
def test_recipients_who_could_never_decide(to: tuple[str, ...], given: dict[str, Any]) -> None:
    """A question that nobody, or too few, could ever answer is a mistake where it is asked."""
    with pytest.raises(InvalidInput) as refused:
        check_recipients(to, **{"approvals": 1, "barred": None, "groups": True, **given})
    assert refused.value.field == "to"


def test_the_owner_is_named_as_who_does_not_count() -> None:
    """Where two are named and one of them is the owner, the refusal says why two are one."""
    with pytest.raises(InvalidInput, match="names 1 who may answer, without bob, who owns the job, and approvals=2"):
        check_recipients(("ann", "bob"), approvals=2, barred="bob", groups=True)


@pytest.mark.parametrize("to", [(), ("ann", "bob"), ("group:finance",)])
def test_recipients_who_may_decide(to: tuple[str, ...]) -> None:
    """Whoever may call, enough persons, a group."""
    check_recipients(to, approvals=2, barred="carl", groups=True)


def broken(actor: str) -> Iterable[str]:
    """A shop's function with a mistake."""
    raise KeyError(actor)


@pytest.mark.parametrize("function", [broken, lambda _: "finance", lambda _: [7], lambda _: [""], lambda _: None])
def test_groups_that_are_none(function: Any) -> None:
    """What a shop's function cannot give, nobody is a member of: the setting is named, and the actor."""
    with pytest.raises(ConfigError, match=r"supervise_groups: shop\.groups .*'user:ann'"):
        asked_of(function, "shop.groups")("user:ann")


def test_groups_that_are_some() -> None:
    """Any iterable of names will do."""
    assert list(asked_of(lambda _: {"finance"}, "shop.groups")("user:ann")) == ["finance"]
