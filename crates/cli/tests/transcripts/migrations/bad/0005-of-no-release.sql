-- release: dune
ALTER TABLE nodes ADD COLUMN size TEXT;
