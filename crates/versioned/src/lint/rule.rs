//! The rules that a migration may break, and their messages.

use std::fmt;

use serde::Serialize;

use crate::manifest::deprecation::TooEarly;

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
        /// Whether nobody knows where it ends, so that nothing after it is judged.
        open: bool,
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
    /// A foreign key that keeps older services from a row of another table.
    ForeignKey {
        /// The table that refers.
        from: String,
        /// The table that it refers to.
        to: String,
        /// What older services then cannot do.
        refused: String,
    },
    /// A partition leaves its table, with its rows.
    PartitionDetached {
        /// The partition.
        partition: String,
        /// The table.
        table: String,
    },
    /// A statement that the database refuses within a transaction.
    InTransaction {
        /// How it begins.
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
    /// What depends on something that is dropped goes along.
    Cascade {
        /// What is dropped.
        what: String,
    },
    /// Rows are changed.
    DataChanged {
        /// The table.
        table: String,
    },
    /// A waiver that cannot be accepted.
    WaiverRefused {
        /// What it is without, or does not meet.
        why: String,
    },
}

fn as_text<T: fmt::Display, S: serde::Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

impl Rule {
    /// Its word.
    pub fn as_str(&self) -> &'static str {
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
            Self::ForeignKey { .. } => "foreign-key",
            Self::PartitionDetached { .. } => "partition-detached",
            Self::InTransaction { .. } => "in-transaction",
            Self::DefaultDropped { .. } => "default-dropped",
            Self::UniqueDropped { .. } => "unique-dropped",
            Self::Cascade { .. } => "cascade",
            Self::DataChanged { .. } => "data-changed",
            Self::WaiverRefused { .. } => "waiver-refused",
        }
    }

    /// What to do instead.
    pub fn instead(&self) -> &'static str {
        match self {
            Self::ReleaseMissing | Self::ReleaseUnknown { .. } => {
                "start the file with `-- release: X`, a release of the manifest"
            }
            Self::ReleaseOrder { .. } => "name files in the order of their releases",
            Self::Unparsable { open: true, .. } => "write it in SQL that PostgreSQL and SQLite both know",
            Self::Unparsable { open: false, .. } => {
                "write it in SQL that PostgreSQL and SQLite both know, or, if older services work on, say why in a line before it: \
                 `-- stagger: allow unparsable: REASON`"
            }
            Self::UnknownStatement { .. } => {
                "if older services work on, say why in a line before it: `-- stagger: allow unknown-statement: REASON`"
            }
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
            Self::ForeignKey { .. } => {
                "add ON DELETE CASCADE, or SET NULL where the column may be NULL, or leave the foreign key out until no older \
                 service deletes there"
            }
            Self::PartitionDetached { .. } => {
                "detach it when no service reads or writes its rows, and say so in a line before it: \
                 `-- stagger: allow partition-detached: REASON`"
            }
            Self::InTransaction { .. } => {
                "put it into a file of its own that is not carried out in a transaction"
            }
            Self::DefaultDropped { .. } => "leave the default until no service relies on it",
            Self::UniqueDropped { .. } => {
                "leave it until its table or its column may be dropped; what an earlier statement of these migrations made under \
                 this name, and not unique, may go at once"
            }
            Self::Cascade { .. } => {
                "leave out CASCADE; what depends on it is dropped by its own name, once no service uses it"
            }
            Self::DataChanged { .. } => {
                "move data by an online migration, after the services have been unpinned"
            }
            Self::WaiverRefused { .. } => {
                "write `-- stagger: allow RULE: REASON` in a line of its own, before the statement that breaks RULE, or leave it out"
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
            Self::Unparsable { why, open: false } => write!(f, "it cannot be parsed: {why}"),
            Self::Unparsable { why, open: true } => write!(
                f,
                "it cannot be parsed, and what follows it is not checked, since its end is not certain: {why}"
            ),
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
            Self::ForeignKey { from, to, refused } => write!(
                f,
                "older services cannot {refused} of {to} while a row of {from} refers to it"
            ),
            Self::PartitionDetached { partition, table } => write!(
                f,
                "rows of {partition} are no longer in {table}, where older services read and write them"
            ),
            Self::InTransaction { what } => write!(f, "{what} is refused within a transaction"),
            Self::DefaultDropped { column } => {
                write!(f, "{column} loses its default, and older services may rely on it")
            }
            Self::UniqueDropped { what } => {
                write!(
                    f,
                    "{what} may be what keeps duplicates out, and older services rely on that"
                )
            }
            Self::Cascade { what } => write!(
                f,
                "{what} takes along what depends on it, such as views that older services read"
            ),
            Self::WaiverRefused { why } => write!(f, "the waiver is not accepted: {why}"),
            Self::DataChanged { table } => {
                write!(f, "rows of {table} are changed while older services read them")
            }
        }
    }
}
