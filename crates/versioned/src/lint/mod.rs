//! The policy of schema changes, as a linter of migrations in SQL.
//!
//! The schema is upgraded first, while services of the release before still work on it. So a migration may only add, and what
//! it adds may be left empty; what is dropped is used by no service any more; nothing is renamed or resized; data is moved
//! by online migrations, not here. What locks a table on PostgreSQL is no fault, but has to be announced: [`Report::notes`]
//! writes it down for the release notes.
//!
//! Each file begins with the release that brings it, `-- release: 7.0`, and the names of files are in the order in which
//! they are carried out. When a field or an object was deprecated and removed stands in the [manifest](crate::manifest).

mod known;
mod locks;
mod rules;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use sqlparser::ast::{ObjectType, Statement};
use sqlparser::dialect::{Dialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

pub use locks::{Lock, Mode};

use known::Known;

use crate::deprecation::TooEarly;
use crate::manifest::{Manifest, Place};

/// A migration: the name of its file, and what stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the file.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// A rule that a migration breaks. Its word is stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "rule", rename_all = "kebab-case")]
pub enum Rule {
    /// The file does not say which release brings it.
    ReleaseMissing,
    /// The release that it says is not in the manifest.
    ReleaseUnknown {
        /// What it says.
        release: String,
    },
    /// It belongs to an older release than the file before it.
    ReleaseOrder {
        /// Its release.
        release: String,
        /// That of the file before.
        before: String,
    },
    /// It cannot be parsed, so nothing is known of it.
    Unparsable {
        /// What the parser says.
        why: String,
    },
    /// It does something of which no rule knows whether it is safe.
    UnknownStatement {
        /// How it begins.
        statement: String,
    },
    /// A column goes before its time.
    ColumnDroppedEarly {
        /// The table and the column.
        column: String,
        /// Why it is too early.
        #[serde(serialize_with = "as_text")]
        why: TooEarly,
    },
    /// A table goes before its time.
    TableDroppedEarly {
        /// The table.
        table: String,
        /// Why it is too early.
        #[serde(serialize_with = "as_text")]
        why: TooEarly,
    },
    /// A column, a table, a view or a constraint gets another name.
    Renamed {
        /// What.
        what: String,
    },
    /// A column gets another type or size.
    Resized {
        /// The table and the column.
        column: String,
    },
    /// A column is added that must not be left empty, and has no default.
    ColumnRequired {
        /// The table and the column.
        column: String,
    },
    /// A table that is there already gets a rule that older services may break.
    Tightened {
        /// What.
        what: String,
    },
    /// A default goes on which older services may rely.
    DefaultDropped {
        /// The table and the column.
        column: String,
    },
    /// A constraint or an index goes that may keep duplicates out.
    UniqueDropped {
        /// What.
        what: String,
    },
    /// Rows are changed.
    DataChanged {
        /// The table.
        table: String,
    },
}

fn as_text<T: fmt::Display, S: serde::Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

impl Rule {
    /// Its word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::ReleaseMissing => "release-missing",
            Self::ReleaseUnknown { .. } => "release-unknown",
            Self::ReleaseOrder { .. } => "release-order",
            Self::Unparsable { .. } => "unparsable",
            Self::UnknownStatement { .. } => "unknown-statement",
            Self::ColumnDroppedEarly { .. } => "column-dropped-early",
            Self::TableDroppedEarly { .. } => "table-dropped-early",
            Self::Renamed { .. } => "renamed",
            Self::Resized { .. } => "resized",
            Self::ColumnRequired { .. } => "column-required",
            Self::Tightened { .. } => "tightened",
            Self::DefaultDropped { .. } => "default-dropped",
            Self::UniqueDropped { .. } => "unique-dropped",
            Self::DataChanged { .. } => "data-changed",
        }
    }

    /// What to do instead.
    pub fn instead(&self) -> &'static str {
        match self {
            Self::ReleaseMissing | Self::ReleaseUnknown { .. } => {
                "begin the file with `-- release: X`, a release of the manifest"
            }
            Self::ReleaseOrder { .. } => "name files in the order of their releases",
            Self::Unparsable { .. } => "write it in SQL that PostgreSQL and SQLite both know",
            Self::UnknownStatement { .. } => "make a rule for it, or leave it out",
            Self::ColumnDroppedEarly { .. } | Self::TableDroppedEarly { .. } => {
                "deprecate it, remove it from the objects three months and a named release later, and drop it one more named \
                 release later"
            }
            Self::Renamed { .. } => {
                "add the new one, let an online migration fill it, and drop the old one in its time"
            }
            Self::Resized { .. } => {
                "add a column of the new type, let an online migration fill it, and drop the old one in its time"
            }
            Self::ColumnRequired { .. } => "let it be NULL, or give it a default",
            Self::Tightened { .. } => {
                "let the objects hold to it, and tighten the schema one named release later, in a new table"
            }
            Self::DefaultDropped { .. } => "leave the default until no service relies on it",
            Self::UniqueDropped { .. } => {
                "leave it until its table or its column may be dropped; what an earlier statement of these migrations made under \
                 this name, and not unique, may go at once"
            }
            Self::DataChanged { .. } => {
                "move data by an online migration, after the services have been unpinned"
            }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReleaseMissing => write!(f, "the file does not say which release brings it"),
            Self::ReleaseUnknown { release } => write!(f, "the manifest has no release {release:?}"),
            Self::ReleaseOrder { release, before } => {
                write!(f, "it is of {release}, and the file before it is of {before}")
            }
            Self::Unparsable { why } => write!(f, "it cannot be parsed: {why}"),
            Self::UnknownStatement { statement } => {
                write!(f, "no rule knows whether this is safe: {statement}")
            }
            Self::ColumnDroppedEarly { column, why } => write!(f, "{column} may not be dropped: {why}"),
            Self::TableDroppedEarly { table, why } => write!(f, "{table} may not be dropped: {why}"),
            Self::Renamed { what } => write!(
                f,
                "{what} gets another name, and older services ask for the old one"
            ),
            Self::Resized { column } => write!(
                f,
                "{column} gets another type, and older services write the old one"
            ),
            Self::ColumnRequired { column } => {
                write!(f, "{column} must be filled, and older services do not know it")
            }
            Self::Tightened { what } => write!(f, "{what}: older services may write what it forbids"),
            Self::DefaultDropped { column } => {
                write!(f, "{column} loses its default, and older services may rely on it")
            }
            Self::UniqueDropped { what } => {
                write!(
                    f,
                    "{what} may be what keeps duplicates out, and older services rely on that"
                )
            }
            Self::DataChanged { table } => {
                write!(f, "rows of {table} are changed while older services read them")
            }
        }
    }
}

/// A rule broken in a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule } = self;
        write!(f, "{file}:{line}: {}: {rule}; {}", rule.word(), rule.instead())
    }
}

/// A lock that a statement takes on PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// The release that brings it.
    pub release: String,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The lock.
    #[serde(flatten)]
    pub lock: Lock,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// How many files were judged: those of releases after `since`, and those of which nobody knows the release.
    pub judged: usize,
    /// Rules that are broken. Where there are none, the migrations may be carried out while older services work.
    pub findings: Vec<Finding>,
    /// Locks on tables that were there before.
    pub locks: Vec<Taken>,
}

impl Report {
    /// The exit code of a command that says so: 1 where a rule is broken.
    pub fn code(&self) -> u8 {
        u8::from(!self.findings.is_empty())
    }

    /// The part of the release notes that announces the locks, in Markdown; empty where there are none.
    pub fn notes(&self) -> String {
        let mut releases: BTreeMap<usize, (&str, Vec<String>)> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for Taken {
            release, file, lock, ..
        } in &self.locks
        {
            let at = order
                .iter()
                .position(|known| known == release)
                .unwrap_or_else(|| {
                    order.push(release);
                    order.len() - 1
                });
            let line = format!("- {lock} (`{file}`)");
            releases.entry(at).or_insert((release, Vec::new())).1.push(line);
        }
        let mut text = String::new();
        for (release, lines) in releases.values() {
            text.push_str("## Locks of the schema upgrade to ");
            text.push_str(release);
            text.push_str(", on PostgreSQL\n\n");
            text.push_str(&lines.join("\n"));
            text.push_str("\n\n");
        }
        text.trim_end().to_owned()
    }
}

/// Judges migrations in the order in which they are carried out; with `since` only those of later releases.
pub fn lint(migrations: &[Migration], manifest: &Manifest, since: Option<Place>) -> Report {
    let mut report = Report::default();
    let mut before: Option<Place> = None;
    let mut known = Known::default();
    for migration in migrations {
        let mut find = |line: u64, rule: Rule| {
            report.findings.push(Finding {
                file: migration.file.clone(),
                line,
                rule,
            });
        };
        let Some((line, release)) = release(&migration.text) else {
            find(1, Rule::ReleaseMissing);
            report.judged += 1;
            known.forget();
            continue;
        };
        let Ok(named) = manifest.find(release) else {
            let release = release.to_owned();
            find(line, Rule::ReleaseUnknown { release });
            report.judged += 1;
            known.forget();
            continue;
        };
        let place = named.place;
        if let Some(earlier) = before.filter(|before| *before > place) {
            find(
                line,
                Rule::ReleaseOrder {
                    release: manifest.label(place),
                    before: manifest.label(earlier),
                },
            );
        }
        before = Some(before.map_or(place, |before| before.max(place)));
        if since.is_some_and(|since| place <= since) {
            // What it made is known in later ones.
            judge(migration, manifest, place, &mut known, &mut Report::default());
            continue;
        }
        report.judged += 1;
        judge(migration, manifest, place, &mut known, &mut report);
    }
    report
}

fn judge(migration: &Migration, manifest: &Manifest, place: Place, known: &mut Known, report: &mut Report) {
    let statements = match statements(&migration.text) {
        Ok(statements) => statements,
        Err((line, error)) => {
            let why = error.to_string();
            known.forget();
            report.findings.push(Finding {
                file: migration.file.clone(),
                line,
                rule: Rule::Unparsable { why },
            });
            return;
        }
    };
    let mut here = rules::Here::new(manifest, place, known);
    for Written {
        line,
        statement,
        concurrently,
    } in statements
    {
        let mut judged = here.judge(&statement);
        if concurrently {
            judged.locks.clear();
        }
        report
            .findings
            .extend(judged.rules.into_iter().map(|rule| Finding {
                file: migration.file.clone(),
                line,
                rule,
            }));
        report.locks.extend(judged.locks.into_iter().map(|lock| Taken {
            release: manifest.label(place),
            file: migration.file.clone(),
            line,
            lock,
        }));
    }
}

/// The release that the comments at the beginning name, and the line.
fn release(text: &str) -> Option<(u64, &str)> {
    let comments = text
        .lines()
        .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with("--"));
    let mut lines = comments.zip(1..);
    lines.find_map(|(line, at)| {
        let rest = line
            .trim_start()
            .strip_prefix("--")?
            .trim_start()
            .strip_prefix("release:")?;
        Some((at, rest.trim()))
    })
}

/// A statement.
struct Written {
    /// The line, from 1.
    line: u64,
    statement: Statement,
    /// It drops an index CONCURRENTLY.
    concurrently: bool,
}

/// Why there is none, and in which line.
type Unparsed = (u64, ParserError);

/// Statements with their lines. What PostgreSQL does not know may be SQLite's.
fn statements(text: &str) -> Result<Vec<Written>, Unparsed> {
    parse(text, &PostgreSqlDialect {}).or_else(|error| parse(text, &SQLiteDialect {}).map_err(|_| error))
}

fn parse(text: &str, dialect: &dyn Dialect) -> Result<Vec<Written>, Unparsed> {
    let tokens = Tokenizer::new(dialect, text)
        .tokenize_with_location()
        .map_err(|error| (error.location.line, ParserError::from(error)))?;
    let mut parser = Parser::new(dialect).with_tokens_with_locations(tokens);
    let mut found = Vec::new();
    loop {
        while parser.consume_token(&Token::SemiColon) {}
        let next = parser.peek_token();
        if next.token == Token::EOF {
            return Ok(found);
        }
        let line = next.span.start.line;
        let concurrently = parser.parse_keywords(&[Keyword::DROP, Keyword::INDEX, Keyword::CONCURRENTLY]);
        let statement = if concurrently {
            drop_concurrently(&mut parser)
        } else {
            parser.parse_statement()
        };
        found.push(Written {
            line,
            statement: statement.map_err(|error| (line, error))?,
            concurrently,
        });
        // Without this, what is left of a statement would be read as the next one.
        let next = parser.peek_token();
        if next.token != Token::SemiColon && next.token != Token::EOF {
            let at = next.span.start.line;
            let found = next.token;
            let why = format!("expected the end of the statement, found {found} in line {at}");
            return Err((line, ParserError::ParserError(why)));
        }
    }
}

/// What follows DROP INDEX CONCURRENTLY, which sqlparser does not know: one name, with nothing that depends on it.
fn drop_concurrently(parser: &mut Parser<'_>) -> Result<Statement, ParserError> {
    let if_exists = parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
    let names = vec![parser.parse_object_name(false)?];
    let restrict = parser.parse_keyword(Keyword::RESTRICT);
    Ok(Statement::Drop {
        object_type: ObjectType::Index,
        if_exists,
        names,
        cascade: false,
        restrict,
        purge: false,
        temporary: false,
        table: None,
    })
}
