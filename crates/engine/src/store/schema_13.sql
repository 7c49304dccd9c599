-- Addresses that are told about events, and what was sent to them.
CREATE TABLE webhooks (
    id          TEXT PRIMARY KEY,
    workspace   TEXT NOT NULL,
    url         TEXT NOT NULL,
    events      TEXT NOT NULL,               -- JSON list of types
    description TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    sealed      BLOB NOT NULL,               -- the encrypted key of its signatures
    cursor      INTEGER NOT NULL             -- the last event that was looked at
) STRICT;
CREATE INDEX webhooks_of_workspace ON webhooks (workspace);

CREATE TABLE webhook_deliveries (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook    TEXT NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,                -- the event's type
    body       TEXT NOT NULL,                -- JSON, as it is sent
    state      TEXT NOT NULL,                -- pending, delivered, failed
    attempts   INTEGER NOT NULL,
    due_ms     INTEGER NOT NULL,             -- when it is tried next, if it is pending
    created_ms INTEGER NOT NULL,
    tried_ms   INTEGER,                      -- the last attempt
    status     INTEGER,                      -- of the last response
    error      TEXT                          -- why the last attempt failed
) STRICT;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (state, due_ms);
CREATE INDEX webhook_deliveries_of ON webhook_deliveries (webhook, number);
