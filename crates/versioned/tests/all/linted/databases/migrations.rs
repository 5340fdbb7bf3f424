//! Migrations of each kind, with what is random in them.

/// A migration.
#[derive(Debug)]
pub(super) struct Made {
    /// What kind it is of.
    pub(super) kind: &'static str,
    /// Its text.
    pub(super) text: String,
    /// The same, as it can be carried out within a transaction.
    pub(super) carried_out: String,
    /// What newer services then do.
    pub(super) newer: Vec<String>,
}

/// Random numbers that are the same each time.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, end: usize) -> usize {
        // Knuth's MMIX generator; its high bits are random enough.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

type Kind = fn(&mut Numbers) -> Made;

pub(super) const POSTGRES: [Kind; 26] = [
    add_column,
    add_defaulted,
    add_required,
    add_unique,
    add_checked,
    add_referring,
    add_computed,
    add_of_type,
    create_table,
    create_chain,
    create_index,
    create_expression_index,
    create_unique,
    drop_something,
    rename,
    resize,
    nullability,
    set_default,
    add_check,
    add_foreign_key,
    change_rows,
    partition,
    rights,
    routines,
    concurrently,
    settings,
];

pub(super) const SQLITE: [Kind; 12] = [
    add_column_anywhere,
    add_defaulted_anywhere,
    add_required,
    add_checked,
    create_table,
    create_chain,
    create_index,
    create_expression_index_of_sqlite,
    create_unique,
    drop_in_sqlite,
    rename,
    change_rows,
];

fn made(kind: &'static str, text: String) -> Made {
    Made {
        kind,
        carried_out: text.clone(),
        text,
        newer: Vec::new(),
    }
}

const TABLES: [&str; 2] = ["nodes", "racks"];

/// A column of nodes that each migration adds.
const NEW: &str = "extra";

fn add_column(numbers: &mut Numbers) -> Made {
    let types = [
        "TEXT",
        "INT",
        "BIGINT",
        "BOOLEAN",
        "JSONB",
        "TIMESTAMPTZ",
        "UUID",
        "VARCHAR(10)",
        "NUMERIC(6, 2)",
        "TEXT[]",
        "inet",
        "int4range",
        "BIGINT GENERATED ALWAYS AS IDENTITY",
        "BIGSERIAL",
    ];
    let (table, data_type) = (numbers.one(&TABLES), numbers.one(&types));
    // A sequence of BIGSERIAL is a right of its own.
    let grant = match data_type {
        "BIGSERIAL" => format!("; GRANT USAGE ON SEQUENCE {table}_extra_seq TO services"),
        _ => String::new(),
    };
    made(
        "add a column",
        format!("ALTER TABLE {table} ADD COLUMN {NEW} {data_type}{grant}"),
    )
}

fn add_column_anywhere(numbers: &mut Numbers) -> Made {
    let (table, data_type) = (
        numbers.one(&TABLES),
        numbers.one(&["TEXT", "INT", "REAL", "BLOB"]),
    );
    made(
        "add a column",
        format!("ALTER TABLE {table} ADD COLUMN {NEW} {data_type}"),
    )
}

fn add_defaulted(numbers: &mut Numbers) -> Made {
    let columns = [
        "TEXT NOT NULL DEFAULT 'x'",
        "INT NOT NULL DEFAULT 0",
        "UUID NOT NULL DEFAULT gen_random_uuid()",
        "TIMESTAMPTZ NOT NULL DEFAULT now()",
        "JSONB NOT NULL DEFAULT '{}'",
        "TEXT[] NOT NULL DEFAULT ARRAY['a', 'b']",
        "TIMESTAMPTZ DEFAULT now() + INTERVAL '1 day'",
        "BOOLEAN NOT NULL DEFAULT FALSE",
    ];
    let (table, column) = (numbers.one(&TABLES), numbers.one(&columns));
    made(
        "add a column with a default",
        format!("ALTER TABLE {table} ADD COLUMN {NEW} {column}"),
    )
}

fn add_defaulted_anywhere(numbers: &mut Numbers) -> Made {
    let columns = [
        "TEXT NOT NULL DEFAULT 'x'",
        "INT NOT NULL DEFAULT -3",
        "INT DEFAULT 0",
    ];
    let (table, column) = (numbers.one(&TABLES), numbers.one(&columns));
    made(
        "add a column with a default",
        format!("ALTER TABLE {table} ADD COLUMN {NEW} {column}"),
    )
}

fn add_required(numbers: &mut Numbers) -> Made {
    let (table, data_type) = (numbers.one(&TABLES), numbers.one(&["TEXT", "INT", "VARCHAR(3)"]));
    // PostgreSQL and SQLite refuse it where there are rows.
    let text = format!("ALTER TABLE {table} ADD COLUMN {NEW} {data_type} NOT NULL");
    made("add a required column", text)
}

fn add_unique(numbers: &mut Numbers) -> Made {
    let rest = [
        "TEXT UNIQUE",
        "UUID DEFAULT gen_random_uuid() UNIQUE",
        "TEXT; CREATE UNIQUE INDEX i ON nodes (extra)",
        "TEXT; CREATE UNIQUE INDEX i ON nodes (note, extra)",
        "TEXT; ALTER TABLE nodes ADD CONSTRAINT u UNIQUE (extra)",
        "TEXT; CREATE UNIQUE INDEX i ON nodes (extra) NULLS NOT DISTINCT",
        "TEXT; CREATE UNIQUE INDEX i ON nodes (coalesce(extra, ''))",
        "TEXT; CREATE UNIQUE INDEX i ON nodes (extra); ALTER TABLE nodes ALTER COLUMN extra SET DEFAULT 'x'",
    ];
    made(
        "add a unique column",
        format!("ALTER TABLE nodes ADD COLUMN {NEW} {}", numbers.one(&rest)),
    )
}

const CHECKS: [&str; 12] = [
    "TEXT CHECK (extra <> '')",
    "TEXT CHECK (length(extra) <= 5)",
    "TEXT CHECK (extra IN ('a', 'b'))",
    "INT CHECK (extra > 3)",
    "INT CHECK (extra BETWEEN 1 AND 4)",
    "TEXT CHECK (extra IS NOT NULL)",
    "TEXT CHECK (coalesce(extra, '') <> '')",
    "INT DEFAULT 4 CHECK (extra > 3)",
    "INT NOT NULL DEFAULT 0 CHECK (extra >= 0)",
    "TEXT DEFAULT 'a' CHECK (extra IN ('a', 'b'))",
    "INT CHECK (extra IS NULL OR extra > 0)",
    "INT CHECK (extra > 3 AND size > 0)",
];

fn add_checked(numbers: &mut Numbers) -> Made {
    made(
        "add a checked column",
        format!("ALTER TABLE nodes ADD COLUMN {NEW} {}", numbers.one(&CHECKS)),
    )
}

const DELETES: [&str; 5] = [
    "",
    " ON DELETE CASCADE",
    " ON DELETE SET NULL",
    " ON DELETE RESTRICT",
    " ON DELETE NO ACTION",
];

fn add_referring(numbers: &mut Numbers) -> Made {
    let (delete, default) = (numbers.one(&DELETES), numbers.one(&["", "", " DEFAULT 7"]));
    let mut text = format!("ALTER TABLE nodes ADD COLUMN {NEW} INT REFERENCES racks (id){delete}");
    // A default without a partner is refused for rows that are there, so it is set after that.
    if !default.is_empty() {
        text.push_str(&["; ALTER TABLE nodes ALTER COLUMN ", NEW, " SET", default].concat());
    }
    Made {
        newer: vec![format!("UPDATE nodes SET {NEW} = 1 WHERE id = 1")],
        ..made("add a column that refers", text)
    }
}

fn add_computed(numbers: &mut Numbers) -> Made {
    let computed = [
        "TEXT GENERATED ALWAYS AS (lower(name)) STORED",
        "TEXT GENERATED ALWAYS AS (coalesce(note, 'x')) STORED",
        "BOOLEAN GENERATED ALWAYS AS (size > 0 AND note IS NOT NULL) STORED",
        "INT GENERATED ALWAYS AS (size + size) STORED",
        "INT GENERATED ALWAYS AS (10 / size) STORED",
        "INT NOT NULL GENERATED ALWAYS AS (size * 1) STORED",
        "TEXT GENERATED ALWAYS AS (facts ->> 'rack') STORED",
        "VARCHAR(3) GENERATED ALWAYS AS (name) STORED",
    ];
    made(
        "add a computed column",
        format!("ALTER TABLE nodes ADD COLUMN {NEW} {}", numbers.one(&computed)),
    )
}

fn add_of_type(numbers: &mut Numbers) -> Made {
    let types = [
        ("CREATE TYPE kind AS ENUM ('a', 'b')", "kind"),
        ("CREATE TYPE kind AS ENUM ('a', 'b')", "kind NOT NULL DEFAULT 'a'"),
        ("CREATE DOMAIN kind AS TEXT CHECK (VALUE <> '')", "kind"),
        ("CREATE DOMAIN kind AS TEXT CHECK (length(VALUE) < 4)", "kind"),
        ("CREATE DOMAIN kind AS INT DEFAULT 4 CHECK (VALUE > 3)", "kind"),
        ("CREATE DOMAIN kind AS INT CHECK (VALUE > 3)", "kind DEFAULT 4"),
    ];
    let refused = [
        "CREATE DOMAIN kind AS TEXT CHECK (VALUE IS NOT NULL)",
        "CREATE DOMAIN kind AS TEXT CHECK (coalesce(VALUE, '') <> '')",
        "CREATE DOMAIN kind AS TEXT NOT NULL",
    ];
    // Such a column comes only where there are no rows, or older ones are filled at once.
    let text = if numbers.below(2) == 0 {
        let (create, column) = types[numbers.below(types.len())];
        format!("{create}; ALTER TABLE nodes ADD COLUMN {NEW} {column}")
    } else {
        let create = numbers.one(&refused);
        format!(
            "{create}; ALTER TABLE nodes ADD COLUMN {NEW} kind DEFAULT 'x'; ALTER TABLE nodes ALTER COLUMN {NEW} DROP DEFAULT"
        )
    };
    made("add a column of a type", text)
}

fn create_table(numbers: &mut Numbers) -> Made {
    let (delete, required) = (numbers.one(&DELETES), numbers.one(&["", " NOT NULL"]));
    let text = match numbers.below(3) {
        0 => "CREATE TABLE ports (id INT PRIMARY KEY, node INT, name TEXT UNIQUE CHECK (name <> ''))"
            .to_owned(),
        1 => format!(
            "CREATE TABLE ports (id INT PRIMARY KEY, node INT{required} REFERENCES nodes (id){delete})"
        ),
        _ => format!(
            "CREATE TABLE ports (id INT PRIMARY KEY, node INT{required}, CONSTRAINT f FOREIGN KEY (node) REFERENCES nodes (id){delete})"
        ),
    };
    Made {
        newer: vec!["INSERT INTO ports (id, node) VALUES (1, 2), (2, 1)".to_owned()],
        ..made("create a table", text)
    }
}

fn create_chain(numbers: &mut Numbers) -> Made {
    let (one, two) = (numbers.one(&DELETES), numbers.one(&DELETES));
    let text = format!(
        "CREATE TABLE ports (id INT PRIMARY KEY, node INT REFERENCES nodes (id){one}); \
         CREATE TABLE links (id INT PRIMARY KEY, port INT REFERENCES ports (id){two})"
    );
    Made {
        newer: vec![
            "INSERT INTO ports (id, node) VALUES (1, 2)".to_owned(),
            "INSERT INTO links (id, port) VALUES (1, 1)".to_owned(),
        ],
        ..made("create a chain of tables", text)
    }
}

fn create_index(numbers: &mut Numbers) -> Made {
    let on = [
        "nodes (size)",
        "nodes (name, note)",
        "racks (name)",
        "nodes (size) WHERE note IS NOT NULL",
        "nodes (size DESC)",
    ];
    made(
        "create an index",
        format!("CREATE INDEX i ON {}", numbers.one(&on)),
    )
}

fn create_expression_index(numbers: &mut Numbers) -> Made {
    let on = [
        "(lower(name))",
        "((coalesce(note, '')))",
        "((facts ->> 'rack'))",
        "((size::text))",
        "(name COLLATE \"C\")",
        "(md5(name))",
        "((version::numeric))",
        "((10 / nullif(size, 1)))",
        "((size * 2))",
        "(name) WHERE 10 / size > 1",
    ];
    made(
        "create an index on an expression",
        format!("CREATE INDEX i ON nodes {}", numbers.one(&on)),
    )
}

fn create_expression_index_of_sqlite(numbers: &mut Numbers) -> Made {
    let on = [
        "(lower(name))",
        "(coalesce(note, ''))",
        "(length(name))",
        "(json_extract(name, '$.a'))",
        "(name ->> 'a')",
    ];
    let on = numbers.one(&on);
    // Rows that are there are none that it refuses.
    let part = if on.contains("'$") || on.contains("->") {
        " WHERE id > 5"
    } else {
        ""
    };
    made(
        "create an index on an expression",
        format!("CREATE INDEX i ON nodes {on}{part}"),
    )
}

fn create_unique(numbers: &mut Numbers) -> Made {
    let statements = [
        "CREATE UNIQUE INDEX i ON nodes (note) WHERE id > 9",
        "CREATE UNIQUE INDEX i ON nodes (version, size) WHERE id > 9",
        "CREATE UNIQUE INDEX i ON nodes (rack) WHERE id > 9",
    ];
    made("create a unique index", numbers.one(&statements).to_owned())
}

fn drop_something(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes DROP COLUMN note",
        "ALTER TABLE nodes DROP COLUMN rack",
        "DROP TABLE racks",
        "DROP TABLE nodes CASCADE",
        "DROP VIEW busy",
        "ALTER TABLE nodes DROP CONSTRAINT nodes_name_key",
        "ALTER TABLE nodes DROP CONSTRAINT nodes_pkey CASCADE",
        "CREATE INDEX i ON nodes (size); DROP INDEX i",
        "CREATE TABLE t (a INT); DROP TABLE t",
        "DROP FUNCTION label(TEXT)",
    ];
    made("drop", numbers.one(&statements).to_owned())
}

fn drop_in_sqlite(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes DROP COLUMN note",
        "DROP TABLE racks",
        "DROP VIEW busy",
        "CREATE INDEX i ON nodes (size); DROP INDEX i",
        "CREATE TABLE t (a INT); DROP TABLE t",
    ];
    made("drop", numbers.one(&statements).to_owned())
}

fn rename(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes RENAME COLUMN note TO remark",
        "ALTER TABLE racks RENAME TO shelves",
        "ALTER TABLE nodes RENAME TO machines",
        "CREATE TABLE t (a INT); ALTER TABLE t RENAME COLUMN a TO b; ALTER TABLE t RENAME TO u",
    ];
    made("rename", numbers.one(&statements).to_owned())
}

fn resize(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes ALTER COLUMN name TYPE VARCHAR(5)",
        "ALTER TABLE nodes ALTER COLUMN size TYPE SMALLINT",
        "ALTER TABLE nodes ALTER COLUMN note TYPE INT USING 0",
        "ALTER TABLE nodes ALTER COLUMN rack TYPE BOOLEAN USING TRUE",
    ];
    made("resize", numbers.one(&statements).to_owned())
}

fn nullability(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes ALTER COLUMN size SET NOT NULL",
        "ALTER TABLE nodes ALTER COLUMN note SET NOT NULL",
        "ALTER TABLE racks ALTER COLUMN name SET NOT NULL",
        "ALTER TABLE nodes ALTER COLUMN name DROP NOT NULL",
    ];
    made("nullability", numbers.one(&statements).to_owned())
}

fn set_default(numbers: &mut Numbers) -> Made {
    let statements = [
        "ALTER TABLE nodes ALTER COLUMN size SET DEFAULT 4",
        "ALTER TABLE nodes ALTER COLUMN note SET DEFAULT 'y'",
        "ALTER TABLE nodes ALTER COLUMN version SET DEFAULT '2.0'",
        "ALTER TABLE nodes ALTER COLUMN version SET DEFAULT 'a version that is too long'",
        "ALTER TABLE nodes ALTER COLUMN note DROP DEFAULT",
        "ALTER TABLE nodes ALTER COLUMN note SET DEFAULT NULL",
        "ALTER TABLE racks ALTER COLUMN name SET DEFAULT 'one'",
        "ALTER TABLE nodes ALTER COLUMN size SET DEFAULT 1 / 0",
    ];
    made("set a default", numbers.one(&statements).to_owned())
}

fn add_check(numbers: &mut Numbers) -> Made {
    let checks = [
        "size >= 0",
        "name <> ''",
        "length(name) < 10",
        "note IS NOT NULL",
        "rack = 1",
    ];
    let check = numbers.one(&checks);
    made(
        "add a check",
        format!("ALTER TABLE nodes ADD CONSTRAINT c CHECK ({check}) NOT VALID"),
    )
}

fn add_foreign_key(numbers: &mut Numbers) -> Made {
    let (delete, valid) = (numbers.one(&DELETES), numbers.one(&["", " NOT VALID"]));
    let text = match numbers.below(2) {
        0 => format!(
            "ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY (rack) REFERENCES racks (id){delete}{valid}"
        ),
        _ => format!(
            "ALTER TABLE nodes ADD COLUMN {NEW} INT; ALTER TABLE nodes ADD CONSTRAINT f FOREIGN KEY ({NEW}) REFERENCES racks (id)\
             {delete}{valid}"
        ),
    };
    let fills = text.contains(NEW);
    let newer = fills.then(|| format!("UPDATE nodes SET {NEW} = 1 WHERE id = 1"));
    Made {
        newer: newer.into_iter().collect(),
        ..made("add a foreign key", text)
    }
}

fn change_rows(numbers: &mut Numbers) -> Made {
    let statements = [
        "UPDATE nodes SET note = 'changed'",
        "DELETE FROM nodes WHERE id = 1",
        "INSERT INTO nodes (id, name) VALUES (40, 'new')",
        "CREATE TABLE t (a TEXT); INSERT INTO t VALUES ('x'); UPDATE t SET a = 'y'",
        "CREATE TABLE t AS SELECT id FROM nodes",
    ];
    made("change rows", numbers.one(&statements).to_owned())
}

fn partition(numbers: &mut Numbers) -> Made {
    let statements = [
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (100) TO (200)",
        "CREATE TABLE events_1 (LIKE events INCLUDING ALL); ALTER TABLE events ATTACH PARTITION events_1 FOR VALUES FROM (100) TO (200)",
        "ALTER TABLE events DETACH PARTITION events_0",
        "ALTER TABLE events DETACH PARTITION events_0; CREATE TABLE events_1 (LIKE events INCLUDING ALL, CHECK (said IS NOT NULL)); \
         ALTER TABLE events ATTACH PARTITION events_1 FOR VALUES FROM (0) TO (100)",
    ];
    made("partitions", numbers.one(&statements).to_owned())
}

fn rights(numbers: &mut Numbers) -> Made {
    let statements = [
        "GRANT SELECT ON nodes TO reports",
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO reports",
        "REVOKE INSERT ON nodes FROM services",
        "REVOKE ALL ON racks FROM services",
        "CREATE ROLE more",
    ];
    made("rights", numbers.one(&statements).to_owned())
}

fn routines(numbers: &mut Numbers) -> Made {
    let statements = [
        "CREATE FUNCTION two() RETURNS INT LANGUAGE sql AS $$ SELECT 2 $$",
        "CREATE OR REPLACE FUNCTION label(name TEXT) RETURNS TEXT LANGUAGE sql AS $$ SELECT 'x' $$",
        "CREATE FUNCTION no() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; \
         CREATE TRIGGER t BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION no()",
        "CREATE TABLE t (a INT); CREATE FUNCTION no() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$; \
         CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION no()",
        "CREATE VIEW names AS SELECT name FROM nodes",
        "CREATE OR REPLACE VIEW busy AS SELECT id FROM nodes WHERE false",
    ];
    made("routines and views", numbers.one(&statements).to_owned())
}

/// Carried out without a transaction it succeeds; within one it is refused.
fn concurrently(numbers: &mut Numbers) -> Made {
    let index = "CREATE INDEX CONCURRENTLY i ON nodes (size)";
    match numbers.below(2) {
        0 => made("concurrently", format!("BEGIN; {index}; COMMIT")).within(index.to_owned()),
        _ => made("concurrently", index.to_owned()).within(index.replace(" CONCURRENTLY", "")),
    }
}

impl Made {
    fn within(self, carried_out: String) -> Self {
        Self { carried_out, ..self }
    }
}

fn settings(numbers: &mut Numbers) -> Made {
    let statements = [
        "SET LOCAL lock_timeout = '2s'",
        "ALTER TABLE nodes SET (fillfactor = 90)",
        "COMMENT ON TABLE nodes IS 'machines'",
        "CREATE SEQUENCE s; CREATE SCHEMA x; CREATE TABLE x.nodes (a INT)",
    ];
    made("settings", numbers.one(&statements).to_owned())
}
