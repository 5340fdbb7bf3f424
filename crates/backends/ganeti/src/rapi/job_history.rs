//! How long moves took in a cluster, by the jobs that its queue still has.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use stagger_core::model::{Kind, MoveKind};

use crate::rapi::jobs::JobStatus;

/// The opcodes that tell how long a move takes, by the summary of their jobs. Each is a job of its own, also where
/// `gnt-node migrate` or `gnt-node evacuate` has submitted it.
const TELLING: [(&str, MoveKind); 3] = [
    ("INSTANCE_MIGRATE", MoveKind::Migrate),
    ("INSTANCE_MOVE", MoveKind::Relocate),
    ("INSTANCE_REPLACE_DISKS", MoveKind::ReplaceStandby),
];

/// So many jobs of each sort count at most, the newest.
const NEWEST: usize = 200;

/// What jobs of each sort took, from when they began to when they ended. Waiting for locks is part of it, as it will be again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobHistory {
    /// Sorted, by the name of the move: `migrate`, `relocate`, `replace-standby`.
    took: BTreeMap<Kind, Vec<SignedDuration>>,
}

/// What jobs of one sort took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobTimes {
    /// How many jobs.
    pub jobs: usize,
    /// Half of them took less.
    pub median: SignedDuration,
    /// Nine of ten took less.
    pub ninth_decile: SignedDuration,
}

/// A job as RAPI lists it, and as an inventory keeps it.
#[derive(Deserialize)]
struct JobDocument {
    status: JobStatus,
    #[serde(default)]
    summary: Vec<String>,
    /// Seconds and microseconds; none: it has not come so far.
    #[serde(default)]
    start_ts: Option<(i64, i64)>,
    #[serde(default)]
    end_ts: Option<(i64, i64)>,
}

impl JobDocument {
    /// Which sort of move it was, if it was one alone and succeeded.
    fn move_kind(&self) -> Option<MoveKind> {
        let [summary] = self.summary.as_slice() else {
            return None;
        };
        let opcode = summary.split('(').next().unwrap_or_default();
        let (_, how) = TELLING.iter().find(|(word, _)| *word == opcode)?;
        (self.status == JobStatus::Success).then_some(*how)
    }

    /// In whole seconds, as estimates are.
    fn took(&self) -> Option<SignedDuration> {
        let time = |(seconds, micros): (i64, i64)| {
            SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_micros(micros))
        };
        let took = time(self.end_ts?)?.checked_sub(time(self.start_ts?)?)?;
        let begun = i64::from(took.subsec_nanos() > 0);
        (!took.is_negative()).then(|| SignedDuration::from_secs(took.as_secs().saturating_add(begun)))
    }
}

impl JobHistory {
    /// Of the body of `/2/jobs?bulk=1`, oldest first. Whatever is no job of a sort that tells something is passed over: an estimate
    /// is no reason to refuse a plan.
    pub fn of(jobs: &Value) -> Self {
        let mut took: BTreeMap<Kind, Vec<SignedDuration>> = BTreeMap::new();
        for job in jobs.as_array().into_iter().flatten().rev() {
            let Ok(job) = JobDocument::deserialize(job) else {
                continue;
            };
            let Some((how, time)) = job.move_kind().zip(job.took()) else {
                continue;
            };
            let Ok(kind) = Kind::new(how.name()) else { continue };
            let times = took.entry(kind).or_default();
            if times.len() < NEWEST {
                times.push(time);
            }
        }
        for times in took.values_mut() {
            times.sort_unstable();
        }
        Self { took }
    }

    /// What each sort of move took.
    pub fn times(&self) -> impl Iterator<Item = (&Kind, JobTimes)> {
        self.took.iter().filter_map(|(kind, times)| {
            let at = |tenths: usize| {
                times
                    .get((times.len() * tenths / 10).min(times.len() - 1))
                    .copied()
            };
            Some((
                kind,
                JobTimes {
                    jobs: times.len(),
                    median: at(5)?,
                    ninth_decile: at(9)?,
                },
            ))
        })
    }
}

/// Of listed jobs what an inventory keeps: how long those took that tell something. What jobs were given may hold secrets.
pub(crate) fn recorded_jobs(jobs: &Value) -> Value {
    let Value::Array(all) = jobs else {
        return Value::Null;
    };
    let telling = all
        .iter()
        .filter(|job| JobDocument::deserialize(*job).is_ok_and(|job| job.move_kind().is_some()));
    telling
        .map(|job| {
            json!({
                "status": job["status"],
                "summary": job["summary"],
                "start_ts": job["start_ts"],
                "end_ts": job["end_ts"],
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(summary: &[&str], status: &str, start: i64, end: i64) -> Value {
        json!({
            "id": 1,
            "ops": [{ "OP_ID": "OP", "osparams_secret": { "password": "geheim" } }],
            "status": status,
            "summary": summary,
            "start_ts": [start, 500_000],
            "end_ts": [end, 500_000],
        })
    }

    #[test]
    fn only_moves_that_went_well_and_alone_tell_how_long_one_takes() {
        let mut jobs: Vec<Value> = (1..=10)
            .map(|took| job(&["INSTANCE_MIGRATE(web)"], "success", 100, 100 + took))
            .collect();
        jobs.push(job(&["INSTANCE_MIGRATE(web)"], "error", 0, 5000));
        jobs.push(job(
            &["INSTANCE_MIGRATE(a)", "INSTANCE_MIGRATE(b)"],
            "success",
            0,
            5000,
        ));
        jobs.push(job(&["NODE_MIGRATE(n1)"], "success", 0, 5000));
        jobs.push(job(&["INSTANCE_MIGRATE(back)"], "success", 100, 50));
        jobs.push(json!({ "status": "running", "summary": ["INSTANCE_MIGRATE(c)"], "start_ts": [1, 2], "end_ts": null }));
        jobs.push(json!("no job"));
        jobs.push(job(&["INSTANCE_REPLACE_DISKS(db)"], "success", 0, 900));
        let jobs = Value::Array(jobs);
        let history = JobHistory::of(&jobs);
        let told: Vec<_> = history
            .times()
            .map(|(kind, times)| {
                (
                    kind.as_str(),
                    times.jobs,
                    times.median.as_secs(),
                    times.ninth_decile.as_secs(),
                )
            })
            .collect();
        assert_eq!(told, [("migrate", 10, 6, 10), ("replace-standby", 1, 900, 900)]);
        // What is kept tells the same, and nothing of what jobs were given.
        let kept = recorded_jobs(&jobs);
        assert_eq!(JobHistory::of(&kept), history);
        assert!(!kept.to_string().contains("geheim"), "{kept}");
        assert_eq!(JobHistory::of(&Value::Null), JobHistory::default());
    }

    #[test]
    fn the_newest_jobs_count() {
        let slow = (0..50).map(|_| job(&["INSTANCE_MIGRATE(web)"], "success", 0, 1000));
        let quick = (0..NEWEST).map(|_| job(&["INSTANCE_MIGRATE(web)"], "success", 0, 10));
        let history = JobHistory::of(&slow.chain(quick).collect());
        let (_, times) = history.times().next().unwrap();
        assert_eq!((times.jobs, times.ninth_decile.as_secs()), (NEWEST, 10));
    }
}
