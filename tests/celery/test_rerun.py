"""Jobs that are run again, with a worker: what their message says, what is remembered, what is called afterwards."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from celery import Celery, chain

from celery_supervise import State, SupervisedTask
from celery_supervise.envelope import of_call
from celery_supervise.errors import Unreadable
from celery_supervise.renewing import renewed
from tests.celery.site import Site
from tests.tools import wait_for

app = Celery("rerun", set_as_current=False)
calls: list[str] = []
broken: list[str] = []
JSON = {"application/json"}


@pytest.fixture(autouse=True)
def _forget() -> None:
    calls.clear()
    broken.clear()


@app.task(base=SupervisedTask, bind=True, shared=False)
def pay(self: Any, amount: int) -> int:
    """Loads, then pays, unless the bank is broken."""
    self.step("load", lambda: calls.append("load"))
    if broken:
        raise ValueError(broken[0])
    calls.append("pay")
    return amount


@app.task(base=SupervisedTask, shared=False)
def after(amount: int) -> int:
    """What comes next."""
    calls.append(f"after {amount}")
    return amount


@app.task(shared=False)
def alarm(*_: Any) -> None:
    """What is called where it fails."""


def failed(shop: Site, signature: Any) -> Any:
    """Send it while the bank is broken; the result of its first task."""
    broken.append("no")
    result = signature.apply_async()
    while result.parent is not None:
        result = result.parent
    shop.wait(result, State.FAILED)
    shop.settled(result)
    broken.clear()
    return result


def rerun(shop: Site, result: Any, **options: Any) -> Any:
    """Run it again, to its end."""
    made = shop.supervise.rerun(result.id, actor="user:ann", **options)
    again = pay.AsyncResult(made.job_id)
    shop.wait(again, State.COMPLETED)
    return again


def test_from_the_start(shop: Site) -> None:
    """Everything is done again; the new job has a result of its own, the old one stays failed."""
    old = failed(shop, pay.s(7))
    again = rerun(shop, old)
    assert again.get(timeout=20) == 7
    assert calls == ["load", "load", "pay"]
    with pytest.raises(ValueError, match="no"):
        old.get(timeout=20)


def test_from_the_checkpoints(shop: Site) -> None:
    """What the old job had done is not done again."""
    rerun(shop, failed(shop, pay.s(7)), from_checkpoints=True)
    assert calls == ["load", "pay"]


def test_a_chain_does_not_go_on_by_itself(shop: Site) -> None:
    """Without `with_callbacks` nothing that was linked is called."""
    again = rerun(shop, failed(shop, chain(pay.s(7), after.s())))
    shop.settled(again)
    assert calls == ["load", "load", "pay"]
    assert shop.messages(shop.queue) == []


def test_a_chain_goes_on_with_callbacks(shop: Site) -> None:
    """Its next task runs, with the id that its caller waits for."""
    broken.append("no")
    whole = chain(pay.s(7), after.s()).apply_async()
    shop.wait(whole.parent, State.FAILED)
    shop.settled(whole.parent)
    broken.clear()
    rerun(shop, whole.parent, with_callbacks=True)
    # Celery had told its caller of the failure; now there is a result
    wait_for(lambda: after.AsyncResult(whole.id).state == "SUCCESS")
    assert after.AsyncResult(whole.id).get(timeout=20) == 7


def test_what_was_called_before_is_called_anew(shop: Site) -> None:
    """A link of a job that completed has run: run again with callbacks, it runs as another job."""
    result = pay.apply_async((7,), link=after.s())
    shop.wait(result, State.COMPLETED)
    wait_for(lambda: calls.count("after 7") == 1)
    rerun(shop, result, with_callbacks=True)
    wait_for(lambda: calls.count("after 7") == 2)


# --- the message -----------------------------------------------------------------------------------------


def message(**options: Any) -> Any:
    """The message of a job, with everything that can be linked to one."""
    linked = {
        "link": [after.s()],
        "link_error": [alarm.si()],
        "chain": [dict(after.s().set(task_id="next"))],
        "chord": dict(after.s().set(task_id="body")),
        "group_id": "group",
        "group_index": 1,
        "retries": 3,
    }
    return of_call(app, pay, "old", (7,), {}, {**linked, **options})


def test_the_message_of_a_job_that_is_run_again(shop: Site) -> None:
    """The same arguments and headers but for its id; nothing linked, no member of a group."""
    old = message()
    new = renewed(old, "new", with_callbacks=False, completed=False, accept=JSON)
    args, kwargs, embed = new.content()
    assert (args, kwargs, set(embed.values())) == ([7], {}, {None})
    changed = {name for name in old.headers if old.headers[name] != new.headers[name]}
    assert changed == {"id", "root_id", "retries", "group", "group_index"}
    assert (new.headers["id"], new.headers["root_id"], new.headers["retries"]) == ("new", "new", 0)
    assert new.properties["correlation_id"] == "new"
    assert (new.queue, new.routing_key, new.content_type) == (old.queue, old.routing_key, old.content_type)


def test_a_job_of_a_family_keeps_its_root(shop: Site) -> None:
    """One that was another's child stays in that family."""
    old = message(root_id="root", parent_id="parent")
    headers = renewed(old, "new", with_callbacks=True, completed=False, accept=JSON).headers
    assert (headers["root_id"], headers["parent_id"], headers["group"]) == ("root", "parent", "group")


@pytest.mark.parametrize("completed", [True, False])
def test_what_was_sent_gets_new_ids(shop: Site, completed: bool) -> None:
    """Errbacks of a job that did not complete, the rest of one that did; the others keep the ids people wait for."""
    old = message()
    before, after_ = old.content()[2], renewed(old, "new", with_callbacks=True, completed=completed, accept=JSON)
    now = after_.content()[2]

    def ids(embed: Any) -> dict[str, str]:
        return {
            name: (part[0] if isinstance(part, list) else part)["options"]["task_id"] for name, part in embed.items()
        }

    kept = {name for name, identity in ids(now).items() if ids(before)[name] == identity}
    assert kept == ({"errbacks"} if completed else {"callbacks", "chain", "chord"})
    assert len(set(ids(now).values())) == 4


def test_a_message_that_is_not_accepted_is_not_read(shop: Site) -> None:
    """A process that accepts no pickle loads none, whatever a row says."""
    with pytest.raises(Unreadable, match="python-serialize"):
        renewed(message(serializer="pickle"), "new", with_callbacks=False, completed=False, accept=JSON)


def test_a_job_of_pickled_arguments_is_run_again(shop: Site) -> None:
    """Where the app accepts pickle, it is the same in the new message."""
    identity = uuid4()
    broken.append("no")
    result = pay.apply_async((identity,), serializer="pickle")
    shop.wait(result, State.FAILED)
    broken.clear()
    rerun(shop, result)
    assert calls[-1] == "pay"
