-- The view and the two privileged functions of revision 0001, frozen. An empty line ends a statement.
--
-- The functions run as the owner of the tables, for a role that may neither delete jobs and log entries nor
-- take values away. They pin their search_path and name everything with its schema.

CREATE VIEW @schema.locked_decisions AS
SELECT j.id AS job_id, j.run_id, j.node AS current_node,
    coalesce(c.visited, '{}') AS visited, coalesce(c.bindings, '{}') AS bindings, c.saved_at
FROM @schema.jobs AS j
CROSS JOIN LATERAL (
    SELECT array_agg(k.node ORDER BY k.position, k.node) AS visited,
        jsonb_object_agg(k.node, jsonb_build_object(
            'encoding', k.encoding, 'key_id', k.key_id, 'size', k.size, 'data', encode(k.data, 'base64')
        )) FILTER (WHERE k.data IS NOT NULL) AS bindings,
        max(k.saved_at) AS saved_at
    FROM @schema.checkpoints AS k
    WHERE k.job_id = j.id AND k.run_id = j.run_id
) AS c;

COMMENT ON VIEW @schema.locked_decisions IS 'What a job''s current run has decided: one row a job. For people and for executors of their own; the library reads checkpoints.';

COMMENT ON COLUMN @schema.locked_decisions.visited IS 'The nodes passed, in the order in which each was first passed.';

COMMENT ON COLUMN @schema.locked_decisions.bindings IS 'Node -> {encoding, key_id, size, data}; data is the stored bytes in base64, exactly as the codec made them. Nodes without a value, and erased ones, are left out. Costs nothing where it is not selected.';

-- Deletes those of these jobs that are settled and owe nothing, and returns their ids. A job owes what it still has
-- to publish (notifications, cleanups) and cleanups that nobody dispatched. One that somebody holds locked is left
-- for the next call: prune waits for nobody.
CREATE FUNCTION @schema.prune_jobs(ids text[]) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    held text[];
    gone text[];
BEGIN
    SELECT array_agg(l.id) INTO held FROM (
        SELECT j.id FROM @schema.jobs AS j
        WHERE j.id = ANY(ids) AND j.settled_at IS NOT NULL
            AND j.current_state IN ('completed', 'failed', 'expired', 'cancelled')
        ORDER BY j.id FOR UPDATE SKIP LOCKED
    ) AS l;
    -- a new statement: the first one saw other tables as they were before it had the locks (protocol 6)
    WITH free AS (
        SELECT j.id, j.namespace, j.task, j.current_state, j.log_seq, j.finished_at FROM @schema.jobs AS j
        WHERE j.id = ANY(held)
            AND NOT EXISTS (
                SELECT FROM @schema.outbox AS o WHERE o.job_id = j.id AND o.kind <> 'run'
                    AND o.published_at IS NULL AND o.done_at IS NULL)
            AND NOT (j.current_state <> 'completed' AND EXISTS (
                SELECT FROM @schema.cleanups AS c WHERE c.job_id = j.id
                    AND c.dispatched_at IS NULL AND c.dropped_at IS NULL))
    ), t AS (
        INSERT INTO @schema.tombstones AS t (job_id, namespace, task, state, log_seq, finished_at)
        SELECT id, namespace, task, current_state, log_seq, finished_at FROM free
        ON CONFLICT (job_id) DO UPDATE
        SET (namespace, task, state, log_seq, finished_at, pruned_at) = (excluded.namespace, excluded.task,
            excluded.state, excluded.log_seq, excluded.finished_at, excluded.pruned_at)
        RETURNING t.job_id
    )
    SELECT coalesce(array_agg(t.job_id ORDER BY t.job_id), '{}') INTO gone FROM t;
    -- the job first: while it is there, its log cannot be deleted
    DELETE FROM @schema.jobs WHERE id = ANY(gone);
    DELETE FROM @schema.votes USING @schema.questions AS q WHERE q.id = question_id AND q.job_id = ANY(gone);
    DELETE FROM @schema.answer_links USING @schema.questions AS q WHERE q.id = question_id AND q.job_id = ANY(gone);
    DELETE FROM @schema.questions WHERE job_id = ANY(gone);
    DELETE FROM @schema.cleanups WHERE job_id = ANY(gone);
    DELETE FROM @schema.checkpoints WHERE job_id = ANY(gone);
    DELETE FROM @schema.attempts WHERE job_id = ANY(gone);
    DELETE FROM @schema.payloads WHERE job_id = ANY(gone);
    DELETE FROM @schema.outbox WHERE job_id = ANY(gone);
    DELETE FROM @schema.operations WHERE job_id = ANY(gone);
    DELETE FROM @schema.log WHERE job_id = ANY(gone);
    RETURN gone;
END
$$;

-- Takes the values of a job that has ended away, and logs that under the job's lock. Returns whether they are gone:
-- false where there is no such job, or it has not ended. Repeated, it takes away what came since (the result of an
-- attempt that was late), and logs nothing where there was nothing. A cleanup that is still to be sent keeps its
-- data. Ids, names, actors and the log stay.
CREATE FUNCTION @schema.erase_job(id text, actor text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    job @schema.jobs;
    clock timestamptz;
    taken bigint;
BEGIN
    SELECT j.* INTO job FROM @schema.jobs AS j WHERE j.id = $1 FOR NO KEY UPDATE;
    IF job.id IS NULL OR job.current_state NOT IN ('completed', 'failed', 'expired', 'cancelled') THEN
        RETURN false;
    END IF;
    clock := clock_timestamp();
    WITH p AS (
        UPDATE @schema.payloads AS p SET data = NULL WHERE p.job_id = job.id AND p.data IS NOT NULL RETURNING 1
    ), k AS (
        UPDATE @schema.checkpoints AS k SET data = NULL WHERE k.job_id = job.id AND k.data IS NOT NULL RETURNING 1
    ), q AS (
        -- the schema too: choices are values
        UPDATE @schema.questions AS q SET question_data = NULL, answer = NULL, answer_schema = '{}', erased_at = clock
        WHERE q.job_id = job.id AND q.erased_at IS NULL RETURNING 1
    ), v AS (
        UPDATE @schema.votes AS v SET value = NULL, erased_at = clock FROM @schema.questions AS q
        WHERE q.job_id = job.id AND q.id = v.question_id AND v.value IS NOT NULL RETURNING 1
    ), c AS (
        UPDATE @schema.cleanups AS c SET data = NULL WHERE c.job_id = job.id AND c.data IS NOT NULL
            AND (c.dispatched_at IS NOT NULL OR c.dropped_at IS NOT NULL) RETURNING 1
    ), a AS (
        UPDATE @schema.attempts AS a SET cause = NULL, traceback = NULL
        WHERE a.job_id = job.id AND (a.cause IS NOT NULL OR a.traceback IS NOT NULL) RETURNING 1
    )
    SELECT count(*) INTO taken FROM (
        TABLE p UNION ALL TABLE k UNION ALL TABLE q UNION ALL TABLE v UNION ALL TABLE c UNION ALL TABLE a
    ) AS everything;
    IF job.erased_at IS NULL OR taken > 0 THEN
        UPDATE @schema.jobs AS j SET erased_at = clock, progress_message = NULL, log_seq = j.log_seq + 1
        WHERE j.id = job.id;
        INSERT INTO @schema.log (job_id, sequence_num, event, actor, at, data)
        VALUES (job.id, job.log_seq + 1, 'erased', $2, clock, jsonb_build_object(
            'state', job.current_state, 'generation', job.generation, 'values', taken));
    END IF;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION @schema.prune_jobs(text[]), @schema.erase_job(text, text) FROM PUBLIC;

-- min_library: an older library refuses to work here. epoch: part of every ETag, raised after a restore.
INSERT INTO @schema.meta (name, value) VALUES ('min_library', '0.1.0'), ('epoch', '1');
