//! Types of columns: which of them refuse or change the values that older services leave in an unknown
//! column.

use sqlparser::ast::{CreateDomain, DataType, Expr, TableConstraint};

use super::expressions::{Outcome, Row, null};
use super::names::unqualified;

/// A domain that a migration has made.
#[derive(Debug, Clone)]
pub(super) struct Domain {
    data_type: DataType,
    default: Option<Expr>,
    checks: Vec<Expr>,
    /// It has something else than checks.
    other: bool,
}

/// What is known of a type by its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    /// It takes NULL, and has no default.
    Plain,
    /// A domain.
    Domain(&'a Domain),
    /// It may be anything.
    Unknown,
}

impl Domain {
    #[expect(clippy::wildcard_enum_match_arm, reason = "others are not of domains")]
    pub(super) fn of(create: &CreateDomain) -> Self {
        let checks = create.constraints.iter().map(|constraint| match constraint {
            TableConstraint::Check(check) => Some((*check.expr).clone()),
            _ => None,
        });
        let checks: Vec<Option<Expr>> = checks.collect();
        Self {
            data_type: create.data_type.clone(),
            default: create.default.clone().filter(|value| !null(value)),
            other: checks.iter().any(Option::is_none),
            checks: checks.into_iter().flatten().collect(),
        }
    }

    pub(super) fn default(&self) -> Option<&Expr> {
        self.default.as_ref()
    }

    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Whether it takes this value for certain.
    pub(super) fn accepts(&self, value: &Outcome) -> bool {
        let mut row = Row::default();
        row.set("value".to_owned(), value.clone());
        !self.other && self.checks.iter().all(|check| row.passes(check))
    }
}

/// Types that sqlparser does not know and that are no domains: those of PostgreSQL, and of its usual extensions.
const BUILT_IN: [&str; 41] = [
    "bigserial",
    "box",
    "cidr",
    "circle",
    "citext",
    "cube",
    "datemultirange",
    "daterange",
    "geography",
    "geometry",
    "halfvec",
    "hstore",
    "inet",
    "int4multirange",
    "int4range",
    "int8multirange",
    "int8range",
    "line",
    "lquery",
    "lseg",
    "ltree",
    "macaddr",
    "macaddr8",
    "money",
    "name",
    "nummultirange",
    "numrange",
    "oid",
    "path",
    "pg_lsn",
    "point",
    "polygon",
    "serial",
    "smallserial",
    "tsmultirange",
    "tsquery",
    "tsrange",
    "tstzrange",
    "tsvector",
    "vector",
    "xml",
];

/// Whether a type of this name is built in, or of a usual extension.
pub(super) fn built_in(data_type: &DataType) -> bool {
    let DataType::Custom(name, _) = data_type else {
        return true;
    };
    let name = unqualified(name).to_lowercase();
    serial_name(&name) || BUILT_IN.contains(&name.as_str())
}

/// Whether it fills itself from a sequence.
pub(super) fn serial(data_type: &DataType) -> bool {
    let DataType::Custom(name, _) = data_type else {
        return false;
    };
    serial_name(&unqualified(name).to_lowercase())
}

fn serial_name(name: &str) -> bool {
    [
        "serial",
        "bigserial",
        "smallserial",
        "serial2",
        "serial4",
        "serial8",
    ]
    .contains(&name)
}
