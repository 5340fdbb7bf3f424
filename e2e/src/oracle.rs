//! Our `ok-to-stop` beside the real one, on many sets over one connection.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use stagger_ceph::oktostop::{Agreement, Maps, OkToStopAnswer, Proof, compare, load};

use crate::ceph::Cluster;
use crate::command::say;
use crate::rados::{Request, Target};

/// How the answers stood to each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Sets asked about.
    pub sets: usize,
    /// Those that may stop, by our own answer.
    pub yes: usize,
    /// The same verdict for the same groups.
    pub same: usize,
    /// The same verdict, and groups that Ceph passed over.
    pub passed_over: usize,
    /// Ceph approves what the placement group map forbids: each with its proof.
    pub they_approve: Vec<String>,
    /// Anything else: we are wrong, or have other facts.
    pub others: Vec<String>,
}

impl Tally {
    fn add(&mut self, more: Self) {
        let Self {
            sets,
            yes,
            same,
            passed_over,
            they_approve,
            others,
        } = more;
        self.sets += sets;
        self.yes += yes;
        self.same += same;
        self.passed_over += passed_over;
        self.they_approve.extend(they_approve);
        self.others.extend(others);
    }

    /// Tells it, with each proof that Ceph is wrong.
    pub fn print(&self, on: &str) {
        let Self {
            sets,
            yes,
            same,
            passed_over,
            they_approve,
            others,
        } = self;
        say(format!(
            "both oracles on {on}: {sets} sets, {yes} may stop; {same} answers are the same, in \
             {passed_over} Ceph passed over groups, {} it approves and the map forbids, {} others",
            they_approve.len(),
            others.len()
        ));
        for proof in they_approve {
            say(format!("   approved: {proof}"));
        }
    }
}

/// Asks both about `count` sets of one to six OSDs, the same sets for the same seed.
///
/// What is asked while the maps move says nothing. So it is asked in portions, each on maps that are the
/// same before and after, and asked again where they are not: on a busy machine a cluster that has just
/// been made settles for a while.
pub fn beside_the_real_one(cluster: &Cluster, seed: u64, count: usize) -> Result<Tally> {
    let mut all = Tally::default();
    for portion in 0.. {
        let sets = PORTION.min(count - all.sets);
        if sets == 0 {
            break;
        }
        all.add(portion_asked(cluster, seed * 1000 + portion, sets)?);
    }
    Ok(all)
}

/// Sets that are asked about on one map.
const PORTION: usize = 25;

fn portion_asked(cluster: &Cluster, seed: u64, sets: usize) -> Result<Tally> {
    let begun = Instant::now();
    loop {
        let before = maps(cluster)?;
        let tally = ask(cluster, &before, seed, sets)?;
        if maps(cluster)? == before {
            return Ok(tally);
        }
        ensure!(
            begun.elapsed() < STILL,
            "the maps did not stand still for {sets} questions within {} s",
            STILL.as_secs()
        );
    }
}

/// How long maps may go on moving.
const STILL: Duration = Duration::from_mins(1);

/// Whether a set may stop, by our own answer on the maps of this moment.
pub fn may_stop(cluster: &Cluster, set: &[u32]) -> Result<bool> {
    let maps = maps(cluster)?;
    Ok(maps.oracle().ask(set)?.ok())
}

fn ask(cluster: &Cluster, maps: &Maps, seed: u64, count: usize) -> Result<Tally> {
    let oracle = maps.oracle();
    let mut random = Random(seed);
    let mut tally = Tally::default();
    let mut rados = cluster.rados();
    while tally.sets < count {
        let size = 1 + random.below(6);
        let set: Vec<u32> = (0..size).map(|_| random.below(cluster.spec().osds)).collect();
        let ours = oracle.ask(&set)?;
        let ids: Vec<String> = ours.osds.iter().map(ToString::to_string).collect();
        let answer = rados.ask(&Request::new(
            Target::Mgr,
            "osd ok-to-stop",
            json!({ "ids": ids }),
        ))?;
        let theirs = OkToStopAnswer::read(answer.out.as_bytes(), "ok-to-stop")
            .with_context(|| format!("Ceph answered {} about {ids:?}: {}", answer.rc, answer.err))?;
        tally.sets += 1;
        tally.yes += usize::from(ours.ok());
        match compare(&oracle, &ours, &theirs) {
            Agreement::Same => tally.same += 1,
            Agreement::SameVerdict {
                they_passed_over,
                we_passed_over,
            } if we_passed_over.is_empty() && !they_passed_over.is_empty() => {
                tally.passed_over += 1;
            }
            Agreement::TheyApprove { proofs } if !proofs.is_empty() && proofs.iter().all(is_proven) => {
                tally.they_approve.push(format!("{ids:?}: {}", proofs[0]));
            }
            other => tally.others.push(format!("{ids:?}: {other:?}")),
        }
    }
    Ok(tally)
}

/// Counted from what the map says, not from our oracle's own sum.
fn is_proven(proof: &Proof) -> bool {
    proof.acting.len() - proof.stopping.len() < proof.min_size as usize
}

/// The maps as `ceph … -f json` prints them, read as `stagger ceph ok-to-stop --from` reads them.
fn maps(cluster: &Cluster) -> Result<Maps> {
    let folder = cluster.dir().join("maps");
    fs::create_dir_all(&folder).context("making a folder for the maps")?;
    let asked = [
        (Target::Mgr, "pg dump", "pg_dump.json"),
        (Target::Mon, "osd dump", "osd_dump.json"),
        (Target::Mon, "osd tree", "osd_tree.json"),
    ];
    for (target, prefix, file) in asked {
        let request = Request::new(target, prefix, json!({}));
        let answer = cluster.rados().ask(&request)?;
        ensure!(answer.rc == 0, "`{prefix}` answered {answer:?}");
        fs::write(folder.join(file), answer.out).with_context(|| format!("writing {file}"))?;
    }
    Ok(load(&folder)?)
}

/// A small generator of its own (splitmix64): the same sets each time.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % u64::from(limit.max(1))) as u32
    }
}
