//! Names of tables, columns and constraints, as PostgreSQL compares them.

use sqlparser::ast::{Expr, Ident, IndexColumn, ObjectName};

/// A name as it is written, with its schema if that is written too: one without is only the same as another without, since
/// where it is looked for depends on the connection.
pub(super) type Name = Vec<String>;

pub(super) fn normalized(name: &ObjectName) -> Name {
    let parts = name.0.iter().map(|part| match part.as_ident() {
        Some(ident) => folded(ident),
        None => part.to_string(),
    });
    parts.collect()
}

/// A name without quotes and without its schema.
pub(super) fn unqualified(name: &ObjectName) -> String {
    let last = name.0.last().map(ToString::to_string).unwrap_or_default();
    last.trim_matches(['"', '`']).to_owned()
}

/// The columns of an index or a constraint that are not computed for it.
pub(super) fn indexed(columns: &[IndexColumn]) -> Vec<String> {
    let columns = columns.iter().filter_map(|column| {
        let Expr::Identifier(ident) = &column.column.expr else {
            return None;
        };
        Some(folded(ident))
    });
    columns.collect()
}

/// As PostgreSQL does it: what is not quoted is in small letters.
pub(super) fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// What is called so in the schema of a table.
pub(super) fn beside(table: &Name, name: String) -> Name {
    let schema = table.iter().take(table.len().saturating_sub(1));
    schema.cloned().chain([name]).collect()
}
