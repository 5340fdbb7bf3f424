//! What each statement does to those who still work on the schema.

use std::collections::BTreeSet;

use sqlparser::ast::{AlterTableOperation, AlterTypeOperation, Statement};

use super::known::Known;
use super::names::{Name, plain};
use super::statements::Unparsed;
use super::{Lock, Rule};
use crate::manifest::{Manifest, Place};

/// What a statement comes to.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) rules: Vec<Rule>,
    pub(super) locks: Vec<Lock>,
}

/// A file, while it is gone through.
pub(super) struct Here<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) place: Place,
    /// What this file and those before it have made.
    pub(super) known: &'a mut Known,
    /// Tables that this file makes: nobody works on them yet.
    pub(super) new: BTreeSet<Name>,
    /// Those, and such as it makes only if they are not there.
    pub(super) made: BTreeSet<Name>,
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
                object_type,
                names,
                cascade,
                ..
            } => self.drop(*object_type, names, *cascade, &mut judged),
            Statement::RenameTable(renames) => {
                let names = renames.iter().map(|rename| plain(&rename.old_name));
                judged.rules.extend(names.map(|what| Rule::Renamed { what }));
            }
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Merge(_)
            | Statement::Truncate(_) => self.change(statement, &mut judged),
            Statement::Set(set) if moves(&set.to_string()) => self.go_elsewhere(),
            // What was set for a transaction ends with it.
            Statement::Commit { .. } if self.known.is_elsewhere() => self.go_elsewhere(),
            // What replaces a view may leave out a column.
            Statement::CreateView(view) if !view.or_replace && !view.or_alter => {
                self.query(&view.query, &mut judged);
            }
            Statement::AlterType(alter) if matches!(alter.operation, AlterTypeOperation::AddValue(_)) => {}
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
            other => {
                if let Statement::Query(query) = other {
                    self.query(query, &mut judged);
                }
                judged.rules.push(Rule::UnknownStatement {
                    statement: beginning(&other.to_string()),
                });
            }
        }
        self.known.learn(statement);
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

    /// It may have done anything.
    pub(super) fn unparsable(&mut self, unparsed: Unparsed) -> Judged {
        self.go_elsewhere();
        let Unparsed { why, open } = unparsed;
        Judged {
            rules: vec![Rule::Unparsable { why, open }],
            locks: Vec::new(),
        }
    }

    /// Nobody knows what is called how by now.
    fn forget(&mut self) {
        self.new.clear();
        self.made.clear();
        self.known.forget();
    }

    /// Names without a schema mean others from now on.
    fn go_elsewhere(&mut self) {
        self.forget();
        self.known.go_elsewhere();
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
        Statement::Grant(_)
            | Statement::Revoke(_)
            | Statement::CreateFunction(_)
            | Statement::CreateTrigger(_)
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
