"""What the migrations need beside their Python files goes into the wheel."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"celery_supervise.migrations": "migrations", "celery_supervise.migrations.versions": "migrations/versions"}


def test_every_file_is_packaged() -> None:
    """Each file of the two packages that is no Python matches a pattern of `package_data` in setup.cfg."""
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    for package, folder in FOLDERS.items():
        there = {path for path in (ROOT / folder).iterdir() if path.is_file() and path.suffix not in {".py", ".pyc"}}
        patterns = setup["options.package_data"][package].split()
        assert there == {path for pattern in patterns for path in (ROOT / folder).glob(pattern)}
