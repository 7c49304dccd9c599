-- Refusals are kept apart from changes, and entries are chained by hash. Entries from before have no hash.
DROP TRIGGER audit_is_append_only;
ALTER TABLE audit ADD COLUMN kind TEXT NOT NULL DEFAULT 'change';  -- change, refusal
ALTER TABLE audit ADD COLUMN count INTEGER NOT NULL DEFAULT 1;     -- the requests that the entry stands for
ALTER TABLE audit ADD COLUMN recording BLOB;                       -- digest of the recorded code and output
ALTER TABLE audit ADD COLUMN version INTEGER;                      -- of the bytes that are hashed
ALTER TABLE audit ADD COLUMN previous BLOB;                        -- the hash of the entry before it in its chain
ALTER TABLE audit ADD COLUMN hash BLOB;
UPDATE audit SET kind = 'refusal' WHERE result = 'refused';
CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE INDEX audit_of_kind ON audit (workspace, kind, number);

CREATE TABLE audit_chains (
    workspace     TEXT NOT NULL,
    kind          TEXT NOT NULL,
    anchor_number INTEGER NOT NULL,          -- the last entry that was pruned; later ones have a hash
    anchor_hash   BLOB NOT NULL,
    head_number   INTEGER NOT NULL,          -- the newest entry
    head_hash     BLOB NOT NULL,
    broken_number INTEGER,                   -- the first pruned entry that did not fit its chain
    PRIMARY KEY (workspace, kind)
) STRICT;
-- The chains begin after what is there.
INSERT INTO audit_chains (workspace, kind, anchor_number, anchor_hash, head_number, head_hash)
SELECT workspace, kind, max(number), zeroblob(32), max(number), zeroblob(32) FROM audit GROUP BY workspace, kind;

-- Actions that are about to happen, for servers that refuse what they cannot audit.
CREATE TABLE audit_intents (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    owner   TEXT NOT NULL,                   -- the process that runs it
    time_ms INTEGER NOT NULL,
    entry   TEXT NOT NULL                    -- JSON
) STRICT;

-- How far the log was copied to each target.
CREATE TABLE audit_shipping (
    target TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT;
