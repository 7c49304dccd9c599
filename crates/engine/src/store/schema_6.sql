-- Preview tokens that were given out. One that is revoked loses its row.
CREATE TABLE previews (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL REFERENCES workspaces (name),
    expires_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX previews_of_workspace ON previews (workspace);
CREATE INDEX previews_by_end ON previews (expires_ms);

-- How builds of templates went. What they said is not kept.
CREATE TABLE builds (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL REFERENCES workspaces (name),
    name       TEXT NOT NULL,     -- what the template is to be called
    owner      TEXT NOT NULL,     -- which process is at it
    started_ms INTEGER NOT NULL,
    ended_ms   INTEGER,
    bytes      INTEGER,           -- of one that was done
    why        TEXT,              -- it failed
    step       TEXT               -- and where
) STRICT;

-- What a snapshot adds to those that it stands on, for the quota of its workspace.
ALTER TABLE snapshots ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE snapshots SET bytes = ifnull(detail ->> 'memory_bytes' + detail ->> 'disk_bytes', 0) WHERE json_valid(detail);
CREATE INDEX snapshots_by_size ON snapshots (workspace, bytes);
