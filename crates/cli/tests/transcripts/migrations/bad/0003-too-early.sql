-- release: 3.0
ALTER TABLE nodes DROP COLUMN notes;
ALTER TABLE nodes DROP COLUMN uuid;
CREATE UNIQUE INDEX one_owner ON nodes (owner);
