CREATE TABLE sandboxes (
    id         TEXT PRIMARY KEY,
    engine     TEXT NOT NULL,     -- which engine looks after it
    state      TEXT NOT NULL,     -- lifecycle::State
    created_ms INTEGER NOT NULL,
    ended_ms   INTEGER,
    ended_why  TEXT,
    detail     TEXT NOT NULL      -- SandboxInfo as JSON
) STRICT;
CREATE INDEX sandboxes_alive ON sandboxes (state) WHERE state <> 'ended';

CREATE TABLE events (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ms INTEGER NOT NULL,
    sandbox TEXT NOT NULL,
    workspace TEXT NOT NULL,
    kind    TEXT NOT NULL,
    detail  TEXT NOT NULL         -- JSON
) STRICT;
CREATE INDEX events_of_sandbox ON events (sandbox, number);
CREATE INDEX events_of_workspace ON events (workspace, number);
