//! The real `hroller` of each release and ours on the same random clusters, with the same options.
//!
//! Ours is judged by the plain rules of the design (`judge.rs`) and never has more groups than hroller, unless the core's
//! judge finds fault with hroller's. Where they differ, it is one of the differences that are meant
//! (`compare::Difference`), and the case says which.
//!
//! `SEED` and `CASES` choose what is looked at; one case alone prints its cluster and both answers.

mod case;
mod compare;
mod judge;
mod n_plus_one;
mod program;
mod strict;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use case::Case;
use compare::{Difference, Outcome, compare};
use n_plus_one::Found;
use stagger_core::model::Spare;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Htools, Release};
use stagger_ganeti::hroller::{HrollerOptions, answer};
use stagger_ganeti::loaders::generated::{ClusterRng, Layout, Shape, cluster};
use stagger_ganeti::loaders::text::{read, write};

/// What all cases come to.
#[derive(Debug, Default)]
struct Tally {
    differences: BTreeMap<Difference, u32>,
    refused: u32,
    fewer: u32,
    as_many: u32,
    more: u32,
    ours: usize,
    theirs: usize,
    /// Where hroller's groups are sound by our rules.
    sound: u32,
    programs: u32,
    /// Waves that the real `hcheck` was asked about, and those in which it found N+1 failures that were not there before:
    /// with memory kept, and with it spent.
    kept: (usize, usize),
    spent: (usize, usize),
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        for difference in &outcome.differences {
            *self.differences.entry(*difference).or_default() += 1;
        }
        self.refused += u32::from(outcome.refused);
        self.sound += u32::from(outcome.sound);
        if let Some((ours, theirs)) = outcome.groups {
            self.ours += ours;
            self.theirs += theirs;
            match ours.cmp(&theirs) {
                std::cmp::Ordering::Less => self.fewer += 1,
                std::cmp::Ordering::Equal => self.as_many += 1,
                std::cmp::Ordering::Greater => self.more += 1,
            }
        }
    }
}

fn number(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) => Ok(Some(
            text.parse()
                .with_context(|| format!("{name}={text} is no number"))?,
        )),
        Err(_) => Ok(None),
    }
}

/// Every so many cases the programs themselves are run and compared too.
const PROGRAMS: u64 = 10;
/// Every so many cases our own plans are judged by the real `hcheck`, with memory kept.
const N_PLUS_ONE: u64 = 3;
/// The same with memory spent, where it should find something.
const SPENT: u64 = 30;

/// So many cases beside the htools of each release, and that they say something unless there are few.
fn cases_of_each_release(first: u64, count: u64) -> Result<()> {
    let (first, count) = (
        number("SEED")?.unwrap_or(first),
        number("CASES")?.unwrap_or(count),
    );
    for release in Release::ALL {
        let number = release.number();
        let tally = cases(release, first, count).with_context(|| format!("beside Ganeti {number}"))?;
        say(format!("Ganeti {number}: {tally:#?}"));
        if count >= 300 {
            says_something(&tally)?;
        }
    }
    Ok(())
}

fn cases(release: Release, first: u64, count: u64) -> Result<Tally> {
    let real = Htools::start_of(release)?;
    let next = AtomicU64::new(first);
    let tally = Mutex::new(Tally::default());
    let failed = Mutex::new(Vec::new());
    let one = |seed: u64| -> Result<()> {
        let case = Case::of(seed)?;
        let seen = compare(&case, &real, count == 1)
            .and_then(|outcome| {
                let programs = seed.is_multiple_of(PROGRAMS);
                if programs {
                    program::compare(&case, &real)?;
                }
                let kept = if seed.is_multiple_of(N_PLUS_ONE) {
                    n_plus_one::found(&case, Spare::Keep, &real)?
                } else {
                    Found::default()
                };
                ensure!(kept.failures.is_empty(), "new N+1 failures: {:#?}", kept.failures);
                let spent = if seed.is_multiple_of(SPENT) {
                    n_plus_one::found(&case, Spare::Spend, &real)?
                } else {
                    Found::default()
                };
                Ok((outcome, programs, kept, spent))
            })
            .with_context(|| format!("seed {seed}, {}\n  again: {}", case.flags.join(" "), case.again()));
        match seen {
            Ok((outcome, programs, kept, spent)) => {
                let mut tally = tally
                    .lock()
                    .map_err(|_| anyhow::anyhow!("another case panicked"))?;
                tally.add(&outcome);
                tally.programs += u32::from(programs);
                kept.add_to(&mut tally.kept);
                spent.add_to(&mut tally.spent);
            }
            Err(error) => {
                let mut failed = failed
                    .lock()
                    .map_err(|_| anyhow::anyhow!("another case panicked"))?;
                failed.push(format!("{error:#}"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    return Ok(());
                }
                one(seed)?;
            }
        };
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => bail!("a case panicked"),
        })
    })?;
    let failed = failed.into_inner().unwrap_or_default();
    let tally = tally.into_inner().unwrap_or_default();
    ensure!(
        failed.is_empty(),
        "{} of {count} cases ({tally:#?}):\n{}",
        failed.len(),
        failed.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
    Ok(tally)
}

/// That the cases say something: each difference that is meant was seen, and most have answers of both.
fn says_something(tally: &Tally) -> Result<()> {
    use Difference::{Down, GivesUp, Local, Offline, Rules, Unselected};
    for difference in [Unselected, Down, Local, Offline, Rules, GivesUp] {
        let seen = tally.differences.get(&difference).copied().unwrap_or(0);
        ensure!(seen > 0, "{difference:?} was never seen: {tally:?}");
    }
    let answered = tally.fewer + tally.as_many + tally.more;
    ensure!(
        answered > 100 && tally.sound > 50 && tally.refused > 10,
        "{tally:?}"
    );
    ensure!(tally.fewer > tally.more && tally.ours < tally.theirs, "{tally:?}");
    ensure!(tally.programs >= 30, "{tally:?}");
    ensure!(tally.kept.0 >= 100 && tally.spent.1 > 0, "{tally:?}");
    Ok(())
}

#[test]
#[ignore = "needs root and Ganeti; cargo xtask test runs it"]
fn hundreds_of_clusters_as_hroller_sees_them() -> Result<()> {
    cases_of_each_release(0, 300)
}

#[test]
#[ignore = "needs root and Ganeti, and takes minutes; cargo xtask test --long runs it"]
fn thousands_of_clusters_as_hroller_sees_them() -> Result<()> {
    cases_of_each_release(300, 4_000)
}

/// A ring of a thousand nodes, which hroller colours worse than can be, and the cluster of the transcripts, where it moves
/// an instance that is down and so splits a group.
#[test]
#[ignore = "needs root and Ganeti; cargo xtask test --long runs it"]
fn four_groups_where_hroller_has_five() -> Result<()> {
    let real = Htools::start()?;
    let shape = Shape {
        nodes: 1_000,
        layout: Layout::Ring,
        ..Shape::PLAIN
    };
    let ring = write(&cluster(&mut ClusterRng(1), &shape));
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/transcripts/inputs/lab.data");
    let lab = std::fs::read_to_string(&lab).with_context(|| format!("read {}", lab.display()))?;
    for text in [ring, lab] {
        let theirs = real.hroller(&text, &[])?.groups()?;
        let options = HrollerOptions {
            move_non_redundant: true,
            ..HrollerOptions::default()
        };
        let ours = answer(&read(&text)?, &options)?;
        ensure!(ours.left_out.is_empty(), "{:?}", ours.left_out);
        ensure!(
            (ours.groups.len(), theirs.len()) == (4, 5),
            "ours has {} groups, hroller {}",
            ours.groups.len(),
            theirs.len()
        );
    }
    Ok(())
}

/// So many clusters of each release in strict mode, and how many of them have to have groups.
const STRICT: u64 = 1_000;
const STRICT_ANSWERED: u64 = 300;

#[test]
#[ignore = "needs root and Ganeti, and takes minutes; cargo xtask test --long runs it"]
fn strict_answers_are_those_of_hroller_byte_for_byte() -> Result<()> {
    for release in Release::ALL {
        let real = Htools::start_of(release)?;
        let mut answered = 0;
        let first = number("SEED")?.unwrap_or(0);
        let count = number("CASES")?.unwrap_or(STRICT);
        for seed in first..first + count {
            answered += u64::from(strict::Strict::of(seed).compare(&real)?);
        }
        say(format!(
            "Ganeti {}: {count} clusters, {answered} with groups",
            release.number()
        ));
        ensure!(
            count < STRICT || answered >= STRICT_ANSWERED,
            "only {answered} have groups"
        );
    }
    Ok(())
}

#[test]
#[ignore = "needs root and Ganeti; cargo xtask test --long runs it"]
fn ganetis_own_shell_tests_pass() -> Result<()> {
    for release in Release::ALL {
        let real = Htools::start_of(release)?;
        let (theirs, ours, all) = strict::shell_tests_passed(&real)?;
        say(format!(
            "Ganeti {}: of {all} shell tests hroller passes {theirs}, stagger {ours}",
            release.number()
        ));
        ensure!(
            all == 17 && theirs == all && ours == all,
            "{theirs} and {ours} of {all}"
        );
    }
    Ok(())
}
