//! What is accepted with a reason, what is left out, and what cannot be parsed.

use stagger_versioned::lint::Report;

use super::{findings, judged};

fn words(report: &Report) -> Vec<(u64, &str)> {
    let found = report
        .findings
        .iter()
        .map(|found| (found.line, found.rule.as_str()));
    found.collect()
}

#[test]
fn what_cannot_be_parsed_hides_nothing_where_its_end_is_certain() {
    for (text, found) in [
        (
            "DO $$ BEGIN DROP TABLE a; END $$;\nDROP VIEW b;",
            &[(2, "unparsable"), (3, "unknown-statement")][..],
        ),
        (
            "DO $x$ BEGIN; $$ ; $x$;\n/* ; */ frobnicate 'a;b' -- ;\n \"c;d\";\nDROP VIEW b;",
            &[(2, "unparsable"), (3, "unparsable"), (5, "unknown-statement")],
        ),
        (
            "CREATE RULE r AS ON INSERT TO t DO (NOTIFY a; NOTIFY b);\nDROP VIEW b;",
            &[(2, "unparsable"), (3, "unknown-statement")],
        ),
    ] {
        assert_eq!(words(&judged(text)), found, "{text}");
    }
    let body = "CREATE FUNCTION f() RETURNS INT BEGIN ATOMIC; SELECT CASE WHEN a THEN 1 END; SELECT 2; END;\nDROP VIEW b;";
    assert_eq!(words(&judged(body)).last(), Some(&(3, "unknown-statement")));
    for text in [
        "frobnicate BEGIN; END;\nDROP VIEW b;",
        "frobnicate (a;\nDROP VIEW b;",
        "\\set a b\nDROP VIEW b;",
    ] {
        let text = format!("-- stagger: allow unparsable: it is safe\n{text}");
        let report = judged(&text);
        assert_eq!(
            words(&report),
            [(2, "waiver-refused"), (3, "unparsable")],
            "{text}"
        );
        let told = findings(&report);
        assert!(
            told[0].contains("where the statement ends is unknown"),
            "{told:?}"
        );
        assert!(told[1].contains("what follows it is not checked"), "{told:?}");
    }
}

/// Nobody knows what it did.
#[test]
fn what_was_made_before_an_unknown_statement_is_not_known_after_it() {
    for unknown in [
        "DO $$ BEGIN END $$",
        "SELECT set_config('search_path', 'x', false)",
        "DROP VIEW b",
    ] {
        let text = format!("CREATE TABLE t (a TEXT);\n{unknown};\nUPDATE t SET a = 'x';");
        assert_eq!(words(&judged(&text)).last(), Some(&(4, "data-changed")), "{text}");
    }
    for unknown in ["REVOKE ALL ON t FROM me", "ALTER TABLE nodes OWNER TO me"] {
        let text = format!("CREATE TABLE t (a TEXT);\n{unknown};\nUPDATE t SET a = 'x';");
        assert_eq!(words(&judged(&text)), [(3, "unknown-statement")], "{text}");
    }
}

#[test]
fn each_rule_of_a_statement_can_be_waived() {
    for (rule, statement) in [
        ("unparsable", "DO $$ BEGIN END $$"),
        ("unknown-statement", "REVOKE ALL ON nodes FROM somebody"),
        ("unknown-statement", "ALTER TABLE nodes OWNER TO somebody"),
        (
            "unknown-statement",
            "CREATE OR REPLACE FUNCTION f() RETURNS INT LANGUAGE sql AS $$ SELECT 1 $$",
        ),
        (
            "unknown-statement",
            "CREATE TRIGGER t BEFORE INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION f()",
        ),
        ("column-dropped-early", "ALTER TABLE nodes DROP COLUMN name"),
        ("table-dropped-early", "DROP TABLE nodes"),
        ("renamed", "ALTER TABLE nodes RENAME TO machines"),
        ("resized", "ALTER TABLE nodes ALTER COLUMN name TYPE TEXT"),
        (
            "column-required",
            "ALTER TABLE nodes ADD COLUMN owner TEXT NOT NULL",
        ),
        ("tightened", "CREATE UNIQUE INDEX i ON nodes (name)"),
        (
            "default-dropped",
            "ALTER TABLE nodes ALTER COLUMN name DROP DEFAULT",
        ),
        ("unique-dropped", "DROP INDEX i"),
        (
            "foreign-key",
            "CREATE TABLE ports (node TEXT REFERENCES nodes (uuid))",
        ),
        (
            "partition-detached",
            "ALTER TABLE nodes DETACH PARTITION old_nodes",
        ),
        (
            "cascade",
            "CREATE TABLE t (a TEXT);\n-- stagger: allow cascade: why\nTRUNCATE t CASCADE",
        ),
        ("data-changed", "UPDATE nodes SET name = ''"),
    ] {
        let waiver = match rule {
            "cascade" => String::new(),
            rule => format!("  --stagger: allow {rule}: why\n\n-- what it does\n"),
        };
        let report = judged(&format!("{waiver}{statement};\n"));
        assert_eq!(findings(&report), [""; 0], "{statement}");
        assert_eq!(report.code(), 0);
        let [waived] = report.waived.as_slice() else {
            panic!("{statement}: {:?}", report.waived);
        };
        assert_eq!(
            (waived.finding.rule.as_str(), waived.reason.as_str()),
            (rule, "why")
        );
        assert_eq!(waived.release, "ocata");
    }
}

#[test]
fn a_waiver_is_of_one_statement_and_one_rule() {
    let waiver = "-- stagger: allow unknown-statement: nobody reads it";
    let both = format!("-- stagger: allow cascade: empty\n{waiver}\nDROP VIEW a CASCADE;\nDROP VIEW b;");
    let report = judged(&both);
    assert_eq!(words(&report), [(5, "unknown-statement")]);
    assert_eq!(report.waived.len(), 2);
    let other = format!("{waiver}\nDROP VIEW a CASCADE;");
    assert_eq!(words(&judged(&other)), [(3, "cascade")]);
    // What only looks like one.
    let quoted = "DROP VIEW a /*\n-- stagger: allow unknown-statement: why\n*/;";
    assert_eq!(words(&judged(quoted)), [(2, "unknown-statement")]);
    let text = format!("UPDATE nodes SET a = '\n{waiver}\n';");
    assert_eq!(words(&judged(&text)), [(2, "data-changed")]);
}

#[test]
fn a_waiver_that_waives_nothing_is_refused() {
    for (text, why) in [
        (
            "-- stagger: allow unknown-statement\nDROP VIEW a",
            "it gives no reason for unknown-statement",
        ),
        (
            "-- stagger: allow unknown-statement:  \nDROP VIEW a",
            "it gives no reason for unknown-statement",
        ),
        (
            "-- stagger: allow everything: why\nDROP VIEW a",
            "no rule that can be waived is called \"everything\"; those are unparsable, unknown-statement, ",
        ),
        (
            "-- stagger: allow release-order: why\nCREATE TABLE a (b TEXT)",
            "no rule that can be waived is called \"release-order\"; ",
        ),
        (
            "-- stagger: permit unknown-statement: why\nDROP VIEW a",
            "nothing but `allow` is known after `stagger:`",
        ),
        (
            "-- stagger: allow unknown-statement: why\nCREATE TABLE a (b TEXT)",
            "the statement does not break unknown-statement",
        ),
        (
            "DROP VIEW a\n-- stagger: allow unknown-statement: why\n;",
            "no statement starts after it",
        ),
        (
            "CREATE TABLE a (b TEXT);\n-- stagger: allow unknown-statement: why\n",
            "no statement starts after it",
        ),
    ] {
        let report = judged(text);
        let told = findings(&report).join("\n");
        let refused = format!("waiver-refused: the waiver is not accepted: {why}");
        assert!(told.contains(&refused), "{text}: {told}");
        assert!(report.waived.is_empty(), "{text}");
    }
}

#[test]
fn release_notes_tell_what_was_accepted() {
    let text = "-- stagger: allow unknown-statement: no service asks for it\nDROP VIEW busy;\nALTER TABLE nodes ADD COLUMN a TEXT";
    assert_eq!(
        judged(text).notes(),
        "## Locks of the schema upgrade to ocata, on PostgreSQL\n\n- `nodes`: adding the column a takes ACCESS \
         EXCLUSIVE: no reads or writes for an instant (`0007.sql`)\n\n## Accepted in the schema upgrade to ocata\n\n- \
         unknown-statement: no rule knows whether this is safe: DROP VIEW busy; accepted: no service asks for it \
         (`0007.sql`)"
    );
}
