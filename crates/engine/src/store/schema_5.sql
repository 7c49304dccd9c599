-- What new sandboxes may reach that say nothing about it themselves.
CREATE TABLE network_defaults (
    workspace TEXT NOT NULL REFERENCES workspaces (name),
    template  TEXT NOT NULL,      -- empty: whatever the template
    detail    TEXT NOT NULL,      -- NetworkDefault as JSON
    PRIMARY KEY (workspace, template)
) STRICT;

-- Names that sandboxes have resolved, for their next gateways.
CREATE TABLE pins (
    sandbox   TEXT PRIMARY KEY,
    pinned_ms INTEGER NOT NULL,
    detail    TEXT NOT NULL       -- pins as JSON
) STRICT;
