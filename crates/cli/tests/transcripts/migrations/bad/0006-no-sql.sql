-- release: cairn
ALTER TABLE nodes ADD COLUMN weight TEXT,
