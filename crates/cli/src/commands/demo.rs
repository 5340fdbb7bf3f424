//! `demo`: three acts on a cluster in memory.

use std::collections::BTreeMap;

use stagger_core::model::{Growth, Limit, Order, Policy, Snapshot, Target};
use stagger_core::plan::{Plan, PlanningInput, plan};

use super::simulate::{self, initial_state, play_recorded};
use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use crate::show::demo_acts::{self, Acts};

/// How long it lasts, in seconds.
const WATCHED: f64 = 24.0;

/// The scenario, which `stagger simulate scenarios/demo.toml` plays from a checkout.
const SCENARIO: &str = include_str!("../../../../scenarios/demo.toml");

/// `demo`
pub(crate) async fn demo(cli: &Cli, fast: bool) -> Result<Exit, CliError> {
    if cli.json {
        return simulate::run_document(cli, SCENARIO, "scenarios/demo.toml", true).await;
    }
    let scenario = simulate::parsed(SCENARIO, "scenarios/demo.toml")?;
    let (snapshot, target) = initial_state(&scenario).await?;
    let policy = &scenario.policy;
    let made = planned(&snapshot, &target, policy);
    print::status_line(&format!(
        "\n1  The plan: {} units of {} in {} waves. OSDs by the wave they are in, a row for each rack, three on each host:\n",
        made.units(),
        target.title,
        made.waves()
    ));
    print::status_line(&demo_acts::map(&made, &snapshot));
    print::status_line(
        "   No two of a wave share data that would be without enough of its copies; the first is alone, and waves grow.",
    );
    print::status_line("\n2  The run, faster than it is. One OSD will not come back on the new release\n");
    let watched = (!fast).then_some(WATCHED);
    let (report, folder) = play_recorded(cli, &scenario, watched, Box::new(Acts::default())).await?;
    let by_hosts = Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Percent(100),
        order: Order::ByDomain("host".to_owned()),
        ..policy.clone()
    };
    let one_by_one = Policy {
        growth: Growth::None,
        max_in_parallel: Limit::Count(1),
        ..policy.clone()
    };
    let ways = [
        ("as planned", &made),
        // The pools keep copies on different hosts: `ceph osd ok-to-stop --max` widens an OSD to its host, and no further.
        (
            "host by host, as `ceph osd ok-to-stop --max` walks",
            &planned(&snapshot, &target, &by_hosts),
        ),
        ("one by one", &planned(&snapshot, &target, &one_by_one)),
    ];
    let ways = ways.map(|(way, plan)| (way, plan.waves(), plan.forecast()));
    simulate::show_report(cli, &report, &folder);
    print::data_line(&format!(
        "Page: stagger --state {} report --out run.html",
        folder.display()
    ));
    print::data_line("Yours: stagger config init ceph|ganeti|ironic --out stagger.toml, then stagger plan");
    print::data_line(&format!(
        "\nThe same upgrade without a fault:\n{}",
        demo_acts::beside(&ways)
    ));
    Ok(simulate::exit_of(&scenario, &report))
}

fn planned(snapshot: &Snapshot, target: &Target, policy: &Policy) -> Plan {
    let (aside, earned) = (BTreeMap::new(), BTreeMap::new());
    plan(&PlanningInput {
        snapshot,
        target,
        policy,
        aside: &aside,
        earned: &earned,
        parent: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_scenario_is_one() {
        let scenario = simulate::parsed(SCENARIO, "scenarios/demo.toml").unwrap();
        assert!(
            scenario
                .conductors
                .iter()
                .any(|conductor| !conductor.ills.is_empty())
        );
    }
}
