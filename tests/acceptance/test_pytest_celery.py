"""pytest-celery's documented API, on local processes: its tests are in tests/nodes, and run in a process of their own.

Its plugin makes an app the current one and registers tasks with all apps of its process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from example_project.processes import Process

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path.name for path in (ROOT / "tests" / "nodes").glob("test_*.py"))
# pytest-celery looks at each object of its process; some of pytest-django are not to be looked at without a project
OTHERS = ["-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:django"]
PYTEST = [sys.executable, "-m", "pytest", *OTHERS, "-q"]
PLUGINS = ["-p", "pytest_docker_tools.plugin", "-p", "pytest_celery.plugin"]
# each starts a worker of its own
SECONDS = 900.0


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("module", MODULES)
def test_the_documented_api(module: str, tmp_path: Path) -> None:
    """Setups, nodes that are killed and restarted, logs, clusters, signals: with supervised tasks in them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env["PYTHONPATH"] = str(ROOT)
    log = tmp_path / "pytest.log"
    with Process([*PYTEST, *PLUGINS, f"tests/nodes/{module}"], log, cwd=ROOT, env=env) as run:
        code = run.wait(SECONDS)
    assert code == 0, log.read_text(errors="replace")


def test_no_other_test_has_its_plugin(pytestconfig: pytest.Config) -> None:
    """Installed, it stays out of the tests that did not ask for it: setup.cfg blocks what would load by itself."""
    blocked = [pytestconfig.pluginmanager.is_blocked(name) for name in ("celery", "docker_tools")]
    assert blocked == [True, True]
    assert "pytest_celery" not in sys.modules
