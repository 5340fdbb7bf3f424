//! Tables that are made, altered or dropped, and indexes that are dropped.

use std::collections::BTreeSet;

use sqlparser::ast::{
    AlterTable, AlterTableOperation, ColumnOption, CreateTable, DropBehavior, ForeignKeyConstraint, Ident,
    ObjectName, ObjectNamePart, ObjectType, TableConstraint,
};

use super::judge::{Here, Judged, beginning};
use super::names::{Name, folded, indexed, normalized, unqualified};
use super::schema::Step;
use super::{Lock, Mode, Releases, Rule};
use crate::manifest::Deprecation;
use crate::manifest::deprecation::{TooEarly, may_leave_schema};

impl Here<'_> {
    pub(super) fn create(&mut self, table: &CreateTable, judged: &mut Judged) {
        let name = unqualified(&table.name);
        if let Some(query) = &table.query {
            self.query(query, judged);
        }
        if self.is_part(table, judged) {
            self.forget_new(&table.name);
        } else {
            // One that is made only if it is not there may be an old one.
            if !table.if_not_exists {
                self.new.insert(normalized(&table.name));
            }
            self.made.insert(normalized(&table.name));
        }
        let from = normalized(&table.name);
        let keys = foreign_keys(table);
        for key in &keys {
            if !self.made.contains(&normalized(&key.foreign_table)) {
                let other = unqualified(&key.foreign_table);
                let what = format!("making {name} with a foreign key to it");
                judged
                    .locks
                    .push(Lock::short(&other, what, Mode::ShareRowExclusive));
            }
        }
        if self.made.contains(&from) {
            let required = required(table);
            for key in &keys {
                self.refer_from_new(&from, key, &required, judged);
            }
            if is_strict(table) {
                self.strict.insert(from);
            }
        } else {
            for key in &keys {
                self.refer_from_old(&from, key, true, judged);
            }
        }
    }

    /// Whether it is a part of a table on which others work: then it is none that nobody works on.
    fn is_part(&self, table: &CreateTable, judged: &mut Judged) -> bool {
        let name = unqualified(&table.name);
        let is_old = |parent: &&ObjectName| !self.new.contains(&normalized(parent));
        if let Some(parent) = table.partition_of.as_ref().filter(is_old) {
            judged.locks.push(Lock::short(
                &unqualified(parent),
                format!("making its partition {name}"),
                Mode::AccessExclusive,
            ));
            // Rows of older services come into it.
            let of_columns = table.columns.iter().flat_map(|column| &column.options);
            let of_columns = of_columns.map(|option| &option.option).any(|option| {
                matches!(
                    option,
                    ColumnOption::NotNull
                        | ColumnOption::Check(_)
                        | ColumnOption::Unique(_)
                        | ColumnOption::PrimaryKey(_)
                )
            });
            let foreign = |constraint: &TableConstraint| matches!(constraint, TableConstraint::ForeignKey(_));
            if of_columns || !table.constraints.iter().all(foreign) {
                judged.rules.push(Rule::Tightened {
                    what: format!(
                        "a constraint of {name}, which is a partition of {}",
                        unqualified(parent)
                    ),
                });
            }
        }
        // A lock on what it inherits keeps nobody from reading or writing.
        let mut parents = table.partition_of.iter().chain(table.inherits.iter().flatten());
        parents.any(|parent| is_old(&parent))
    }

    pub(super) fn alter(&mut self, alter: &AlterTable, judged: &mut Judged) {
        let table = normalized(&alter.name);
        if self.new.contains(&table) {
            for operation in &alter.operations {
                self.alter_new(&table, operation, judged);
                self.schema.alter(&table, operation, self.step);
            }
            let renamed = |operation: &AlterTableOperation| {
                matches!(operation, AlterTableOperation::RenameTable { .. })
            };
            if alter.operations.iter().any(renamed) {
                self.forget_new(&alter.name);
            }
            return;
        }
        for operation in &alter.operations {
            self.operation(&alter.name, operation, judged);
            self.schema.alter(&table, operation, self.step);
        }
    }

    /// Nobody works on a new table; but its foreign keys bind others too.
    #[expect(clippy::wildcard_enum_match_arm, reason = "others concern this table only")]
    fn alter_new(&mut self, table: &Name, operation: &AlterTableOperation, judged: &mut Judged) {
        let known = self.schema.columns(table);
        let mut required: BTreeSet<String> = known
            .into_iter()
            .flatten()
            .filter(|(_, column)| column.required)
            .map(|(name, _)| name.clone())
            .collect();
        let mut keys = Vec::new();
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => {
                let options = column_def.options.iter().map(|option| &option.option);
                for option in options {
                    match option {
                        ColumnOption::ForeignKey(key) => keys.push(of_column(key, &column_def.name)),
                        ColumnOption::NotNull | ColumnOption::PrimaryKey(_) => {
                            required.insert(folded(&column_def.name));
                        }
                        _ => {}
                    }
                }
            }
            AlterTableOperation::AddConstraint { constraint, .. } => {
                self.strict.insert(table.clone());
                if let TableConstraint::ForeignKey(key) = constraint {
                    keys.push(key.clone());
                }
            }
            AlterTableOperation::AlterColumn { .. } => {
                self.strict.insert(table.clone());
            }
            _ => {}
        }
        for key in &keys {
            if !self.made.contains(&normalized(&key.foreign_table)) {
                let other = unqualified(&key.foreign_table);
                let what = format!(
                    "adding a foreign key of {}",
                    table.last().map_or("", String::as_str)
                );
                judged
                    .locks
                    .push(Lock::short(&other, what, Mode::ShareRowExclusive));
            }
            self.refer_from_new(table, key, &required, judged);
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has operations of twenty databases"
    )]
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn operation(&mut self, of: &ObjectName, operation: &AlterTableOperation, judged: &mut Judged) {
        let table = unqualified(of);
        let short = |what: String| Lock::short(&table, what, Mode::AccessExclusive);
        let cascade = |judged: &mut Judged, behavior: &Option<DropBehavior>, what: String| {
            if matches!(behavior, Some(DropBehavior::Cascade)) {
                judged.rules.push(Rule::Cascade { what });
            }
        };
        match operation {
            AlterTableOperation::AddColumn { column_def, .. } => {
                self.add_column(of, column_def, judged);
            }
            AlterTableOperation::DropColumn {
                column_names,
                drop_behavior,
                ..
            } => {
                for column in column_names {
                    cascade(
                        judged,
                        drop_behavior,
                        format!("DROP COLUMN {table}.{} CASCADE", column.value),
                    );
                    judged
                        .locks
                        .push(short(format!("dropping the column {}", column.value)));
                    if let Err(why) = self.check_drop(&normalized(of), Some(&column.value)) {
                        judged.rules.push(Rule::ColumnDroppedEarly {
                            column: format!("{table}.{}", column.value),
                            why,
                        });
                    }
                }
            }
            AlterTableOperation::RenameColumn { old_column_name, .. } => {
                judged.rules.push(Rule::Renamed {
                    what: format!("{table}.{}", old_column_name.value),
                });
            }
            AlterTableOperation::RenameTable { .. } => {
                judged.rules.push(Rule::Renamed { what: table.clone() });
            }
            AlterTableOperation::AlterColumn { column_name, op } => {
                self.alter_column(of, column_name, op, judged);
            }
            AlterTableOperation::AddConstraint {
                constraint,
                not_valid,
            } => {
                self.constrain(of, constraint, *not_valid, judged);
            }
            AlterTableOperation::DropConstraint {
                name, drop_behavior, ..
            } => {
                cascade(
                    judged,
                    drop_behavior,
                    format!("DROP CONSTRAINT {} CASCADE", name.value),
                );
                judged
                    .locks
                    .push(short(format!("dropping the constraint {}", name.value)));
                if !self.schema.is_check_or_foreign_key(of, name) && !self.is_dropped(&normalized(of), &[]) {
                    judged.rules.push(Rule::UniqueDropped {
                        what: format!("the constraint {} of {table}", name.value),
                    });
                }
            }
            AlterTableOperation::DropPrimaryKey { .. } => {
                judged.rules.push(Rule::UniqueDropped {
                    what: format!("the primary key of {table}"),
                });
            }
            // The first reads all rows, and keeps nobody from writing. The next, of MySQL, say how it is done and what the
            // next number is; then how rows are laid out from now on. The last refuses less than before.
            AlterTableOperation::ValidateConstraint { .. }
            | AlterTableOperation::Algorithm { .. }
            | AlterTableOperation::Lock { .. }
            | AlterTableOperation::AutoIncrement { .. }
            | AlterTableOperation::SetOptionsParens { .. }
            | AlterTableOperation::DropForeignKey { .. } => {}
            AlterTableOperation::DropIndex { name } => {
                let known = self.schema.index_of(&normalized(of), name);
                let loose = known.is_some_and(|index| !index.unique);
                if !loose
                    && !self.is_dropped(
                        &normalized(of),
                        known.map_or(&[][..], |index| index.columns.as_slice()),
                    )
                {
                    judged.rules.push(Rule::UniqueDropped {
                        what: format!("the index {} of {table}", name.value),
                    });
                }
            }
            AlterTableOperation::ChangeColumn {
                old_name, new_name, ..
            } if folded(old_name) != folded(new_name) => {
                judged.rules.push(Rule::Renamed {
                    what: format!("{table}.{}", old_name.value),
                });
            }
            AlterTableOperation::ChangeColumn { old_name: column, .. }
            | AlterTableOperation::ModifyColumn { col_name: column, .. } => {
                judged.rules.push(Rule::Resized {
                    column: format!("{table}.{}", column.value),
                });
            }
            AlterTableOperation::RenameConstraint { old_name, .. } => {
                judged
                    .locks
                    .push(short(format!("renaming the constraint {}", old_name.value)));
                // ON CONFLICT ON CONSTRAINT asks for one by its name.
                if !self.schema.is_check_or_foreign_key(of, old_name) {
                    judged.rules.push(Rule::Renamed {
                        what: format!("the constraint {} of {table}", old_name.value),
                    });
                }
            }
            other => judged.rules.push(Rule::UnknownStatement {
                statement: beginning(&format!("ALTER TABLE {table} {other}")),
            }),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has objects of twenty databases"
    )]
    pub(super) fn drop(
        &mut self,
        kind: ObjectType,
        names: &[ObjectName],
        of: Option<&ObjectName>,
        cascade: bool,
        judged: &mut Judged,
    ) {
        for object in names {
            let name = unqualified(object);
            if cascade && !self.new.contains(&normalized(object)) {
                judged.rules.push(Rule::Cascade {
                    what: format!("DROP {kind} {name} CASCADE"),
                });
            }
            match kind {
                ObjectType::Table if self.new.contains(&normalized(object)) => self.forget_new(object),
                ObjectType::Table => {
                    judged.locks.push(Lock::short(
                        &name,
                        "dropping it".to_owned(),
                        Mode::AccessExclusive,
                    ));
                    if let Err(why) = self.check_drop(&normalized(object), None) {
                        let table = object.to_string();
                        judged.rules.push(Rule::TableDroppedEarly { table, why });
                    }
                }
                ObjectType::Index => match of {
                    None => self.drop_index(object, judged),
                    // MySQL has a name of an index once for each table.
                    Some(table) => {
                        let name = object.0.last().and_then(ObjectNamePart::as_ident).cloned();
                        let dropped = name.map(|name| AlterTableOperation::DropIndex { name });
                        if let Some(dropped) = dropped.filter(|_| !self.new.contains(&normalized(table))) {
                            self.operation(table, &dropped, judged);
                        }
                    }
                },
                other => judged.rules.push(Rule::UnknownStatement {
                    statement: format!("DROP {other} {name}"),
                }),
            }
        }
    }

    pub(super) fn drop_index(&self, index: &ObjectName, judged: &mut Judged) {
        let name = unqualified(index);
        let may = match self.schema.index(index) {
            Some(known) if self.new.contains(&known.table) => return,
            Some(known) if known.unique => self.is_dropped(&known.table, &known.columns),
            Some(_) => true,
            None => false,
        };
        if !may {
            judged.rules.push(Rule::UniqueDropped {
                what: format!("the index {name}"),
            });
        }
        // Its table waits.
        judged.locks.push(match self.schema.index(index) {
            Some(known) => Lock::short(
                known.table.last().map_or("", String::as_str),
                format!("dropping the index {name}"),
                Mode::AccessExclusive,
            ),
            None => Lock::short(
                &name,
                "dropping this index, on its table,".to_owned(),
                Mode::AccessExclusive,
            ),
        });
    }

    /// Whether this table, or one of these columns, may go with this release, and takes what is unique in it along.
    fn is_dropped(&self, table: &Name, columns: &[String]) -> bool {
        let mut columns = columns.iter();
        self.check_drop(table, None).is_ok()
            || columns.any(|column| self.check_drop(table, Some(column)).is_ok())
    }

    /// Whether a column, or a whole table, may go with this release. One of another schema is another one.
    fn check_drop(&self, table: &Name, column: Option<&str>) -> Result<(), TooEarly> {
        if self.schema.is_in_other_schema() && table.len() == 1 {
            return Err(TooEarly::NotDeprecated);
        }
        let (Releases::Declared { manifest, .. }, Step::Release(place)) = (self.releases, self.step) else {
            return Err(TooEarly::Undeclared);
        };
        let table = table.join(".");
        let is = |written: Option<&String>, otherwise: Option<&String>, wanted: &str| {
            let name = written.or(otherwise);
            name.is_some_and(|name| name.eq_ignore_ascii_case(wanted))
        };
        let same = |deprecation: &&Deprecation| {
            let column_is = match (column, &deprecation.field) {
                (None, None) => true,
                (Some(column), Some(field)) => is(deprecation.column.as_ref(), Some(field), column),
                (None, Some(_)) | (Some(_), None) => false,
            };
            column_is && is(deprecation.table.as_ref(), Some(&deprecation.object), &table)
        };
        let Some(deprecation) = manifest.deprecations().iter().find(same) else {
            return Err(TooEarly::NotDeprecated);
        };
        let removed = deprecation
            .removed
            .as_deref()
            .and_then(|release| manifest.find(release).ok());
        may_leave_schema(manifest, removed.map(|named| named.place), place)
    }
}

/// A foreign key that stands in a column names that column.
fn of_column(key: &ForeignKeyConstraint, column: &Ident) -> ForeignKeyConstraint {
    ForeignKeyConstraint {
        columns: vec![column.clone()],
        ..key.clone()
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only foreign keys touch other tables"
)]
fn foreign_keys(table: &CreateTable) -> Vec<ForeignKeyConstraint> {
    let of_columns = table.columns.iter().flat_map(|column| {
        column.options.iter().filter_map(|option| match &option.option {
            ColumnOption::ForeignKey(key) => Some(of_column(key, &column.name)),
            _ => None,
        })
    });
    let of_table = table
        .constraints
        .iter()
        .filter_map(|constraint| match constraint {
            TableConstraint::ForeignKey(key) => Some(key.clone()),
            _ => None,
        });
    of_columns.chain(of_table).collect()
}

/// The columns of a table that must not be NULL.
#[expect(clippy::wildcard_enum_match_arm, reason = "others ask for nothing")]
fn required(table: &CreateTable) -> BTreeSet<String> {
    let of_columns = table.columns.iter().filter(|column| {
        column
            .options
            .iter()
            .any(|option| matches!(option.option, ColumnOption::NotNull | ColumnOption::PrimaryKey(_)))
    });
    let of_columns = of_columns.map(|column| folded(&column.name));
    let of_table = table.constraints.iter().flat_map(|constraint| match constraint {
        TableConstraint::PrimaryKey(key) => indexed(&key.columns),
        _ => Vec::new(),
    });
    of_columns.chain(of_table).collect()
}

/// Whether it may refuse a row that another table of the same columns takes, but for those that must not be NULL.
fn is_strict(table: &CreateTable) -> bool {
    let options = table.columns.iter().flat_map(|column| &column.options);
    let mut options = options.map(|option| &option.option);
    let loose = |option: &ColumnOption| {
        matches!(
            option,
            ColumnOption::Null
                | ColumnOption::NotNull
                | ColumnOption::Default(_)
                | ColumnOption::Comment(_)
                | ColumnOption::Collation(_)
        )
    };
    !table.constraints.is_empty() || !options.all(loose)
}
