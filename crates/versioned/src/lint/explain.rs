//! Explanations of rules: what each finds, what goes wrong without it, and what to write instead.

/// A rule in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explanation {
    /// Its word.
    pub rule: &'static str,
    /// What it finds.
    pub finds: &'static str,
    /// What older services would suffer.
    pub why: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// A migration that breaks it, without the line of its release.
    pub bad: &'static str,
    /// One that does the same and breaks nothing; empty where there is none.
    pub good: &'static str,
}

/// The explanation of a rule.
pub fn explain(rule: &str) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|explanation| explanation.rule == rule)
}

/// All rules.
pub static EXPLANATIONS: [Explanation; 19] = [
    Explanation {
        rule: "release-missing",
        finds: "a file that does not say which release brings it, although there is a manifest",
        why: "without its release it is unknown which services work while it is carried out",
        instead: "start the file with `-- release: X`, a release of the manifest",
        bad: "CREATE TABLE ports (id INT);",
        good: "",
    },
    Explanation {
        rule: "release-unknown",
        finds: "a file that names a release that the manifest does not have",
        why: "without its release it is unknown which services work while it is carried out",
        instead: "name a release of the manifest, or add it there",
        bad: "-- release: 99.9\nCREATE TABLE ports (id INT);",
        good: "",
    },
    Explanation {
        rule: "release-order",
        finds: "a file of an older release than the file before it",
        why: "files are carried out in their order, so an upgrade to the older release would carry out the newer one too",
        instead: "name files in the order of their releases",
        bad: "",
        good: "",
    },
    Explanation {
        rule: "unparsable",
        finds: "a statement that cannot be parsed",
        why: "what is not understood is not known to be safe",
        instead: "name the database by --dialect, write it otherwise, or accept it for a reason",
        bad: "DO $$ BEGIN PERFORM 1; END $$;",
        good: "",
    },
    Explanation {
        rule: "unknown-statement",
        finds: "a statement of which no rule knows whether older services work on",
        why: "what is not known to be safe is not",
        instead: "if older services work on, accept it for a reason",
        bad: "REVOKE SELECT ON nodes FROM reports;",
        good: "GRANT SELECT ON nodes TO reports;",
    },
    Explanation {
        rule: "column-dropped-early",
        finds: "a column that is dropped before it was deprecated, has left the objects, and was left out for one more named release",
        why: "older services read and write all columns that they know, and fail without one",
        instead: "deprecate it in the manifest, remove it from the objects, and drop it one more named release later",
        bad: "ALTER TABLE nodes DROP COLUMN name;",
        good: "",
    },
    Explanation {
        rule: "table-dropped-early",
        finds: "a table that is dropped before its time",
        why: "older services read and write it, and fail without it",
        instead: "deprecate it in the manifest, remove it from the objects, and drop it one more named release later",
        bad: "DROP TABLE nodes;",
        good: "",
    },
    Explanation {
        rule: "renamed",
        finds: "a table, a column, a view or a constraint that gets another name",
        why: "older services ask for the old name",
        instead: "add the new one, let an online migration fill it, and drop the old one in its time",
        bad: "ALTER TABLE nodes RENAME COLUMN name TO title;",
        good: "ALTER TABLE nodes ADD COLUMN title TEXT;",
    },
    Explanation {
        rule: "resized",
        finds: "a column that gets another type or size",
        why: "older services write and expect values of the old type; a smaller one refuses some of them",
        instead: "add a column of the new type, let an online migration fill it, and drop the old one in its time",
        bad: "ALTER TABLE nodes ALTER COLUMN name TYPE VARCHAR(40);",
        good: "ALTER TABLE nodes ADD COLUMN short_name VARCHAR(40);",
    },
    Explanation {
        rule: "column-required",
        finds: "a new column that must be filled and has no default, or only NULL",
        why: "older services do not know the column, so each row that they insert is refused",
        instead: "let it be NULL, or give it a default",
        bad: "ALTER TABLE nodes ADD COLUMN owner TEXT NOT NULL;",
        good: "ALTER TABLE nodes ADD COLUMN owner TEXT NOT NULL DEFAULT '';",
    },
    Explanation {
        rule: "tightened",
        finds: "a rule on an existing table that rows of older services may violate: a unique index or constraint, a check, NOT NULL, \
                a foreign key, a domain, an expression that may fail",
        why: "older services do not know the rule, and what they write is refused",
        instead: "let the objects hold to it, and tighten the schema one named release later, in a new table",
        bad: "CREATE INDEX by_size ON nodes ((size::int));",
        good: "CREATE INDEX by_name ON nodes (lower(name));",
    },
    Explanation {
        rule: "foreign-key",
        finds: "a foreign key to an existing table without ON DELETE CASCADE or SET NULL",
        why: "newer services fill the table that refers, and then older ones can no longer delete the rows it refers to",
        instead: "add ON DELETE CASCADE, or SET NULL where the column may be NULL, or leave the foreign key out",
        bad: "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid));",
        good: "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid) ON DELETE CASCADE);",
    },
    Explanation {
        rule: "partition-detached",
        finds: "a partition that is detached from an existing table",
        why: "older services no longer find its rows in the table, and rows that would go there are refused",
        instead: "detach it when no service reads or writes its rows, and accept that for a reason",
        bad: "ALTER TABLE nodes DETACH PARTITION old_nodes;",
        good: "",
    },
    Explanation {
        rule: "in-transaction",
        finds: "CREATE INDEX CONCURRENTLY, DROP INDEX CONCURRENTLY or DETACH PARTITION CONCURRENTLY within a transaction",
        why: "PostgreSQL refuses it, and the upgrade of the schema ends there",
        instead: "put it into a file of its own that is not carried out in a transaction",
        bad: "BEGIN;\nCREATE INDEX CONCURRENTLY by_rack ON nodes (rack);\nCOMMIT;",
        good: "CREATE INDEX CONCURRENTLY by_rack ON nodes (rack);",
    },
    Explanation {
        rule: "default-dropped",
        finds: "a default that is dropped, or set to NULL",
        why: "older services leave the column out where they want the default",
        instead: "leave the default until no service relies on it",
        bad: "ALTER TABLE nodes ALTER COLUMN name DROP DEFAULT;",
        good: "",
    },
    Explanation {
        rule: "unique-dropped",
        finds: "a constraint or an index that is dropped and may enforce uniqueness",
        why: "older services rely on it: ON CONFLICT asks for it, and duplicates come into the table without it",
        instead: "leave it until its table or its column may be dropped",
        bad: "DROP INDEX nodes_name_key;",
        good: "CREATE INDEX by_rack ON nodes (rack);\nDROP INDEX by_rack;",
    },
    Explanation {
        rule: "cascade",
        finds: "CASCADE on what is dropped or emptied",
        why: "views and keys that older services need are dropped with it, or rows of other tables",
        instead: "leave out CASCADE; drop by name what depends on it, once no service uses it",
        bad: "DROP VIEW busy CASCADE;",
        good: "",
    },
    Explanation {
        rule: "data-changed",
        finds: "rows of an existing table that are changed, also within WITH or the query of another statement",
        why: "older services read them while it runs, and write rows in the old form after it",
        instead: "move data by an online migration, after the services have been unpinned",
        bad: "UPDATE nodes SET name = lower(name);",
        good: "CREATE TABLE kinds (name TEXT);\nINSERT INTO kinds VALUES ('node');",
    },
    Explanation {
        rule: "waiver-refused",
        finds: "a waiver without a reason, of an unknown rule or one that cannot be waived, or that waives nothing",
        why: "what is accepted by mistake is not found later",
        instead: "write `-- stagger: allow RULE: REASON` in a line of its own, before the statement that breaks RULE, or leave it out",
        bad: "-- stagger: allow cascade\nCREATE TABLE ports (id INT);",
        good: "",
    },
];
