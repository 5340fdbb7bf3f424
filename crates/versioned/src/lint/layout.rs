//! Layouts: how migration tools name their files, and the order in which they run.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::Migration;

/// The layout of a folder of migrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Files in the order of their names, or of the numbers that all of them begin with.
    Plain,
    /// `<number>_<name>.sql`, or `.up.sql` and `.down.sql`; one that begins with `-- no-transaction` runs outside of one.
    Sqlx,
    /// `<version>_<name>/up.sql` and `down.sql`, in a transaction unless `metadata.toml` there says otherwise.
    Diesel,
    /// `<version>_<name>/migration.sql`.
    Prisma,
    /// `V<number>__<name>.sql` and `U<number>__<name>.sql`, in the order of the numbers, each in a transaction.
    Refinery,
    /// `V<version>__<name>.sql`, undone by `U…`, then `R__<name>.sql`, which are carried out again whenever they change.
    Flyway,
}

impl Layout {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Plain,
        Self::Sqlx,
        Self::Diesel,
        Self::Prisma,
        Self::Refinery,
        Self::Flyway,
    ];

    /// Its word: `plain`, `sqlx`, `diesel`, `prisma`, `refinery`, `flyway`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sqlx => "sqlx",
            Self::Diesel => "diesel",
            Self::Prisma => "prisma",
            Self::Refinery => "refinery",
            Self::Flyway => "flyway",
        }
    }

    /// That of files with these paths, as far as it can be seen: sqlx's looks like [`Layout::Plain`].
    pub fn of(paths: &[&str]) -> Self {
        if paths.iter().any(|path| path.ends_with("/up.sql")) {
            return Self::Diesel;
        }
        if paths.iter().any(|path| path.ends_with("/migration.sql")) {
            return Self::Prisma;
        }
        let sql = paths.iter().filter(|path| is_sql(path));
        let named: Vec<Option<Named<'_>>> = sql.map(|path| parse_name(path)).collect();
        if named.is_empty() || named.iter().any(Option::is_none) {
            return Self::Plain;
        }
        let versions = |kind: char| -> BTreeSet<&str> {
            let all = named.iter().flatten().filter(|named| named.kind == kind);
            all.map(|named| named.version).collect()
        };
        let (forward, other) = (versions('V'), versions('U'));
        // Refinery has each number once; what Flyway undoes it has done.
        if other.is_empty() || !forward.is_disjoint(&other) || !versions('R').is_empty() {
            Self::Flyway
        } else {
            Self::Refinery
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|layout| layout.as_str() == word);
        found.ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("no layout is called {word:?}; those are {words}")
        })
    }
}

/// Files of a folder in the order in which they are carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ordered {
    /// The migrations; a file that `alembic upgrade --sql` has printed is several.
    pub migrations: Vec<Migration>,
    /// By what each of them is known: its version, its revision, its path, its name with and without what it ends in.
    names: Vec<Vec<String>>,
    /// Files that lead back.
    pub down: Vec<String>,
    /// Migrations that are no SQL, or that this layout does not carry out.
    pub left_out: Vec<String>,
}

impl Ordered {
    /// How many migrations have been carried out when this one has: one of its names, or of its versions.
    pub fn applied_count(&self, last: &str) -> Option<usize> {
        let found = |names: &Vec<String>| names.iter().any(|name| name == last);
        Some(self.names.iter().rposition(found)? + 1)
    }
}

/// Puts the files of a folder in order. They are given by their paths in it, with `/`, and their texts: files in SQL, the
/// `metadata.toml` of diesel, and migrations in other languages, without their text.
pub fn order(layout: Layout, files: &BTreeMap<String, String>) -> Ordered {
    let mut ordered = Ordered::default();
    let mut forward: Vec<(Key<'_>, &str)> = Vec::new();
    for path in files.keys() {
        match place(layout, path) {
            Place::Forward(key) => forward.push((key, path.as_str())),
            Place::Back => ordered.down.push(path.clone()),
            Place::LeftOut => ordered.left_out.push(path.clone()),
            Place::Nothing => {}
        }
    }
    forward.sort_by(|(one, one_path), (other, other_path)| {
        let order = one.compare(other);
        order.then_with(|| one_path.cmp(other_path))
    });
    for (key, path) in forward {
        let text = files.get(path).map_or("", String::as_str);
        let transaction = match layout {
            Layout::Plain | Layout::Prisma | Layout::Flyway => false,
            Layout::Sqlx => !text.starts_with("-- no-transaction"),
            Layout::Refinery => true,
            Layout::Diesel => {
                let folder = path.trim_end_matches("up.sql");
                let metadata = files.get(&format!("{folder}metadata.toml"));
                !metadata.is_some_and(|text| says_no_transaction(text))
            }
        };
        let base = path.rsplit('/').next().unwrap_or(path);
        let names: Vec<String> = [path, base, base.trim_end_matches(".sql"), key.version, key.name]
            .into_iter()
            .filter(|name| !name.is_empty() && *name != "up" && *name != "migration")
            .map(str::to_owned)
            .collect();
        for (revision, part) in revisions(without_back(text)) {
            ordered.migrations.push(Migration {
                file: path.to_owned(),
                text: part,
                transaction,
            });
            let revision = revision.map(str::to_owned);
            ordered
                .names
                .push(names.iter().cloned().chain(revision).collect());
        }
    }
    ordered
}

/// What a file comes after.
#[derive(Debug)]
struct Key<'a> {
    /// It is carried out after all others.
    last: bool,
    /// Its version as it is written.
    version: &'a str,
    /// The numbers of its version; without any it is compared by its name.
    numbers: Vec<u128>,
    name: &'a str,
}

impl Key<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        let of = |key: &Self| (key.last, key.numbers.clone());
        of(self).cmp(&of(other)).then_with(|| self.name.cmp(other.name))
    }
}

enum Place<'a> {
    Forward(Key<'a>),
    Back,
    LeftOut,
    /// It is none.
    Nothing,
}

fn place(layout: Layout, path: &str) -> Place<'_> {
    let base = path.rsplit('/').next().unwrap_or(path);
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    if base == "metadata.toml" {
        return Place::Nothing;
    }
    match layout {
        Layout::Plain | Layout::Sqlx => {
            if !is_sql(path) || path.contains('/') {
                return Place::LeftOut;
            }
            if base.ends_with(".down.sql") {
                return Place::Back;
            }
            let digits = base.len() - base.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let version = &base[..digits];
            Place::Forward(Key {
                last: false,
                version,
                // One without a number comes after all that have one, as in the order of names.
                numbers: vec![version.parse().unwrap_or(u128::MAX)],
                name: base,
            })
        }
        Layout::Diesel | Layout::Prisma => match (layout, base) {
            (Layout::Diesel, "up.sql") | (Layout::Prisma, "migration.sql") => Place::Forward(Key {
                last: false,
                version: folder.split('_').next().unwrap_or(folder),
                numbers: Vec::new(),
                name: folder,
            }),
            (Layout::Diesel, "down.sql") => Place::Back,
            _ => Place::LeftOut,
        },
        Layout::Refinery | Layout::Flyway => {
            let Some(named) = parse_name(path) else {
                return Place::LeftOut;
            };
            match named.kind {
                'U' if layout == Layout::Flyway => return Place::Back,
                'R' if layout == Layout::Refinery => return Place::LeftOut,
                _ if !is_sql(path) => return Place::LeftOut,
                _ => {}
            }
            let parts = named.version.split(['.', '_']);
            let mut numbers: Vec<u128> = parts.map(|part| part.parse().unwrap_or(u128::MAX)).collect();
            // 1.0 is 1.
            while numbers.last() == Some(&0) {
                numbers.pop();
            }
            Place::Forward(Key {
                last: named.kind == 'R',
                version: named.version,
                numbers,
                name: base,
            })
        }
    }
}

/// A name of Flyway's or refinery's: `V1.2__name.sql`.
struct Named<'a> {
    /// V, U or R.
    kind: char,
    /// Empty for R.
    version: &'a str,
}

fn parse_name(path: &str) -> Option<Named<'_>> {
    let base = path.rsplit('/').next().unwrap_or(path);
    let kind = base
        .chars()
        .next()
        .filter(|kind| matches!(kind, 'V' | 'U' | 'R'))?;
    let (version, _) = base.get(1..)?.split_once("__")?;
    let number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    let is_version = version.split(['.', '_']).all(number);
    (is_version || kind == 'R' && version.is_empty()).then_some(Named { kind, version })
}

fn is_sql(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, end)| end == "sql")
}

/// Whether diesel's `metadata.toml` says `run_in_transaction = false`.
fn says_no_transaction(metadata: &str) -> bool {
    let lines = metadata.lines().filter_map(|line| line.split_once('='));
    let mut lines = lines.map(|(key, value)| (key.trim(), value.trim()));
    lines.any(|(key, value)| key == "run_in_transaction" && value.starts_with("false"))
}

/// The text up to where goose or dbmate lead back in the same file.
fn without_back(text: &str) -> &str {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let comment = line.trim().to_lowercase();
        if comment == "-- +goose down" || comment.starts_with("-- migrate:down") {
            return &text[..at];
        }
        at += line.len();
    }
    text
}

/// What `alembic upgrade --sql` has printed, in its revisions, each with empty lines in place of those before it; another text is
/// one without a revision. What stands before the first revision belongs to it.
fn revisions(text: &str) -> Vec<(Option<&str>, String)> {
    const BEGIN: &str = "-- Running upgrade ";
    let mut parts: Vec<(Option<&str>, String)> = vec![(None, String::new())];
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if let Some((_, to)) = line.strip_prefix(BEGIN).and_then(|rest| rest.split_once("-> ")) {
            let revision = to.trim().split([',', ' ']).next();
            match parts.last_mut() {
                Some((first @ None, _)) => *first = revision,
                _ => parts.push((revision, "\n".repeat(number))),
            }
        }
        if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
    }
    parts
}
