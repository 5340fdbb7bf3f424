-- release: 1.0
-- Fields may be empty in the schema, though no object of 1.0 leaves them so: a later release may have no place for them.
CREATE TABLE items (
    sku TEXT PRIMARY KEY,
    name TEXT,
    place TEXT,
    on_hand BIGINT,
    version VARCHAR(15),
    revision BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE movements (
    id TEXT PRIMARY KEY,
    sku TEXT,
    count BIGINT,
    version VARCHAR(15)
);
