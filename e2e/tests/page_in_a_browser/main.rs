//! The page of `stagger serve` in a real browser: what a person does with it, how it looks at two widths and in both schemes, what
//! axe-core finds, and how fast it is with ten thousand units.
#![allow(missing_docs, unreachable_pub, reason = "test code")]

mod bed;
mod journals;

use std::env;
use std::path::PathBuf;

use anyhow::Result;
use stagger_e2e::case::case;

use bed::{Bed, Journal};
use journals::{DEMO, HELD, Large, ROLLED_BACK, entries, lines};

/// So many events of the run that goes on are written at first: a wave is open, and units of it are down.
const WRITTEN: usize = 196;

/// Where pictures go: `$STAGGER_PICTURES`, else beside what was built.
fn artifacts(case: &str) -> PathBuf {
    let beside = || {
        env::var_os("CARGO_TARGET_DIR").map_or_else(
            || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target")),
            PathBuf::from,
        )
    };
    let folder = env::var_os("STAGGER_PICTURES").map_or_else(|| beside().join("pictures"), PathBuf::from);
    folder.join(case)
}

/// So many events of the run that waits for a person, whose last one says so.
const WAITS: usize = 93;

/// The beginning of a journal, to which nothing is added.
fn written(journal: &str, count: usize, at_work: bool) -> Result<Journal> {
    let lines = lines(journal)?;
    let lines = &lines[..count.min(lines.len())];
    Ok(Journal {
        written: entries(lines, lines.len())?,
        more: Vec::new(),
        at_work,
    })
}

#[test]
#[ignore = "needs root and a Debian with a browser; cargo xtask test runs it"]
fn what_a_person_does_with_the_page() -> Result<()> {
    case("page", || {
        let demo = entries(&lines(DEMO)?, WRITTEN)?;
        let (before, more) = demo.split_at(WRITTEN);
        let going = Journal {
            written: before.to_vec(),
            more: more.to_vec(),
            at_work: true,
        };
        let named = HELD.replace("random-1316581150367557109", "baremetal");
        // A name of somebody's who means harm.
        let evil = written(
            &named.replace("host-0-0", "<img src=x onerror=document.title=1>"),
            WAITS,
            true,
        )?;
        let mut bed = Bed::start(vec![going, evil, written(ROLLED_BACK, usize::MAX, false)?])?;
        let done = bed.script("flows.js", &artifacts("page"));
        bed.stop()?;
        done
    })
}

#[test]
#[ignore = "needs root and a Debian with a browser; cargo xtask test --long runs it"]
fn ten_thousand_units_on_the_page() -> Result<()> {
    case("page-large", || {
        let Large { lines: all, more } = Large::make()?;
        let newest = all.len();
        let all = entries(&[&all[..], &more[..]].concat(), newest)?;
        let (written, more) = all.split_at(newest);
        let large = Journal {
            written: written.to_vec(),
            more: more.to_vec(),
            at_work: true,
        };
        let mut bed = Bed::start(vec![large])?;
        let done = bed.script("large.js", &artifacts("page-large"));
        bed.stop()?;
        done
    })
}
