"""Accounts, folders, files and ports of this machine, for nobody but us. Starts nothing."""

from __future__ import annotations

import contextlib
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
    """A folder that only `account` (None: we) can enter, in `parent` (by default TMPDIR); gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"supervise-{name}-", dir=parent or temporary(account)))
    try:
        if account:
            os.chown(folder, account.pw_uid, account.pw_gid)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
