-- release: 2.0
-- Services of 1.0 go on meanwhile, so this only adds, and what it adds may be empty.
ALTER TABLE items ADD COLUMN title TEXT, ADD COLUMN note TEXT;
ALTER TABLE movements ADD COLUMN direction TEXT, ADD COLUMN amount BIGINT;
