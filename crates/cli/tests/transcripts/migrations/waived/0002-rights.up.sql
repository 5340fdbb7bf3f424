-- release: 2.0
ALTER TABLE nodes ADD COLUMN owner TEXT;
CREATE UNIQUE INDEX CONCURRENTLY one_owner ON nodes (owner);
-- stagger: allow unknown-statement: no service reads as reports
REVOKE SELECT ON nodes FROM reports;
-- stagger: allow unparsable: it only writes to the server's log
DO $$ BEGIN RAISE LOG 'owners; and their nodes'; END $$;
