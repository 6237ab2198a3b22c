"""The same statement, run by pgbench: the floor that a Python library is held against."""

from __future__ import annotations

import re
import statistics
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from celery_supervise.store.plans import PARAMETER
from celery_supervise.store.sql import Statement

LINE = re.compile(r"^\d+ \d+ (\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Pgbench:
    """One binary, one database. A statement's parameters are given as SQL; `:i` in them is the round's number."""

    binary: Path
    url: str
    folder: Path

    def milliseconds(self, statement: Statement, params: Mapping[str, str], *, rounds: int, first: int) -> float:
        """Median latency of one transaction, by one client, in the simple protocol, as the driver's."""
        text = PARAMETER.sub(lambda found: params.get(found[1], "NULL"), statement.render('"supervise"', joined=False))
        script = self.folder / f"{statement.name}.sql"
        script.write_text(f"\\set i :i + 1\n{text.strip()};\n", encoding="utf-8")
        log = self.folder / f"{statement.name}.log"
        command = [self.binary, "-n", "-c", "1", "-t", str(rounds), "-D", f"i={first}", "-f", script]
        command += ["-l", "--log-prefix", log, *self._where()]
        done = subprocess.run(
            [str(word) for word in command], env=self._env(), capture_output=True, text=True, check=False
        )
        if done.returncode or "ERROR" in done.stderr:
            raise RuntimeError(f"pgbench {statement.name}: {done.stderr[-2000:]}")
        return self._median(log)

    def _median(self, prefix: Path) -> float:
        found: list[int] = []
        for path in prefix.parent.glob(prefix.name + ".*"):
            found += map(int, LINE.findall(path.read_text(encoding="utf-8")))
            path.unlink()
        return statistics.median(found) / 1000

    def _where(self) -> list[str]:
        url = make_url(self.url)
        return ["-h", url.host or "", "-p", str(url.port), "-U", url.username or "", url.database or ""]

    def _env(self) -> dict[str, str]:
        return {"PGPASSWORD": make_url(self.url).password or ""}
