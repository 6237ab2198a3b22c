"""The rule that nothing is skipped in CI, on real pytest runs."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
    import pytest

    def test_passes(): pass
    def test_skips(): pytest.skip("no browser")
    @pytest.mark.skip(reason="not now")
    def test_is_skipped(): pass
    @pytest.fixture
    def server(): pytest.skip("no server")
    def test_needs_server(server): pass
    @pytest.mark.may_skip
    def test_may_skip(): pytest.skip("another platform")
    @pytest.mark.xfail
    def test_known_bug(): raise ZeroDivisionError
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with tests of all kinds, and pytest as a developer runs it."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\naddopts = -p tests.skips\nmarkers = may_skip")
    pytester.makepyfile(TESTS)
    return pytester


def test_skips_pass_on_a_developers_machine(run: pytest.Pytester) -> None:
    """Without CI a skip is a skip."""
    run.runpytest_subprocess().assert_outcomes(passed=1, skipped=4, xfailed=1)


def test_skips_fail_in_ci(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CI set a skip in a test, by a mark or by a fixture fails, with its reason; a marked one may be."""
    monkeypatch.setenv("CI", "true")
    result = run.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1, errors=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines_random(["*this was: *no browser", "*this was: *not now", "*this was: *no server"])


def test_skips_fail_under_xdist(run: pytest.Pytester) -> None:
    """The rule holds in the processes that xdist starts."""
    result = run.runpytest_subprocess("--strict-skips", "-n", "2")
    result.assert_outcomes(passed=1, failed=1, errors=2, skipped=1, xfailed=1)


def test_skipped_module_fails(run: pytest.Pytester) -> None:
    """A module that skips itself, with all its tests, is an error."""
    run.makepyfile(test_module="import pytest\npytest.importorskip('no_such_module')")
    run.runpytest_subprocess("--strict-skips", "test_module.py").assert_outcomes(errors=1)
