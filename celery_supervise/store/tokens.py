"""Statements of API tokens. They have a hash of the secret only, and judge times on the database's clock."""

from __future__ import annotations

from .sql import Statement

_COLUMNS = "id, name, scope, owner_id, subject, created_at, expires_at, revoked_at, used_at"

MAKE = Statement(
    "make_token",
    f"""
INSERT INTO {{s}}.api_tokens AS tokens (id, namespace, name, secret_hash, scope, owner_id, subject, expires_at)
SELECT CAST(:id AS uuid), :namespace, :name, :secret_hash, :scope, :owner_id, :subject,
       clock_timestamp() + CAST(:lasts AS interval)
RETURNING {_COLUMNS}""",
)

FIND = Statement(
    "find_token",
    f"""
SELECT {_COLUMNS}, used_at IS NULL OR used_at < clock_timestamp() - interval '1 minute' AS unnoted
FROM {{s}}.api_tokens
WHERE secret_hash = :secret_hash AND namespace = :namespace AND revoked_at IS NULL
  AND (expires_at IS NULL OR expires_at > clock_timestamp())""",
)

NOTE_USE = Statement(
    "note_token_use",
    """
UPDATE {s}.api_tokens AS tokens SET used_at = clock_timestamp()
WHERE id = CAST(:id AS uuid)
RETURNING id""",
)

REVOKE = Statement(
    "revoke_token",
    f"""
UPDATE {{s}}.api_tokens AS tokens SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE id = CAST(:id AS uuid) AND namespace = :namespace
RETURNING {_COLUMNS}""",
)

LIST = Statement("tokens", f"SELECT {_COLUMNS} FROM {{s}}.api_tokens WHERE namespace = :namespace ORDER BY created_at")
