-- release: 3.0
-- No service reads these any more once all are of this release.
ALTER TABLE items DROP COLUMN name;
ALTER TABLE movements DROP COLUMN count;
