-- release: 3.0
-- stagger: allow unknown-statement
DROP VIEW owners;
-- stagger: allow data-changed: there is nothing in it yet
ALTER TABLE nodes ADD COLUMN colour TEXT;
