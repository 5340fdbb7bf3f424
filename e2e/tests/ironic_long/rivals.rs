//! Two people at once.

use anyhow::{Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ironic::Release;
use stagger_e2e::stagger::{Machine, says};

use super::{LIMIT, hasty, loaded, run};

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn the_second_of_two_runs_is_refused_and_a_stopped_one_goes_no_further() -> Result<()> {
    let name = "the_second_of_two_runs_is_refused_and_a_stopped_one_goes_no_further";
    loaded(name, Release::Dalmatian, &[], |cluster, phases| {
        let anna = Machine::new(cluster, "anna", &hasty())?;
        let bert = Machine::new(cluster, "bert", &hasty())?;
        let mut first = anna.start(&["run", "upgrade", "--to", "29.0.6"])?;
        first.until("the lease", LIMIT, |line| says(line, "lease", "token"))?;
        let refused = bert.call(&["run", "upgrade", "--to", "29.0.6"])?.expect(1)?;
        refused.expect_said(&["locked", &anna.newest_run()?, &first.pid().to_string()])?;
        phases.lap("the second is refused");

        // Stopped for longer than its lock lasts, before anything is changed: whoever comes then may begin.
        anna.stop_when(&first, "the check", LIMIT, |journal| Ok(journal.in_step("check")))?;
        run(&bert, Release::Epoxy, 0)?;
        phases.lap("another has done all of it, while the first is stopped");
        first.signal("CONT")?;
        let ended = first.end(LIMIT)?;
        say(&ended.said);
        ensure!(ended.code != Some(0), "the first went on without its lock");
        let done = anna.journal()?.waves().len();
        ensure!(done == 0, "the first has begun {done} waves without its lock");
        phases.lap(format!(
            "the first has lost its lock, and ends with {:?}",
            ended.code
        ));
        cluster.ensure_upgraded(Release::Epoxy)
    })
}
