"""Which tox environments to run on what this machine has. Pure; imported where nothing is installed yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

# the pairs that exist: a Python and the Celery minors that support it
CELERY = {
    "3.10": ("54", "55", "56", "57"),
    "3.11": ("54", "55", "56", "57"),
    "3.12": ("54", "55", "56", "57"),
    "3.13": ("55", "56", "57"),
    "3.14": ("57",),
}
OLDEST, NEWEST = "3.10", "3.13"
OTHERS = ("lint", "wheel", "docs")


@dataclass(frozen=True)
class Machine:
    """What was found: Pythons as in CELERY, and the servers that the oldest environment wants."""

    pythons: Collection[str]
    postgres: bool
    redis: bool


def every_pair(machine: Machine) -> list[str]:
    """All environments that this machine can run: each Python with each of its Celerys."""
    pairs = [environment(python, celery) for python in found(machine) for celery in CELERY[python]]
    return [oldest(machine), *pairs, *OTHERS]


def both_ends(machine: Machine) -> list[str]:
    """The environments of every day: the oldest of everything and the newest of everything."""
    newest = found(machine)[-1]
    return [oldest(machine), environment(newest, CELERY[newest][-1]), *OTHERS]


def oldest(machine: Machine) -> str:
    """The oldest Python, Celery and libraries, with Debian's Postgres 15 and Redis where they are."""
    python = found(machine)[0]
    servers = [name for name, there in (("syspg", machine.postgres), ("sysredis", machine.redis)) if there]
    return "-".join([environment(python, CELERY[python][0]), "lowest", *servers])


def found(machine: Machine) -> list[str]:
    """The machine's Pythons that we know, oldest first."""
    return [python for python in CELERY if python in machine.pythons]


def environment(python: str, celery: str) -> str:
    """The name of a tox environment."""
    return f"py{python.replace('.', '')}-celery{celery}"


def missing(machine: Machine, *, every: bool) -> list[str]:
    """What the machine lacks for the whole of the run, a sentence each."""
    wanted = [python for python in CELERY if python <= NEWEST] if every else [OLDEST]
    lacking = [f"Python {python} was not found" for python in wanted if python not in machine.pythons]
    if not any(python >= NEWEST for python in found(machine)) and not every:
        lacking.append(f"no Python {NEWEST} or newer was found")
    if not machine.postgres:
        lacking.append("Postgres 15 was not found (Debian 12: apt-get install postgresql; or set PG_BINDIR)")
    if not machine.redis:
        lacking.append("Redis was not found (apt-get install redis-server; or set REDIS_SERVER)")
    return lacking
