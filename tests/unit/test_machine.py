"""Private folders: gone with their process, at the latest when the next one is made."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from example_project.machine import OWNER, clear_left, private_folder
from tests.pages import ROOT

HOLDS_ONE = """
import sys, time
from pathlib import Path
from example_project.machine import private_folder
with private_folder("test", None, parent=Path(sys.argv[1])) as folder:
    (folder / "data").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@contextmanager
def holder(place: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with a private folder in `place`."""
    command = [sys.executable, "-c", HOLDS_ONE, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_what_a_killed_process_left_goes_with_the_next(tmp_path: Path) -> None:
    """Its own could not be deleted; that of a process that lives stays, and so does one of this process."""
    with holder(tmp_path) as (dead, left), holder(tmp_path) as (_, used), private_folder("own", None, parent=tmp_path):
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert (left / "data").exists()
        with private_folder("test", None, parent=tmp_path) as own:
            assert not left.exists()
            assert (used / "data").exists()
            assert len(list(tmp_path.iterdir())) == 3
        assert not own.exists()


def test_what_only_looks_like_one_stays(tmp_path: Path) -> None:
    """A folder of that name that is not ours, or a link to somewhere else, is not touched."""
    other, elsewhere = tmp_path / "supervise-of-somebody", tmp_path / "elsewhere"
    for folder in (other, elsewhere):
        folder.mkdir()
        (folder / "data").touch()
    (elsewhere / OWNER).touch()
    (tmp_path / "supervise-link").symlink_to(elsewhere)
    (other / OWNER).symlink_to(elsewhere / OWNER)
    clear_left(tmp_path)
    assert (other / "data").exists()
    assert (elsewhere / "data").exists()
