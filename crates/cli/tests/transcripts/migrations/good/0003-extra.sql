-- release: cairn
-- Objects have it no more since beacon.
ALTER TABLE nodes DROP COLUMN extra;
ALTER TABLE nodes ADD COLUMN chassis TEXT REFERENCES chassis (id) ON DELETE SET NULL;
