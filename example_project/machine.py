"""Accounts, folders, files and ports of this machine, for nobody but us. Starts nothing."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from example_project.processes import ProcessFailed

HOST = "127.0.0.1"
# Below the ephemeral ports of Linux and macOS: those are handed to outgoing connections while a server is
# down for a restart, and a client that keeps dialling its own server there can even end up connected to
# itself.
PORTS = range(15_000, 32_000)
READ_AND_ENTER = 0o005  # for others
PREFIX = "supervise-"
OWNER = "owner"


def unprivileged() -> pwd.struct_passwd | None:
    """Postgres refuses to run as root: an existing account to run it as, or None where we are not root.

    It must have a name: initdb looks it up.
    """
    if os.geteuid() != 0:
        return None
    for name in ("nobody", "postgres", "daemon"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ProcessFailed("running as root, and none of the accounts nobody, postgres, daemon exists to run Postgres")


@contextlib.contextmanager
def private_folder(name: str, account: pwd.struct_passwd | None, *, parent: Path | None = None) -> Iterator[Path]:
    """A folder that only `account` (None: we) can enter, in `parent` (by default TMPDIR); gone afterwards.

    Those that killed processes of ours have left there go first.
    """
    place = parent or temporary(account)
    clear_left(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-", dir=place))
    try:
        with _owned(folder):
            if account:
                os.chown(folder, account.pw_uid, account.pw_gid)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[None]:
    """A lock in the folder for as long as its process lives: the kernel lets go of it, however that ends."""
    made = folder / f"{OWNER}-to-be"
    with made.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        made.rename(folder / OWNER)  # by this name it is held from the beginning
        yield


def clear_left(place: Path) -> None:
    """Delete the private folders of ours in `place` whose processes are gone."""
    for folder in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, in use, or being deleted just now
            _clear(folder)


def _clear(folder: Path) -> None:
    """Raises OSError where it is in use, or not ours: nobody else's files are touched by a name that looks so."""
    if folder.is_symlink():
        return
    lock = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def temporary(account: pwd.struct_passwd | None) -> Path:
    """Where to make the folder: TMPDIR may lie where only root can go."""
    usual = Path(tempfile.gettempdir()).resolve()
    everybodys = Path("/tmp").resolve()  # noqa: S108 - mkdtemp makes a private folder in it
    return usual if account is None or readable_by_all(usual) else everybodys


def private_file(path: Path, text: str, account: pwd.struct_passwd | None) -> Path:
    """Write a file that only `account` (None: we) can read."""
    path.touch(mode=0o600)
    path.write_text(text)
    if account:
        os.chown(path, account.pw_uid, account.pw_gid)
    return path


def readable_by_all(path: Path) -> bool:
    """Whether any account can reach `path`; not so in an environment under /root or made with umask 077."""
    parents_open = all(parent.stat().st_mode & 0o001 for parent in path.resolve().parents)
    return parents_open and path.stat().st_mode & READ_AND_ENTER == READ_AND_ENTER


def given_path(variable: str, path: Path) -> Path:
    """Raises ProcessFailed where an environment variable names what is not there."""
    if not path.exists():
        raise ProcessFailed(f"{variable}: there is no {path}")
    return path


def free_port() -> int:
    """A port of PORTS that nobody listens on."""
    while True:
        port = secrets.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            return port
