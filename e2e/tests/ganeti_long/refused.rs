//! A remote API that is of no use: nothing begins, and it says why.

use anyhow::Result;
use stagger_e2e::ganeti::{Made, OPERATOR, READER};
use stagger_e2e::stagger::{GanetiSetup, Machine};

use super::case;

#[test]
#[ignore = "long; needs root and Ganeti; cargo xtask test --long runs it"]
fn answers_of_the_remote_api_that_are_of_no_use() -> Result<()> {
    case(
        2,
        "answers_of_the_remote_api_that_are_of_no_use",
        |cluster, phases| {
            cluster.make(&[Made::mirrored("mail", "node1", "node2")])?;
            let before = cluster.state()?;
            phases.lap("instance made");
            let default = GanetiSetup::default();
            let of = |name: &str, setup: GanetiSetup| Machine::new(cluster, name, &setup);
            let forgetful = of(
                "forgetful",
                GanetiSetup {
                    user: (OPERATOR.0.to_owned(), "wrong".to_owned()),
                    ..default.clone()
                },
            )?;
            let reader = of(
                "reader",
                GanetiSetup {
                    user: (READER.0.to_owned(), READER.1.to_owned()),
                    ..default.clone()
                },
            )?;
            let distrustful = of(
                "distrustful",
                GanetiSetup {
                    trusts_another: true,
                    ..default.clone()
                },
            )?;
            let nobody = of(
                "nobody",
                GanetiSetup {
                    address: "198.51.100.1:5099".to_owned(),
                    ..default
                },
            )?;
            let run = ["run", "reboot", "--nodes", "node2"];
            // Who may read sees what there is, and begins nothing.
            reader.call(&["observe"])?.expect(0)?;
            reader.call(&["plan", "reboot", "--nodes", "node2"])?.expect(0)?;
            for (machine, code, said) in [
                (&forgetful, 2, ["401", "password_file"]),
                (&reader, 2, ["403", "write"]),
                (&distrustful, 4, ["certificate", "ca"]),
                (&nobody, 4, ["cannot be reached", "5099"]),
            ] {
                machine.call(&run)?.expect(code)?.expect_said(&said)?;
            }
            phases.lap("four of no use");
            cluster.ensure_rebooted(&before, &[])
        },
    )
}
