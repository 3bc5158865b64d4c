-- A store of version 4 in PostgreSQL, as the program of that time made it and pg_dump tells it, with a little in each kind.
CREATE TABLE access_tokens (
    id integer NOT NULL,
    role character varying(8) NOT NULL,
    name character varying(100) NOT NULL,
    sha256 character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE access_tokens_id_seq AS integer;
ALTER SEQUENCE access_tokens_id_seq OWNED BY access_tokens.id;
CREATE TABLE automatic_labels (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    maker character varying(200) NOT NULL,
    label text NOT NULL,
    balanced_accuracy double precision NOT NULL,
    "precision" double precision,
    recall double precision,
    tested integer NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE backend_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE contexts (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    "interval" integer NOT NULL,
    rank integer NOT NULL,
    sequence integer NOT NULL,
    "position" integer NOT NULL,
    coefficient double precision NOT NULL,
    active bytea NOT NULL
);
CREATE TABLE evaluations (
    id integer NOT NULL,
    run_id integer NOT NULL,
    subject text NOT NULL,
    text text NOT NULL,
    fingerprint character varying(32) NOT NULL,
    settings json NOT NULL,
    weights character varying(64) NOT NULL,
    result json NOT NULL,
    sequences bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE evaluations_id_seq AS integer;
ALTER SEQUENCE evaluations_id_seq OWNED BY evaluations.id;
CREATE TABLE experts (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    active_tokens integer NOT NULL,
    usage double precision NOT NULL,
    mean double precision NOT NULL,
    largest double precision NOT NULL,
    p99 double precision NOT NULL,
    entropy double precision NOT NULL,
    top_tokens bytea NOT NULL,
    histogram bytea NOT NULL,
    histogram_high double precision NOT NULL,
    intervals json NOT NULL,
    added_loss double precision NOT NULL,
    kl_up double precision NOT NULL,
    output_share double precision NOT NULL,
    input_dependence double precision NOT NULL
);
CREATE TABLE indexes (
    run_id integer NOT NULL,
    text text NOT NULL,
    seed integer NOT NULL,
    tokens integer NOT NULL,
    context integer NOT NULL,
    experts_active integer NOT NULL,
    contexts integer NOT NULL,
    normalised_mse double precision NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE influences (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    contexts integer NOT NULL,
    added_loss double precision,
    kl_off double precision NOT NULL,
    kl_up double precision NOT NULL,
    kl_other double precision NOT NULL,
    kl_direction double precision NOT NULL,
    other integer NOT NULL,
    output_share double precision NOT NULL,
    input_dependence double precision NOT NULL,
    promoted json NOT NULL,
    suppressed json NOT NULL
);
CREATE TABLE labels (
    run character varying(200) NOT NULL,
    expert integer NOT NULL,
    label character varying(200) NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE list_entries (
    list_id integer NOT NULL,
    expert integer NOT NULL,
    place integer NOT NULL,
    note text
);
CREATE TABLE lists (
    id integer NOT NULL,
    run character varying(200) NOT NULL,
    name character varying(120) NOT NULL,
    note text,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE lists_id_seq AS integer;
ALTER SEQUENCE lists_id_seq OWNED BY lists.id;
CREATE TABLE metrics (
    run_id integer NOT NULL,
    step integer NOT NULL,
    tokens integer NOT NULL,
    normalised_mse double precision NOT NULL,
    dead_share double precision NOT NULL,
    l0 double precision NOT NULL,
    largest_usage double precision NOT NULL,
    tokens_per_second double precision NOT NULL,
    seconds double precision NOT NULL
);
CREATE TABLE notes (
    run character varying(200) NOT NULL,
    expert integer NOT NULL,
    note text NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE probes (
    id integer NOT NULL,
    run_id integer NOT NULL,
    labels text NOT NULL,
    fingerprint character varying(32) NOT NULL,
    level character varying(8) NOT NULL,
    settings json NOT NULL,
    result json NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE probes_id_seq AS integer;
ALTER SEQUENCE probes_id_seq OWNED BY probes.id;
CREATE TABLE routed_sequences (
    run_id integer NOT NULL,
    sequence integer NOT NULL,
    counts bytea NOT NULL,
    experts bytea NOT NULL
);
CREATE TABLE runs (
    id integer NOT NULL,
    name character varying(200) NOT NULL,
    status character varying(16) NOT NULL,
    error text,
    language_model text NOT NULL,
    layer integer NOT NULL,
    method character varying(32) NOT NULL,
    activation character varying(32) NOT NULL,
    num_experts integer NOT NULL,
    k integer NOT NULL,
    input_width integer NOT NULL,
    hidden_width integer NOT NULL,
    output_width integer NOT NULL,
    parameters integer NOT NULL,
    text text NOT NULL,
    seed integer NOT NULL,
    context integer NOT NULL,
    tokens_wanted integer NOT NULL,
    tokens_done integer NOT NULL,
    config json NOT NULL,
    started_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE runs_id_seq AS integer;
ALTER SEQUENCE runs_id_seq OWNED BY runs.id;
CREATE TABLE search_documents (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    body tsvector NOT NULL
);
CREATE TABLE sequences (
    run_id integer NOT NULL,
    sequence integer NOT NULL,
    token_ids bytea NOT NULL
);
CREATE TABLE sessions (
    id character varying(32) NOT NULL,
    run character varying(200) NOT NULL,
    name character varying(200) NOT NULL,
    steering json NOT NULL,
    units json NOT NULL,
    saved_at timestamp with time zone NOT NULL
);
CREATE TABLE steering_doses (
    run_id integer NOT NULL,
    expert integer NOT NULL,
    kind character varying(16) NOT NULL,
    strength double precision NOT NULL,
    kl double precision NOT NULL,
    loss double precision NOT NULL,
    self_similarity double precision NOT NULL,
    promoted_share double precision NOT NULL
);
CREATE TABLE tags (
    run character varying(200) NOT NULL,
    expert integer NOT NULL,
    tag character varying(60) NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE trainer_version (
    version_num character varying(32) NOT NULL
);
ALTER TABLE ONLY access_tokens ALTER COLUMN id SET DEFAULT nextval('access_tokens_id_seq'::regclass);
ALTER TABLE ONLY evaluations ALTER COLUMN id SET DEFAULT nextval('evaluations_id_seq'::regclass);
ALTER TABLE ONLY lists ALTER COLUMN id SET DEFAULT nextval('lists_id_seq'::regclass);
ALTER TABLE ONLY probes ALTER COLUMN id SET DEFAULT nextval('probes_id_seq'::regclass);
ALTER TABLE ONLY runs ALTER COLUMN id SET DEFAULT nextval('runs_id_seq'::regclass);
INSERT INTO access_tokens VALUES (1, 'read', 'reading group', 'd2f1', '2026-11-20 13:00:00+00');
INSERT INTO backend_version VALUES ('1');
INSERT INTO contexts VALUES (1, 7, 0, 0, 0, 1, 2, '\x01010000000040');
INSERT INTO evaluations VALUES (1, 1, 'first', 'held-out.jsonl', 'abc', '{}', 'def', '{}', '\x00000000', '2026-11-20 12:00:00+00');
INSERT INTO experts VALUES (1, 7, 3, 0.1, 1, 2, 1.9, 0.5, '\x0503', '\x0201', 2, '[[0.0, 2.0, 3]]', 0, 0, 0, 0);
INSERT INTO indexes VALUES (1, 'text.jsonl', 0, 20000, 16, 1, 1, 0.25, '2026-11-20 12:00:00+00');
INSERT INTO labels VALUES ('first', 7, 'wishes', '2026-11-20 13:00:00+00');
INSERT INTO list_entries VALUES (1, 7, 1, 'twice');
INSERT INTO lists VALUES (1, 'first', 'to look at', NULL, '2026-11-20 13:00:00+00', '2026-11-20 13:00:00+00');
INSERT INTO metrics VALUES (1, 50, 3200, 0.2, 0.1, 4, 0.5, 1000, 5);
INSERT INTO notes VALUES ('first', 7, 'at the end of a booking', '2026-11-20 13:00:00+00');
INSERT INTO probes VALUES (1, 1, 'labels.csv', 'abc', 'text', '{}', '{}', '2026-11-20 12:00:00+00');
INSERT INTO runs VALUES (1, 'first', 'finished', NULL, 'tiny-llama', 1, 'mxd', 'silu', 160, 4, 16, 24, 16, 6000, 'text.jsonl', 0, 16, 20000, 20000, '{"name": "first"}', '2026-11-20 10:00:00+00', '2026-11-20 11:00:00+00');
INSERT INTO search_documents VALUES (1, 7, '''a'':2 ''day'':4 ''have'':1 ''wonderful'':3');
INSERT INTO sequences VALUES (1, 0, '\x0102');
INSERT INTO sessions VALUES ('abcdefg', 'first', 'saved', '{"prompt": "One day"}', '{}', '2026-11-20 13:00:00+00');
INSERT INTO tags VALUES ('first', 7, 'polite', '2026-11-20 13:00:00+00');
INSERT INTO trainer_version VALUES ('4');
SELECT pg_catalog.setval('access_tokens_id_seq', 1, true);
SELECT pg_catalog.setval('evaluations_id_seq', 1, true);
SELECT pg_catalog.setval('lists_id_seq', 1, true);
SELECT pg_catalog.setval('probes_id_seq', 1, true);
SELECT pg_catalog.setval('runs_id_seq', 1, true);
ALTER TABLE ONLY access_tokens ADD CONSTRAINT access_tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY access_tokens ADD CONSTRAINT access_tokens_sha256_key UNIQUE (sha256);
ALTER TABLE ONLY automatic_labels ADD CONSTRAINT automatic_labels_pkey PRIMARY KEY (run_id, expert, maker);
ALTER TABLE ONLY backend_version ADD CONSTRAINT backend_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY contexts ADD CONSTRAINT contexts_pkey PRIMARY KEY (run_id, expert, "interval", rank);
ALTER TABLE ONLY evaluations ADD CONSTRAINT evaluations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY experts ADD CONSTRAINT experts_pkey PRIMARY KEY (run_id, expert);
ALTER TABLE ONLY indexes ADD CONSTRAINT indexes_pkey PRIMARY KEY (run_id);
ALTER TABLE ONLY influences ADD CONSTRAINT influences_pkey PRIMARY KEY (run_id, expert);
ALTER TABLE ONLY labels ADD CONSTRAINT labels_pkey PRIMARY KEY (run, expert);
ALTER TABLE ONLY list_entries ADD CONSTRAINT list_entries_pkey PRIMARY KEY (list_id, expert);
ALTER TABLE ONLY lists ADD CONSTRAINT lists_pkey PRIMARY KEY (id);
ALTER TABLE ONLY lists ADD CONSTRAINT lists_run_name_key UNIQUE (run, name);
ALTER TABLE ONLY metrics ADD CONSTRAINT metrics_pkey PRIMARY KEY (run_id, step);
ALTER TABLE ONLY notes ADD CONSTRAINT notes_pkey PRIMARY KEY (run, expert);
ALTER TABLE ONLY probes ADD CONSTRAINT probes_pkey PRIMARY KEY (id);
ALTER TABLE ONLY routed_sequences ADD CONSTRAINT routed_sequences_pkey PRIMARY KEY (run_id, sequence);
ALTER TABLE ONLY runs ADD CONSTRAINT runs_name_key UNIQUE (name);
ALTER TABLE ONLY runs ADD CONSTRAINT runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY search_documents ADD CONSTRAINT search_documents_pkey PRIMARY KEY (run_id, expert);
ALTER TABLE ONLY sequences ADD CONSTRAINT sequences_pkey PRIMARY KEY (run_id, sequence);
ALTER TABLE ONLY sessions ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY steering_doses ADD CONSTRAINT steering_doses_pkey PRIMARY KEY (run_id, expert, kind, strength);
ALTER TABLE ONLY tags ADD CONSTRAINT tags_pkey PRIMARY KEY (run, expert, tag);
ALTER TABLE ONLY trainer_version ADD CONSTRAINT trainer_version_pkc PRIMARY KEY (version_num);
CREATE UNIQUE INDEX evaluations_of_subject ON evaluations USING btree (subject, fingerprint);
CREATE INDEX experts_by_added_loss ON experts USING btree (run_id, added_loss, expert);
CREATE INDEX experts_by_entropy ON experts USING btree (run_id, entropy, expert);
CREATE INDEX experts_by_input_dependence ON experts USING btree (run_id, input_dependence, expert);
CREATE INDEX experts_by_kl_up ON experts USING btree (run_id, kl_up, expert);
CREATE INDEX experts_by_largest ON experts USING btree (run_id, largest, expert);
CREATE INDEX experts_by_mean ON experts USING btree (run_id, mean, expert);
CREATE INDEX experts_by_output_share ON experts USING btree (run_id, output_share, expert);
CREATE INDEX experts_by_usage ON experts USING btree (run_id, usage, expert);
CREATE INDEX experts_of_tag ON tags USING btree (run, tag, expert);
CREATE INDEX ix_evaluations_run_id ON evaluations USING btree (run_id);
CREATE INDEX ix_sessions_run ON sessions USING btree (run);
CREATE UNIQUE INDEX probes_of_run ON probes USING btree (run_id, fingerprint, level);
CREATE INDEX search_documents_by_word ON search_documents USING gin (body);
ALTER TABLE ONLY automatic_labels ADD CONSTRAINT automatic_labels_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY contexts ADD CONSTRAINT contexts_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY evaluations ADD CONSTRAINT evaluations_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY experts ADD CONSTRAINT experts_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY indexes ADD CONSTRAINT indexes_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY influences ADD CONSTRAINT influences_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY list_entries ADD CONSTRAINT list_entries_list_id_fkey FOREIGN KEY (list_id) REFERENCES lists(id) ON DELETE CASCADE;
ALTER TABLE ONLY metrics ADD CONSTRAINT metrics_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY probes ADD CONSTRAINT probes_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY routed_sequences ADD CONSTRAINT routed_sequences_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY search_documents ADD CONSTRAINT search_documents_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY sequences ADD CONSTRAINT sequences_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY steering_doses ADD CONSTRAINT steering_doses_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE;
