"""The verbs of the API: tokens, and the server itself, as a person starts it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from example_project.processes import Process
from tests.celery.test_cli import Desk
from tests.celery.test_cli import desk as a_desk
from tests.tools import wait_for

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def desk(database_url: str) -> Iterator[Desk]:
    """A terminal, on this test's database."""
    yield from a_desk.__wrapped__(database_url)  # type: ignore[attr-defined]  # pytest wraps a fixture's function


def test_a_token_is_made_listed_and_taken_back(desk: Desk) -> None:
    """Its secret is shown once; the list has it without; taken back it stays in the list, and says so."""
    made = desk.run("token", "ci", "--scope", "owner", "--owner", "acme", "--lasts", "30d").stdout
    secret = made.splitlines()[0]
    assert re.fullmatch(r"sup_[\w-]{43}", secret)
    (listed,) = desk.read("tokens")["tokens"]
    assert (listed["name"], listed["scope"], listed["subject"], listed["owner"]) == ("ci", "owner", "ci", "acme")
    assert secret not in json.dumps(listed)
    assert secret not in desk.run("tokens").stdout
    assert "never" in desk.run("tokens").stdout
    assert desk.run("revoke", listed["id"]).stdout == "revoked: ci\n"
    assert "revoked" in desk.run("tokens").stdout


def test_a_token_that_cannot_be(desk: Desk) -> None:
    """An owner's token needs the owner; a scope that there is not, an id that there is not: a line and a code."""
    assert "is needed for the scope owner" in desk.run("token", "x", "--scope", "owner", code=2).stderr
    assert desk.run("token", "x", "--scope", "king", code=2).stderr
    assert "no id of a token" in desk.run("revoke", "x", code=2).stderr


def test_open_only_on_this_machine(desk: Desk) -> None:
    """Without a login it listens to nobody else."""
    for words in (("--host", "192.0.2.1"), ("--host", "example.com"), ("--uds", "x.sock")):
        assert "loopback" in desk.run("web", "--open", "--as", "ann", *words, code=2).stderr


def listening(log: Path) -> list[str]:
    """The address at which a server says that it listens."""
    return re.findall(r"running on (http://\S+)", log.read_text(encoding="utf-8"))


def test_the_server(database_url: str, tmp_path: Path) -> None:
    """`supervise web` serves; `--open` lets in whoever is on this machine, and no page elsewhere that points here."""
    env = {**os.environ, "TEST_DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "celery", "-A", "tests.celery.cli_app", "supervise", "web", "--port", "0"]
    for words, status in (((), 401), (("--open", "--as", "ann"), 200)):
        log = tmp_path / f"web{status}.log"
        with Process([*command, *words], log, cwd=ROOT, env=env):
            (at,) = wait_for(partial(listening, log), timeout=90, what="the server")
            assert httpx.get(f"{at}/jobs").status_code == status, log.read_text()
            assert httpx.get(f"{at}/health").status_code in {200, 503}
            if words:
                assert httpx.get(f"{at}/jobs", headers={"Host": "evil.example"}).status_code == 400
