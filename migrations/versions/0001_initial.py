"""Everything: the tables, the triggers, the view, the privileged functions."""

from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

FILES = ("0001_tables.sql", "0001_guards.sql", "0001_functions.sql")
VIEWS = ("locked_decisions",)
TABLES = (
    *(
        "jobs",
        "payloads",
        "attempts",
        "checkpoints",
        "questions",
        "votes",
        "cleanups",
        "log",
        "outbox",
        "queues",
    ),
    *("sweeps", "holds", "operations", "tombstones", "api_tokens", "answer_links", "meta"),
)
FUNCTIONS = (
    *("prune_jobs", "erase_job", "jobs_terminal_is_final", "attempts_ended_is_final", "jobs_go_by_prune"),
    *("log_is_append_only", "no_truncate"),
)


def upgrade() -> None:
    """Make all of it."""
    for name in FILES:
        for statement in _statements(Path(__file__).with_name(name).read_text(encoding="utf-8")):
            _execute(statement)


def downgrade() -> None:
    """Take all of it away, unless that would lose a job: DROP TABLE fires no trigger."""
    _execute(
        "DO $$ BEGIN IF EXISTS (SELECT FROM @schema.jobs) OR EXISTS (SELECT FROM @schema.tombstones) THEN"
        " RAISE EXCEPTION 'there are jobs: to lose them and their log, drop the schema by hand';"
        " END IF; END $$"
    )
    for kind, names in (("VIEW", VIEWS), ("TABLE", TABLES), ("FUNCTION", FUNCTIONS)):
        _execute(f"DROP {kind} " + ", ".join(f"@schema.{name}" for name in names))


def _statements(script: str) -> Iterator[str]:
    """The statements of a script: an empty line ends each. What begins with a comment about all is none."""
    for block in script.split("\n\n"):
        lines = block.strip().split("\n")
        if not all(line.startswith("--") or not line for line in lines):
            yield block.strip().removesuffix(";")


def _execute(statement: str) -> None:
    context = op.get_context()
    schema = context.dialect.identifier_preparer.quote_identifier(context.opts["version_table_schema"])
    # a colon in the text is no parameter
    op.execute(sa.text(statement.replace("@schema", schema).replace(":", "\\:")))
