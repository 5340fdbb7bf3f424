//! Files of folders, in the order in which tools carry them out.

use std::collections::BTreeMap;

use stagger_versioned::lint::{Layout, Ordered, order};

fn ordered(layout: Layout, files: &[(&str, &str)]) -> Ordered {
    let files: BTreeMap<String, String> = { files.iter() }
        .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
        .collect();
    order(layout, &files)
}

fn names(ordered: &Ordered) -> Vec<&str> {
    ordered.migrations.iter().map(|one| one.file.as_str()).collect()
}

fn found(paths: &[&str]) -> Layout {
    Layout::of(paths)
}

#[test]
fn a_layout_is_seen_by_its_names() {
    for (paths, layout) in [
        (&["1_a.sql", "2_b.sql"][..], Layout::Plain),
        (&["a/up.sql", "a/down.sql", "b/up.sql"], Layout::Diesel),
        (
            &["20200101_a/migration.sql", "migration_lock.toml"],
            Layout::Prisma,
        ),
        (&["V1__a.sql", "V2__b.sql"], Layout::Flyway),
        (&["V1__a.sql", "U1__a.sql"], Layout::Flyway),
        (&["V1.1__a.sql", "R__b.sql"], Layout::Flyway),
        (&["V1__a.sql", "U2__b.sql"], Layout::Refinery),
        (&["V1__a.sql", "other.sql"], Layout::Plain),
        (&["anything.sql"], Layout::Plain),
        (&[], Layout::Plain),
    ] {
        assert_eq!(found(paths), layout, "{paths:?}");
    }
    for layout in Layout::ALL {
        assert_eq!(layout.as_str().parse(), Ok(layout));
    }
    assert!(
        "rails"
            .parse::<Layout>()
            .unwrap_err()
            .contains("plain, sqlx, diesel, ")
    );
}

#[test]
fn numbers_are_compared_as_numbers() {
    let plain = ordered(
        Layout::Plain,
        &[
            ("10_c.sql", ""),
            ("2_b.sql", ""),
            ("1_a.up.sql", ""),
            ("1_a.down.sql", ""),
            ("x/3_d.sql", ""),
        ],
    );
    assert_eq!(names(&plain), ["1_a.up.sql", "2_b.sql", "10_c.sql"]);
    assert_eq!(plain.down, ["1_a.down.sql"]);
    assert_eq!(plain.left_out, ["x/3_d.sql"]);
    let flyway = ordered(
        Layout::Flyway,
        &[
            ("V10__d.sql", ""),
            ("V2__b.sql", ""),
            ("V1.10__a.sql", ""),
            ("V1_9__a.sql", ""),
            ("R__views.sql", ""),
            ("U2__b.sql", ""),
            ("more/V3.0__c.sql", ""),
            ("V11__code.java", ""),
            ("beforeMigrate.sql", ""),
        ],
    );
    assert_eq!(
        names(&flyway),
        [
            "V1_9__a.sql",
            "V1.10__a.sql",
            "V2__b.sql",
            "more/V3.0__c.sql",
            "V10__d.sql",
            "R__views.sql"
        ]
    );
    assert_eq!(flyway.down, ["U2__b.sql"]);
    assert_eq!(flyway.left_out, ["V11__code.java", "beforeMigrate.sql"]);
    let refinery = ordered(
        Layout::Refinery,
        &[
            ("V10__c.sql", ""),
            ("U3__b.sql", ""),
            ("V2__a.sql", ""),
            ("V4__code.rs", ""),
        ],
    );
    assert_eq!(names(&refinery), ["V2__a.sql", "U3__b.sql", "V10__c.sql"]);
    assert!(refinery.migrations.iter().all(|one| one.transaction));
    assert_eq!(refinery.left_out, ["V4__code.rs"]);
}

#[test]
fn folders_of_diesel_and_prisma_are_migrations() {
    let diesel = ordered(
        Layout::Diesel,
        &[
            ("2020-01-02-000000_b/up.sql", "b"),
            ("2020-01-02-000000_b/down.sql", ""),
            (
                "2020-01-02-000000_b/metadata.toml",
                "run_in_transaction = false\n",
            ),
            ("2020-01-01-000000_a/up.sql", "a"),
        ],
    );
    let seen: Vec<(&str, bool)> = { diesel.migrations.iter() }
        .map(|one| (one.text.as_str(), one.transaction))
        .collect();
    assert_eq!(seen, [("a", true), ("b", false)]);
    assert_eq!(diesel.down.len(), 1);
    assert_eq!(diesel.applied_count("2020-01-01-000000"), Some(1));
    assert_eq!(diesel.applied_count("2020-01-02-000000_b"), Some(2));
    assert_eq!(diesel.applied_count("c"), None);
    let prisma = ordered(
        Layout::Prisma,
        &[("2_b/migration.sql", ""), ("1_a/migration.sql", "")],
    );
    assert_eq!(names(&prisma), ["1_a/migration.sql", "2_b/migration.sql"]);
}

#[test]
fn sqlx_says_what_runs_outside_of_a_transaction() {
    let sqlx = ordered(
        Layout::Sqlx,
        &[
            ("1_a.sql", "CREATE TABLE t (a INT)"),
            ("2_b.sql", "-- no-transaction\nSELECT 1"),
        ],
    );
    let transactions: Vec<bool> = sqlx.migrations.iter().map(|one| one.transaction).collect();
    assert_eq!(transactions, [true, false]);
    assert_eq!(sqlx.applied_count("1"), Some(1));
    assert_eq!(sqlx.applied_count("2_b.sql"), Some(2));
    assert_eq!(sqlx.applied_count("2_b"), Some(2));
}

/// What `alembic upgrade --sql` prints is one file with all revisions.
#[test]
fn revisions_of_alembic_are_migrations_with_their_lines() {
    let text = "BEGIN;\n\n-- Running upgrade  -> ae1, first\n\nCREATE TABLE t (a INT);\n\n-- Running upgrade ae1 -> bf2\n\nDROP TABLE t;\n";
    let alembic = ordered(Layout::Plain, &[("all.sql", text)]);
    let texts: Vec<&str> = alembic.migrations.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "BEGIN;\n\n-- Running upgrade  -> ae1, first\n\nCREATE TABLE t (a INT);\n\n",
            "\n\n\n\n\n\n-- Running upgrade ae1 -> bf2\n\nDROP TABLE t;\n"
        ]
    );
    assert_eq!(alembic.applied_count("ae1"), Some(1));
    assert_eq!(alembic.applied_count("all.sql"), Some(2));
}

#[test]
fn what_leads_back_in_the_same_file_is_left_out() {
    for (up, down) in [
        ("-- +goose Up", "-- +goose Down"),
        ("-- migrate:up", "-- migrate:down"),
    ] {
        let text = format!("{up}\nCREATE TABLE t (a INT);\n{down}\nDROP TABLE t;\n");
        let plain = ordered(Layout::Plain, &[("1.sql", &text)]);
        assert_eq!(
            plain.migrations[0].text,
            format!("{up}\nCREATE TABLE t (a INT);\n")
        );
    }
}
