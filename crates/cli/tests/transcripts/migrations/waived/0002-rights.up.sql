-- release: 2.0
ALTER TABLE nodes ADD COLUMN owner TEXT;
CREATE UNIQUE INDEX CONCURRENTLY one_owner ON nodes (owner);
-- stagger: allow unknown-statement: older services do not read as reports
GRANT SELECT ON nodes TO reports;
-- stagger: allow unparsable: it only writes to the server's log
DO $$ BEGIN RAISE LOG 'owners; and their nodes'; END $$;
