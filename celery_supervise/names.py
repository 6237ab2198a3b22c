"""The names that an attempt has used, each once, in order. No checks of what a name may be."""

from __future__ import annotations

from .errors import DuplicateName


class Names:
    """One name space of one attempt."""

    def __init__(self) -> None:
        self._used: dict[str, None] = {}

    def claim(self, name: str) -> str:
        """Use `name`. Raises `DuplicateName`."""
        if name in self._used:
            raise DuplicateName(name)
        self._used[name] = None
        return name

    def mark(self) -> int:
        """A point to go back to."""
        return len(self._used)

    def release(self, mark: int) -> None:
        """Forget what was claimed since `mark`: it decided nothing, so that it may be tried again."""
        while len(self._used) > mark:
            self._used.popitem()
