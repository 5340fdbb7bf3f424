//! SQL of other databases than PostgreSQL.

use stagger_versioned::lint::{Dialect, Linter, Releases};

use super::{findings, judged, migration};

fn of(dialect: Dialect, text: &str) -> Vec<String> {
    let linter = Linter {
        releases: Releases::Undeclared { carried_out: 0 },
        dialect: Some(dialect),
    };
    findings(&linter.judge(&[migration("1.sql", text)]))
}

/// What `MySQL` adds in place, and what it drops, is judged as elsewhere.
#[test]
fn what_mysql_says_in_its_own_words_is_judged() {
    for statement in [
        "ALTER TABLE nodes ADD COLUMN a INT AFTER b",
        "ALTER TABLE nodes ADD COLUMN a VARCHAR(20) FIRST, ALGORITHM=INSTANT",
        "ALTER TABLE nodes ADD COLUMN a INT NULL, ALGORITHM=INPLACE, LOCK=NONE",
        "ALTER TABLE `nodes` ADD INDEX `by_rack` (`rack`)",
        "ALTER TABLE nodes ADD KEY by_rack (rack), ADD FULLTEXT KEY words (name)",
        "ALTER TABLE nodes ADD INDEX i (a); ALTER TABLE nodes DROP INDEX i",
        "CREATE INDEX i ON nodes (a); DROP INDEX i ON nodes",
        "ALTER TABLE nodes DROP FOREIGN KEY of_chassis",
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a TEXT) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4",
    ] {
        assert_eq!(of(Dialect::MySql, statement), [""; 0], "{statement}");
    }
    // Without a dialect too, since no other knows it.
    let statement = "ALTER TABLE nodes ADD COLUMN a INT AFTER b, ALGORITHM=INSTANT";
    assert_eq!(findings(&judged(statement)), [""; 0]);
    for (statement, word) in [
        ("ALTER TABLE nodes MODIFY a BIGINT", "resized"),
        ("ALTER TABLE nodes CHANGE a b INT", "renamed"),
        ("ALTER TABLE nodes CHANGE a a BIGINT", "resized"),
        ("ALTER TABLE nodes DROP INDEX i", "unique-dropped"),
        ("DROP INDEX i ON nodes", "unique-dropped"),
        ("ALTER TABLE nodes ADD UNIQUE KEY u (name)", "tightened"),
        (
            "ALTER TABLE nodes ADD COLUMN a INT NOT NULL AFTER b",
            "column-required",
        ),
        ("RENAME TABLE nodes TO machines", "renamed"),
        // An index has its name in its table.
        (
            "CREATE UNIQUE INDEX i ON ports (a, b); CREATE INDEX i ON nodes (a); DROP INDEX i ON ports",
            "unique-dropped",
        ),
    ] {
        let found = of(Dialect::MySql, statement);
        assert!(
            found.last().is_some_and(|last| last.contains(word)),
            "{statement}: {found:?}"
        );
    }
}

#[test]
fn a_dialect_that_is_named_is_the_only_one() {
    let found = of(Dialect::PostgreSql, "ALTER TABLE nodes ADD COLUMN a INT AFTER b");
    assert!(found[0].contains("unparsable"), "{found:?}");
    for dialect in Dialect::ALL {
        assert_eq!(dialect.as_str().parse(), Ok(dialect));
        assert_eq!(
            of(dialect, "ALTER TABLE nodes ADD COLUMN a INT"),
            [""; 0],
            "{dialect}"
        );
    }
    assert!(
        "oracle"
            .parse::<Dialect>()
            .unwrap_err()
            .contains("postgresql, mysql, sqlite")
    );
}
