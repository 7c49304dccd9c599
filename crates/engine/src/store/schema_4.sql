CREATE TABLE secrets (
    workspace  TEXT NOT NULL REFERENCES workspaces (name),
    name       TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    hosts      TEXT NOT NULL,     -- JSON: where it may be used
    sealed     BLOB NOT NULL,     -- the value, encrypted
    PRIMARY KEY (workspace, name)
) STRICT;

-- Certificate authorities of sandboxes whose TLS is opened.
CREATE TABLE authorities (
    sandbox TEXT PRIMARY KEY,
    sealed  BLOB NOT NULL         -- certificate and key, encrypted
) STRICT;
