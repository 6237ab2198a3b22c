"""Who is at the terminal, as the log will name them. Believes the system alone."""

from __future__ import annotations

import os
import pwd

import click


def login() -> str:
    """The name of the process's own user: LOGNAME and its like are anybody's to set. Raises `click.UsageError`."""
    name = _account()
    if not names_somebody():
        raise click.UsageError(f"You are {name}: the log would not say who did it. Give your name with --as USER.")
    return name


def names_somebody() -> bool:
    """Whether the log would say who did it, without `--as`."""
    return os.geteuid() != 0 and " " not in _account()


def _account() -> str:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}, who has no name"
