"""`python3 tests`: everything, through tox, on a machine that has only Python. Decides which environments.

    python3 tests                      the oldest and the newest of everything, lint, wheel, docs
    python3 tests --all                every pair of Python and Celery
    python3 tests -e py313-celery57    tox's own options
    python3 tests -- -k parked         pytest's own options, after the dashes

An interpreter or a server that is missing is a failure where CI is set; elsewhere it is said and done
without.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "example_project"), str(ROOT)]

import bootstrap  # type: ignore[import-not-found]  # noqa: E402 - on sys.path from here on

bootstrap.check_python()

from tests import matrix  # noqa: E402 - of a newer syntax than the check above

REQUIREMENT = "tox>=4.23"
POSTGRES = Path(os.environ.get("PG_BINDIR") or "/usr/lib/postgresql/15/bin")
REDIS = Path(os.environ.get("REDIS_SERVER") or "/usr/bin/redis-server")


def main(arguments: list[str]) -> None:
    """Become tox."""
    pythons = interpreters()
    folders = [str(path.parent) for path in pythons.values()]
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *folders])
    bootstrap.run(REQUIREMENT, ["-m", "tox", *tox_arguments(arguments, pythons)])


def tox_arguments(arguments: list[str], pythons: dict[str, Path]) -> list[str]:
    """What to tell tox. Exits where CI is set and something is missing."""
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if any(argument.startswith("-e") for argument in ours) or (ours and not ours[0].startswith("-")):
        return arguments
    machine = matrix.Machine(pythons, postgres=there(POSTGRES / "postgres"), redis=there(REDIS))
    every = "--all" in ours
    complain(matrix.missing(machine, every=every))
    environments = matrix.every_pair(machine) if every else matrix.both_ends(machine)
    others = [argument for argument in ours if argument != "--all"]
    return ["run", "-e", ",".join(environments), *others, *arguments[len(ours) :]]


def interpreters() -> dict[str, Path]:
    """A working interpreter for each Python of the matrix that is there.

    Tox alone does not see pyenv's versions: each has a shim, which fails unless pyenv activated it.
    """
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    pyenv = sorted(root.glob("versions/3.*/bin"))
    folders = [Path(sys.executable).parent, *map(Path, os.environ["PATH"].split(os.pathsep)), *pyenv]
    candidates = {version: [folder / f"python{version}" for folder in folders] for version in matrix.CELERY}
    working = {version: next(filter(works, paths), None) for version, paths in candidates.items()}
    return {version: path for version, path in working.items() if path is not None}


def works(python: Path) -> bool:
    """Whether this is an interpreter and starts."""
    return there(python) and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def there(program: Path) -> bool:
    """Whether we may run it; a folder that we may not enter is no error, as it is with Path.exists."""
    return os.access(program, os.X_OK)


def complain(missing: list[str]) -> None:
    """Say what is missing; in CI, nothing that it counts on may be."""
    for sentence in missing:
        bootstrap.say(f"{sentence}; going on without")
    if missing and os.environ.get("CI"):
        sys.exit("CI is set, and nothing may be missing there")


if __name__ == "__main__":
    main(sys.argv[1:])
