"""The message of a job that goes on is the one that it came with: family, stamps, headers, masks, place in a canvas."""

from __future__ import annotations

from collections import defaultdict
from copy import deepcopy
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.canvas import StampingVisitor
from celery.exceptions import Reject

from celery_supervise import State, SupervisedTask
from tests.celery.site import Site, got
from tests.tools import wait_for

app = Celery("messages", set_as_current=False)
POOL = "threads"
seen: dict[str, list[dict[str, Any]]] = defaultdict(list)
FIELDS = (
    *("id", "root_id", "parent_id", "group", "group_index", "correlation_id", "reply_to", "origin", "shadow"),
    *("argsrepr", "kwargsrepr", "timelimit", "ignore_result", "stamps", "stamped_headers", "replaced_task_nesting"),
    *("args", "kwargs", "callbacks", "errbacks", "chain", "chord", "delivery_info", "expires", "eta", "utc"),
)
PASSING = {"redelivered", "delivery_tag"}


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def look(self: Any) -> None:
    """Keep what this task is told of its message."""
    request = self.request
    told = deepcopy({name: getattr(request, name, None) for name in FIELDS})  # 5.4 takes a chain's list apart
    told["delivery_info"] = {k: v for k, v in (told["delivery_info"] or {}).items() if k not in PASSING}
    told["tenant"] = (request.headers or {}).get("tenant")
    seen[str(request.id)].append(told)


def go_through(self: SupervisedTask) -> int:
    """A question, a retry, a hand-over: the body is entered five times."""
    look(self)
    answer = int(self.ask("first", "First?", schema={"type": "integer"}))
    if self.request.retries == 0:
        raise self.retry(countdown=0)
    if self.step("handed", lambda: self.attempt_id) == self.attempt_id:
        raise Reject("elsewhere", requeue=True)
    return answer + int(self.ask("second", "Second?", schema={"type": "integer"}))


for serializer in ("json", "pickle"):
    app.task(base=SupervisedTask, bind=True, shared=False, name=f"goes.{serializer}", serializer=serializer)(go_through)


@app.task(bind=True, shared=False)
def last(self: Any, value: Any) -> Any:
    look(self)
    return value


def went(shop: Site, result: Any) -> dict[str, Any]:
    """Answer both questions; what the body saw at each entry was the same."""
    shop.answer(result, 1)
    wait_for(lambda: len(seen[result.id]) == 4, what="the second question")
    shop.answer(result, 2)
    assert got(result) == 3
    entries = seen[result.id]
    assert len(entries) == 5
    changed = {name for entry in entries for name in entry if entry[name] != entries[0][name]}
    assert changed == set()
    return entries[0]


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_of_a_call(shop: Site, serializer: str) -> None:
    """Every option of a call holds for every part of the job."""
    goes: Any = app.tasks[f"goes.{serializer}"]
    result = goes.apply_async(
        headers={"tenant": "acme"},
        shadow="going",
        priority=5,
        argsrepr="(***)",
        time_limit=30,
        soft_time_limit=20,
        root_id="the root",
        parent_id="the parent",
        reply_to="somewhere",
        stamped_headers=["release"],
        release="r7",
        link=last.s(),
    )
    told = went(shop, result)
    assert (told["tenant"], told["shadow"], told["argsrepr"], told["timelimit"]) == ("acme", "going", "(***)", [30, 20])
    assert (told["root_id"], told["parent_id"], told["reply_to"]) == ("the root", "the parent", "somewhere")
    assert (told["stamps"], told["delivery_info"]["priority"]) == ({"release": "r7"}, 5)
    assert told["correlation_id"] == result.id


class Release(StampingVisitor):  # type: ignore[misc]  # untyped
    """Stamps each task of a canvas."""

    def on_signature(self, sig: Any, **headers: Any) -> dict[str, Any]:  # noqa: ARG002  # Celery's signature
        """Its stamps."""
        return {"release": "r7", "stamped_headers": ["release"]}


@app.task(base=SupervisedTask, bind=True, shared=False)
def again(self: Any, secret: str) -> None:
    look(self)
    if self.request.retries < 2:
        raise self.retry(countdown=0, args=(secret if self.request.retries == 0 else "public",))


def test_a_retry_hides_what_the_call_hid(shop: Site) -> None:
    """And its result is wanted as little, whatever Celery's version forgets. Other arguments are shown as they are."""
    result = again.apply_async(("secret",), argsrepr="(***)", ignore_result=True)
    shop.wait(result, State.COMPLETED)
    shop.settled(result)
    assert [entry["argsrepr"] for entry in seen[result.id]] == ["(***)", "(***)", "('public',)"]
    assert [entry["ignore_result"] for entry in seen[result.id]] == [True] * 3


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_s24_in_a_canvas(shop: Site, serializer: str) -> None:
    """Place, family and stamps of a member, and of what follows it, are those of a canvas that never waited."""
    goes = app.tasks[f"goes.{serializer}"]
    canvas = chain(last.s(1), chord([goes.si(), last.si(0)], last.s()), last.s())
    canvas.stamp(visitor=Release())
    result = canvas()
    (question,) = wait_for(
        lambda: [one for one in shop.supervise.questions() if one.status == "pending"], what="the question"
    )
    member = app.AsyncResult(question.job_id)
    told = went(shop, member)
    assert got(result) == [3, 0]
    root = result.parent.parent.parent.id if hasattr(result.parent.parent, "parent") else result.parent.parent.id
    assert told["root_id"] == root
    assert (told["parent_id"], told["group_index"]) == (root, 0)
    assert {entry["stamps"]["release"] for entries in seen.values() for entry in entries} == {"r7"}
    assert {entry["root_id"] for entries in seen.values() for entry in entries} == {root}
    assert sum(len(entries) for entries in seen.values()) == 5 + 4


def test_of_an_immutable_signature(shop: Site) -> None:
    """It takes no result of what came before, and keeps its own options."""
    flow = chain(last.s(7), app.tasks["goes.json"].si().set(headers={"tenant": "acme"}, priority=3), last.si("deaf"))
    result = flow()
    told = went(shop, result.parent)
    assert (told["args"], told["tenant"], told["delivery_info"]["priority"]) == ([], "acme", 3)
    assert got(result) == "deaf"


def test_of_a_group(shop: Site) -> None:
    """Each member keeps its index."""
    result = group(app.tasks["goes.json"].si() for _ in range(2))()
    assert [went(shop, member)["group_index"] for member in result.results] == [0, 1]
    assert got(result) == [3, 3]
