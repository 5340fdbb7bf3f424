DROP INDEX one_owner;
ALTER TABLE nodes DROP COLUMN owner;
