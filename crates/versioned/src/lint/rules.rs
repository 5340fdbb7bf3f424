//! What each statement does to those who still work on the schema.

use std::collections::BTreeSet;

use sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, CreateIndex, CreateTable,
    Expr, ObjectName, ObjectType, Set, Statement, TableConstraint, TableFactor, TableObject, Value,
};

use super::known::{Known, Name, written};
use super::{Lock, Mode, Rule};
use crate::deprecation::{TooEarly, may_leave_schema};
use crate::manifest::{Deprecation, Manifest, Place};

/// What a statement comes to.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) rules: Vec<Rule>,
    pub(super) locks: Vec<Lock>,
}

/// A file, while it is gone through.
pub(super) struct Here<'a> {
    manifest: &'a Manifest,
    place: Place,
    /// What this file and those before it have made.
    known: &'a mut Known,
    /// Tables that this file makes: nobody works on them yet.
    new: BTreeSet<Name>,
    /// Those, and such as it makes only if they are not there.
    made: BTreeSet<Name>,
}

impl<'a> Here<'a> {
    pub(super) fn new(manifest: &'a Manifest, place: Place, known: &'a mut Known) -> Self {
        known.begin_file();
        Self {
            manifest,
            place,
            known,
            new: BTreeSet::new(),
            made: BTreeSet::new(),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has statements of twenty databases"
    )]
    pub(super) fn judge(&mut self, statement: &Statement) -> Judged {
        let mut judged = Judged::default();
        match statement {
            Statement::CreateTable(table) if !table.or_replace => self.create(table, &mut judged),
            Statement::AlterTable(alter) => self.alter(alter, &mut judged),
            Statement::CreateIndex(index) => self.index(index, &mut judged),
            Statement::Drop {
                object_type, names, ..
            } => self.drop(*object_type, names, &mut judged),
            Statement::RenameTable(renames) => {
                let names = renames.iter().map(|rename| plain(&rename.old_name));
                judged.rules.extend(names.map(|what| Rule::Renamed { what }));
            }
            Statement::Insert(insert) => match &insert.table {
                TableObject::TableName(name) => self.data(name, &mut judged),
                other => judged.rules.push(Rule::DataChanged {
                    table: other.to_string(),
                }),
            },
            Statement::Update(update) => self.rows(&update.table.relation, &mut judged),
            Statement::Delete(delete) => {
                let tables = match &delete.from {
                    sqlparser::ast::FromTable::WithFromKeyword(tables)
                    | sqlparser::ast::FromTable::WithoutKeyword(tables) => tables,
                };
                for table in tables {
                    self.rows(&table.relation, &mut judged);
                }
            }
            Statement::Truncate(truncate) => {
                for table in &truncate.table_names {
                    self.data(&table.name, &mut judged);
                }
            }
            Statement::Set(set) if moves(set) => self.go_elsewhere(),
            // What was set for a transaction ends with it.
            Statement::Commit { .. } if self.known.is_elsewhere() => self.go_elsewhere(),
            // What replaces a view may leave out a column.
            Statement::CreateView(view) if !view.or_replace && !view.or_alter => {}
            // These add something of which older services know nothing, or concern this connection only.
            Statement::CreateSchema { .. }
            | Statement::CreateSequence { .. }
            | Statement::CreateType { .. }
            | Statement::CreateDomain(_)
            | Statement::CreateExtension(_)
            | Statement::Comment { .. }
            | Statement::Set(_)
            | Statement::StartTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Pragma { .. } => {}
            other => judged.rules.push(Rule::UnknownStatement {
                statement: beginning(&other.to_string()),
            }),
        }
        self.known.learn(statement);
        let unknown = |rule: &Rule| matches!(rule, Rule::UnknownStatement { .. });
        let of_rights = matches!(statement, Statement::Grant(_) | Statement::Revoke(_));
        if judged.rules.iter().any(unknown) && !of_rights {
            self.known.forget();
        }
        judged
    }

    /// Names without a schema mean others from now on.
    fn go_elsewhere(&mut self) {
        self.new.clear();
        self.made.clear();
        self.known.go_elsewhere();
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only foreign keys touch other tables"
    )]
    fn create(&mut self, table: &CreateTable, judged: &mut Judged) {
        let name = plain(&table.name);
        // One that is made only if it is not there may be an old one.
        if !table.if_not_exists {
            self.new.insert(written(&table.name));
        }
        self.made.insert(written(&table.name));
        let of_columns = table.columns.iter().flat_map(|column| &column.options);
        let of_columns = of_columns.filter_map(|option| match &option.option {
            ColumnOption::ForeignKey(key) => Some(key),
            _ => None,
        });
        let of_table = table
            .constraints
            .iter()
            .filter_map(|constraint| match constraint {
                TableConstraint::ForeignKey(key) => Some(key),
                _ => None,
            });
        for key in of_columns.chain(of_table) {
            if !self.made.contains(&written(&key.foreign_table)) {
                let other = plain(&key.foreign_table);
                let what = format!("making {name} with a foreign key to it");
                judged
                    .locks
                    .push(Lock::short(&other, what, Mode::ShareRowExclusive));
            }
        }
    }

    /// Rows of a table that this file makes may be filled at once.
    fn data(&self, table: &ObjectName, judged: &mut Judged) {
        if !self.new.contains(&written(table)) {
            judged.rules.push(Rule::DataChanged { table: plain(table) });
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

    /// What is called so now is not what this file has made.
    fn gone(&mut self, table: &ObjectName) {
        self.new.remove(&written(table));
        self.made.remove(&written(table));
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has operations of twenty databases"
    )]
    fn alter(&mut self, alter: &AlterTable, judged: &mut Judged) {
        let table = plain(&alter.name);
        if self.new.contains(&written(&alter.name)) {
            let renamed = |operation: &AlterTableOperation| {
                matches!(operation, AlterTableOperation::RenameTable { .. })
            };
            if alter.operations.iter().any(renamed) {
                self.gone(&alter.name);
            }
            return;
        }
        let short = |what: String| Lock::short(&table, what, Mode::AccessExclusive);
        for operation in &alter.operations {
            match operation {
                AlterTableOperation::AddColumn { column_def, .. } => {
                    Self::add_column(&table, column_def, judged);
                }
                AlterTableOperation::DropColumn { column_names, .. } => {
                    for column in column_names {
                        judged
                            .locks
                            .push(short(format!("dropping the column {}", column.value)));
                        if let Err(why) = self.may_drop(&table, Some(&column.value)) {
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
                    alter_column(&table, &column_name.value, op, judged);
                }
                AlterTableOperation::AddConstraint {
                    constraint,
                    not_valid,
                } => {
                    constrain(&table, constraint, *not_valid, judged);
                }
                // It reads all rows, and keeps nobody from writing.
                AlterTableOperation::ValidateConstraint { .. } => {}
                AlterTableOperation::DropConstraint { name, .. } => {
                    judged
                        .locks
                        .push(short(format!("dropping the constraint {}", name.value)));
                    if !self.known.is_loose(&alter.name, name) && !self.goes(&table, &[]) {
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
                AlterTableOperation::RenameConstraint { old_name, .. } => {
                    judged
                        .locks
                        .push(short(format!("renaming the constraint {}", old_name.value)));
                    // ON CONFLICT ON CONSTRAINT asks for one by its name.
                    if !self.known.is_loose(&alter.name, old_name) {
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
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "options that lock nothing and ask for nothing are of no interest"
    )]
    fn add_column(table: &str, column: &ColumnDef, judged: &mut Judged) {
        let name = format!("{table}.{}", column.name.value);
        let what = format!("adding the column {}", column.name.value);
        let option =
            |wanted: fn(&ColumnOption) -> bool| column.options.iter().any(|option| wanted(&option.option));
        let default = column.options.iter().find_map(|option| match &option.option {
            ColumnOption::Default(value) => Some(value).filter(|value| !null(value)),
            _ => None,
        });
        let serial = column.data_type.to_string().to_uppercase().contains("SERIAL");
        let generated = serial
            || option(|option| matches!(option, ColumnOption::Generated { .. } | ColumnOption::Identity(_)));
        let computed = option(|option| {
            matches!(
                option,
                ColumnOption::Generated {
                    generation_expr: Some(_),
                    ..
                }
            )
        });
        let required = option(|option| matches!(option, ColumnOption::NotNull | ColumnOption::PrimaryKey(_)));
        if required && default.is_none() && !generated {
            judged.rules.push(Rule::ColumnRequired { column: name.clone() });
        }
        // PostgreSQL stores a constant default in its catalog; what has to be computed for each row rewrites the table.
        if generated || default.is_some_and(|value| !constant(value)) {
            let instead =
                "add it without the default, set the default after that, and let an online migration fill it";
            judged.locks.push(Lock::long(
                table,
                what.clone(),
                Mode::AccessExclusive,
                Some(instead),
            ));
        } else {
            judged
                .locks
                .push(Lock::short(table, what.clone(), Mode::AccessExclusive));
        }
        for option in &column.options {
            match &option.option {
                ColumnOption::Unique(_) | ColumnOption::PrimaryKey(_) => {
                    // Where it is empty for all older services, that is no duplicate.
                    if computed || default.is_some_and(|value| !distinct(value)) {
                        judged.rules.push(Rule::Tightened {
                            what: format!("{name} is unique, and its default may be that of another row"),
                        });
                    }
                    // Its index is built from all rows.
                    judged.locks.push(Lock::long(
                        table,
                        format!("{what} as unique"),
                        Mode::AccessExclusive,
                        Some("add the column, then its unique index CONCURRENTLY"),
                    ));
                }
                ColumnOption::ForeignKey(key) => {
                    let (other, what) = (
                        plain(&key.foreign_table),
                        format!("{what} of {table} with a foreign key"),
                    );
                    // Rows are not looked at where all of them are empty in it.
                    judged.locks.push(if default.is_some() {
                        let instead = "add the column without a default, and fill it by an online migration";
                        Lock::long(&other, what, Mode::ShareRowExclusive, Some(instead))
                    } else {
                        Lock::short(&other, what, Mode::ShareRowExclusive)
                    });
                }
                ColumnOption::Check(_) => {
                    // Older services leave it empty, and nobody knows here whether that passes.
                    judged.rules.push(Rule::Tightened {
                        what: format!("a check on {name}"),
                    });
                    judged.locks.push(Lock::long(
                        table,
                        format!("{what} with a check"),
                        Mode::AccessExclusive,
                        Some("add the column, then its check NOT VALID, and validate it in a migration of its own"),
                    ));
                }
                _ => {}
            }
        }
    }

    fn index(&self, index: &CreateIndex, judged: &mut Judged) {
        let table = plain(&index.table_name);
        if self.new.contains(&written(&index.table_name)) {
            return;
        }
        let name = index.name.as_ref().map(plain).unwrap_or_default();
        if index.unique {
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

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has objects of twenty databases"
    )]
    fn drop(&mut self, kind: ObjectType, names: &[ObjectName], judged: &mut Judged) {
        for object in names {
            let name = plain(object);
            match kind {
                ObjectType::Table if self.new.contains(&written(object)) => self.gone(object),
                ObjectType::Table => {
                    judged.locks.push(Lock::short(
                        &name,
                        "dropping it".to_owned(),
                        Mode::AccessExclusive,
                    ));
                    if let Err(why) = self.may_drop(&name, None) {
                        judged.rules.push(Rule::TableDroppedEarly { table: name, why });
                    }
                }
                ObjectType::Index => self.drop_index(object, judged),
                other => judged.rules.push(Rule::UnknownStatement {
                    statement: format!("DROP {other} {name}"),
                }),
            }
        }
    }

    fn drop_index(&self, index: &ObjectName, judged: &mut Judged) {
        let name = plain(index);
        let may = match self.known.index(index) {
            Some(known) if self.new.contains(&known.table) => return,
            Some(known) if known.unique => {
                let table = known.table.last().map(String::as_str).unwrap_or_default();
                self.goes(table, &known.columns)
            }
            Some(_) => true,
            None => false,
        };
        if !may {
            judged.rules.push(Rule::UniqueDropped {
                what: format!("the index {name}"),
            });
        }
        // Its table waits.
        judged.locks.push(Lock::short(
            &name,
            "dropping this index, on its table,".to_owned(),
            Mode::AccessExclusive,
        ));
    }

    /// Whether this table, or one of these columns, may go with this release, and takes what is unique in it along.
    fn goes(&self, table: &str, columns: &[String]) -> bool {
        let mut columns = columns.iter();
        self.may_drop(table, None).is_ok() || columns.any(|column| self.may_drop(table, Some(column)).is_ok())
    }

    /// Whether a column, or a whole table, may go with this release.
    fn may_drop(&self, table: &str, column: Option<&str>) -> Result<(), TooEarly> {
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
            column_is && is(deprecation.table.as_ref(), Some(&deprecation.object), table)
        };
        let Some(deprecation) = self.manifest.deprecations().iter().find(same) else {
            return Err(TooEarly::NotDeprecated);
        };
        let removed = deprecation
            .removed
            .as_deref()
            .and_then(|release| self.manifest.find(release).ok());
        may_leave_schema(self.manifest, removed.map(|named| named.place), self.place)
    }
}

fn alter_column(table: &str, column: &str, operation: &AlterColumnOperation, judged: &mut Judged) {
    let name = format!("{table}.{column}");
    match operation {
        AlterColumnOperation::SetDataType { .. } => judged.rules.push(Rule::Resized { column: name }),
        AlterColumnOperation::SetNotNull => {
            judged.rules.push(Rule::Tightened {
                what: format!("{name} must be filled"),
            });
            let instead = "add CHECK (… IS NOT NULL) NOT VALID, and validate it after that";
            let what = format!("SET NOT NULL of {column}");
            judged
                .locks
                .push(Lock::long(table, what, Mode::AccessExclusive, Some(instead)));
        }
        AlterColumnOperation::DropNotNull => {
            let what = format!("DROP NOT NULL of {column}");
            judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
        }
        AlterColumnOperation::SetDefault { value } if null(value) => {
            judged.rules.push(Rule::DefaultDropped { column: name });
        }
        AlterColumnOperation::SetDefault { .. } => {
            let what = format!("setting the default of {column}");
            judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
        }
        AlterColumnOperation::DropDefault => judged.rules.push(Rule::DefaultDropped { column: name }),
        AlterColumnOperation::AddGenerated { .. } => judged.rules.push(Rule::UnknownStatement {
            statement: format!("ALTER TABLE {table} ALTER COLUMN {column} ADD GENERATED"),
        }),
    }
}

fn constrain(table: &str, constraint: &TableConstraint, not_valid: bool, judged: &mut Judged) {
    let validate = Some("add it NOT VALID, and validate it in a migration of its own");
    let mut tightened = |what: String| judged.rules.push(Rule::Tightened { what });
    match constraint {
        TableConstraint::ForeignKey(key) => {
            // A foreign key is added where it cannot be avoided, and announced.
            let what = "adding a foreign key".to_owned();
            let other = plain(&key.foreign_table);
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
            tightened(format!("a check on {table}"));
            let what = "adding a check".to_owned();
            judged.locks.push(if not_valid {
                Lock::short(table, what, Mode::AccessExclusive)
            } else {
                Lock::long(table, what, Mode::AccessExclusive, validate)
            });
        }
        TableConstraint::Unique(_) | TableConstraint::PrimaryKey(_) | TableConstraint::Exclude(_) => {
            tightened(format!("a unique constraint on {table}"));
            let instead = "create its index CONCURRENTLY first, and add the constraint USING INDEX";
            let what = "adding a unique constraint".to_owned();
            judged
                .locks
                .push(Lock::long(table, what, Mode::AccessExclusive, Some(instead)));
        }
        TableConstraint::PrimaryKeyUsingIndex(_) | TableConstraint::UniqueUsingIndex(_) => {
            tightened(format!("a unique constraint on {table}"));
            let what = "adding a constraint USING INDEX".to_owned();
            judged.locks.push(Lock::short(table, what, Mode::AccessExclusive));
        }
        TableConstraint::Index(_) | TableConstraint::FulltextOrSpatial(_) => {
            judged.rules.push(Rule::UnknownStatement {
                statement: beginning(&format!("ALTER TABLE {table} ADD {constraint}")),
            });
        }
    }
}

/// Whether PostgreSQL need not compute it for each row.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not known to be constant is not"
)]
fn constant(value: &Expr) -> bool {
    match value {
        Expr::Value(_) | Expr::TypedString(_) => true,
        Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::UnaryOp { expr, .. } => constant(expr),
        _ => false,
    }
}

/// Whether it leaves empty what it is the default of.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is computed is taken for a value"
)]
fn null(value: &Expr) -> bool {
    match value {
        Expr::Value(value) => value.value == Value::Null,
        Expr::Cast { expr, .. } | Expr::Nested(expr) => null(expr),
        _ => false,
    }
}

/// Whether it is another value for each row.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not known to be another may be the same"
)]
fn distinct(value: &Expr) -> bool {
    match value {
        Expr::Function(function) => {
            let name = plain(&function.name);
            ["gen_random_uuid", "nextval"]
                .iter()
                .any(|known| name.eq_ignore_ascii_case(known))
        }
        Expr::Cast { expr, .. } | Expr::Nested(expr) => distinct(expr),
        _ => false,
    }
}

/// Whether it changes where names without a schema are looked for.
fn moves(set: &Set) -> bool {
    let set = set.to_string().to_lowercase();
    set.contains("search_path") || set.contains("schema")
}

/// A name without quotes and without its schema.
fn plain(name: &ObjectName) -> String {
    let last = name.0.last().map(ToString::to_string).unwrap_or_default();
    last.trim_matches('"').to_owned()
}

fn beginning(statement: &str) -> String {
    let line = statement.lines().next().unwrap_or_default();
    match line.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
