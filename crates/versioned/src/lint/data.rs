//! Statements that change rows, by themselves or within others.

use sqlparser::ast::{
    CascadeOption, FromTable, ObjectName, Query, SetExpr, Statement, TableFactor, TableObject,
};

use super::Rule;
use super::judge::{Here, Judged};
use super::names::{normalized, unqualified};

/// Where Alembic keeps the revision of the schema: no service reads it.
const REVISION: &str = "alembic_version";

impl Here<'_> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "others change no rows")]
    pub(super) fn change(&self, statement: &Statement, judged: &mut Judged) {
        match statement {
            Statement::Insert(insert) => {
                match &insert.table {
                    TableObject::TableName(name) => self.data(name, judged),
                    other => judged.rules.push(Rule::DataChanged {
                        table: other.to_string(),
                    }),
                }
                if let Some(source) = &insert.source {
                    self.query(source, judged);
                }
            }
            Statement::Update(update) => self.rows(&update.table.relation, judged),
            Statement::Delete(delete) => {
                let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
                for table in tables {
                    self.rows(&table.relation, judged);
                }
            }
            Statement::Merge(merge) => self.rows(&merge.table, judged),
            Statement::Truncate(truncate) => {
                for table in &truncate.table_names {
                    self.data(&table.name, judged);
                    // It empties all tables that refer to this one.
                    if matches!(truncate.cascade, Some(CascadeOption::Cascade)) {
                        judged.rules.push(Rule::Cascade {
                            what: format!("TRUNCATE {} CASCADE", unqualified(&table.name)),
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// PostgreSQL permits what changes rows in a query: at its top, and in its WITH.
    pub(super) fn query(&self, query: &Query, judged: &mut Judged) {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            self.query(&table.query, judged);
        }
        self.body(&query.body, judged);
    }

    fn body(&self, body: &SetExpr, judged: &mut Judged) {
        match body {
            SetExpr::Query(query) => self.query(query, judged),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, judged);
                self.body(right, judged);
            }
            SetExpr::Insert(statement)
            | SetExpr::Update(statement)
            | SetExpr::Delete(statement)
            | SetExpr::Merge(statement) => self.change(statement, judged),
            SetExpr::Select(_) | SetExpr::Values(_) | SetExpr::Table(_) => {}
        }
    }

    /// Rows of a table that this file makes may be filled at once.
    fn data(&self, table: &ObjectName, judged: &mut Judged) {
        let is_revision = unqualified(table).eq_ignore_ascii_case(REVISION);
        if !is_revision && !self.new.contains(&normalized(table)) {
            judged.rules.push(Rule::DataChanged {
                table: unqualified(table),
            });
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is not a table by its name is not new"
    )]
    fn rows(&self, table: &TableFactor, judged: &mut Judged) {
        match table {
            TableFactor::Table { name, .. } => self.data(name, judged),
            other => judged.rules.push(Rule::DataChanged {
                table: other.to_string(),
            }),
        }
    }
}
