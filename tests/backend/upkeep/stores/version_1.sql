-- The tables of a store of version 1, as the program of that time made them, with a little in each kind.
PRAGMA user_version = 1;
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
    PRIMARY KEY (run_id, expert),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX experts_by_mean ON experts (run_id, mean, expert);
CREATE INDEX experts_by_usage ON experts (run_id, usage, expert);
CREATE INDEX experts_by_largest ON experts (run_id, largest, expert);
CREATE INDEX experts_by_entropy ON experts (run_id, entropy, expert);
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
INSERT INTO runs VALUES (1, 'first', 'finished', NULL, 'tiny-llama', 1, 'mxd', 'silu', 160, 4, 16, 24, 16, 6000, 'text.jsonl', 0, 16, 20000, 20000, '{"name": "first"}', '2026-11-20 10:00:00', '2026-11-20 11:00:00');
INSERT INTO metrics VALUES (1, 50, 3200, 0.2, 0.1, 4.0, 0.5, 1000.0, 5.0);
INSERT INTO indexes VALUES (1, 'text.jsonl', 0, 20000, 16, 1, 1, 0.25, '2026-11-20 12:00:00');
INSERT INTO sequences VALUES (1, 0, x'0102');
INSERT INTO labels VALUES ('first', 7, 'wishes', '2026-11-20 13:00:00');
INSERT INTO notes VALUES ('first', 7, 'at the end of a booking', '2026-11-20 13:00:00');
INSERT INTO experts VALUES (1, 7, 3, 0.1, 1.0, 2.0, 1.9, 0.5, '[[5, 3]]', '[2, 1]', 2.0, '[[0.0, 2.0, 3]]');
INSERT INTO contexts VALUES (1, 1, 7, 0, 0, 0, 1, 2.0, x'010000000040');
INSERT INTO context_text (rowid, body) VALUES (1, 'have a wonderful day');
