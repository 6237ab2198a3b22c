"""What setup.cfg says against what is there."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def setup_cfg() -> ConfigParser:
    """The file, read as setuptools reads it."""
    config = ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    return config


def packages(folder: Path, name: str) -> set[str]:
    """The names of the package in `folder` and of all below it."""
    inner = {path.parent.relative_to(folder) for path in folder.rglob("__init__.py")}
    return {".".join((name, *path.parts)) for path in inner}


def test_every_package_is_listed() -> None:
    """Each folder with an __init__.py is in the wheel, migrations/ as celery_supervise.migrations."""
    there = packages(ROOT / "celery_supervise", "celery_supervise")
    there |= packages(ROOT / "migrations", "celery_supervise.migrations")
    assert set(setup_cfg()["options"]["packages"].split()) == there


def test_every_python_is_declared() -> None:
    """The Pythons that the tests run on are those of the classifiers."""
    declared = [
        line.rpartition(" ")[2]
        for line in setup_cfg()["metadata"]["classifiers"].splitlines()
        if "Python :: 3." in line
    ]
    assert declared == ["3.10", "3.11", "3.12", "3.13"]
