//! Others who use the cluster meanwhile.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{Cluster, Job, Made};
use stagger_e2e::stagger::{GanetiSetup, Journal, Machine, says};

use super::{LIMIT, case};

/// When something of a job happened, in microseconds.
fn at(job: &Value, what: &str) -> Result<u64> {
    let time = &job[what];
    let part = |index: usize| {
        time[index]
            .as_u64()
            .with_context(|| format!("no {what} in {job}"))
    };
    Ok(part(0)? * 1_000_000 + part(1)?)
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn jobs_of_others_are_waited_for_or_wait() -> Result<()> {
    case(3, "jobs_of_others_are_waited_for_or_wait", |cluster, phases| {
        cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        // It is at work when the drain comes.
        cluster.gnt(&["gnt-debug", "delay", "--submit", "30"])?;
        let mut early = None;
        cluster.wait_for("the early job is at work", LIMIT, |cluster| {
            let is_it = |job: &&Job| job.summary.starts_with("TEST_DELAY") && job.is_at_work();
            early = cluster.jobs()?.iter().find(is_it).map(|job| job.id);
            Ok(early.is_some())
        })?;
        let early = early.context("no early job")?;
        // Neither of the two jobs names a node or an instance: only a drain of the cluster stops them.
        let setup = GanetiSetup {
            drain_scope: "cluster",
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let mut run = machine.start(&["run", "reboot", "-O", "node1"])?;
        run.until("the drain", LIMIT, |line| says(line, "guard", "drain"))?;
        run.until("a wave", LIMIT, |line| {
            says(line, "wave", "reboot") || says(line, "judged", "")
        })?;
        let late = cluster.submit("PUT", "/2/instances/mail/tags?tag=theirs", None)?;
        let ended = run
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("rebooted");

        let [early, late] = [cluster.ended(early, LIMIT)?, cluster.ended(late, LIMIT)?];
        ensure!(
            early["status"] == "success" && late["status"] == "success",
            "{early} {late}"
        );
        let jobs = cluster.jobs()?;
        let change = |begins: &str| {
            let found = jobs.iter().filter(|job| job.what().starts_with(begins));
            found.map(|job| job.id).collect::<Vec<_>>()
        };
        let (noted, cycled) = (change("note-"), change("powercycle-"));
        let first = cluster.ended(*noted.first().context("nothing was noted")?, LIMIT)?;
        ensure!(
            at(&early, "end_ts")? <= at(&first, "received_ts")?,
            "the job that was at work was not waited for: {early} {first}"
        );
        // The two nodes of one instance go in two waves: it waits for the first of them, and not for the second.
        let [first, .., last] = cycled.as_slice() else {
            bail!("{} nodes were rebooted", cycled.len());
        };
        let (first, last) = (cluster.ended(*first, LIMIT)?, cluster.ended(*last, LIMIT)?);
        ensure!(
            at(&first, "end_ts")? <= at(&late, "start_ts")?,
            "the later job did not wait: {first} {late}"
        );
        ensure!(
            at(&late, "end_ts")? <= at(&last, "received_ts")?,
            "the later job waited for the second wave too: {late} {last}"
        );
        cluster.ensure_rebooted(&before, &["node2", "node3"])
    })
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn an_instance_made_in_mid_run_is_moved_too() -> Result<()> {
    case(
        3,
        "an_instance_made_in_mid_run_is_moved_too",
        |cluster, phases| {
            cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
            phases.lap("instance made");
            let setup = GanetiSetup {
                drain: false,
                ..GanetiSetup::default()
            };
            let machine = Machine::new(cluster, "anna", &setup)?;
            let wish = ["reboot", "-O", "node1"];
            let waves = machine.planned(&wish, "reboot")?;
            let [first, second] = waves.as_slice() else {
                bail!("two nodes with an instance between them: {waves:?}")
            };
            let node = |wave: &[String]| if wave == ["node2"] { "node2" } else { "node3" };
            let (first, later) = (node(first), node(second));
            let run = machine.start(&[&["run"][..], &wish].concat())?;
            machine.stop_when(&run, "a node that is down", LIMIT, |journal| {
                Ok(!journal.in_phase("change").is_empty() && !cluster.is_up(first))
            })?;
            run.signal("CONT")?;
            // It takes room on the node whose turn is still to come.
            let job = cluster.submit_instance(&Made::mirrored("new", later, "node1"))?;
            let made = cluster.ended(job, LIMIT)?;
            ensure!(made["status"] == "success", "{made}");
            phases.lap(format!("made on {later} while {first} was away"));
            let mut before = cluster.state()?;
            let ended = run
                .end(LIMIT)?
                .expect(0)
                .with_context(|| machine.history_tail(40))?;
            say(&ended.said);
            phases.lap("rebooted");
            let moves: Vec<String> = cluster
                .jobs()?
                .iter()
                .map(|job| job.what().to_owned())
                .filter(|what| what.starts_with("migrate-new-"))
                .collect();
            ensure!(
                moves
                    == [
                        "migrate-new-to-node1".to_owned(),
                        format!("migrate-new-to-{later}")
                    ],
                "it was moved so: {moves:?}"
            );
            // What it was when `first` was away is no measure for all else.
            let now = cluster.state()?;
            for (name, placed) in &now.instances {
                let home = if name == "mail" { "node2" } else { later };
                ensure!(
                    placed.primary == home && placed.status == "running",
                    "{name} is {placed:?}"
                );
            }
            before.instances.clone_from(&now.instances);
            ensure!(
                now.reboots
                    .iter()
                    .all(|(name, times)| *times == usize::from(name != "node1")),
                "{:?}",
                now.reboots
            );
            ensure!(cluster.filters_left()?.is_empty());
            Ok(())
        },
    )
}

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn two_runs_at_once() -> Result<()> {
    case(3, "two_runs_at_once", |cluster, phases| {
        cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        let setup = GanetiSetup {
            failover_timeout: 5,
            lock_expires: 20,
            ..GanetiSetup::default()
        };
        let machines = [
            Machine::new(cluster, "anna", &setup)?,
            Machine::new(cluster, "bert", &setup)?,
        ];
        // Two who ask at the same moment may both be refused, never both go on.
        for attempt in 1..=5 {
            let words = ["run", "reboot", "-O", "node1"];
            let runs = [machines[0].start(&words)?, machines[1].start(&words)?];
            let mut won = Vec::new();
            for (mut run, machine) in runs.into_iter().zip(&machines) {
                let begun = run.until("its lease", Duration::from_mins(2), |line| {
                    says(line, "lease", "token") || line.contains("is locked by")
                })?;
                if says(&begun, "lease", "token") {
                    won.push((run, machine));
                } else {
                    run.end(LIMIT)?
                        .expect(1)?
                        .expect_said(&["locked by run", "process", "since"])?;
                }
            }
            say(format!("attempt {attempt}: {} of 2 went on", won.len()));
            ensure!(won.len() < 2, "both have the lock");
            let Some((run, machine)) = won.pop() else {
                continue;
            };
            phases.lap("one of two was refused");
            run.end(LIMIT)?
                .expect(0)
                .with_context(|| machine.history_tail(40))?;
            phases.lap("the other to the end");
            return cluster.ensure_rebooted(&before, &["node2", "node3"]);
        }
        bail!("both were refused five times")
    })
}

/// Somebody else has a node locked, so a job of ours waits; and somebody cancels it. The node that was to be emptied is
/// given back, and has its turn later.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_job_of_ours_is_cancelled() -> Result<()> {
    case(3, "a_job_of_ours_is_cancelled", |cluster, phases| {
        cluster.make(&[Made::mirrored("mail", "node2", "node3")])?;
        let before = cluster.state()?;
        phases.lap("instance made");
        let setup = GanetiSetup {
            drain: false,
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup)?;
        let lock = [
            "gnt-debug",
            "delay",
            "--submit",
            "--no-master",
            "-n",
            "node3",
            "45",
        ];
        cluster.gnt(&lock)?;
        let run = machine.start(&["run", "reboot", "--nodes", "node2"])?;
        let mut found = None;
        cluster.wait_for("a job of ours that waits", LIMIT, |cluster| {
            let jobs = cluster.jobs()?;
            found = jobs
                .into_iter()
                .find(|job| job.ours.is_some() && job.status == "waiting");
            Ok(found.is_some())
        })?;
        let job = found.context("no job")?;
        let reply = cluster.rapi("DELETE", &format!("/2/jobs/{}", job.id), None)?;
        let ended = cluster.ended(job.id, LIMIT)?;
        ensure!(ended["status"] == "canceled", "{reply:?} {ended}");
        phases.lap(format!("{} was cancelled", job.what()));
        let ended = run
            .end(LIMIT)?
            .expect(0)
            .with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("rebooted all the same");
        let journal = machine.journal()?;
        let aside: Vec<_> = journal.of("set-aside").collect();
        ensure!(
            aside
                .iter()
                .any(|event| event["reason"]["slug"] == "could-not-be-entered"),
            "{aside:?}"
        );
        cluster.ensure_rebooted(&before, &["node2"])
    })
}

/// The jobs of a node's visit, oldest first.
fn of_visit(cluster: &Cluster, journal: &Journal, node: &str) -> Result<Vec<u64>> {
    let visits = journal.of("intent").filter(|event| {
        let action = &event["action"];
        action["action"] == "visit" && action["unit"] == node
    });
    let keys: Vec<String> = visits
        .filter_map(|event| Some(format!("{}-{}-", journal.run, event["seq"].as_u64()?)))
        .collect();
    let jobs = cluster.jobs()?.into_iter().filter(|job| {
        let place = job.ours.as_ref().map(|(place, _)| place);
        place.is_some_and(|place| keys.iter().any(|key| place.starts_with(key)))
    });
    Ok(jobs.map(|job| job.id).collect())
}

/// Ganeti's own queue decides, by the names in a job: what has nothing to do with the nodes of a wave runs beside it, and what
/// has waits until that wave is over, and not for the next.
#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn only_jobs_that_touch_the_wave_wait() -> Result<()> {
    case(4, "only_jobs_that_touch_the_wave_wait", |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("wiki", "sharedfile", "node4"),
        ])?;
        let before = cluster.state()?;
        phases.lap("instances made");
        let machine = Machine::new(cluster, "anna", &GanetiSetup::default())?;
        let run = machine.start(&["run", "reboot", "--nodes", "node2,node3"])?;
        let mut waves: Vec<(String, u64)> = Vec::new();
        for _ in 0..2 {
            let is_new = |node: &str| waves.iter().all(|(before, _)| before != node);
            let down = |journal: &Journal| {
                let mut changed = journal.in_phase("change").into_iter().map(|(node, _)| node);
                changed.find(|node| is_new(node) && !cluster.is_up(node))
            };
            let journal = machine.stop_when(&run, "the next node down", LIMIT, |journal| {
                Ok(down(journal).is_some())
            })?;
            let node = down(&journal).context("it is up again")?;
            let elsewhere = cluster.submit("POST", "/2/instances/wiki/reboot?type=hard", None)?;
            let there = cluster.submit("POST", "/2/instances/mail/reboot?type=hard", None)?;
            let done = cluster.ended(elsewhere, LIMIT)?;
            ensure!(done["status"] == "success", "{done}");
            let jobs = cluster.jobs()?;
            let waiting = jobs.iter().find(|job| job.id == there);
            let waiting = waiting.context("the job is gone")?;
            ensure!(waiting.status == "queued", "{waiting:?}");
            phases.lap(format!(
                "{node} is down: a job elsewhere has run, and one of the wave waits"
            ));
            waves.push((node, there));
            run.signal("CONT")?;
        }
        let ended = run.end(LIMIT)?.expect(0);
        let ended = ended.with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("rebooted");
        let journal = machine.journal()?;
        for (place, (node, there)) in waves.iter().enumerate() {
            let there = cluster.ended(*there, LIMIT)?;
            ensure!(there["status"] == "success", "{there}");
            let of_wave = of_visit(cluster, &journal, node)?;
            let last = cluster.ended(*of_wave.last().context("no job")?, LIMIT)?;
            ensure!(
                at(&last, "end_ts")? <= at(&there, "start_ts")?,
                "it did not wait for the wave of {node}: {last} {there}"
            );
            if let Some((next, _)) = waves.get(place + 1) {
                let of_next = of_visit(cluster, &journal, next)?;
                let first = cluster.ended(*of_next.first().context("no job")?, LIMIT)?;
                ensure!(
                    at(&there, "end_ts")? <= at(&first, "received_ts")?,
                    "it waited for the wave of {next} too: {there} {first}"
                );
            }
        }
        phases.lap("each ran when its wave was over, and before the next");
        cluster.ensure_rebooted(&before, &["node2", "node3"])
    })
}
