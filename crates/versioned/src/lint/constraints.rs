//! Indexes and constraints that are added.

use sqlparser::ast::{ColumnDef, CreateIndex, Expr, NullsDistinctOption, ObjectName, TableConstraint};

use super::expressions::Row;
use super::judge::{Here, Judged, beginning};
use super::names::{folded, indexed, normalized, unqualified};
use super::schema::Held;
use super::{Lock, Mode, Rule};

impl Here<'_> {
    pub(super) fn index(&mut self, index: &CreateIndex, judged: &mut Judged) {
        let table = unqualified(&index.table_name);
        if self.new.contains(&normalized(&index.table_name)) {
            return;
        }
        let name = index.name.as_ref().map(unqualified).unwrap_or_default();
        let columns = index.columns.iter().map(|column| &column.column.expr);
        for computed in columns.chain(&index.predicate) {
            self.computes(&index.table_name, &format!("the index {name}"), computed, judged);
        }
        let nulls_are_equal = index.nulls_distinct == Some(false);
        if index.unique && !self.no_duplicates(&index.table_name, &indexed(&index.columns), nulls_are_equal) {
            judged.rules.push(Rule::Tightened {
                what: format!("a unique index on {table}"),
            });
        }
        if !index.concurrently {
            judged.locks.push(Lock::long(
                &table,
                format!("creating the index {name}"),
                Mode::Share,
                Some("CREATE INDEX CONCURRENTLY, outside of a transaction"),
            ));
        }
    }

    pub(super) fn constrain(
        &mut self,
        of: &ObjectName,
        constraint: &TableConstraint,
        not_valid: bool,
        judged: &mut Judged,
    ) {
        let table = &unqualified(of);
        let permitted = self.permits(of, constraint);
        let validate = Some("add it NOT VALID, and validate it in a migration of its own");
        let tightened = |judged: &mut Judged, what: String| {
            if !permitted {
                judged.rules.push(Rule::Tightened { what });
            }
        };
        match constraint {
            TableConstraint::ForeignKey(key) => {
                let from = normalized(of);
                let filled = self.fills(&from, key);
                self.refer_from_old(&from, key, filled, judged);
                let what = "adding a foreign key".to_owned();
                let other = unqualified(&key.foreign_table);
                if not_valid {
                    judged
                        .locks
                        .push(Lock::short(table, what.clone(), Mode::ShareRowExclusive));
                    judged.locks.push(Lock::short(
                        &other,
                        format!("{what} of {table}"),
                        Mode::ShareRowExclusive,
                    ));
                } else {
                    judged
                        .locks
                        .push(Lock::long(table, what.clone(), Mode::ShareRowExclusive, validate));
                    judged.locks.push(Lock::long(
                        &other,
                        format!("{what} of {table}"),
                        Mode::ShareRowExclusive,
                        validate,
                    ));
                }
            }
            TableConstraint::Check(_) => {
                tightened(judged, format!("a check on {table}"));
                let what = "adding a check".to_owned();
                judged.locks.push(if not_valid {
                    Lock::short(table, what, Mode::AccessExclusive)
                } else {
                    Lock::long(table, what, Mode::AccessExclusive, validate)
                });
            }
            TableConstraint::Unique(_) | TableConstraint::PrimaryKey(_) | TableConstraint::Exclude(_) => {
                tightened(judged, format!("a unique constraint on {table}"));
                let instead = "create its index CONCURRENTLY first, and add the constraint USING INDEX";
                let what = "adding a unique constraint".to_owned();
                judged
                    .locks
                    .push(Lock::long(table, what, Mode::AccessExclusive, Some(instead)));
            }
            TableConstraint::PrimaryKeyUsingIndex(_) | TableConstraint::UniqueUsingIndex(_) => {
                tightened(judged, format!("a unique constraint on {table}"));
                let what = "adding a constraint USING INDEX".to_owned();
                judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
            }
            TableConstraint::Index(index) => {
                let name = index
                    .name
                    .as_ref()
                    .map(|name| name.value.clone())
                    .unwrap_or_default();
                for column in &index.columns {
                    let what = format!("the index {name}");
                    self.computes(of, &what, &column.column.expr, judged);
                }
            }
            TableConstraint::FulltextOrSpatial(index) if index.fulltext => {}
            TableConstraint::FulltextOrSpatial(_) => {
                judged.rules.push(Rule::UnknownStatement {
                    statement: beginning(&format!("ALTER TABLE {table} ADD {constraint}")),
                });
            }
        }
    }

    /// An index computes its expressions, and its condition, of each row that is written.
    fn computes(&mut self, of: &ObjectName, what: &str, expr: &Expr, judged: &mut Judged) {
        let table = normalized(of);
        let mut row = Row::with_empty(self.schema.left_empty(&table, self.step));
        let known = self.schema.columns(&table).into_iter().flatten();
        row.know(known.map(|(name, column)| (name.clone(), column.data_type.clone())));
        if row.outcome(expr).is_none() {
            judged.rules.push(Rule::Tightened {
                what: format!("{what} of {} computes {expr}, which may fail", unqualified(of)),
            });
        }
        self.schema.hold(&table, row.asked, Held::Checked);
    }

    /// Whether older services keep to a constraint by what they leave empty.
    #[expect(clippy::wildcard_enum_match_arm, reason = "what is not known may be broken")]
    fn permits(&mut self, table: &ObjectName, constraint: &TableConstraint) -> bool {
        match constraint {
            TableConstraint::Check(check) => self.passes(table, &check.expr, None),
            TableConstraint::Unique(unique) => {
                let nulls_are_equal = matches!(unique.nulls_distinct, NullsDistinctOption::NotDistinct);
                self.no_duplicates(table, &indexed(&unique.columns), nulls_are_equal)
            }
            TableConstraint::UniqueUsingIndex(using) => {
                let Some(index) = self.schema.index_of(&normalized(table), &using.index_name) else {
                    return false;
                };
                let (columns, nulls_are_equal) = (index.columns.clone(), index.nulls_are_equal);
                self.no_duplicates(table, &columns, nulls_are_equal)
            }
            _ => false,
        }
    }

    /// Whether rows of older services have no duplicates in these columns: NULL is none of NULL.
    fn no_duplicates(&mut self, table: &ObjectName, columns: &[String], nulls_are_equal: bool) -> bool {
        let table = normalized(table);
        let empty = self.schema.left_empty(&table, self.step);
        let empty: Vec<String> = columns
            .iter()
            .filter(|column| empty.contains(*column))
            .cloned()
            .collect();
        let none = !nulls_are_equal && !empty.is_empty();
        self.schema.hold(&table, empty, Held::Unique);
        none
    }

    /// Whether rows of older services pass a check, of a table or of a column that is being added.
    pub(super) fn passes(&mut self, table: &ObjectName, check: &Expr, added: Option<&ColumnDef>) -> bool {
        let table = normalized(table);
        let mut row = Row::with_empty(self.schema.left_empty(&table, self.step));
        if let Some((column, left)) =
            added.and_then(|column| Some((column, self.schema.default_value(column)?)))
        {
            row.set(folded(&column.name), left);
        }
        let passes = row.passes(check);
        self.schema.hold(&table, row.asked, Held::Checked);
        passes
    }
}
