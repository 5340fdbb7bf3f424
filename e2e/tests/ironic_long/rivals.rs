//! Two people at once.

use anyhow::{Result, ensure};
use stagger_e2e::ironic::Release;
use stagger_e2e::stagger::{Machine, says};

use super::{LIMIT, hasty, loaded, run};

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn the_second_of_two_runs_is_refused_and_a_stopped_one_is_fenced() -> Result<()> {
    let name = "the_second_of_two_runs_is_refused_and_a_stopped_one_is_fenced";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let anna = Machine::new(cluster, "anna", &hasty())?;
        let bert = Machine::new(cluster, "bert", &hasty())?;
        let mut first = anna.start(&["run", "--to", "29.0.6"])?;
        first.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
        let refused = bert.call(&["run", "--to", "29.0.6"])?.expect(1)?;
        refused.expect_said(&["locked", &anna.newest_run()?, &first.pid().to_string()])?;
        phases.lap("the second is refused");

        // Stopped for longer than its lock lasts, with a service in its hands.
        anna.stop_when(&first, "a conductor's change", LIMIT, |journal| {
            Ok(!journal.in_phase("change").is_empty())
        })?;
        let taken = bert.start(&["run", "--to", "29.0.6"])?.end(LIMIT)?;
        stagger_e2e::command::say(&taken.said);
        phases.lap(format!(
            "the second, while the first is stopped: {:?}",
            taken.code
        ));
        first.signal("CONT")?;
        let ended = first.end(LIMIT)?;
        stagger_e2e::command::say(&ended.said);
        phases.lap(format!("the first goes on: {:?}", ended.code));
        ensure!(
            ended.code != Some(0) || taken.code != Some(0),
            "both have done it"
        );
        cluster.wait_for("the lock is free", LIMIT, |cluster| {
            Ok(cluster.ensure_let_go().is_ok() || taken.code != Some(0))
        })?;
        if taken.code != Some(0) && ended.code != Some(0) {
            run(&bert, Release::Epoxy, 0)?;
            phases.lap("the second once more, to the end");
        }
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
