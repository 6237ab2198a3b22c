"""Pytest plugin: a skip is a failure where CI is set, unless the test is marked may_skip. Hides nothing."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import TypeVar

import pytest

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --strict-skips, which is the default where CI is set."""
    parser.addoption(
        "--strict-skips",
        action="store_true",
        default=bool(os.environ.get("CI")),
        help="fail for each skipped test that is not marked may_skip (default where CI is set)",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Judge a test's report last, when what was expected to fail is known."""
    report = yield
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("may_skip") is not None
    return report if expected else judged(report, item.config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Judge a module's report: importorskip and its like hide all its tests at once."""
    return judged((yield), collector.config)


def judged(report: Report, config: pytest.Config) -> Report:
    """The report, failed if it was skipped and may not be."""
    if report.skipped and config.getoption("--strict-skips"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here, and this was: {reason}"
    return report
