-- The triggers of revision 0001, frozen: what CHECKs cannot say (protocol 30). An empty line ends a statement.
--
-- Each function pins its search_path: with the caller's, an operator or a table of the caller's own could stand in
-- for the real one. Each trigger is ENABLE ALWAYS: session_replication_role would switch off an ordinary one, and a
-- setting is no guard. The SQLSTATEs are of class 23, so that drivers raise IntegrityError as for a CHECK; the name
-- of the trigger arrives as the constraint's.

CREATE FUNCTION @schema.jobs_terminal_is_final() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    -- The new row with all that may still move put back: what differs then was not allowed to. A column that a
    -- later revision adds is protected without being named here.
    rest @schema.jobs := NEW;
BEGIN
    rest.log_seq := OLD.log_seq;
    rest.settle_id := OLD.settle_id;
    rest.settle_due_at := OLD.settle_due_at;
    rest.settled_at := OLD.settled_at;
    rest.settle_tries := OLD.settle_tries;
    rest.sweep_after := OLD.sweep_after;
    rest.erased_at := OLD.erased_at;
    IF NEW.erased_at IS NOT NULL AND NEW.progress_message IS NULL THEN
        rest.progress_message := OLD.progress_message;
    END IF;
    -- compared byte by byte: equality would take 24 hours for 1 day
    IF rest *<> OLD THEN
        RAISE EXCEPTION 'job % is %, which is final', OLD.id, OLD.current_state
            USING ERRCODE = '23S01', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER jobs_terminal_is_final BEFORE UPDATE ON @schema.jobs FOR EACH ROW
WHEN (OLD.current_state IN ('completed', 'failed', 'expired', 'cancelled'))
EXECUTE FUNCTION @schema.jobs_terminal_is_final();

ALTER TABLE @schema.jobs ENABLE ALWAYS TRIGGER jobs_terminal_is_final;

CREATE FUNCTION @schema.attempts_ended_is_final() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rest @schema.attempts := NEW;
BEGIN
    -- erase, and nothing else, may take away what an error said
    IF NEW.cause IS NULL THEN
        rest.cause := OLD.cause;
    END IF;
    IF NEW.traceback IS NULL THEN
        rest.traceback := OLD.traceback;
    END IF;
    IF rest *<> OLD THEN
        RAISE EXCEPTION 'attempt % of job % ended (%), which is final', OLD.number, OLD.job_id, OLD.outcome
            USING ERRCODE = '23S02', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER attempts_ended_is_final BEFORE UPDATE ON @schema.attempts FOR EACH ROW
WHEN (OLD.ended_at IS NOT NULL)
EXECUTE FUNCTION @schema.attempts_ended_is_final();

ALTER TABLE @schema.attempts ENABLE ALWAYS TRIGGER attempts_ended_is_final;

CREATE FUNCTION @schema.jobs_go_by_prune() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- a job that has not ended has no finished_at, so that no tombstone fits it; nor does one of an earlier life
    IF OLD.settled_at IS NULL OR NOT EXISTS (
        SELECT FROM @schema.tombstones AS t WHERE t.job_id = OLD.id AND t.finished_at = OLD.finished_at
    ) THEN
        RAISE EXCEPTION 'job % cannot be deleted: only prune_jobs() deletes jobs, and only settled ones', OLD.id
            USING ERRCODE = '23S03', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER jobs_go_by_prune BEFORE DELETE ON @schema.jobs FOR EACH ROW
EXECUTE FUNCTION @schema.jobs_go_by_prune();

ALTER TABLE @schema.jobs ENABLE ALWAYS TRIGGER jobs_go_by_prune;

CREATE FUNCTION @schema.log_is_append_only() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'DELETE' AND NOT EXISTS (SELECT FROM @schema.jobs AS j WHERE j.id = OLD.job_id)
        AND EXISTS (SELECT FROM @schema.tombstones AS t WHERE t.job_id = OLD.job_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the log is append-only: % of entry % of job %', TG_OP, OLD.sequence_num, OLD.job_id
        USING ERRCODE = '23S04', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END
$$;

CREATE TRIGGER log_is_append_only BEFORE UPDATE OR DELETE ON @schema.log FOR EACH ROW
EXECUTE FUNCTION @schema.log_is_append_only();

ALTER TABLE @schema.log ENABLE ALWAYS TRIGGER log_is_append_only;

-- TRUNCATE fires no row trigger.
CREATE FUNCTION @schema.no_truncate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'table % cannot be truncated: only prune_jobs() deletes jobs and their log', TG_TABLE_NAME
        USING ERRCODE = '23S05', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END
$$;

CREATE TRIGGER log_no_truncate BEFORE TRUNCATE ON @schema.log
EXECUTE FUNCTION @schema.no_truncate();

ALTER TABLE @schema.log ENABLE ALWAYS TRIGGER log_no_truncate;

CREATE TRIGGER jobs_no_truncate BEFORE TRUNCATE ON @schema.jobs
EXECUTE FUNCTION @schema.no_truncate();

ALTER TABLE @schema.jobs ENABLE ALWAYS TRIGGER jobs_no_truncate;

REVOKE ALL ON FUNCTION @schema.jobs_terminal_is_final(), @schema.attempts_ended_is_final(),
    @schema.jobs_go_by_prune(), @schema.log_is_append_only(), @schema.no_truncate() FROM PUBLIC;
