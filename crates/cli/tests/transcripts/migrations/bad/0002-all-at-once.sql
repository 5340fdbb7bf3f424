-- release: 2.0

ALTER TABLE nodes RENAME COLUMN extra TO facts;
ALTER TABLE nodes ALTER COLUMN uuid TYPE VARCHAR(64);
ALTER TABLE nodes ADD COLUMN owner VARCHAR(255) NOT NULL;
UPDATE nodes
   SET owner = 'nobody';
