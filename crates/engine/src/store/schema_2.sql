CREATE TABLE workspaces (
    name        TEXT PRIMARY KEY,
    created_ms  INTEGER NOT NULL,
    deleted_ms  INTEGER,                     -- the row stays: a name is never given out twice
    record_runs INTEGER NOT NULL DEFAULT 0   -- 1: the code and output of runs go to the audit log
) STRICT;
INSERT INTO workspaces (name, created_ms) VALUES ('default', unixepoch() * 1000);

CREATE TABLE tokens (
    prefix       TEXT PRIMARY KEY,           -- the secret's first characters, by which people name it
    hash         BLOB NOT NULL,              -- BLAKE3 of the whole secret
    name         TEXT NOT NULL,
    workspace    TEXT NOT NULL REFERENCES workspaces (name),
    scope        TEXT NOT NULL,              -- access::Scope
    created_ms   INTEGER NOT NULL,
    expires_ms   INTEGER,
    last_used_ms INTEGER,
    revoked_ms   INTEGER
) STRICT;
CREATE INDEX tokens_of_workspace ON tokens (workspace);

-- A workspace without a row has the defaults; NULL is without limit.
CREATE TABLE quotas (
    workspace          TEXT PRIMARY KEY REFERENCES workspaces (name),
    sandboxes          INTEGER,
    vcpus              INTEGER,
    memory_mib         INTEGER,
    disk_mib           INTEGER,
    creates_per_minute INTEGER
) STRICT;

CREATE TABLE audit (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms      INTEGER NOT NULL,
    workspace    TEXT NOT NULL,
    actor_prefix TEXT NOT NULL,
    actor_name   TEXT NOT NULL,
    action       TEXT NOT NULL,
    object       TEXT,
    result       TEXT NOT NULL,              -- ok, refused, error
    code         TEXT,                       -- of a refusal or an error
    request_id   TEXT NOT NULL,
    remote       TEXT
) STRICT;
CREATE INDEX audit_of_workspace ON audit (workspace, number);
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;

CREATE TABLE audit_recordings (
    number     INTEGER PRIMARY KEY REFERENCES audit (number) ON DELETE CASCADE,
    workspace  TEXT NOT NULL,
    code       TEXT NOT NULL,
    code_cut   INTEGER NOT NULL,             -- bytes that were left out
    output     TEXT NOT NULL,
    output_cut INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_recordings_of_workspace ON audit_recordings (workspace, number);

CREATE TABLE idempotency (
    workspace  TEXT NOT NULL REFERENCES workspaces (name),
    key        TEXT NOT NULL,
    route      TEXT NOT NULL,
    body_hash  BLOB NOT NULL,
    owner      TEXT NOT NULL,                -- which process runs it
    started_ms INTEGER NOT NULL,
    state      TEXT NOT NULL,                -- running, interrupted, done
    object     TEXT,                         -- what it made, as soon as that is known
    status     INTEGER,
    headers    TEXT,                         -- JSON
    body       BLOB,                         -- NULL when done: too large to keep
    body_bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (started_ms);
-- The bodies that count against a workspace's budget.
CREATE INDEX idempotency_large ON idempotency (workspace, body_bytes) WHERE body_bytes > 16384;
