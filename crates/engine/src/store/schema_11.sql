-- Credentials for registries of OCI images.
CREATE TABLE registry_credentials (
    workspace  TEXT NOT NULL,
    registry   TEXT NOT NULL,                -- host or host:port
    username   TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    sealed     BLOB NOT NULL,                -- the encrypted password
    PRIMARY KEY (workspace, registry)
) STRICT;

-- Which image a reference meant when a registry was last asked, and the template made of it.
CREATE TABLE image_references (
    workspace   TEXT NOT NULL,
    reference   TEXT NOT NULL,
    digest      TEXT NOT NULL,
    template    TEXT NOT NULL,
    resolved_ms INTEGER NOT NULL,
    PRIMARY KEY (workspace, reference)
) STRICT;
