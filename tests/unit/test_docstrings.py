"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ["compare", "forms", "hints", "moments", "reasons", "seen", "testing", "values"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    """Each module that has some."""
    module = importlib.import_module(f"celery_supervise.{name}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0
