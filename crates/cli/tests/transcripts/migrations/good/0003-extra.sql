-- release: cairn
-- Objects have it no more since beacon.
ALTER TABLE nodes DROP COLUMN extra;
ALTER TABLE nodes ADD CONSTRAINT of_owner FOREIGN KEY (owner) REFERENCES owners (id) NOT VALID;
