-- Which secret it is: another one may have its name later. Those of before have none, as what was given of them.
ALTER TABLE secrets ADD COLUMN id TEXT NOT NULL DEFAULT '';
