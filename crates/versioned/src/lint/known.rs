//! What the migrations themselves have made so far, by name: of an index or a constraint that they did not make, nobody
//! knows here whether it keeps duplicates out.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, Expr, Ident,
    ObjectName, ObjectType, Statement, TableConstraint,
};

/// A name as it is written, with its schema if that is written too: one without is only the same as another without, since
/// where it is looked for depends on the connection.
pub(super) type Name = Vec<String>;

pub(super) fn written(name: &ObjectName) -> Name {
    let parts = name.0.iter().map(|part| match part.as_ident() {
        Some(ident) => folded(ident),
        None => part.to_string(),
    });
    parts.collect()
}

/// As PostgreSQL does it: what is not quoted is in small letters.
fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// An index that a migration has made.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) table: Name,
    pub(super) columns: Vec<String>,
    pub(super) unique: bool,
}

/// What is there after the statements so far.
#[derive(Debug, Default)]
pub(super) struct Known {
    indexes: BTreeMap<Name, Index>,
    /// Checks and foreign keys, by their table.
    loose: BTreeSet<(Name, String)>,
    /// Names without a schema mean others than at the beginning of a file.
    elsewhere: bool,
}

impl Known {
    pub(super) fn index(&self, name: &ObjectName) -> Option<&Index> {
        self.indexes.get(&written(name))
    }

    /// Whether this constraint is a check or a foreign key.
    pub(super) fn is_loose(&self, table: &ObjectName, constraint: &Ident) -> bool {
        self.loose.contains(&(written(table), folded(constraint)))
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Another file, and another connection.
    pub(super) fn begin_file(&mut self) {
        if self.elsewhere {
            self.forget();
        }
    }

    /// Nobody knows what has been done.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// From now on names without a schema mean others.
    pub(super) fn go_elsewhere(&mut self) {
        self.forget();
        self.elsewhere = true;
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what else no rule knows is forgotten by who judges it"
    )]
    pub(super) fn learn(&mut self, statement: &Statement) {
        match statement {
            // What is made only if it is not there may be an old one.
            Statement::CreateTable(table) if !table.if_not_exists => self.create(table),
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::AlterTable(alter) => self.alter(alter),
            Statement::Drop {
                object_type, names, ..
            } => {
                for name in names.iter().map(written) {
                    match object_type {
                        ObjectType::Table => self.forget_table(&name),
                        ObjectType::Index => drop(self.indexes.remove(&name)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn create(&mut self, table: &CreateTable) {
        let name = written(&table.name);
        self.forget_table(&name);
        for column in &table.columns {
            self.column(&name, column);
        }
        for constraint in &table.constraints {
            self.constraint(&name, constraint);
        }
    }

    fn create_index(&mut self, index: &CreateIndex) {
        let Some(name) = &index.name else { return };
        let table = written(&index.table_name);
        // It is made where its table is.
        let mut name = written(name);
        if let ([_], [schema @ .., _]) = (name.as_slice(), table.as_slice()) {
            name.splice(0..0, schema.iter().cloned());
        }
        if index.if_not_exists {
            // It may be this one, or the one of before.
            if index.unique {
                self.indexes.remove(&name);
            }
            return;
        }
        let columns = index.columns.iter().filter_map(|column| {
            let Expr::Identifier(ident) = &column.column.expr else {
                return None;
            };
            Some(folded(ident))
        });
        let made = Index {
            columns: columns.collect(),
            unique: index.unique,
            table,
        };
        self.indexes.insert(name, made);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what else no rule knows is forgotten by who judges it"
    )]
    fn alter(&mut self, alter: &AlterTable) {
        let table = written(&alter.name);
        for operation in &alter.operations {
            match operation {
                AlterTableOperation::AddColumn {
                    column_def,
                    if_not_exists: false,
                    ..
                } => self.column(&table, column_def),
                AlterTableOperation::AddConstraint { constraint, .. } => self.constraint(&table, constraint),
                AlterTableOperation::DropConstraint { name, .. } => {
                    self.loose.remove(&(table.clone(), folded(name)));
                }
                AlterTableOperation::RenameConstraint { old_name, new_name } => {
                    let loose = self.loose.remove(&(table.clone(), folded(old_name)));
                    self.name(&table, Some(new_name), loose);
                }
                AlterTableOperation::RenameTable { .. } => self.forget_table(&table),
                _ => {}
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is neither a check nor a foreign key may keep duplicates out"
    )]
    fn column(&mut self, table: &Name, column: &ColumnDef) {
        for option in &column.options {
            let (name, loose) = match &option.option {
                ColumnOption::Check(check) => (check.name.as_ref(), true),
                ColumnOption::ForeignKey(key) => (key.name.as_ref(), true),
                _ => (None, false),
            };
            self.name(table, option.name.as_ref().or(name), loose);
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "others are made by an index, or unknown"
    )]
    fn constraint(&mut self, table: &Name, constraint: &TableConstraint) {
        match constraint {
            TableConstraint::Check(check) => self.name(table, check.name.as_ref(), true),
            TableConstraint::ForeignKey(key) => self.name(table, key.name.as_ref(), true),
            TableConstraint::Unique(unique) => self.name(table, unique.name.as_ref(), false),
            TableConstraint::PrimaryKey(key) => self.name(table, key.name.as_ref(), false),
            TableConstraint::Exclude(exclude) => self.name(table, exclude.name.as_ref(), false),
            TableConstraint::PrimaryKeyUsingIndex(using) | TableConstraint::UniqueUsingIndex(using) => {
                self.name(table, using.name.as_ref().or(Some(&using.index_name)), false);
            }
            _ => {}
        }
    }

    /// A name may have been that of another constraint, which went with its column.
    fn name(&mut self, table: &Name, constraint: Option<&Ident>, loose: bool) {
        let Some(constraint) = constraint else { return };
        let name = (table.clone(), folded(constraint));
        if loose {
            self.loose.insert(name);
        } else {
            self.loose.remove(&name);
        }
    }

    fn forget_table(&mut self, name: &Name) {
        self.indexes.retain(|_, index| index.table != *name);
        self.loose.retain(|(table, _)| table != name);
    }
}
