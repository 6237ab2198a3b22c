"""Jobs that Flower starts, by its HTTP API: what its pages use, too."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from celery_supervise import State
from example_project.machine import HOST, free_port
from example_project.processes import Process
from tests.acceptance.project import SHOP
from tests.acceptance.shop import ROOT, Shop
from tests.tools import wait_for

NAME = "tests.acceptance.bodies"


class Flower:
    """A Flower of the shop."""

    def __init__(self, port: int) -> None:
        self.api = f"http://{HOST}:{port}/api"

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            return self.call("workers") is not None
        except OSError:
            return False

    def call(self, path: str, **body: Any) -> Any:
        """GET, or POST where there is something to send."""
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(f"{self.api}/{path}", data=data)  # noqa: S310  # a server of ours
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  # likewise
            return json.load(answer)


@pytest.fixture(scope="module")
def flower(common: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """A real one, in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "celery", "-A", "tests.acceptance.serve", "flower"]
    environment = {SHOP: common.place.dump(), "PYTHONPATH": str(ROOT), "FLOWER_UNAUTHENTICATED_API": "true"}
    with Process(
        [*command, f"--port={port}", f"--address={HOST}"],
        tmp_path_factory.mktemp("flower") / "log",
        cwd=ROOT,
        env={**os.environ, **environment},
    ) as process:
        found = Flower(port)
        wait_for(lambda: found.ready() or not process.running, timeout=40, what="Flower's start")
        assert process.running, process.tail()
        yield found


def test_apply(shop: Shop, flower: Flower) -> None:
    """`apply`, `async-apply` and `send-task` make jobs; one that asks is seen as PARKED, then its result."""
    told = flower.call(f"task/apply/{NAME}.add", args=[1, 2])
    assert (told["state"], told["result"]) == ("SUCCESS", 3)
    asked = shop.app.AsyncResult(flower.call(f"task/async-apply/{NAME}.approve", args=[5])["task-id"])
    named = shop.app.AsyncResult(flower.call(f"task/send-task/{NAME}.approve", args=[6])["task-id"])
    for result, born in ((asked, "producer"), (named, "message")):
        wait_for(lambda: shop.supervise.jobs(prefix=result.id)[1], what="the job")  # noqa: B023  # called at once
        shop.parked(result)
        assert shop.entries(result)[0].actor == born
        wait_for(
            lambda: flower.call(f"task/result/{result.id}")["state"] == "PARKED",  # noqa: B023  # called at once
            what="the state",
        )
        shop.answer(result, "yes")
        assert flower.call(f"task/result/{result.id}?timeout=20")["result"] == "yes"
    assert sorted(shop.effects()) == ["add 1 2", "load 5", "load 6", "pay 5", "pay 6"]


def test_apply_that_waits(shop: Shop, flower: Flower) -> None:
    """`apply` waits no longer than it is told to, and says that the job is parked."""
    told = flower.call(f"task/apply/{NAME}.approve", args=[7], timeout=0.5)
    result = shop.app.AsyncResult(told["task-id"])
    wait_for(lambda: result.state == "PARKED", what="the state")
    assert told["state"] in {"PARKED", "PENDING"}
    shop.answer(result, "no")
    assert result.get(timeout=20) == "no"


def test_revoke(shop: Shop, flower: Flower) -> None:
    """*Revoke* cancels a job that is parked; *Terminate* ends the process of one that runs."""
    parked, running = shop.send("approve", 8), shop.send("stand", "flower's")
    shop.parked(parked)
    shop.at("flower's")
    assert parked.id in flower.call(f"task/revoke/{parked.id}", sent=True)["message"]
    assert running.id in flower.call(f"task/revoke/{running.id}?terminate=true", sent=True)["message"]
    for result in (parked, running):
        shop.wait(result, State.CANCELLED)
        wait_for(lambda: flower.call(f"task/result/{result.id}")["state"] == "REVOKED", what="the state")  # noqa: B023  # called at once
