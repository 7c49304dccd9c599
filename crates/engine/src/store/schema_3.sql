CREATE TABLE snapshots (
    id         TEXT PRIMARY KEY,
    workspace  TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    listed     INTEGER NOT NULL,  -- 0: kept only for what stands on it
    detail     TEXT NOT NULL      -- SnapshotInfo as JSON
) STRICT;
CREATE INDEX snapshots_of_workspace ON snapshots (workspace, created_ms) WHERE listed = 1;
