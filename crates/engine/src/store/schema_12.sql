-- Snapshots that are kept under a key although nothing stands on them: the steps of builds, and earlier versions of
-- templates. They are a cache, and those that were not used for longest are removed first.
CREATE TABLE kept_snapshots (
    workspace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    snapshot   TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    used_ms    INTEGER NOT NULL,
    PRIMARY KEY (workspace, key)
) STRICT;
