-- Preview tokens that were given out. One that is revoked loses its row.
CREATE TABLE previews (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL REFERENCES workspaces (name),
    expires_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX previews_of_workspace ON previews (workspace);
CREATE INDEX previews_by_end ON previews (expires_ms);
