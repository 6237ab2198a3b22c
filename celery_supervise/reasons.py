"""Stop reasons in words for a person. Pure; escapes nothing, since whoever shows them does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .lifecycle import USER_PAUSED


def _incompatible(versions: str, why: str = "") -> str:
    told = {"": "", "tried": "; its migration did not end"}.get(why, f"; its migration raised {why}")
    return f"no worker can run its version ({versions}{told})"


_REASONS: Final[Mapping[str, Callable[[str], str]]] = {
    "awaiting_user_answer": lambda key: f"waits for an answer to {key}",
    "answered": lambda key: f"{key} is answered",
    "withdrawn": lambda key: f"{key} is taken back, to be asked anew",
    "resume_requested": lambda prior: f"told to go on ({reason(prior)})" if prior else "told to go on",
    "expired": lambda prior: f"its time was over ({reason(prior)})",
    "incompatible_version": lambda versions: _incompatible(*versions.split(":", 1)),
    "retries_exhausted": lambda what: f"not tried again ({reason(what)})",
    "unknown_task": lambda name: f"no worker knows the task {name}",
}
_PLAIN: Final[Mapping[str, str]] = {
    USER_PAUSED: "paused",
    "deadline": "its deadline",
    "start_by": "it had not started",
    "max_active": "its running time was used up",
    "stalled": "it made no progress",
    "attempts": "its tries were used up, lost ones among them",
    "retry_for": "the time for retries was used up",
}

_AS_IT_IS: Final = ("rejected", "time_limit", "unrunnable", "worker_lost")

STOP_REASONS: Final = tuple(sorted({*_REASONS, USER_PAUSED, "stalled", *_AS_IT_IS}))
"""All that a job can stand still or have ended for, each up to its first colon."""


def is_refused(stop_reason: str) -> bool:
    """Whether it says that a migration of the job raised, or ended its process."""
    name, _, rest = stop_reason.partition(":")
    return name == "incompatible_version" and ":" in rest


def reason(stop_reason: str | None) -> str:
    """Why a job stands still or ended.

    >>> reason("expired:awaiting_user_answer:approve")
    'its time was over (waits for an answer to approve)'
    """
    if stop_reason is None:
        return ""
    name, colon, rest = stop_reason.partition(":")
    if colon and name in _REASONS:
        return _REASONS[name](rest)
    return _PLAIN.get(stop_reason, stop_reason)
