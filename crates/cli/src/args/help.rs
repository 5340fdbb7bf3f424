//! The first page of `--help`: commands by what they are for, daily ones first.

use std::fmt::Write as _;

use clap::builder::styling::Styles;
use clap::{Args as _, Command, CommandFactory as _};

use super::{Cli, Visit};

/// Each group with its commands, in the order in which they are needed.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Every run",
        &[
            "plan", "run", "status", "watch", "pause", "approve", "resume", "abort", "rollback", "explain",
            "reason",
        ],
    ),
    (
        "Look and rehearse",
        &[
            "observe",
            "versions",
            "risks",
            "check",
            "simulate",
            "history",
            "verify",
            "report",
            "serve",
            "artifacts",
            "demo",
        ],
    ),
    ("When an outcome is unknown", &["confirm", "settle"]),
    (
        "One kind of cluster",
        &["ceph", "ganeti", "hroller", "ironic", "operator"],
    ),
    (
        "Set up",
        &[
            "config",
            "token",
            "db",
            "lint",
            "schema",
            "completions",
            "man",
            "help",
        ],
    ),
];

/// The command line, with its first page.
pub(crate) fn command() -> Command {
    let command = of_their_kind(Cli::command());
    let groups = groups(&command);
    let header = *Styles::styled().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n{header}Options:{header:#}\n{{options}}"
    ))
}

/// The page of a goal shows no flags of clusters that do not have it: no hosts are rebooted where Rook is, and no Ceph has instances.
fn of_their_kind(command: Command) -> Command {
    const OF_HOSTS: [&str; 3] = ["reboot", "patch", "exec"];
    const LOOK: [&str; 3] = ["plan", "explain", "simulate"];
    const ROOK: [&str; 4] = ["kubeconfig", "context", "namespace", "toolbox"];
    let of_ganeti = Visit::augment_args(Command::new("visit"));
    let of_ganeti: Vec<_> = of_ganeti
        .get_arguments()
        .map(|arg| arg.get_id().clone())
        .collect();
    let command = ["plan", "explain", "simulate", "run", "check"]
        .into_iter()
        .fold(command, |all, name| {
            all.mut_subcommand(name, |looks| {
                looks.mut_subcommand("patch", |patch| {
                    of_ganeti
                        .iter()
                        .fold(patch, |patch, flag| patch.mut_arg(flag, |arg| arg.hide(true)))
                })
            })
        });
    LOOK.into_iter().fold(command, |all, name| {
        all.mut_subcommand(name, |looks| {
            OF_HOSTS.into_iter().fold(looks, |looks, goal| {
                looks.mut_subcommand(goal, |goal| {
                    ROOK.into_iter()
                        .fold(goal, |goal, flag| goal.mut_arg(flag, |arg| arg.hide(true)))
                })
            })
        })
    })
}

fn groups(command: &Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "\n{header}{title}:{header:#}");
        for name in names {
            let found = command.find_subcommand(name).and_then(Command::get_about);
            let about = match found {
                Some(about) => about.to_string(),
                None => "Print this page, or that of a command".to_owned(),
            };
            let about = about.trim_end_matches('.');
            let _ = writeln!(text, "  {literal}{name:<11}{literal:#}  {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_command_that_is_not_hidden_is_in_one_group() {
        let mut grouped = BTreeSet::from(["help"]);
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            assert!(grouped.insert(name) || *name == "help", "{name} is there twice");
        }
        let command = Cli::command();
        let mut shown: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|one| !one.is_hide_set())
            .map(Command::get_name)
            .collect();
        shown.insert("help");
        assert_eq!(shown, grouped);
    }
}
