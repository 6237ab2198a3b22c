"""What a migration may do with what a job remembers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from celery_supervise.errors import InvalidInput, NotSerialisable, SuperviseError, TooLarge, Unreadable
from celery_supervise.model import Node, NodeKind, Stored
from celery_supervise.options import Options
from celery_supervise.remembered import Remembered
from celery_supervise.values import encode


@dataclass(frozen=True)
class Row:
    """What a step may return."""

    id: int


def encoded(value: Any, type_: Any = None) -> Stored:
    """A stored value."""
    return encode(value, limit=999, **({"type_": type_} if type_ else {}))


VALUES: dict[str, tuple[NodeKind, Stored | None]] = {
    "load": (NodeKind.STEP, encoded([1, 2])),
    "row": (NodeKind.STEP, encoded(Row(7), Row)),
    "here": (NodeKind.CHECKPOINT, None),
    "there": (NodeKind.CHECKPOINT, encoded({"x": 1})),
    "pay": (NodeKind.EACH, encoded({"last": "a", "done": False, "carried": {"paid": 3}})),
    "erased": (NodeKind.STEP, None),
}


def remembered(**limits: Any) -> Remembered:
    """A job's memory with one node of each kind."""
    nodes = {name: Node(name, kind, len(value.data) if value else 0) for name, (kind, value) in VALUES.items()}
    return Remembered(nodes, lambda name: VALUES[name][1], job_id="j", version=1, **limits)


def test_what_can_be_read() -> None:
    """Names, kinds, and values as the body knows them; what was stored under an annotation as that, or as JSON."""
    memory = remembered()
    assert memory.names == tuple(VALUES)
    assert ("load" in memory, "nothing" in memory) == (True, False)
    assert [memory.kind(name) for name in ("load", "here", "pay")] == ["step", "checkpoint", "each"]
    assert [memory.read(name) for name in ("load", "here", "there")] == [[1, 2], {}, {"x": 1}]
    assert (memory.read("row", Row), memory.read("row")) == (Row(7), {"id": 7})
    assert memory.read("pay")["carried"] == {"paid": 3}
    with pytest.raises(Unreadable):
        memory.read("erased")
    with pytest.raises(InvalidInput, match="does not remember 'nothing'; it remembers load, row"):
        memory.read("nothing")


def test_nothing_changed() -> None:
    """A migration that does nothing changes nothing but the version."""
    changed = remembered().changed("pay")
    assert (changed.gone, changed.renamed, changed.put, changed.node, changed.added) == ((), (), (), "pay", 0)


def test_renamed() -> None:
    """The value stays; the place that the job has reached is called so, too; names may be exchanged."""
    memory = remembered()
    memory.rename("load", "x")
    memory.rename("row", "load")
    memory.rename("x", "row")
    memory.rename("nothing", "something")
    memory.rename("here", "here")
    assert memory.names[:3] == ("row", "load", "here")
    assert memory.read("row") == [1, 2]
    changed = memory.changed("load")
    assert (changed.gone, changed.node, changed.put, changed.added) == (("load", "row"), "row", (), 0)
    assert sorted(changed.renamed) == [("load", "row"), ("row", "load")]
    with pytest.raises(InvalidInput, match="is remembered, too"):
        memory.rename("pay", "load")


def test_forgotten() -> None:
    """It is done again; the place reached is the last one of what is left; what is not there is no error."""
    memory = remembered()
    memory.forget("erased")
    memory.forget("pay")
    memory.forget("nothing")
    changed = memory.changed("pay")
    assert (changed.gone, changed.node) == (("pay", "erased"), "there")
    assert changed.added == -len(encoded({"last": "a", "done": False, "carried": {"paid": 3}}).data)
    for name in memory.names:
        memory.forget(name)
    assert memory.changed("pay").node is None


def test_written() -> None:
    """Another value at its place, under its name before or now; a new name is a step, after all others."""
    memory = remembered()
    memory.write("load", Row(1), Row)
    memory.rename("there", "everywhere")
    memory.write("everywhere", {"y": 2})
    memory.write("new", 5)
    assert (memory.read("load", Row), memory.read("everywhere"), memory.read("new")) == (Row(1), {"y": 2}, 5)
    changed = memory.changed("there")
    assert (changed.gone, changed.renamed, changed.node) == (("load", "there"), (), "everywhere")
    assert [(name, str(kind), origin) for name, kind, origin, _ in changed.put] == [
        ("load", "step", "load"),
        ("everywhere", "checkpoint", "there"),
        ("new", "step", None),
    ]
    sizes = sum(len(stored.data) for _, _, _, stored in changed.put)
    assert changed.added == sizes - len(encoded([1, 2]).data) - len(encoded({"x": 1}).data)


def fill(memory: Remembered) -> None:
    """More than a job may store."""
    for number in range(9):
        memory.write(f"n{number}", "x" * 90)


REFUSED: tuple[tuple[Callable[[Remembered], None], type[SuperviseError], str], ...] = (
    (lambda memory: memory.write("there", [1]), InvalidInput, "dict of its bindings"),
    (lambda memory: memory.write("pay", {"last": 1}), InvalidInput, "with last, done and carried"),
    (lambda memory: memory.write("load", (1, 2)), NotSerialisable, "give its type"),
    (lambda memory: memory.write("load", "x" * 200), TooLarge, "step 'load'"),
    (lambda memory: memory.write(" ", 1), InvalidInput, "blank"),
    (lambda memory: memory.rename("load", "a" * 256), TooLarge, "new"),
    (fill, TooLarge, "all that this job"),
)


@pytest.mark.parametrize(("change", "error", "text"), REFUSED)
def test_what_the_code_could_not_read_is_refused(
    change: Callable[[Remembered], None], error: type[SuperviseError], text: str
) -> None:
    """The shape of a node is that of its kind; values and their sum are limited as in a body."""
    with pytest.raises(error, match=text):
        change(remembered(max_value_bytes=100, max_job_bytes=500))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([1], "must be a dict"),
        ({2: print}, "does not run as they are, not 2"),
        ({1: print}, "does not run as they are, not 1"),
        ({0: print}, "not 0"),
        ({"3": print}, "not '3'"),
        ({3: "migrate"}, "3: must be a function"),
    ],
)
def test_options_that_cannot_work(given: Any, text: str) -> None:
    """Refused where they are written."""
    with pytest.raises(InvalidInput, match=text):
        Options(version=2, compatible_with=(1,), migrate=given)


def test_versions_of_options() -> None:
    """What runs as it is, and what runs once it is migrated; also a newer one, for a way back."""
    options = Options(version=3, compatible_with=(2,), migrate={1: lambda _: None, 4: lambda _: None})
    assert (options.runs, options.versions) == ((3, 2), (3, 2, 1, 4))
