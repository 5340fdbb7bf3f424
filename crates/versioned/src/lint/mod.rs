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
mod expressions;
mod known;
mod locks;
mod names;
mod rule;
mod rules;
mod statements;
mod tables;
mod waivers;

use std::fmt;

pub use locks::{Lock, Mode};
pub use rule::Rule;
use serde::Serialize;

use known::Known;

use crate::manifest::{Manifest, Place};

/// A migration: the name of its file, and what stands in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// The name of the file.
    pub file: String,
    /// Its text.
    pub text: String,
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
        write!(f, "{file}:{line}: {}: {rule}; {}", rule.word(), rule.instead())
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
        write!(f, "{}: {rule}; accepted: {reason} (`{file}`)", rule.word())
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
    /// How many files were left out since they lead back: those that end in `.down.sql`.
    pub down: usize,
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

/// Judges migrations in the order in which they are carried out; with `since` only those of later releases.
pub fn lint(migrations: &[Migration], manifest: &Manifest, since: Option<Place>) -> Report {
    let mut report = Report::default();
    let mut before: Option<Place> = None;
    let mut known = Known::default();
    for migration in migrations {
        if migration.file.ends_with(".down.sql") {
            report.down += 1;
            continue;
        }
        let mut find = |line: u64, rule: Rule| {
            report.findings.push(Finding {
                file: migration.file.clone(),
                line,
                rule,
            });
        };
        let Some((line, release)) = release(&migration.text) else {
            find(1, Rule::ReleaseMissing);
            report.judged += 1;
            known.forget();
            continue;
        };
        let Ok(named) = manifest.find(release) else {
            let release = release.to_owned();
            find(line, Rule::ReleaseUnknown { release });
            report.judged += 1;
            known.forget();
            continue;
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
        before = Some(before.map_or(place, |before| before.max(place)));
        if since.is_some_and(|since| place <= since) {
            // What it made is known in later ones.
            judge(migration, manifest, place, &mut known, &mut Report::default());
            continue;
        }
        report.judged += 1;
        judge(migration, manifest, place, &mut known, &mut report);
    }
    report
}

fn judge(migration: &Migration, manifest: &Manifest, place: Place, known: &mut Known, report: &mut Report) {
    let at = |line: u64, rule: Rule| Finding {
        file: migration.file.clone(),
        line,
        rule,
    };
    let parsed = match statements::statements(&migration.text) {
        Ok(parsed) => parsed,
        Err((line, why)) => {
            known.forget();
            report
                .findings
                .push(at(line, Rule::Unparsable { why, open: true }));
            return;
        }
    };
    let mut waivers = waivers::waivers(&parsed.tokens);
    let mut here = rules::Here::new(manifest, place, known);
    let mut findings = Vec::new();
    for written in parsed.statements {
        let line = written.line;
        let mut open = false;
        let judged = match written.statement {
            Ok(statement) => here.judge(&statement),
            Err(unparsed) => {
                open = unparsed.open;
                here.unparsable(unparsed)
            }
        };
        let broken: Vec<&str> = judged.rules.iter().map(Rule::word).collect();
        let (of_this, others): (Vec<_>, Vec<_>) = waivers
            .into_iter()
            .partition(|waiver| waiver.before == written.first);
        waivers = others;
        for rule in judged.rules {
            let reason = of_this.iter().find_map(|waiver| waiver.reason(rule.word()));
            let finding = at(line, rule);
            match reason.filter(|_| !open) {
                None => findings.push(finding),
                Some(reason) => report.waived.push(Waived {
                    release: manifest.label(place),
                    finding,
                    reason: reason.to_owned(),
                }),
            }
        }
        for waiver in of_this {
            let why = waiver.refused(&broken, open);
            findings.extend(why.map(|why| at(waiver.line, Rule::WaiverRefused { why })));
        }
        if open {
            // Nobody knows what those after it are before.
            waivers.retain(|waiver| waiver.before < written.first);
        }
        if !written.concurrently {
            report.locks.extend(judged.locks.into_iter().map(|lock| Taken {
                release: manifest.label(place),
                file: migration.file.clone(),
                line,
                lock,
            }));
        }
    }
    findings.extend(waivers.into_iter().map(|waiver| {
        let why = "no statement begins after it".to_owned();
        at(waiver.line, Rule::WaiverRefused { why })
    }));
    findings.sort_by_key(|finding| finding.line);
    report.findings.extend(findings);
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
