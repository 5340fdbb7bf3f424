//! The schema that the migrations themselves have made so far, by name: whether another index or constraint
//! enforces uniqueness is unknown here.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{
    AlterColumnOperation, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable, DataType,
    Ident, ObjectName, ObjectType, Statement, TableConstraint,
};

use super::expressions::{Outcome, keeps, null, outcome};
use super::names::{Name, beside, folded, indexed, normalized};
use super::rule::Rule;
use super::types::{Domain, Type, built_in, serial};
use crate::manifest::Place;

/// Which release brings a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// This one of the manifest.
    Release(Place),
    /// Without a manifest each file is one of its own, by its number.
    File(usize),
}

/// What a foreign key of a new table does when the row that it refers to goes.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) from: Name,
    pub(super) to: Name,
    /// What it refuses of older services.
    pub(super) refuses: Option<Rule>,
    /// Its rows go along.
    pub(super) cascades: bool,
}

/// A column, as a migration has made it.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) data_type: DataType,
    /// It must not be NULL.
    pub(super) required: bool,
}

/// Why what older services leave in a column has to stay as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    /// It is unique.
    Unique,
    /// It has a check, or refers to another table.
    Checked,
}

/// An index that a migration has made.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) table: Name,
    pub(super) columns: Vec<String>,
    pub(super) unique: bool,
    /// It takes NULL for a duplicate of NULL.
    pub(super) nulls_are_equal: bool,
}

/// What is there after the statements so far.
#[derive(Debug, Default)]
pub(super) struct Schema {
    indexes: BTreeMap<Name, Index>,
    /// Checks and foreign keys, by their table.
    loose: BTreeSet<(Name, String)>,
    /// Columns that services of before this release do not know, and leave empty.
    empty: BTreeMap<(Name, String), Step>,
    /// Columns with a rule that older services keep by what they leave in them.
    held: BTreeSet<(Name, String, Held)>,
    /// Columns by their table.
    columns: BTreeMap<Name, BTreeMap<String, Column>>,
    /// Primary keys by their table.
    keys: BTreeMap<Name, Vec<String>>,
    /// Types that are no domains, and domains.
    types: BTreeMap<Name, Option<Domain>>,
    /// Names without a schema mean others than at the beginning of a file.
    elsewhere: bool,
}

impl Schema {
    pub(super) fn index(&self, name: &ObjectName) -> Option<&Index> {
        self.indexes.get(&normalized(name))
    }

    /// Whether this constraint is a check or a foreign key.
    pub(super) fn is_check_or_foreign_key(&self, table: &ObjectName, constraint: &Ident) -> bool {
        self.loose.contains(&(normalized(table), folded(constraint)))
    }

    /// The index of a table, by its name without the schema.
    pub(super) fn index_of(&self, table: &Name, index: &Ident) -> Option<&Index> {
        let name = beside(table, folded(index));
        self.indexes.get(&name).filter(|known| known.table == *table)
    }

    /// The columns of a table that services of before this release leave empty.
    pub(super) fn left_empty(&self, table: &Name, before: Step) -> BTreeSet<String> {
        let columns = self.empty.iter().filter(|(_, since)| **since == before);
        let columns = columns.filter(|((of, _), _)| of == table);
        columns.map(|((_, column), _)| column.clone()).collect()
    }

    /// What older services leave in these columns has to stay as it is.
    pub(super) fn hold(&mut self, table: &Name, columns: impl IntoIterator<Item = String>, why: Held) {
        let columns = columns.into_iter().map(|column| (table.clone(), column, why));
        self.held.extend(columns);
    }

    pub(super) fn is_held(&self, table: &Name, column: &Ident, why: Held) -> bool {
        self.held.contains(&(table.clone(), folded(column), why))
    }

    /// A column that a migration has made.
    pub(super) fn column_of(&self, table: &Name, column: &Ident) -> Option<&Column> {
        self.columns.get(table)?.get(&folded(column))
    }

    /// The columns that a migration has made a table with, and added to it.
    pub(super) fn columns(&self, table: &Name) -> Option<&BTreeMap<String, Column>> {
        self.columns.get(table)
    }

    /// The primary key of a table that a migration has made: empty where it has none.
    pub(super) fn key(&self, table: &Name) -> Option<&Vec<String>> {
        self.keys.get(table)
    }

    /// What is known of a type.
    pub(super) fn type_of(&self, data_type: &DataType) -> Type<'_> {
        let DataType::Custom(name, _) = data_type else {
            return Type::Plain;
        };
        match self.types.get(&normalized(name)) {
            Some(Some(domain)) => Type::Domain(domain),
            Some(None) => Type::Plain,
            None if built_in(data_type) => Type::Plain,
            None => Type::Unknown,
        }
    }

    /// What older services leave in a column that is added, if that is certain.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other options may fill it")]
    pub(super) fn default_value(&self, column: &ColumnDef) -> Option<Outcome> {
        let mut default = None;
        for option in &column.options {
            match &option.option {
                ColumnOption::Default(value) => default = Some(value).filter(|value| !null(value)),
                ColumnOption::Null
                | ColumnOption::NotNull
                | ColumnOption::Unique(_)
                | ColumnOption::Check(_)
                | ColumnOption::ForeignKey(_)
                | ColumnOption::Collation(_)
                | ColumnOption::CharacterSet(_)
                | ColumnOption::Comment(_) => {}
                _ => return None,
            }
        }
        let (data_type, default) = match self.type_of(&column.data_type) {
            Type::Plain => (&column.data_type, default),
            // A domain of another domain has the rules of both.
            Type::Domain(domain) if !matches!(self.type_of(domain.data_type()), Type::Plain) => return None,
            Type::Domain(domain) => (domain.data_type(), default.or(domain.default())),
            Type::Unknown => return None,
        };
        let Some(default) = default else {
            // What fills itself does not leave it empty.
            let fills = serial(data_type) || matches!(data_type, DataType::Array(_) | DataType::Unspecified);
            return (!fills).then_some(Outcome::Null);
        };
        outcome(default).filter(|outcome| *outcome != Outcome::Any && keeps(outcome, data_type))
    }

    pub(super) fn forget_index(&mut self, index: &Name) {
        self.indexes.remove(index);
    }

    pub(super) fn is_in_other_schema(&self) -> bool {
        self.elsewhere
    }

    /// Another file, and another connection.
    pub(super) fn begin_file(&mut self) {
        if self.elsewhere {
            *self = Self::default();
        }
    }

    /// Nobody knows what has been done.
    pub(super) fn forget(&mut self) {
        *self = Self {
            elsewhere: self.elsewhere,
            ..Self::default()
        };
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
    pub(super) fn apply(&mut self, statement: &Statement) {
        // Those of ALTER TABLE are learned one by one.
        match statement {
            // What is made only if it is not there may be an old one.
            Statement::CreateTable(table) if !table.if_not_exists => self.create(table),
            Statement::CreateIndex(index) => self.create_index(index),
            Statement::CreateType { name, .. } => drop(self.types.insert(normalized(name), None)),
            Statement::CreateDomain(domain) => {
                self.types
                    .insert(normalized(&domain.name), Some(Domain::of(domain)));
            }
            Statement::Drop {
                object_type, names, ..
            } => {
                for name in names.iter().map(normalized) {
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
        let name = normalized(&table.name);
        self.forget_table(&name);
        // What it takes from elsewhere is not known.
        let whole = table.like.is_none() && table.query.is_none() && table.inherits.is_none();
        if whole && table.partition_of.is_none() {
            self.keys.insert(name.clone(), Vec::new());
            self.columns.insert(name.clone(), BTreeMap::new());
        }
        for column in &table.columns {
            self.column(&name, column);
        }
        for constraint in &table.constraints {
            self.constraint(&name, constraint);
        }
    }

    fn create_index(&mut self, index: &CreateIndex) {
        let Some(name) = &index.name else { return };
        let table = normalized(&index.table_name);
        // It is made where its table is.
        let mut name = normalized(name);
        if name.len() == 1 {
            name = beside(&table, name.remove(0));
        }
        if index.if_not_exists {
            // It may be this one, or the one of before.
            if index.unique {
                self.indexes.remove(&name);
            }
            return;
        }
        if index.unique {
            self.hold(&table, indexed(&index.columns), Held::Unique);
        }
        let made = Index {
            columns: indexed(&index.columns),
            unique: index.unique,
            nulls_are_equal: index.nulls_distinct == Some(false),
            table,
        };
        self.indexes.insert(name, made);
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what else no rule knows is forgotten by who judges it"
    )]
    pub(super) fn alter(&mut self, table: &Name, operation: &AlterTableOperation, step: Step) {
        match operation {
            AlterTableOperation::AddColumn {
                column_def,
                if_not_exists,
                ..
            } => {
                let name = (table.clone(), folded(&column_def.name));
                self.empty.remove(&name);
                if *if_not_exists {
                    return;
                }
                self.column(table, column_def);
                if self.default_value(column_def) == Some(Outcome::Null) {
                    self.empty.insert(name, step);
                }
            }
            AlterTableOperation::DropColumn { column_names, .. } => {
                for column in column_names {
                    self.forget_column(table, column);
                }
            }
            AlterTableOperation::RenameColumn {
                old_column_name,
                new_column_name,
            } => {
                self.forget_column(table, old_column_name);
                self.forget_column(table, new_column_name);
            }
            AlterTableOperation::AlterColumn {
                column_name,
                op: AlterColumnOperation::SetDefault { value },
            } if !null(value) => {
                self.empty.remove(&(table.clone(), folded(column_name)));
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                let columns = self.columns.get_mut(table);
                let known = columns.and_then(|all| all.get_mut(&folded(column_name)));
                match (op, known) {
                    (AlterColumnOperation::SetNotNull, Some(column)) => column.required = true,
                    (AlterColumnOperation::DropNotNull, Some(column)) => column.required = false,
                    (AlterColumnOperation::SetDataType { data_type, .. }, Some(column)) => {
                        column.data_type = data_type.clone();
                    }
                    _ => {}
                }
            }
            AlterTableOperation::ModifyColumn { col_name, .. } => self.forget_column(table, col_name),
            AlterTableOperation::ChangeColumn {
                old_name, new_name, ..
            } => {
                self.forget_column(table, old_name);
                self.forget_column(table, new_name);
            }
            AlterTableOperation::DropIndex { name } => {
                self.indexes.remove(&beside(table, folded(name)));
            }
            AlterTableOperation::AddConstraint { constraint, .. } => self.constraint(table, constraint),
            AlterTableOperation::DropConstraint { name, .. } => {
                self.loose.remove(&(table.clone(), folded(name)));
            }
            AlterTableOperation::RenameConstraint { old_name, new_name } => {
                let loose = self.loose.remove(&(table.clone(), folded(old_name)));
                self.name(table, Some(new_name), loose);
            }
            AlterTableOperation::RenameTable { .. } => self.forget_table(table),
            _ => {}
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what is neither a check nor a foreign key may keep duplicates out"
    )]
    fn column(&mut self, table: &Name, column: &ColumnDef) {
        let mut required = false;
        let own = || [folded(&column.name)];
        for option in &column.options {
            match &option.option {
                ColumnOption::NotNull => required = true,
                ColumnOption::PrimaryKey(_) => {
                    required = true;
                    self.hold(table, own(), Held::Unique);
                    if let Some(key) = self.keys.get_mut(table) {
                        *key = own().to_vec();
                    }
                }
                ColumnOption::Unique(_) => self.hold(table, own(), Held::Unique),
                ColumnOption::Check(_) | ColumnOption::ForeignKey(_) => {
                    self.hold(table, own(), Held::Checked);
                }
                _ => {}
            }
            let (name, loose) = match &option.option {
                ColumnOption::Check(check) => (check.name.as_ref(), true),
                ColumnOption::ForeignKey(key) => (key.name.as_ref(), true),
                _ => (None, false),
            };
            self.name(table, option.name.as_ref().or(name), loose);
        }
        if let Some(columns) = self.columns.get_mut(table) {
            let data_type = column.data_type.clone();
            columns.insert(folded(&column.name), Column { data_type, required });
        }
    }

    fn constraint(&mut self, table: &Name, constraint: &TableConstraint) {
        match constraint {
            TableConstraint::Check(check) => {
                self.name(table, check.name.as_ref(), true);
                let text = check.expr.to_string().to_lowercase();
                let columns = self.columns.get(table).into_iter().flat_map(BTreeMap::keys);
                let asked: Vec<String> = columns
                    .filter(|column| text.contains(&column.to_lowercase()))
                    .cloned()
                    .collect();
                self.hold(table, asked, Held::Checked);
            }
            TableConstraint::ForeignKey(key) => {
                self.name(table, key.name.as_ref(), true);
                self.hold(table, key.columns.iter().map(folded), Held::Checked);
            }
            TableConstraint::Unique(unique) => {
                self.name(table, unique.name.as_ref(), false);
                self.hold(table, indexed(&unique.columns), Held::Unique);
            }
            TableConstraint::PrimaryKey(key) => {
                self.name(table, key.name.as_ref(), false);
                let columns = indexed(&key.columns);
                self.hold(table, columns.clone(), Held::Unique);
                for column in &columns {
                    let known = self.columns.get_mut(table).and_then(|all| all.get_mut(column));
                    if let Some(column) = known {
                        column.required = true;
                    }
                }
                if let Some(key) = self.keys.get_mut(table) {
                    *key = columns;
                }
            }
            // Of MySQL.
            TableConstraint::Index(index) => {
                if let Some(name) = &index.name {
                    let made = Index {
                        table: table.clone(),
                        columns: indexed(&index.columns),
                        unique: false,
                        nulls_are_equal: false,
                    };
                    self.indexes.insert(beside(table, folded(name)), made);
                }
            }
            TableConstraint::Exclude(exclude) => self.name(table, exclude.name.as_ref(), false),
            TableConstraint::PrimaryKeyUsingIndex(using) | TableConstraint::UniqueUsingIndex(using) => {
                self.name(table, using.name.as_ref().or(Some(&using.index_name)), false);
            }
            TableConstraint::FulltextOrSpatial(_) => {}
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
        self.empty.retain(|(table, _), _| table != name);
        self.held.retain(|(table, _, _)| table != name);
        self.columns.remove(name);
        self.keys.remove(name);
    }

    fn forget_column(&mut self, table: &Name, column: &Ident) {
        let name = (table.clone(), folded(column));
        self.held.retain(|(of, held, _)| of != table || *held != name.1);
        if let Some(columns) = self.columns.get_mut(table) {
            columns.remove(&name.1);
        }
        self.empty.remove(&name);
    }
}
