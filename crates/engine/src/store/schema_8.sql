-- Limits on the requests of each token. A quota that was set before gets the defaults.
ALTER TABLE quotas ADD COLUMN requests_per_second INTEGER DEFAULT 500;
ALTER TABLE quotas ADD COLUMN open_requests INTEGER DEFAULT 1000;
