-- release: 1.0
CREATE TABLE nodes (
  uuid VARCHAR(36) PRIMARY KEY,
  extra TEXT,
  notes TEXT,
  version VARCHAR(15)
);
