-- The tables of a store of version 2, as the program of that time made them, with a little in each kind.
PRAGMA user_version = 2;
CREATE TABLE runs (
    id INTEGER NOT NULL,
    name VARCHAR(200) NOT NULL,
    status VARCHAR(16) NOT NULL,
    error TEXT,
    language_model TEXT NOT NULL,
    layer INTEGER NOT NULL,
    method VARCHAR(32) NOT NULL,
    activation VARCHAR(32) NOT NULL,
    num_experts INTEGER NOT NULL,
    k INTEGER NOT NULL,
    input_width INTEGER NOT NULL,
    hidden_width INTEGER NOT NULL,
    output_width INTEGER NOT NULL,
    parameters INTEGER NOT NULL,
    text TEXT NOT NULL,
    seed INTEGER NOT NULL,
    context INTEGER NOT NULL,
    tokens_wanted INTEGER NOT NULL,
    tokens_done INTEGER NOT NULL,
    config JSON NOT NULL,
    started_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);
CREATE TABLE metrics (
    run_id INTEGER NOT NULL,
    step INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    normalised_mse DOUBLE NOT NULL,
    dead_share DOUBLE NOT NULL,
    l0 DOUBLE NOT NULL,
    largest_usage DOUBLE NOT NULL,
    tokens_per_second DOUBLE NOT NULL,
    seconds DOUBLE NOT NULL,
    PRIMARY KEY (run_id, step),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE indexes (
    run_id INTEGER NOT NULL,
    text TEXT NOT NULL,
    seed INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    context INTEGER NOT NULL,
    experts_active INTEGER NOT NULL,
    contexts INTEGER NOT NULL,
    normalised_mse DOUBLE NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (run_id),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE experts (
    run_id INTEGER NOT NULL,
    expert INTEGER NOT NULL,
    active_tokens INTEGER NOT NULL,
    usage DOUBLE NOT NULL,
    mean DOUBLE NOT NULL,
    largest DOUBLE NOT NULL,
    p99 DOUBLE NOT NULL,
    entropy DOUBLE NOT NULL,
    top_tokens JSON NOT NULL,
    histogram JSON NOT NULL,
    histogram_high DOUBLE NOT NULL,
    intervals JSON NOT NULL,
    added_loss DOUBLE NOT NULL,
    kl_up DOUBLE NOT NULL,
    output_share DOUBLE NOT NULL,
    input_dependence DOUBLE NOT NULL,
    PRIMARY KEY (run_id, expert),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX experts_by_largest ON experts (run_id, largest, expert);
CREATE INDEX experts_by_mean ON experts (run_id, mean, expert);
CREATE INDEX experts_by_entropy ON experts (run_id, entropy, expert);
CREATE INDEX experts_by_input_dependence ON experts (run_id, input_dependence, expert);
CREATE INDEX experts_by_added_loss ON experts (run_id, added_loss, expert);
CREATE INDEX experts_by_kl_up ON experts (run_id, kl_up, expert);
CREATE INDEX experts_by_output_share ON experts (run_id, output_share, expert);
CREATE INDEX experts_by_usage ON experts (run_id, usage, expert);
CREATE TABLE influences (
    run_id INTEGER NOT NULL,
    expert INTEGER NOT NULL,
    contexts INTEGER NOT NULL,
    added_loss DOUBLE,
    kl_off DOUBLE NOT NULL,
    kl_up DOUBLE NOT NULL,
    kl_other DOUBLE NOT NULL,
    kl_direction DOUBLE NOT NULL,
    other INTEGER NOT NULL,
    output_share DOUBLE NOT NULL,
    input_dependence DOUBLE NOT NULL,
    promoted JSON NOT NULL,
    suppressed JSON NOT NULL,
    PRIMARY KEY (run_id, expert),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE sequences (
    run_id INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    token_ids BLOB NOT NULL,
    PRIMARY KEY (run_id, sequence),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE TABLE contexts (
    id INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    expert INTEGER NOT NULL,
    interval INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    position INTEGER NOT NULL,
    coefficient FLOAT NOT NULL,
    active BLOB NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX contexts_of_expert ON contexts (run_id, expert, interval, rank);
CREATE TABLE evaluations (
    id INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    subject TEXT NOT NULL,
    text TEXT NOT NULL,
    fingerprint VARCHAR(32) NOT NULL,
    settings JSON NOT NULL,
    weights VARCHAR(64) NOT NULL,
    result JSON NOT NULL,
    sequences BLOB NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX ix_evaluations_run_id ON evaluations (run_id);
CREATE UNIQUE INDEX evaluations_of_subject ON evaluations (subject, fingerprint);
CREATE TABLE probes (
    id INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    labels TEXT NOT NULL,
    fingerprint VARCHAR(32) NOT NULL,
    level VARCHAR(8) NOT NULL,
    settings JSON NOT NULL,
    result JSON NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX probes_of_run ON probes (run_id, fingerprint, level);
CREATE VIRTUAL TABLE context_text USING fts5(body, tokenize='unicode61');
CREATE TABLE labels (
    run VARCHAR(200) NOT NULL,
    expert INTEGER NOT NULL,
    label VARCHAR(200) NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (run, expert)
);
CREATE TABLE notes (
    run VARCHAR(200) NOT NULL,
    expert INTEGER NOT NULL,
    note TEXT NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (run, expert)
);
CREATE TABLE tags (
    run VARCHAR(200) NOT NULL,
    expert INTEGER NOT NULL,
    tag VARCHAR(60) NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (run, expert, tag)
);
CREATE INDEX experts_of_tag ON tags (run, tag, expert);
CREATE TABLE lists (
    id INTEGER NOT NULL,
    run VARCHAR(200) NOT NULL,
    name VARCHAR(120) NOT NULL,
    note TEXT,
    created_at DATETIME NOT NULL,
    updated_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (run, name)
);
CREATE TABLE access_tokens (
    id INTEGER NOT NULL,
    role VARCHAR(8) NOT NULL,
    name VARCHAR(100) NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    created_at DATETIME NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (sha256)
);
CREATE TABLE list_entries (
    list_id INTEGER NOT NULL,
    expert INTEGER NOT NULL,
    place INTEGER NOT NULL,
    note TEXT,
    PRIMARY KEY (list_id, expert),
    FOREIGN KEY(list_id) REFERENCES lists (id) ON DELETE CASCADE
);
CREATE TABLE sessions (
    id VARCHAR(32) NOT NULL,
    run VARCHAR(200) NOT NULL,
    name VARCHAR(200) NOT NULL,
    steering JSON NOT NULL,
    units JSON NOT NULL,
    saved_at DATETIME NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_sessions_run ON sessions (run);
INSERT INTO runs VALUES (1, 'first', 'finished', NULL, 'tiny-llama', 1, 'mxd', 'silu', 160, 4, 16, 24, 16, 6000, 'text.jsonl', 0, 16, 20000, 20000, '{"name": "first"}', '2026-11-20 10:00:00', '2026-11-20 11:00:00');
INSERT INTO metrics VALUES (1, 50, 3200, 0.2, 0.1, 4.0, 0.5, 1000.0, 5.0);
INSERT INTO indexes VALUES (1, 'text.jsonl', 0, 20000, 16, 1, 1, 0.25, '2026-11-20 12:00:00');
INSERT INTO sequences VALUES (1, 0, x'0102');
INSERT INTO labels VALUES ('first', 7, 'wishes', '2026-11-20 13:00:00');
INSERT INTO notes VALUES ('first', 7, 'at the end of a booking', '2026-11-20 13:00:00');
INSERT INTO evaluations VALUES (1, 1, 'first', 'held-out.jsonl', 'abc', '{}', 'def', '{}', x'00000000', '2026-11-20 12:00:00');
INSERT INTO probes VALUES (1, 1, 'labels.csv', 'abc', 'text', '{}', '{}', '2026-11-20 12:00:00');
INSERT INTO tags VALUES ('first', 7, 'polite', '2026-11-20 13:00:00');
INSERT INTO lists VALUES (1, 'first', 'to look at', NULL, '2026-11-20 13:00:00', '2026-11-20 13:00:00');
INSERT INTO list_entries VALUES (1, 7, 1, 'twice');
INSERT INTO access_tokens VALUES (1, 'read', 'reading group', 'd2f1', '2026-11-20 13:00:00');
INSERT INTO sessions VALUES ('abcdefg', 'first', 'saved', '{"prompt": "One day"}', '{}', '2026-11-20 13:00:00');
INSERT INTO experts VALUES (1, 7, 3, 0.1, 1.0, 2.0, 1.9, 0.5, '[[5, 3]]', '[2, 1]', 2.0, '[[0.0, 2.0, 3]]', 0, 0, 0, 0);
INSERT INTO contexts VALUES (1, 1, 7, 0, 0, 0, 1, 2.0, x'010000000040');
INSERT INTO context_text (rowid, body) VALUES (1, 'have a wonderful day');
