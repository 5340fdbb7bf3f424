-- Who a node belongs to.
-- release: beacon
ALTER TABLE nodes ADD COLUMN owner VARCHAR(255);
CREATE INDEX nodes_by_owner ON nodes (owner);
