//! The flags of every command, read and written again.

use std::collections::BTreeSet;

use clap::{CommandFactory as _, Parser as _};

use super::{Cli, CliCommand, PlanArgs};

#[test]
fn the_arguments_of_every_command_fit_together() {
    Cli::command().debug_assert();
}

fn planned(words: &[String]) -> PlanArgs {
    let all = ["stagger", "plan"].map(str::to_owned);
    let cli = Cli::try_parse_from(all.iter().chain(words)).unwrap();
    let CliCommand::Plan(plan) = cli.command else {
        panic!("not a plan")
    };
    plan
}

#[test]
fn a_plan_s_flags_are_written_as_they_are_read() {
    let lines = [
        "upgrade --to 18.2.7 --max-in-parallel 3 --no-growth --no-barriers --interrupt mgr --interrupt=-x --partial --improve 2s",
        "reboot --max-in-parallel 20% --group a --group b --node-tags t1,t2 --matching ^n --nodes n1,n2 --offline n3 \
         --move-non-redundant --non-drbd rolling --shared-secondary exclude --spend-spare --full-evacuation \
         --degraded-meanwhile --local-storage file --ignore-ipolicy --print-moves --takes node=300,migrate=20",
        "exec --command true --nodes n1 --assume-down --print-moves",
        "exec --hold --nodes n1",
        "reboot --accept-non-redundant --assume-down --non-drbd one --accept-untested-release --needs-reboot true \
         --since 2026-11-20T00:00:00Z",
        "reboot --needs-reboot --limit 3 --host h1",
        "patch --up-for 30d --since 2026-11-20T00:00:00Z",
        "restart --daemons osd,mds --host h1",
        "upgrade --to 19.2.1 --accept-risk a --accept-risk b --risks site.toml",
        "upgrade --to 20.2.4 --kind osd --host h1 --host h2 --domain rack=r3 --unit osd.1,osd.2 --limit 7",
    ];
    let mut said = BTreeSet::new();
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let plan = planned(&words);
        let goal = plan.goal.goal();
        let again = planned(&goal.to_args());
        assert_eq!(goal, again.goal.goal(), "{line}");
        let flags = goal.to_args();
        let flags = flags.iter().filter(|word| word.starts_with("--"));
        said.extend(flags.map(|word| word.split('=').next().unwrap().to_owned()));
    }
    // No flag of a run is forgotten.
    let command = Cli::command();
    let run = command.find_subcommand("run").unwrap();
    let beside = ["--plan"];
    let flags = run.get_subcommands().flat_map(clap::Command::get_arguments);
    for flag in flags.filter_map(clap::Arg::get_long) {
        let flag = format!("--{flag}");
        assert!(said.contains(&flag) || beside.contains(&flag.as_str()), "{flag}");
    }
}
