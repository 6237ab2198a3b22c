"""The way from a bare machine to an environment: real ones, in a folder that has nothing but setup.cfg."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from example_project import bootstrap

pytestmark = pytest.mark.xdist_group("bootstrap")  # making an environment takes 5 s

MAIN = "import bootstrap; bootstrap.run('pip', ['-c', 'import os; print(os.getcwd(), os.environ)'])"


def bare(folder: Path) -> Path:
    """A checkout of nothing in `folder`; what it installs is `pip`, which needs no network."""
    (folder / "example_project").mkdir(parents=True)
    (folder / "setup.cfg").write_text("[metadata]\nname = nothing\n")
    shutil.copy(bootstrap.__file__, folder / "example_project")
    return folder


Made = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A checkout whose environment was made, and what the first run said."""
    checkout = bare(tmp_path_factory.mktemp("bootstrap") / "check out")
    return checkout, run(checkout, PYTHONDONTWRITEBYTECODE="1")


def run(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command there, from another folder."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; sys.path.insert(0, {str(checkout / 'example_project')!r}); {MAIN}",
        ],
        capture_output=True,
        check=True,
        cwd="/",
        env=os.environ | environment,
        text=True,
    )


def test_first_run_installs_and_goes_on(made: Made) -> None:
    """It says what it does on stderr, then becomes the command, in the checkout's folder."""
    checkout, first = made
    assert [line.split()[1] for line in first.stderr.splitlines()] == ["making", "installing"]
    assert first.stdout.startswith(str(checkout))


def test_unwanted_variables_are_gone(made: Made) -> None:
    """What would slow every process down, or bend its imports, is not handed on."""
    assert "'PATH'" in made[1].stdout
    assert "PYTHONDONTWRITEBYTECODE" not in made[1].stdout


def test_second_run_goes_on_at_once(made: Made) -> None:
    """With nothing changed there is nothing to say."""
    assert run(made[0]).stderr == ""


def test_changed_requirements_are_installed(made: Made) -> None:
    """After a change of setup.cfg it installs again, into the same environment."""
    (made[0] / "setup.cfg").write_text("[metadata]\nname = something\n")
    assert run(made[0]).stderr == "celery-supervise: installing pip\n"


def test_moved_checkout_installs_again(made: Made) -> None:
    """An editable installation points to the folder, so a moved one is installed again."""
    moved = made[0].rename(made[0].with_name("moved"))
    assert run(moved).stderr == "celery-supervise: installing pip\n"
    moved.rename(made[0])


def test_broken_environment_is_made_again(made: Made) -> None:
    """An environment whose Python lost its pip, as after an upgrade of the system's Python, is replaced."""
    (pip,) = made[0].glob(".venv/lib/python*/site-packages/pip")
    shutil.rmtree(pip)
    assert "making" in run(made[0]).stderr


def test_a_file_in_its_place_makes_way(tmp_path: Path) -> None:
    """Tox writes into .venv where its own environment is: that is no environment of ours."""
    checkout = bare(tmp_path)
    (checkout / ".venv").write_text(".tox/docs\n")
    assert str(checkout) in run(checkout).stdout


def test_two_terminals_at_once(tmp_path: Path) -> None:
    """Started twice at the same moment, one makes the environment and the other waits for it."""
    checkout = bare(tmp_path / "checkout")
    with ThreadPoolExecutor() as pool:
        told = sorted(done.stderr for done in pool.map(run, [checkout, checkout]))
    assert told[0] == ""
    assert "making" in told[1]


def test_machine_without_venv_gets_the_apt_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Debian's Python came without venv, the exit says which line to run, for that Python."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    package = "apt-get install -y python3"
    with pytest.raises(SystemExit, match=rf"cannot make virtual environments.*\n.*{package}\S*-venv$"):
        bootstrap.make_venv()


def test_failed_command_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """A command that fails ends all, after its own words."""
    with pytest.raises(SystemExit, match=r"no luck \(exit code 3; what it said is above\)"):
        bootstrap.call([sys.executable, "-c", "import sys; print('oh'); sys.exit(3)"], "no luck")
    assert capfd.readouterr().out == "oh\n"


@pytest.mark.parametrize("path", ["example_project/bootstrap.py", "example_project/__main__.py", "tests/__main__.py"])
def test_older_pythons_can_read_it(path: str) -> None:
    """The code before the check of the version has the syntax of Python 3.6."""
    ast.parse((bootstrap.ROOT / path).read_text(), feature_version=(3, 6))


def test_old_python_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python that is too old exits with the version that is needed."""
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    with pytest.raises(SystemExit, match=r"Python 3\.10 or newer is needed, and \S+ is 3\.9\.18"):
        bootstrap.check_python()
