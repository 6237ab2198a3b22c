-- Every table of revision 0001, frozen: a later change is a later revision. Why each rule is there stands in
-- celery_supervise/schema/. `@schema` is the schema's quoted name; an empty line ends a statement.

CREATE TABLE @schema.jobs (
    id text NOT NULL,
    namespace text NOT NULL,
    task text NOT NULL,
    owner_id text,
    queue text NOT NULL,
    priority smallint,
    current_state text NOT NULL,
    watchdog_stop_reason text,
    generation integer NOT NULL DEFAULT 1,
    log_seq integer NOT NULL DEFAULT 0,
    progress_seq integer NOT NULL DEFAULT 0,
    ticket_id uuid,
    ticket_due_at timestamptz,
    ticket_released_at timestamptz,
    current_token uuid,
    run_id uuid NOT NULL,
    attempt_count integer NOT NULL DEFAULT 0,
    lost_count integer NOT NULL DEFAULT 0,
    lost_limit integer NOT NULL DEFAULT 3,
    pause_requested_at timestamptz,
    cancel_requested_at timestamptz,
    terminate_after timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    finished_at timestamptz,
    expires_at timestamptz,
    start_by timestamptz,
    question_id uuid,
    wait_until timestamptz,
    active_left interval,
    active_until timestamptz,
    node text,
    progress_at timestamptz,
    stage_at timestamptz,
    stall_after interval,
    on_stall text NOT NULL DEFAULT 'log',
    stalled_at timestamptz,
    progress_current bigint,
    progress_total bigint,
    progress_message text,
    stored_bytes bigint NOT NULL DEFAULT 0,
    settle_id uuid,
    settle_due_at timestamptz,
    settled_at timestamptz,
    settle_tries integer NOT NULL DEFAULT 0,
    ignore_result boolean NOT NULL DEFAULT false,
    input_digest text NOT NULL,
    input_version text,
    task_version integer NOT NULL DEFAULT 1,
    idempotency_key text,
    rerun_of text,
    sweep_after timestamptz,
    incompatible_since timestamptz,
    erased_at timestamptz,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_state
        CHECK (current_state IN ('cancelled', 'completed', 'expired', 'failed', 'parked', 'pending',
            'running')),
    CONSTRAINT jobs_running_has_token CHECK ((current_state = 'running') = (current_token IS NOT NULL)),
    CONSTRAINT jobs_pending_has_ticket CHECK (current_state <> 'pending' OR ticket_id IS NOT NULL),
    CONSTRAINT jobs_ticket_waits CHECK (ticket_id IS NULL OR current_state IN ('pending', 'parked')),
    CONSTRAINT jobs_ticket_has_due CHECK ((ticket_id IS NULL) = (ticket_due_at IS NULL)),
    CONSTRAINT jobs_released_is_ticket CHECK (ticket_released_at IS NULL OR ticket_id IS NOT NULL),
    CONSTRAINT jobs_question_has_time CHECK ((question_id IS NULL) = (wait_until IS NULL)),
    CONSTRAINT jobs_question_parks CHECK (question_id IS NULL OR current_state = 'parked'),
    CONSTRAINT jobs_question_or_ticket CHECK (question_id IS NULL OR ticket_id IS NULL),
    CONSTRAINT jobs_terminal_has_end
        CHECK ((current_state IN ('cancelled', 'completed', 'expired',
            'failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT jobs_terminal_has_settle
        CHECK ((current_state IN ('cancelled', 'completed', 'expired', 'failed')) = (settle_id IS NOT NULL)),
    CONSTRAINT jobs_settle_has_due
        CHECK (settle_id IS NULL OR settle_due_at IS NOT NULL OR settled_at IS NOT NULL),
    CONSTRAINT jobs_settled_has_id CHECK (settled_at IS NULL OR settle_id IS NOT NULL),
    CONSTRAINT jobs_active_is_running CHECK (active_until IS NULL OR current_state = 'running'),
    CONSTRAINT jobs_on_stall CHECK (on_stall IN ('cancel', 'fail', 'log')),
    CONSTRAINT jobs_counters CHECK (generation >= 1 AND log_seq >= 0 AND progress_seq >= 0),
    CONSTRAINT jobs_counts CHECK (lost_limit >= 1 AND lost_count >= 0 AND attempt_count >= 0),
    CONSTRAINT jobs_id_length CHECK (octet_length(id) BETWEEN 1 AND 255),
    CONSTRAINT jobs_namespace_length CHECK (octet_length(namespace) BETWEEN 1 AND 255),
    CONSTRAINT jobs_task_length CHECK (octet_length(task) BETWEEN 1 AND 255),
    CONSTRAINT jobs_queue_length CHECK (octet_length(queue) BETWEEN 1 AND 255),
    CONSTRAINT jobs_owner_id_length CHECK (octet_length(owner_id) BETWEEN 1 AND 255),
    CONSTRAINT jobs_idempotency_key_length CHECK (octet_length(idempotency_key) BETWEEN 1 AND 255)
) WITH (fillfactor = 70);

CREATE INDEX jobs_active ON @schema.jobs (active_until) WHERE active_until IS NOT NULL;

CREATE INDEX jobs_by_owner ON @schema.jobs (namespace, owner_id, created_at);

CREATE INDEX jobs_by_state ON @schema.jobs (namespace, current_state, created_at);

CREATE INDEX jobs_deadline ON @schema.jobs (expires_at)
    WHERE expires_at IS NOT NULL AND current_state IN ('parked', 'pending', 'running');

CREATE INDEX jobs_due ON @schema.jobs (namespace, queue, ticket_due_at)
    WHERE ticket_id IS NOT NULL AND ticket_released_at IS NULL;

CREATE INDEX jobs_due_of_owner
    ON @schema.jobs ((namespace || '/' || queue), coalesce(owner_id, ''), ticket_due_at)
    WHERE ticket_id IS NOT NULL AND ticket_released_at IS NULL;

CREATE INDEX jobs_open_of_owner ON @schema.jobs (namespace, owner_id)
    WHERE owner_id IS NOT NULL AND current_state IN ('parked', 'pending', 'running');

CREATE UNIQUE INDEX jobs_idempotency
    ON @schema.jobs (namespace, coalesce(owner_id, ''), task, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE UNIQUE INDEX jobs_rerun_of ON @schema.jobs (rerun_of) WHERE rerun_of IS NOT NULL;

CREATE INDEX jobs_start_by ON @schema.jobs (start_by)
    WHERE start_by IS NOT NULL AND current_state = 'pending';

CREATE INDEX jobs_incompatible ON @schema.jobs (incompatible_since)
    WHERE incompatible_since IS NOT NULL AND current_state IN ('pending', 'parked');
CREATE INDEX jobs_unsettled ON @schema.jobs (settle_due_at)
    WHERE settled_at IS NULL AND current_state IN ('cancelled', 'completed', 'expired', 'failed');

CREATE INDEX jobs_wait ON @schema.jobs (wait_until) WHERE wait_until IS NOT NULL;

CREATE TABLE @schema.payloads (
    job_id text NOT NULL,
    kind text NOT NULL,
    ref uuid NOT NULL,
    data bytea,
    encoding text NOT NULL,
    key_id text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT payloads_pkey PRIMARY KEY (job_id, kind, ref),
    CONSTRAINT payloads_kind CHECK (kind IN ('envelope', 'result', 'error', 'rejected'))
);

CREATE TABLE @schema.attempts (
    token uuid NOT NULL,
    job_id text NOT NULL,
    number integer NOT NULL,
    run_id uuid NOT NULL,
    ticket_id uuid NOT NULL,
    incarnation uuid NOT NULL,
    worker text NOT NULL,
    pid integer NOT NULL,
    task_version integer NOT NULL,
    started_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    hand_over_at timestamptz,
    terminate_at timestamptz,
    checkpoint_ref text,
    ended_at timestamptz,
    outcome text,
    outcome_generation integer,
    cause text,
    traceback text,
    CONSTRAINT attempts_pkey PRIMARY KEY (token),
    CONSTRAINT attempts_ended_has_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT attempts_outcome
        CHECK (outcome IS NULL OR outcome IN ('cancelled', 'completed', 'expired', 'failed', 'handed_over',
            'lost', 'parked', 'replaced', 'retried')),
    CONSTRAINT attempts_job_id_number_key UNIQUE (job_id, number),
    CONSTRAINT attempts_ticket_id_key UNIQUE (ticket_id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX attempts_incarnation ON @schema.attempts (incarnation) WHERE ended_at IS NULL;

CREATE UNIQUE INDEX attempts_live ON @schema.attempts (job_id) WHERE ended_at IS NULL;

CREATE TABLE @schema.checkpoints (
    job_id text NOT NULL,
    run_id uuid NOT NULL,
    node text NOT NULL,
    kind text NOT NULL,
    position integer NOT NULL,
    data bytea,
    encoding text,
    key_id text,
    size integer NOT NULL DEFAULT 0,
    attempt_token uuid NOT NULL,
    saved_at timestamptz NOT NULL,
    logged_at timestamptz NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (job_id, run_id, node),
    CONSTRAINT checkpoints_kind CHECK (kind IN ('checkpoint', 'each', 'step')),
    CONSTRAINT checkpoints_node_length CHECK (octet_length(node) BETWEEN 1 AND 255)
) WITH (fillfactor = 85);

CREATE TABLE @schema.questions (
    id uuid NOT NULL,
    job_id text NOT NULL,
    run_id uuid NOT NULL,
    question_key text NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    question_data bytea,
    encoding text NOT NULL,
    key_id text,
    answer_schema json NOT NULL,
    digest text NOT NULL,
    asked_by uuid NOT NULL,
    asked_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    remind_at timestamptz,
    reminded_at timestamptz,
    assignees text[] NOT NULL DEFAULT '{}',
    approvals integer NOT NULL DEFAULT 1,
    self_approval boolean NOT NULL DEFAULT false,
    answer bytea,
    answer_encoding text,
    answer_key_id text,
    answered_by text,
    answered_at timestamptz,
    closed_at timestamptz,
    erased_at timestamptz,
    CONSTRAINT questions_pkey PRIMARY KEY (id),
    CONSTRAINT questions_status
        CHECK (status IN ('answered', 'closed', 'expired', 'pending', 'superseded', 'withdrawn')),
    CONSTRAINT questions_answered_has_answer
        CHECK (status <> 'answered' OR (answered_at IS NOT NULL AND answered_by IS NOT NULL
            AND (answer IS NOT NULL OR erased_at IS NOT NULL))),
    CONSTRAINT questions_answer_is_answered CHECK (status IN ('answered', 'superseded') OR answer IS NULL),
    CONSTRAINT questions_closed_has_time CHECK ((status IN ('pending', 'answered')) = (closed_at IS NULL)),
    CONSTRAINT questions_question_has_content CHECK (question_data IS NOT NULL OR erased_at IS NOT NULL),
    CONSTRAINT questions_approvals CHECK (approvals >= 1),
    CONSTRAINT questions_question_key_length CHECK (octet_length(question_key) BETWEEN 1 AND 255)
);

CREATE INDEX questions_inbox ON @schema.questions (expires_at) WHERE status = 'pending';

CREATE UNIQUE INDEX questions_key ON @schema.questions (job_id, run_id, question_key)
    WHERE status IN ('pending', 'answered');

CREATE UNIQUE INDEX questions_open ON @schema.questions (job_id) WHERE status = 'pending';

CREATE INDEX questions_remind ON @schema.questions (remind_at)
    WHERE status = 'pending' AND remind_at IS NOT NULL AND reminded_at IS NULL;

CREATE TABLE @schema.votes (
    question_id uuid NOT NULL,
    actor text NOT NULL,
    value bytea,
    encoding text NOT NULL,
    key_id text,
    voted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    erased_at timestamptz,
    CONSTRAINT votes_pkey PRIMARY KEY (question_id, actor),
    CONSTRAINT votes_vote_has_value CHECK (value IS NOT NULL OR erased_at IS NOT NULL),
    CONSTRAINT votes_actor_length CHECK (octet_length(actor) BETWEEN 1 AND 255)
);

CREATE TABLE @schema.cleanups (
    job_id text NOT NULL,
    name text NOT NULL,
    attempt_token uuid NOT NULL,
    data bytea,
    encoding text NOT NULL,
    key_id text,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    dispatched_at timestamptz,
    dropped_at timestamptz,
    CONSTRAINT cleanups_pkey PRIMARY KEY (job_id, name),
    CONSTRAINT cleanups_one_fate CHECK (dispatched_at IS NULL OR dropped_at IS NULL),
    CONSTRAINT cleanups_name_length CHECK (octet_length(name) BETWEEN 1 AND 255)
);

CREATE TABLE @schema.log (
    job_id text NOT NULL,
    sequence_num integer NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    at timestamptz NOT NULL,
    data jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT log_pkey PRIMARY KEY (job_id, sequence_num),
    CONSTRAINT log_sequence CHECK (sequence_num >= 1)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE TABLE @schema.outbox (
    id uuid NOT NULL,
    namespace text NOT NULL,
    kind text NOT NULL,
    job_id text NOT NULL,
    queue text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at timestamptz NOT NULL,
    publish_until timestamptz,
    published_at timestamptz,
    first_published_at timestamptz,
    publish_count integer NOT NULL DEFAULT 0,
    tries integer NOT NULL DEFAULT 0,
    last_error text,
    done_at timestamptz,
    data jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT outbox_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_kind CHECK (kind IN ('cleanup', 'notify', 'run', 'settle'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

CREATE INDEX outbox_job ON @schema.outbox (job_id);

CREATE INDEX outbox_out ON @schema.outbox (namespace, queue, published_at)
    WHERE published_at IS NOT NULL AND done_at IS NULL;

CREATE INDEX outbox_unpublished ON @schema.outbox (namespace, due_at)
    WHERE published_at IS NULL AND done_at IS NULL;

CREATE TABLE @schema.queues (
    namespace text NOT NULL,
    name text NOT NULL,
    served_owner text,
    released_count integer NOT NULL DEFAULT 0,
    broker_count integer,
    low_sweeps integer NOT NULL DEFAULT 0,
    checked_at timestamptz,
    CONSTRAINT queues_pkey PRIMARY KEY (namespace, name)
);

CREATE TABLE @schema.sweeps (
    namespace text NOT NULL,
    name text NOT NULL,
    claimed_by uuid,
    claimed_at timestamptz,
    last_ok_at timestamptz,
    hold_until timestamptz,
    hold_reason text,
    mass_seen_at timestamptz,
    last_count integer NOT NULL DEFAULT 0,
    last_error_at timestamptz,
    last_error text,
    CONSTRAINT sweeps_pkey PRIMARY KEY (namespace, name)
);

CREATE TABLE @schema.holds (
    namespace text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    reason text NOT NULL,
    actor text NOT NULL,
    held_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT holds_pkey PRIMARY KEY (namespace, kind, name),
    CONSTRAINT holds_kind CHECK (kind IN ('task', 'owner'))
);

CREATE TABLE @schema.operations (
    namespace text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    request_digest text NOT NULL,
    reply jsonb NOT NULL,
    job_id text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT operations_pkey PRIMARY KEY (namespace, scope, key),
    CONSTRAINT operations_key_length CHECK (octet_length(key) BETWEEN 1 AND 255)
);

CREATE INDEX operations_job ON @schema.operations (job_id) WHERE job_id IS NOT NULL;

CREATE TABLE @schema.tombstones (
    job_id text NOT NULL,
    namespace text NOT NULL,
    task text NOT NULL,
    state text NOT NULL,
    log_seq integer NOT NULL,
    finished_at timestamptz NOT NULL,
    pruned_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tombstones_pkey PRIMARY KEY (job_id),
    CONSTRAINT tombstones_state CHECK (state IN ('cancelled', 'completed', 'expired', 'failed'))
);

CREATE TABLE @schema.api_tokens (
    id uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    secret_hash text NOT NULL,
    scope text NOT NULL,
    owner_id text,
    subject text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    used_at timestamptz,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_secret_hash_key UNIQUE (secret_hash),
    CONSTRAINT api_tokens_scope CHECK (scope IN ('owner', 'answerer', 'operator', 'readonly'))
);

CREATE TABLE @schema.answer_links (
    id uuid NOT NULL,
    question_id uuid NOT NULL,
    recipient text NOT NULL,
    digest text NOT NULL,
    secret_hash text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    used_at timestamptz,
    CONSTRAINT answer_links_pkey PRIMARY KEY (id),
    CONSTRAINT answer_links_secret_hash_key UNIQUE (secret_hash)
);

CREATE INDEX answer_links_question ON @schema.answer_links (question_id);

CREATE TABLE @schema.meta (
    name text NOT NULL,
    value text NOT NULL,
    CONSTRAINT meta_pkey PRIMARY KEY (name)
);
