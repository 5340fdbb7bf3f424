//! The password of RAPI's user is another one in mid-wave.

use anyhow::{Context as _, Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ganeti::Made;
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::{LIMIT, case};

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn a_password_that_is_changed_in_mid_wave_ends_the_process_and_not_the_run() -> Result<()> {
    let name = "a_password_that_is_changed_in_mid_wave_ends_the_process_and_not_the_run";
    case(3, name, |cluster, phases| {
        cluster.make(&[
            Made::mirrored("mail", "node2", "node3"),
            Made::on("wiki", "sharedfile", "node2"),
        ])?;
        let before = cluster.state()?;
        cluster.set_user(("anna", "first"))?;
        phases.lap("instances made");
        let setup = |password: &str| GanetiSetup {
            user: ("anna".to_owned(), password.to_owned()),
            ..GanetiSetup::default()
        };
        let machine = Machine::new(cluster, "anna", &setup("first"))?;
        let run = machine.start(&["run", "reboot", "--nodes", "node2"])?;
        machine.stop_when(&run, "node2 down", LIMIT, |journal| {
            let down = journal.in_phase("change");
            Ok(down.iter().any(|(node, _)| node == "node2") && !cluster.is_up("node2"))
        })?;
        cluster.set_user(("anna", "second"))?;
        phases.lap("another password, with node2 down");
        run.signal("CONT")?;
        let ended = run.end(LIMIT)?;
        say(&ended.said);
        let open = machine.newest_run()?;
        ended.expect_said(&[
            "401",
            "password_file",
            &format!("run {open} is open; still out of service: "),
            "node2",
            &format!("next: `stagger resume {open}` or `stagger abort {open}`"),
        ])?;
        ensure!(ended.code == Some(2), "it ended with {:?}", ended.code);
        let state = cluster.state()?;
        ensure!(state.roles["node2"] == "D", "{:?}", state.roles);
        phases.lap("the process ended, and names its run");

        machine.configure(cluster, &setup("second"))?;
        let ended = machine.resume_to_the_end(LIMIT)?.expect(0);
        let ended = ended.with_context(|| machine.history_tail(40))?;
        say(&ended.said);
        phases.lap("with the new password it goes on to the end");
        cluster.ensure_rebooted(&before, &["node2"])
    })
}
