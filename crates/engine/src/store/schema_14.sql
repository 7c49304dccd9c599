-- In a fleet: the settings of workspaces as all nodes had them last. What differs from that was changed here since.
CREATE TABLE shared_settings (
    name       TEXT PRIMARY KEY,
    joined_ms  INTEGER NOT NULL,             -- when this machine joined the fleet
    changed_ms INTEGER NOT NULL,             -- a later change wins
    state      TEXT                          -- tells one value from another; NULL: there is none
) STRICT;
