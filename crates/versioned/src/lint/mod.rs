//! The policy of schema changes, as a linter of migrations in SQL.
//!
//! The schema is upgraded first, while services of the release before still work on it. So a migration may only add, and what
//! it adds may be left empty; what is dropped is used by no service any more; nothing is renamed or resized; data is moved
//! by online migrations, not here. What locks a table on PostgreSQL is no fault, but has to be announced: [`Report::notes`]
//! writes it down for the release notes.
//!
//! What breaks a rule and is harmless all the same is accepted for a reason that stands before the statement:
//! `-- stagger: allow RULE: REASON`.
//!
//! Each file begins with the release that brings it, `-- release: 7.0`, and the names of files are in the order in which
//! they are carried out. When a field or an object was deprecated and removed stands in the [manifest](crate::manifest).

mod columns;
mod constraints;
mod data;
mod explain;
mod expressions;
mod judge;
mod layout;
mod locks;
mod names;
mod parse;
mod references;
mod rule;
mod sarif;
mod schema;
mod session;
mod tables;
mod types;
mod waivers;

use std::fmt;

pub use explain::{EXPLANATIONS, Explanation, explain};
pub use layout::{Layout, Ordered, order};
pub use locks::{Lock, Mode};
pub use parse::Dialect;
pub use rule::Rule;
pub use sarif::{annotations, sarif};
use schema::{Schema, Step};
use serde::Serialize;

use crate::manifest::{Manifest, Place};

/// A migration: the name of its file, and what stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the file. Several migrations of one file follow each other.
    pub file: String,
    /// Its text. One that does not begin the file has empty lines in place of those before it.
    pub text: String,
    /// Whether it is carried out in a transaction without saying so.
    pub transaction: bool,
}

/// What is known of the releases that bring the migrations.
#[derive(Debug, Clone, Copy)]
pub enum Releases<'a> {
    /// Each file says which release of this manifest brings it.
    Declared {
        /// The manifest.
        manifest: &'a Manifest,
        /// Only migrations of later releases are judged.
        since: Option<Place>,
    },
    /// Nothing: each migration is judged as the next release after those before it.
    Undeclared {
        /// So many of them have been carried out, and are not judged.
        carried_out: usize,
    },
}

/// How migrations are judged.
#[derive(Debug, Clone, Copy)]
pub struct Linter<'a> {
    /// The releases.
    pub releases: Releases<'a>,
    /// The database; without it each file is read in the first of [`Dialect::ALL`] that knows all of it.
    pub dialect: Option<Dialect>,
}

/// A rule broken in a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The rule.
    #[serde(flatten)]
    pub rule: Rule,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule } = self;
        write!(f, "{file}:{line}: {}: {rule}; {}", rule.as_str(), rule.instead())
    }
}

/// A lock that a statement takes on PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taken {
    /// The release that brings it.
    pub release: String,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The lock.
    #[serde(flatten)]
    pub lock: Lock,
}

/// A broken rule that somebody accepts, and says why: `-- stagger: allow RULE: REASON` before the statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waived {
    /// The release that brings it.
    pub release: String,
    /// What is accepted, and where.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Waived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { finding, reason, .. } = self;
        let Finding { file, rule, .. } = finding;
        write!(f, "{}: {rule}; accepted: {reason} (`{file}`)", rule.as_str())
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// How many files were judged: those of releases after `since`, and those of which nobody knows the release.
    pub judged: usize,
    /// Rules that are broken. Where there are none, the migrations may be carried out while older services work.
    pub findings: Vec<Finding>,
    /// Rules that are broken, and accepted for a reason.
    pub waived: Vec<Waived>,
    /// Locks on tables that were there before.
    pub locks: Vec<Taken>,
}

impl Report {
    /// The exit code of a command that says so: 1 where a rule is broken.
    pub fn code(&self) -> u8 {
        u8::from(!self.findings.is_empty())
    }

    /// The part of the release notes that announces the locks and what was accepted, in Markdown; empty where there is
    /// nothing of that.
    pub fn notes(&self) -> String {
        let locks = self.locks.iter().map(
            |Taken {
                 release, file, lock, ..
             }| {
                let line = format!("- {lock} (`{file}`)");
                (
                    format!("## Locks of the schema upgrade to {release}, on PostgreSQL"),
                    line,
                )
            },
        );
        let waived = self.waived.iter().map(|waived| {
            let release = &waived.release;
            (
                format!("## Accepted in the schema upgrade to {release}"),
                format!("- {waived}"),
            )
        });
        let mut parts: Vec<(String, Vec<String>)> = Vec::new();
        for (heading, line) in locks.chain(waived) {
            match parts.iter_mut().find(|(known, _)| *known == heading) {
                Some((_, lines)) => lines.push(line),
                None => parts.push((heading, vec![line])),
            }
        }
        let parts = parts
            .into_iter()
            .map(|(heading, lines)| format!("{heading}\n\n{}", lines.join("\n")));
        parts.collect::<Vec<_>>().join("\n\n")
    }
}

/// Which release brings a migration, and what that is called.
struct Brought {
    step: Step,
    label: String,
}

impl Linter<'_> {
    /// Judges migrations in the order in which they are carried out.
    pub fn judge(&self, migrations: &[Migration]) -> Report {
        let mut report = Report::default();
        let mut before: Option<Place> = None;
        let mut schema = Schema::default();
        let mut open: Option<&str> = None;
        for (number, migration) in migrations.iter().enumerate() {
            // One transaction may be that of several migrations of a file.
            let continues = open == Some(migration.file.as_str());
            let transaction = migration.transaction || continues;
            let (brought, judged) = match self.releases {
                Releases::Undeclared { carried_out } => {
                    let brought = Brought {
                        step: Step::File(number),
                        label: "the next release".to_owned(),
                    };
                    (brought, number >= carried_out)
                }
                Releases::Declared { manifest, since } => {
                    // What follows in a file is of the same release, unless it says another.
                    let follows = number.checked_sub(1).and_then(|before| migrations.get(before));
                    let follows = follows.is_some_and(|before| before.file == migration.file);
                    let place = match before.filter(|_| follows && release(&migration.text).is_none()) {
                        Some(same) => Some(same),
                        None => declared(migration, manifest, before, &mut report.findings),
                    };
                    let Some(place) = place else {
                        report.judged += 1;
                        schema.forget();
                        continue;
                    };
                    before = Some(before.map_or(place, |before| before.max(place)));
                    let brought = Brought {
                        step: Step::Release(place),
                        label: manifest.label(place),
                    };
                    (brought, since.is_none_or(|since| place > since))
                }
            };
            // What it made is known in later ones, also if it is not judged.
            let mut unjudged = Report::default();
            let into = if judged { &mut report } else { &mut unjudged };
            into.judged += 1;
            let stays = self.lint_migration(migration, &brought, transaction, &mut schema, into);
            open = (stays && !migration.transaction).then_some(migration.file.as_str());
        }
        report
    }

    /// Answers whether a transaction is open at its end.
    fn lint_migration(
        &self,
        migration: &Migration,
        brought: &Brought,
        transaction: bool,
        schema: &mut Schema,
        report: &mut Report,
    ) -> bool {
        let at = |line: u64, rule: Rule| Finding {
            file: migration.file.clone(),
            line,
            rule,
        };
        let parsed = match parse::statements(&migration.text, self.dialect) {
            Ok(parsed) => parsed,
            Err((line, why)) => {
                schema.forget();
                let rule = Rule::Unparsable { why, open: true };
                report.findings.push(at(line, rule));
                return transaction;
            }
        };
        let mut waivers = waivers::waivers(&parsed.tokens);
        let mut here = judge::Here::new(self.releases, brought.step, transaction, schema);
        let mut findings = Vec::new();
        for written in parsed.statements {
            let line = written.line;
            let mut open = false;
            let judged = match written.command {
                Ok(command) => here.judge(&command),
                Err(unparsed) => {
                    open = unparsed.open;
                    here.unparsable(unparsed)
                }
            };
            let broken: Vec<&str> = judged.rules.iter().map(Rule::as_str).collect();
            let (of_this, others): (Vec<_>, Vec<_>) = waivers
                .into_iter()
                .partition(|waiver| waiver.before == written.first);
            waivers = others;
            for rule in judged.rules {
                let reason = of_this.iter().find_map(|waiver| waiver.reason(rule.as_str()));
                let finding = at(line, rule);
                match reason.filter(|_| !open) {
                    None => findings.push(finding),
                    Some(reason) => report.waived.push(Waived {
                        release: brought.label.clone(),
                        finding,
                        reason: reason.to_owned(),
                    }),
                }
            }
            for waiver in of_this {
                let why = waiver.refusal(&broken, open);
                findings.extend(why.map(|why| at(waiver.line, Rule::WaiverRefused { why })));
            }
            if open {
                // Nobody knows what those after it are before.
                waivers.retain(|waiver| waiver.before < written.first);
            }
            report.locks.extend(judged.locks.into_iter().map(|lock| Taken {
                release: brought.label.clone(),
                file: migration.file.clone(),
                line,
                lock,
            }));
        }
        findings.extend(waivers.into_iter().map(|waiver| {
            let why = "no statement starts after it".to_owned();
            at(waiver.line, Rule::WaiverRefused { why })
        }));
        findings.sort_by_key(|finding| finding.line);
        report.findings.extend(findings);
        here.transaction
    }
}

/// The release that a migration says it is brought by, if the manifest has it.
fn declared(
    migration: &Migration,
    manifest: &Manifest,
    before: Option<Place>,
    findings: &mut Vec<Finding>,
) -> Option<Place> {
    let mut find = |line: u64, rule: Rule| {
        findings.push(Finding {
            file: migration.file.clone(),
            line,
            rule,
        });
    };
    let Some((line, release)) = release(&migration.text) else {
        find(1, Rule::ReleaseMissing);
        return None;
    };
    let Ok(named) = manifest.find(release) else {
        let release = release.to_owned();
        find(line, Rule::ReleaseUnknown { release });
        return None;
    };
    let place = named.place;
    if let Some(earlier) = before.filter(|before| *before > place) {
        find(
            line,
            Rule::ReleaseOrder {
                release: manifest.label(place),
                before: manifest.label(earlier),
            },
        );
    }
    Some(place)
}

/// The release that the comments at the beginning name, and the line.
fn release(text: &str) -> Option<(u64, &str)> {
    let comments = text
        .lines()
        .take_while(|line| line.trim().is_empty() || line.trim_start().starts_with("--"));
    let mut lines = comments.zip(1..);
    lines.find_map(|(line, at)| {
        let rest = line
            .trim_start()
            .strip_prefix("--")?
            .trim_start()
            .strip_prefix("release:")?;
        Some((at, rest.trim()))
    })
}
