"""Become a command inside .venv, made on first use. Standard library only, as nothing is installed yet.

The syntax is that of Python 3.6, so that an older Python than ours gets the sentence that says so.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 10)
ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed"
# without bytecode `import celery` takes three times as long, in every process
UNWANTED = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH")


def run(requirement: str, argv: "list[str]") -> None:
    """Become `.venv/bin/python argv` in the project's folder, with `requirement` (pip's words) installed.

    Does not return. Exits with a message where the environment cannot be made.
    """
    check_python()
    for name in UNWANTED:
        os.environ.pop(name, None)
    os.chdir(str(ROOT))
    with one_at_a_time():
        install(requirement)
    os.execv(str(PYTHON), [str(PYTHON), *argv])  # noqa: S606 - the environment's own Python


def check_python() -> None:
    """Exit with a message where this Python is too old."""
    if sys.version_info < OLDEST:
        version = ".".join(str(part) for part in sys.version_info[:3])
        sys.exit(f"Python 3.10 or newer is needed, and {sys.executable} is {version}")


@contextlib.contextmanager
def one_at_a_time() -> "Iterator[None]":
    """Two terminals may start at the same moment. The lock is on the folder itself, so it leaves no file."""
    folder = os.open(str(ROOT), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def install(requirement: str) -> None:
    """Bring .venv to where `requirement` is installed, unless its stamp says that it is."""
    if not works():
        make_venv()
    wanted = key(requirement)
    if STAMP.exists() and wanted in STAMP.read_text().split():
        return
    say(f"installing {requirement}")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    call([*pip, *requirement.split()], f"pip could not install {requirement}")
    with STAMP.open("a") as stamp:
        stamp.write(wanted + "\n")


def works() -> bool:
    """Whether .venv has a Python that starts, with pip: not so once the system's Python is a newer minor."""
    check = [str(PYTHON), "-c", f"import pip, sys; sys.exit(sys.version_info < {OLDEST})"]
    return PYTHON.exists() and subprocess.call(check, stderr=subprocess.DEVNULL) == 0


def key(requirement: str) -> str:
    """What an installation depends on; the place too, since an editable one points to it."""
    parts = [requirement, str(ROOT), (ROOT / "setup.cfg").read_text(encoding="utf-8")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def make_venv() -> None:
    """Make .venv with this Python, or exit with the line that provides what is missing."""
    makers = [("ensurepip", "venv"), ("virtualenv", "virtualenv")]
    maker = next((maker for module, maker in makers if importlib.util.find_spec(module)), None)
    if maker is None:
        sys.exit(missing_venv())
    say(f"making {VENV}")
    if VENV.is_file():  # a note of where another environment is, as tox leaves one where there is none (4.67)
        VENV.unlink()
    call([sys.executable, "-m", maker, "--clear", str(VENV)], f"could not make {VENV}")


def missing_venv() -> str:
    """Debian and Ubuntu ship ensurepip apart from Python, for their own Python under the plain name."""
    plain = os.path.realpath(sys.executable) == os.path.realpath("/usr/bin/python3")
    package = "python3-venv" if plain else f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    sudo = "" if os.geteuid() == 0 else "sudo "
    return (
        f"{sys.executable} cannot make virtual environments. On Debian and Ubuntu, run this once:\n"
        f"  {sudo}apt-get update && {sudo}apt-get install -y {package}"
    )


def call(argv: "list[str]", failure: str) -> None:
    """Run a command whose own words, if any, come before ours."""
    code = subprocess.call(argv)
    if code != 0:
        sys.exit(f"{failure} (exit code {code}; what it said is above)")


def say(what: str) -> None:
    """To stderr: stdout belongs to the command that follows."""
    sys.stderr.write(f"celery-supervise: {what}\n")
    sys.stderr.flush()
