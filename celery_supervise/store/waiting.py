"""Which jobs wait, with their messages: read in pages, oldest first, by the index of the lists. Changes nothing."""

from __future__ import annotations

from .births import ENVELOPE_REF
from .sql import Statement

WAITING = Statement(
    "waiting",
    f"""
SELECT j.id AS job_id, j.current_state, j.created_at, j.ignore_result, p.data, p.encoding, p.key_id
FROM {{s}}.jobs AS j
JOIN {{s}}.payloads AS p ON p.job_id = j.id AND p.kind = 'envelope' AND p.ref = '{ENVELOPE_REF}'
WHERE j.namespace = :namespace AND j.current_state = :state
  AND (CAST(:created_at AS timestamptz) IS NULL OR j.created_at >= CAST(:created_at AS timestamptz))
  AND (CAST(:created_at AS timestamptz) IS NULL OR (j.created_at, j.id) > (CAST(:created_at AS timestamptz), :job_id))
  AND p.data IS NOT NULL
ORDER BY j.created_at, j.id LIMIT :batch""",
)
