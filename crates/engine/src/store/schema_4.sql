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

CREATE TABLE volumes (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL,
    name       TEXT,              -- NULL: it belongs to one sandbox alone, and ends with it
    created_ms INTEGER NOT NULL,
    detail     TEXT NOT NULL      -- VolumeInfo as JSON
) STRICT;
CREATE UNIQUE INDEX volumes_by_name ON volumes (workspace, name) WHERE name IS NOT NULL;

-- Who has a volume: many who read it, or one who writes it.
CREATE TABLE volume_uses (
    volume TEXT NOT NULL REFERENCES volumes (id),
    holder TEXT NOT NULL,         -- a sandbox, or a request that is about to make one
    engine TEXT NOT NULL,         -- which engine entered it
    writes INTEGER NOT NULL,
    PRIMARY KEY (volume, holder)
) STRICT;
CREATE INDEX volume_uses_of_holder ON volume_uses (holder);

-- Templates that are snapshots.
CREATE TABLE snapshot_templates (
    workspace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    snapshot    TEXT NOT NULL,
    description TEXT NOT NULL,
    created_ms  INTEGER NOT NULL,
    PRIMARY KEY (workspace, name)
) STRICT;
