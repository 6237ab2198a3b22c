"""What a function says it returns, for storing what it returned. Raises nothing: no hint is an answer too."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar, get_type_hints

from .wording import REFUSALS

MISSING: Final = object()
"""No type is known. (None is a type: that of a function which returns nothing.)"""

_UNTYPED = (Any, object)


def return_type(function: Callable[..., Any]) -> Any:
    """The type that `function` is annotated to return, or `MISSING`.

    A class returns its instances; a `functools.partial`, a bound method, a decorated function, an object
    with `__call__` and a Celery task return what the function inside them does. `MISSING` where there is
    no annotation, where it says nothing (`Any`), or where its names cannot be resolved.

    >>> def load(batch: int) -> "list[int]": ...
    >>> return_type(load), return_type(functools.partial(load, 7)), return_type(lambda: 1) is MISSING
    (list[int], list[int], True)
    """
    inner = _inside(function)
    if isinstance(inner, type):
        return inner
    hint = _resolved(inner)
    return MISSING if isinstance(hint, TypeVar) or hint in _UNTYPED else hint


def _inside(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    unwrapped = inspect.unwrap(function)
    if isinstance(unwrapped, type) or inspect.isroutine(unwrapped):
        return unwrapped
    return inspect.unwrap(type(unwrapped).__call__)


def _resolved(function: Any) -> Any:
    try:
        # Only the return: one argument whose annotation cannot be resolved must not hide it.
        said = {name: hint for name, hint in function.__annotations__.items() if name == "return"}
        names = getattr(function, "__globals__", {})
        hints = get_type_hints(SimpleNamespace(__annotations__=said), globalns=names, include_extras=True)
    except (*REFUSALS, SyntaxError):  # absent, or an expression that cannot be evaluated here
        return MISSING
    return hints.get("return", MISSING)
