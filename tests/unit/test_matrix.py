"""Which environments `python3 tests` runs, on machines of every kind."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from tests.matrix import CELERY, Machine, both_ends, every_pair, missing

ROOT = Path(__file__).resolve().parents[2]
ALL = ("3.10", "3.11", "3.12", "3.13")


def test_both_ends_are_the_oldest_and_the_newest() -> None:
    """With everything there: the oldest with the system's servers, the newest with the embedded ones."""
    machine = Machine(ALL, postgres=True, redis=True)
    assert both_ends(machine) == [
        "py310-celery54-lowest-syspg-sysredis",
        "py313-celery57",
        "lint",
        "wheel",
        "docs",
    ]
    assert missing(machine, every=False) == []


def test_one_python_is_enough() -> None:
    """With one Python and no server both ends run on it, and what is missing is named."""
    machine = Machine(("3.12",), postgres=False, redis=False)
    assert both_ends(machine) == ["py312-celery54-lowest", "py312-celery57", "lint", "wheel", "docs"]
    lacking = missing(machine, every=False)
    assert [sentence.split(" was")[0] for sentence in lacking] == [
        "Python 3.10",
        "no Python 3.13 or newer",
        "Postgres 15",
        "Redis",
    ]


def test_every_pair_is_what_tox_lists() -> None:
    """`--all` on a machine with every Python runs all that tox.ini has, and the oldest of everything."""
    config = ConfigParser()
    config.read(ROOT / "tox.ini")
    assert len(config["tox"]["env_list"].split()) == 5
    pairs = {f"py{python.replace('.', '')}-celery{celery}" for python in ALL for celery in CELERY[python]}
    asked = every_pair(Machine(ALL, postgres=True, redis=True))
    assert set(asked) == pairs | {"py310-celery54-lowest-syspg-sysredis", "lint", "wheel", "docs"}
    assert len(asked) == len(set(asked)) == 19


def test_every_missing_python_is_named() -> None:
    """`--all` misses each Python that is not there."""
    machine = Machine(("3.11",), postgres=True, redis=True)
    assert [sentence.split()[1] for sentence in missing(machine, every=True)] == ["3.10", "3.12", "3.13"]
