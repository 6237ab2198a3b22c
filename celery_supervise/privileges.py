"""What the role of the applications may do: use the tables, but not take a job or its log away.

Grants only; it makes no role and decides nothing about who is owner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .schema import VERSION_TABLE

TABLES: Mapping[str, str] = {
    # prune and erase are functions that run as the owner: no DELETE on jobs and log, no UPDATE on log
    "jobs": "SELECT, INSERT, UPDATE",
    "log": "SELECT, INSERT",
    "payloads": "SELECT, INSERT, UPDATE",
    "attempts": "SELECT, INSERT, UPDATE",
    "checkpoints": "SELECT, INSERT, UPDATE",
    "questions": "SELECT, INSERT, UPDATE",
    # only prune leaves one
    "tombstones": "SELECT",
    "votes": "SELECT, INSERT, UPDATE, DELETE",
    "cleanups": "SELECT, INSERT, UPDATE, DELETE",
    "outbox": "SELECT, INSERT, UPDATE, DELETE",
    "queues": "SELECT, INSERT, UPDATE",
    "sweeps": "SELECT, INSERT, UPDATE",
    "holds": "SELECT, INSERT, UPDATE, DELETE",
    "operations": "SELECT, INSERT, UPDATE, DELETE",
    "api_tokens": "SELECT, INSERT, UPDATE, DELETE",
    "answer_links": "SELECT, INSERT, UPDATE, DELETE",
    # the broker's digest, and the epoch after a restore
    "meta": "SELECT, INSERT, UPDATE",
    "locked_decisions": "SELECT",
    VERSION_TABLE: "SELECT",
}
FUNCTIONS = ("prune_jobs(text[])", "erase_job(text, text)")


def quoted(name: str) -> str:
    """`name` as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def grants(schema: str, role: str) -> Iterator[str]:
    """The statements that give `role` exactly this, whatever it had before."""
    within, to = quoted(schema), quoted(role)
    yield f"REVOKE ALL ON SCHEMA {within} FROM {to}"
    yield f"GRANT USAGE ON SCHEMA {within} TO {to}"
    for table, privileges in TABLES.items():
        # by name: `ALL TABLES IN SCHEMA` would take what the role has on other tables of a shared schema
        yield f"REVOKE ALL ON {within}.{table} FROM {to}"
        yield f"GRANT {privileges} ON {within}.{table} TO {to}"
    for function in FUNCTIONS:
        yield f"GRANT EXECUTE ON FUNCTION {within}.{function} TO {to}"
