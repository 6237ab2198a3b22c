"""The statement of a retry: back to pending with a later ticket, or failed where nothing is left for one."""

from __future__ import annotations

from ..lifecycle import Event, verdicts
from .births import ENVELOPE_REF
from .holder import CAUSE
from .sql import (
    RETURNING,
    THE_HOLDERS,
    Statement,
    end_attempt,
    judge_and_move,
    judged,
    log,
    planned,
    publish,
    stamp,
)

# From the end of the first attempt that was retried: what ran since, and the waits after errors. Not what was parked,
# handed over or lost, nor what another task did that this one has replaced. Its own attempts are there for the
# statement to see: they ended before this one was claimed.
_SPENT = """(SELECT sum(CASE WHEN x.number > x.first THEN coalesce(x.ended_at, t.at) - x.started_at END)
 + sum(CASE WHEN x.outcome = 'retried' THEN x.next - x.ended_at END)
 FROM (SELECT a.*, lead(a.started_at) OVER (ORDER BY a.number) AS next,
 min(a.number) FILTER (WHERE a.outcome = 'retried') OVER () AS first
 FROM {s}.attempts AS a WHERE a.job_id = t.id AND a.number > coalesce((SELECT max(r.number) FROM {s}.attempts AS r
 WHERE r.job_id = t.id AND r.outcome = 'replaced'), 0)) AS x WHERE x.number >= x.first)"""

_BUDGET = f"""
 CROSS JOIN LATERAL (SELECT
 greatest(t.at, CAST(:due_at AS timestamptz), t.at + CAST(:due_in AS interval)) AS due_at) AS w
 CROSS JOIN LATERAL (SELECT CASE WHEN CAST(:out_of_tries AS boolean) THEN 'attempts'
 WHEN t.expires_at <= w.due_at THEN 'deadline'
 WHEN coalesce({_SPENT}, interval '0') + (w.due_at - t.at) > CAST(:retry_for AS interval) THEN 'retry_for' END
 AS spent) AS b"""
"""What has no room for the retry: it is one too many, lost attempts counted; it would begin at or after the deadline;
or more than `retry_for` after the error.
"""

_retry = planned(
    Event.RETRY,
    events=(*verdicts(Event.RETRY), Event.FAIL),
    verdict=judged(Event.RETRY, otherwise="CASE WHEN b.spent IS NULL THEN 'retry' ELSE 'fail' END"),
    reads=", w.due_at, b.spent",
    beside=_BUDGET,
    reason={Event.FAIL: "'retries_exhausted:' || v.spent"},
    due="v.due_at",
    settle="CAST(:token AS uuid)",
    data=f"{CAUSE} || jsonb_strip_nulls(jsonb_build_object('due', {stamp('j.ticket_due_at')}))",
    sets={
        # other arguments are another run: nothing that was remembered or answered for the old ones holds
        "run_id": "CASE WHEN p.verdict = 'retry' AND p.input_digest <> :input_digest"
        " THEN CAST(:run_id AS uuid) ELSE p.run_id END",
        "input_digest": "CASE WHEN p.verdict = 'retry' THEN :input_digest ELSE p.input_digest END",
        "node": "CASE WHEN p.verdict = 'retry' AND p.input_digest <> :input_digest THEN NULL ELSE p.node END",
    },
)

RETRY = Statement(
    "retry",
    judge_and_move(_retry)
    + f""",
y AS (
    INSERT INTO {{s}}.payloads AS payloads (job_id, kind, ref, data, encoding, key_id)
    SELECT j.id, 'envelope', '{ENVELOPE_REF}', CAST(:data AS bytea), :encoding, :key_id
    FROM j, p WHERE p.id = j.id AND p.verdict = 'retry'
    UNION ALL SELECT j.id, 'error', CAST(:token AS uuid), CAST(:error_data AS bytea), :error_encoding, :error_key_id
    FROM j, p WHERE p.id = j.id AND p.verdict = 'fail'
    ON CONFLICT (job_id, kind, ref) DO UPDATE
    SET data = excluded.data, encoding = excluded.encoding, key_id = excluded.key_id
)"""
    + end_attempt(token=THE_HOLDERS, cause="CAST(:cause AS text)", traceback="CAST(:traceback AS text)")
    + publish()
    + log(_retry)
    + RETURNING,
)
