-- Where in a request a secret may be placed, as JSON. Secrets from before could be in any header.
ALTER TABLE secrets ADD COLUMN placements TEXT NOT NULL DEFAULT '["any header"]';
