//! The effect of each statement on services that still use the schema.

use std::collections::{BTreeMap, BTreeSet};

use sqlparser::ast::{AlterTableOperation, AlterTypeOperation, ObjectName, Statement};

use super::names::{Name, normalized, unqualified};
use super::parse::{Command, Unparsed};
use super::schema::{Reference, Schema, Step};
use super::session;
use super::{Lock, Mode, Releases, Rule};

/// What a statement comes to.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) rules: Vec<Rule>,
    pub(super) locks: Vec<Lock>,
}

/// A file, while it is gone through.
pub(super) struct Here<'a> {
    pub(super) releases: Releases<'a>,
    /// Which release brings it.
    pub(super) step: Step,
    /// What this file and those before it have made.
    pub(super) schema: &'a mut Schema,
    /// Tables that this file makes: nobody works on them yet.
    pub(super) new: BTreeSet<Name>,
    /// Those, and such as it makes only if they are not there.
    pub(super) made: BTreeSet<Name>,
    /// New tables with a constraint or a unique index.
    pub(super) strict: BTreeSet<Name>,
    /// Foreign keys of new tables.
    pub(super) references: Vec<Reference>,
    /// New tables of which older services delete rows, by what they refer to.
    pub(super) reached: BTreeSet<Name>,
    /// Functions that this file makes.
    functions: BTreeSet<Name>,
    /// A transaction is open.
    pub(super) transaction: bool,
}

impl<'a> Here<'a> {
    pub(super) fn new(releases: Releases<'a>, step: Step, transaction: bool, schema: &'a mut Schema) -> Self {
        schema.begin_file();
        Self {
            releases,
            step,
            schema,
            new: BTreeSet::new(),
            made: BTreeSet::new(),
            strict: BTreeSet::new(),
            references: Vec::new(),
            reached: BTreeSet::new(),
            functions: BTreeSet::new(),
            transaction,
        }
    }

    pub(super) fn judge(&mut self, command: &Command) -> Judged {
        let mut judged = Judged::default();
        match command {
            Command::Sql(statement) => return self.sql(statement),
            Command::DropConcurrently(index) => {
                self.outside_transaction("DROP INDEX CONCURRENTLY", &mut judged);
                self.drop_index(index, &mut judged);
                // It waits for others, and keeps nobody from the table.
                judged.locks.clear();
                self.schema.forget_index(&normalized(index));
            }
            Command::Pragma { name, value } => pragma(name, value, &mut judged),
            Command::Attach { table, partition } => self.attach(table, partition, &mut judged),
            Command::Detach {
                table,
                partition,
                concurrently,
            } => {
                if *concurrently {
                    self.outside_transaction("DETACH PARTITION CONCURRENTLY", &mut judged);
                }
                self.detach(table, partition, *concurrently, &mut judged);
            }
            Command::GrantByDefault => {}
            Command::Function { name, replace } => self.function(name, *replace, &mut judged),
        }
        judged
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what no rule knows is said to be unknown, and sqlparser has statements of twenty databases"
    )]
    fn sql(&mut self, statement: &Statement) -> Judged {
        let mut judged = Judged::default();
        match statement {
            Statement::CreateTable(table) if !table.or_replace => self.create(table, &mut judged),
            Statement::AlterTable(alter) => self.alter(alter, &mut judged),
            Statement::CreateIndex(index) => {
                if index.concurrently {
                    self.outside_transaction("CREATE INDEX CONCURRENTLY", &mut judged);
                }
                self.index(index, &mut judged);
            }
            Statement::Drop {
                object_type,
                names,
                cascade,
                table,
                ..
            } => self.drop(*object_type, names, table.as_ref(), *cascade, &mut judged),
            Statement::RenameTable(renames) => {
                let names = renames.iter().map(|rename| unqualified(&rename.old_name));
                judged.rules.extend(names.map(|what| Rule::Renamed { what }));
            }
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Truncate(_) => self.change(statement, &mut judged),
            Statement::Set(set) if !session::is_of_session(&set.to_string()) => {
                judged.rules.push(Rule::UnknownStatement {
                    statement: beginning(&statement.to_string()),
                });
            }
            Statement::Set(set) if moves(&set.to_string()) => self.go_elsewhere(),
            Statement::Pragma { name, value, .. } => {
                let value = value.as_ref().map(ToString::to_string).unwrap_or_default();
                let value = value.trim_matches(['\'', '"']).to_lowercase();
                pragma(&unqualified(name).to_lowercase(), &value, &mut judged);
            }
            Statement::StartTransaction { .. } => self.transaction = true,
            Statement::Commit { .. } => {
                self.transaction = false;
                // What was set for a transaction ends with it.
                if self.schema.is_in_other_schema() {
                    self.go_elsewhere();
                }
            }
            // What replaces a view may leave out a column.
            Statement::CreateView(view) if !view.or_replace && !view.or_alter => {
                self.query(&view.query, &mut judged);
            }
            Statement::AlterType(alter) if matches!(alter.operation, AlterTypeOperation::AddValue(_)) => {}
            Statement::CreateFunction(function) => {
                self.function(
                    &function.name,
                    function.or_replace || function.or_alter,
                    &mut judged,
                );
            }
            Statement::CreateProcedure { name, or_alter, .. } => {
                self.function(name, *or_alter, &mut judged);
            }
            Statement::CreateTrigger(trigger)
                if self.new.contains(&normalized(&trigger.table_name)) && !trigger.or_replace => {}
            // These add something of which older services know nothing, or concern this connection only.
            Statement::CreateSchema { .. }
            | Statement::CreateSequence { .. }
            | Statement::CreateType { .. }
            | Statement::CreateDomain(_)
            | Statement::CreateExtension(_)
            | Statement::CreateRole(_)
            | Statement::Grant(_)
            | Statement::Analyze(_)
            | Statement::Comment { .. }
            | Statement::Set(_) => {}
            other => {
                if let Statement::Query(query) = other {
                    self.query(query, &mut judged);
                }
                if let Statement::Rollback { .. } = other {
                    self.transaction = false;
                }
                judged.rules.push(Rule::UnknownStatement {
                    statement: beginning(&other.to_string()),
                });
            }
        }
        self.schema.apply(statement);
        let unknown = |rule: &Rule| matches!(rule, Rule::UnknownStatement { .. });
        if judged.rules.iter().any(unknown) && !keeps_names(statement) {
            if moves(&statement.to_string()) {
                self.go_elsewhere();
            } else {
                self.forget();
            }
        }
        judged
    }

    /// What PostgreSQL refuses within a transaction.
    fn outside_transaction(&self, what: &str, judged: &mut Judged) {
        if self.transaction {
            let what = what.to_owned();
            judged.rules.push(Rule::InTransaction { what });
        }
    }

    /// A new one is called by nobody yet; one that replaces another is, unless this file has made that too.
    fn function(&mut self, name: &ObjectName, replaces: bool, judged: &mut Judged) {
        if replaces && !self.functions.contains(&normalized(name)) {
            judged.rules.push(Rule::UnknownStatement {
                statement: format!("CREATE OR REPLACE FUNCTION {name}"),
            });
        } else {
            self.functions.insert(normalized(name));
        }
    }

    /// Rows of older services come into the partition: it may refuse none that the table takes.
    fn attach(&mut self, table: &ObjectName, partition: &ObjectName, judged: &mut Judged) {
        let name = normalized(partition);
        if self.new.contains(&normalized(table)) {
            return;
        }
        let requires = |table: &Name, column: &String| {
            let known = self.schema.columns(table).and_then(|all| all.get(column));
            known.is_some_and(|column| column.required)
        };
        let mut columns = self.schema.columns(&name).into_iter().flat_map(BTreeMap::keys);
        let required = columns.any(|column| requires(&name, column) && !requires(&normalized(table), column));
        if !self.new.contains(&name) || self.strict.contains(&name) || required {
            judged.rules.push(Rule::Tightened {
                what: format!(
                    "{}, which becomes a partition of {}, with its constraints and its bounds",
                    unqualified(partition),
                    unqualified(table)
                ),
            });
        }
        self.forget_new(partition);
    }

    fn detach(
        &mut self,
        table: &ObjectName,
        partition: &ObjectName,
        concurrently: bool,
        judged: &mut Judged,
    ) {
        if self.new.contains(&normalized(table)) {
            return;
        }
        judged.rules.push(Rule::PartitionDetached {
            partition: unqualified(partition),
            table: unqualified(table),
        });
        if !concurrently {
            for of in [table, partition] {
                judged.locks.push(Lock::short(
                    &unqualified(of),
                    format!("detaching the partition {}", unqualified(partition)),
                    Mode::AccessExclusive,
                ));
            }
        }
    }

    /// It may have done anything.
    pub(super) fn unparsable(&mut self, unparsed: Unparsed) -> Judged {
        self.go_elsewhere();
        let Unparsed { why, open } = unparsed;
        Judged {
            rules: vec![Rule::Unparsable { why, open }],
            locks: Vec::new(),
        }
    }

    /// What is called so now is not what this file has made.
    pub(super) fn forget_new(&mut self, table: &ObjectName) {
        self.new.remove(&normalized(table));
        self.made.remove(&normalized(table));
    }

    /// Nobody knows what is called how by now.
    fn forget(&mut self) {
        self.new.clear();
        self.made.clear();
        self.functions.clear();
        self.schema.forget();
    }

    /// Names without a schema mean others from now on.
    fn go_elsewhere(&mut self) {
        self.forget();
        self.schema.go_elsewhere();
    }
}

fn pragma(name: &str, value: &str, judged: &mut Judged) {
    if !session::is_harmless(name, value) {
        judged.rules.push(Rule::UnknownStatement {
            statement: format!("PRAGMA {name} = {value}"),
        });
    }
}

/// Whether what is called so before such a statement is the same after it, although no rule knows it.
fn keeps_names(statement: &Statement) -> bool {
    if let Statement::AlterTable(alter) = statement {
        let owner =
            |operation: &AlterTableOperation| matches!(operation, AlterTableOperation::OwnerTo { .. });
        return alter.operations.iter().all(owner);
    }
    matches!(
        statement,
        Statement::Revoke(_) | Statement::CreateFunction(_) | Statement::CreateTrigger(_)
    )
}

/// Whether it changes where names without a schema are looked for.
fn moves(statement: &str) -> bool {
    let statement = statement.to_lowercase();
    statement.contains("search_path") || statement.contains("schema")
}

pub(super) fn beginning(statement: &str) -> String {
    let line = statement.lines().next().unwrap_or_default();
    match line.char_indices().nth(80) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
