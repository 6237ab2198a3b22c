"""Values that are encrypted: nothing of them is plain in the tables, keys change while jobs wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet

from celery_supervise import ConfigError, State, SupervisedTask, queries
from celery_supervise.contrib.encryption import FernetCodec
from celery_supervise.errors import InvalidInput, Unreadable
from celery_supervise.model import Stored
from celery_supervise.values import Codec
from tests import pages
from tests.celery.site import Site, got, working
from tests.pages import DOCS
from tests.tools import wait_for

OpenSite = Callable[..., Site]
OLD, NEW = Fernet.generate_key(), Fernet.generate_key()
SECRET = "of-nobody-elses-business"


class Keyring:
    """A codec as an app has it: one object, whose keys are those of today."""

    def __init__(self) -> None:
        self.codec: Codec = FernetCodec({"old": OLD})

    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        """By today's."""
        return self.codec.encode(data)

    def decode(self, data: bytes, key_id: str | None) -> bytes:
        """Likewise."""
        return self.codec.decode(data, key_id)


RING = Keyring()


@pytest.fixture
def site(open_site: OpenSite) -> Site:
    """An app whose values are encrypted."""
    RING.codec = FernetCodec({"old": OLD})
    return open_site(supervise_codec=f"{__name__}:RING")


def approve(self: SupervisedTask, what: str) -> str:
    step = self.step("load", str, what)
    said = self.ask("ok", f"{step}?", choices=["yes", "no"], show=what, approvals=2, to=["ann", "bob"])
    return f"{step} {said}"


def echo(self: SupervisedTask, what: str) -> str:
    return what


def fail(self: SupervisedTask, what: str) -> None:
    raise ValueError(what)


def make(site: Site, body: Callable[..., Any]) -> Any:
    """A task of the site's."""
    return site.app.task(base=SupervisedTask, bind=True, shared=False, name=f"site.{body.__name__}")(body)


def everything(site: Site) -> bytes:
    """All bytes that are stored as values."""
    with site.runtime.engines().connect() as connection:
        found = connection.exec_driver_sql(
            "SELECT data FROM supervise.payloads UNION ALL SELECT data FROM supervise.checkpoints"
            " UNION ALL SELECT question_data FROM supervise.questions UNION ALL SELECT answer FROM supervise.questions"
            " UNION ALL SELECT value FROM supervise.votes"
        )
        return b"\n".join(bytes(data) for (data,) in found if data is not None)


def test_nothing_is_plain_in_the_tables(site: Site) -> None:
    """Arguments, steps, questions, votes, answers, results, errors; all of them come back."""
    task, failing = make(site, approve), make(site, fail)
    with working(site):
        result = task.delay(SECRET)
        question = site.parked(result)
        assert site.supervise.content(question)["prompt"] == f"{SECRET}?"
        for person in ("ann", "bob"):
            site.supervise.answer(question.id, "yes", actor=f"user:{person}")
        assert got(result) == f"{SECRET} yes"
        failed = failing.delay(SECRET)
        site.wait(failed, State.FAILED)
    assert site.supervise.result(result.id) == f"{SECRET} yes"
    stored = everything(site)
    assert stored.count(b"gAAAA") >= 8
    assert SECRET.encode() not in stored
    assert b"yes" not in stored


def test_a_job_outlives_its_key(site: Site) -> None:
    """It was accepted under the old key, waits, and goes on under the new one; each value keeps the id of its own."""
    task = make(site, approve)
    with working(site):
        result = task.delay(SECRET)
        question = site.parked(result)
        RING.codec = FernetCodec({"new": NEW, "old": OLD})
        for person in ("ann", "bob"):
            site.supervise.answer(question.id, "no", actor=f"user:{person}")
        assert got(result) == f"{SECRET} no"
    (block,) = pages.blocks(DOCS / "encryption.md", "sql")
    with site.runtime.engines().connect() as connection:
        counted = {row[0]: row[1] for row in connection.exec_driver_sql(block.text.replace(";", ""))}
    assert counted == {"new": 4, "old": 3}


def test_a_key_that_is_gone(site: Site) -> None:
    """A waiting job stays, unsent, with its bytes; with the key it goes on. What is read says what is missing."""
    task = make(site, approve)
    later = task.apply_async((SECRET,), countdown=0.001)
    RING.codec = FernetCodec({"new": NEW})
    wait_for(lambda: site.runtime.relay.run_once().released)
    assert site.messages() == []
    stored = queries.payload(site.runtime.door, later.id, "envelope")
    assert stored is not None
    assert stored.key_id == "old"
    RING.codec = FernetCodec({"new": NEW, "old": OLD})
    with working(site):
        site.parked(later)
    site.supervise.cancel(later.id, actor="user:ann")


def test_a_result_whose_key_is_gone(site: Site) -> None:
    """It is said which key it was; what was too late to count is read likewise."""
    task = make(site, echo)
    with working(site):
        result = task.delay(SECRET)
        site.settled(result)
    RING.codec = FernetCodec({"new": NEW})
    with pytest.raises(Unreadable, match=r"result cannot be read back: .*no key 'old'"):
        site.supervise.result(result.id)


def test_a_key_server_that_is_away(site: Site) -> None:
    """One message that cannot be opened holds up nobody, and is tried again."""

    class Away(Keyring):
        def decode(self, data: bytes, key_id: str | None) -> bytes:
            if key_id == "old":
                raise ConnectionError(f"{len(data)} bytes of {key_id}")
            return FernetCodec({"new": NEW}).decode(data, key_id)

    task = make(site, approve)
    first = task.apply_async((SECRET,), countdown=0.001)
    RING.codec = FernetCodec({"new": NEW})
    second = task.apply_async((SECRET,), countdown=0.001)
    RING.codec = Away()
    wait_for(lambda: site.runtime.relay.run_once().published)
    assert [message["headers"]["id"] for message in site.messages()] == [second.id]
    assert site.job(first).state is State.PENDING


@pytest.mark.parametrize(
    ("keys", "error"),
    [({}, ConfigError), ({"k": "too short"}, ConfigError), ({"k": None}, ConfigError), ({" ": OLD}, InvalidInput)],
    ids=["none", "short", "None", "unnamed"],
)
def test_keys_that_are_none(keys: dict[str, Any], error: type[Exception]) -> None:
    """Refused where the codec is made; what was given is not repeated."""
    with pytest.raises(error) as refused:
        FernetCodec(keys)
    assert "too short" not in str(refused.value)


def test_what_the_key_has_not_signed() -> None:
    """Changed bytes, another key of the same id, plain bytes: an error that says so."""
    codec = FernetCodec({"k": OLD})
    data, key_id = codec.encode(b"1")
    with pytest.raises(ValueError, match="not as it was encrypted"):
        codec.decode(data[:-4] + b"AAA=", key_id)
    with pytest.raises(ValueError, match="that key has changed"):
        FernetCodec({"k": NEW}).decode(data, key_id)
    with pytest.raises(ValueError, match="reads_plain"):
        codec.decode(b"1", None)
    assert FernetCodec({"k": OLD}, reads_plain=True).decode(b"1", None) == b"1"


def test_the_page_runs(open_site: OpenSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of docs/encryption.md: a codec that stores long values elsewhere, encrypted."""

    class Store(dict[str, bytes]):
        put = dict.__setitem__

    site = open_site()
    names: dict[str, Any] = {
        "app": site.app,
        "environ": {"KEY_2026_11": NEW, "KEY_2026_05": OLD},
        "SupervisedTask": SupervisedTask,
        "make_and_upload": lambda month: f"{month}.pdf",
        "count_pages": len,
    }
    for block in pages.blocks(DOCS / "encryption.md", "python"):
        exec(block.compiled(), names)  # type: ignore[arg-type]  # noqa: S102  # our own page
    assert site.app.conf.supervise_codec == "proj.secrets.CODEC"
    store = Store()
    RING.codec = names["Outside"](store, names["CODEC"])
    monkeypatch.setitem(site.app.conf, "supervise_codec", f"{__name__}:RING")
    with working(site):
        result = names["report"].delay("x" * 200_000)
        assert got(result) == 200_004
    assert len(store) >= 2
    short, long = (RING.codec.encode(b"x" * length) for length in (10, 100_000))
    assert (short[1], long[1]) == ("here:2026-11", "outside:2026-11")
    assert len(long[0]) == 64
    assert Stored(*long, "x").data.decode() in store
    for kept in (short, long):
        assert RING.codec.decode(*kept).strip(b"x") == b""
