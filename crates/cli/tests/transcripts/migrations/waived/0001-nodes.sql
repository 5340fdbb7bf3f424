-- release: 1.0
CREATE TABLE nodes (uuid VARCHAR(36) PRIMARY KEY, version VARCHAR(15));
