"""How the demo speaks: plain lines, a little bold where the terminal can."""

from __future__ import annotations

import sys
import time


class Story:
    """Numbered chapters with the time since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._chapter = 0
        self._bold = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")

    def chapter(self, title: str) -> None:
        """A new chapter."""
        self._chapter += 1
        start, end = self._bold
        seconds = time.monotonic() - self._began
        print(f"\n{start}{self._chapter}. {title}{end}  [{seconds:.1f} s]", flush=True)

    def say(self, text: str) -> None:
        """A line of it."""
        print(f"   {text}", flush=True)

    def show(self, text: str) -> None:
        """Something that a program printed."""
        for line in text.rstrip().splitlines():
            print(f"   | {line}", flush=True)

    def failed(self, why: str) -> None:
        """It did not come true."""
        print(f"\nThe demo failed: {why}", file=sys.stderr, flush=True)
