//! The first page of `--help`: commands by what they are for, daily ones first.

use std::fmt::Write as _;

use clap::builder::styling::Styles;
use clap::{Arg, Args as _, Command, CommandFactory as _, Id};

use super::{Cli, VisitArgs};

/// The flags that say where a Ceph of Rook's is.
const ROOK: [&str; 4] = ["kubeconfig", "context", "namespace", "toolbox"];

/// The commands that take a goal, and the goals.
const WITH_GOALS: [&str; 5] = ["plan", "explain", "simulate", "run", "check"];
const ALL_GOALS: [&str; 5] = ["upgrade", "reboot", "patch", "restart", "exec"];

/// Each group with its commands, in the order in which they are needed.
const GROUPS: [(&str, &[&str]); 6] = [
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
    ("Reboots by others", &["ask", "gate", "hold-reboots"]),
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
    with_first_page(only_applicable_flags(with_examples(Cli::command())))
}

fn with_first_page(command: Command) -> Command {
    let groups = groups(&command);
    let header = *Styles::styled().get_header();
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n{header}Options:{header:#}\n{{options}}"
    ))
}

/// The command line as it is for a configuration of that kind: what other clusters have is not shown, and still understood. `None`:
/// there is no configuration.
pub(crate) fn command_here(kind: Option<&str>) -> Command {
    // What is only of clusters of another kind: commands, goals, and flags of goals.
    let (commands, goals): (&[&str], &[&str]) = match kind {
        Some("ceph") => (&["ganeti", "hroller", "ironic", "operator"], &[]),
        Some("ganeti") => (&["ceph", "ironic", "operator"], &["upgrade", "patch", "restart"]),
        Some("ironic") => (
            &["ceph", "ganeti", "hroller", "operator"],
            &["reboot", "patch", "restart", "exec"],
        ),
        Some(_) | None => return command(),
    };
    let hide = |command: Command, names: &[&str]| {
        let there = |command: &Command, name: &str| command.find_subcommand(name).is_some();
        names.iter().fold(command, |command, name| {
            if there(&command, name) {
                command.mut_subcommand(name, |one| one.hide(true))
            } else {
                command
            }
        })
    };
    let of_ganeti = flags_of_a_ganeti();
    let command = hide(only_applicable_flags(with_examples(Cli::command())), commands);
    let command = WITH_GOALS.into_iter().fold(command, |all, name| {
        all.mut_subcommand(name, |looks| {
            let mut looks = hide(looks, goals);
            if kind == Some("ganeti") {
                // The usual one is of an upgrade.
                let what = if name == "explain" { " node3" } else { "" };
                looks = looks.after_help(format!("Example: stagger {name}{what} reboot --needs-reboot"));
            }
            ALL_GOALS.into_iter().fold(looks, |looks, goal| {
                looks.mut_subcommand(goal, |goal| {
                    goal.mut_args(|flag| {
                        let id = flag.get_id().clone();
                        let of_rook = ROOK.contains(&id.as_str());
                        let of_another = match kind {
                            Some("ganeti") => id == "up_for",
                            _ => of_ganeti.contains(&id),
                        };
                        if of_rook || of_another {
                            flag.hide(true)
                        } else {
                            flag
                        }
                    })
                })
            })
        })
    });
    with_first_page(command)
}

/// The page of a goal shows no flags of clusters that do not have it: no hosts are rebooted where Rook is, and no Ceph has instances.
/// Where a goal is of several kinds, the flags of a Ganeti stand by themselves.
fn only_applicable_flags(command: Command) -> Command {
    const OF_HOSTS: [&str; 4] = ["reboot", "patch", "restart", "exec"];
    const LOOK: [&str; 3] = ["plan", "explain", "simulate"];
    let of_ganeti = flags_of_a_ganeti();
    let of_a_ganeti = |goal: Command, change: fn(Arg) -> Arg| {
        of_ganeti
            .iter()
            .fold(goal, |goal, flag| goal.mut_arg(flag, change))
    };
    let command = WITH_GOALS.into_iter().fold(command, |all, name| {
        all.mut_subcommand(name, |goals| {
            goals
                .mut_subcommand("patch", |patch| of_a_ganeti(patch, |flag| flag.hide(true)))
                .mut_subcommand("reboot", |reboot| of_a_ganeti(reboot, in_own_section))
                .mut_subcommand("exec", |exec| of_a_ganeti(exec, in_own_section))
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

/// The page of each goal ends with an example, as it is written behind each command that has goals.
fn with_examples(command: Command) -> Command {
    const BEHIND: [(&str, [&str; 2]); 5] = [
        ("plan", ["", ""]),
        ("run", ["", ""]),
        ("simulate", ["", ""]),
        // A daemon, and a host or a node.
        ("explain", [" osd.7", " host3"]),
        ("check", [" plan.json", " plan.json"]),
    ];
    const GOALS: [(&str, &str); 5] = [
        ("upgrade", "--to 18.2.7"),
        ("reboot", "--needs-reboot"),
        ("patch", "--host host3"),
        ("restart", "--daemons osd"),
        ("exec", "--command 'ssh {host} fwupdmgr update'"),
    ];
    BEHIND.into_iter().fold(command, |all, (name, of_what)| {
        all.mut_subcommand(name, |goals| {
            GOALS.into_iter().fold(goals, |goals, (goal, flags)| {
                let [of_daemons, of_hosts] = of_what;
                let what = if goal == "upgrade" { of_daemons } else { of_hosts };
                let example = format!("Example: stagger {name}{what} {goal} {flags}");
                goals.mut_subcommand(goal, |goal| goal.after_help(example))
            })
        })
    })
}

/// The flags about nodes and their instances.
fn flags_of_a_ganeti() -> Vec<Id> {
    let flags = VisitArgs::augment_args(Command::new("visit"));
    flags.get_arguments().map(|arg| arg.get_id().clone()).collect()
}

fn in_own_section(flag: Arg) -> Arg {
    flag.help_heading("Ganeti nodes and their instances")
}

fn groups(command: &Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::new();
    for (title, names) in GROUPS {
        let hidden = |name: &str| command.find_subcommand(name).is_some_and(Command::is_hide_set);
        let names: Vec<&&str> = names.iter().filter(|name| !hidden(name)).collect();
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{header}{title}:{header:#}");
        for name in names {
            let found = command.find_subcommand(name).and_then(Command::get_about);
            let about = match found {
                Some(about) => about.to_string(),
                None => "Print this page, or that of a command".to_owned(),
            };
            let about = about.trim_end_matches('.');
            let _ = writeln!(text, "  {literal}{name:<12}{literal:#}  {about}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What a page shows.
    fn page(kind: Option<&str>, path: &[&str]) -> String {
        let command = super::command_here(kind);
        let mut shown = &command;
        for name in path {
            shown = shown.find_subcommand(name).unwrap();
        }
        shown.clone().render_long_help().to_string()
    }

    #[test]
    fn with_a_configuration_nothing_of_another_kind_of_cluster_is_shown() {
        for (kind, path, theirs, others) in [
            (
                "ceph",
                vec![],
                vec!["ceph", "plan"],
                vec!["ganeti", "hroller", "ironic"],
            ),
            (
                "ceph",
                vec!["plan", "reboot"],
                vec!["--up-for", "--host"],
                vec!["--node-tags", "--namespace"],
            ),
            (
                "ceph",
                vec!["plan", "upgrade"],
                vec!["--to"],
                vec!["--kubeconfig"],
            ),
            (
                "ganeti",
                vec!["plan"],
                vec!["reboot", "exec"],
                vec!["upgrade", "patch", "restart"],
            ),
            (
                "ganeti",
                vec!["plan", "reboot"],
                vec!["--node-tags"],
                vec!["--up-for", "--toolbox"],
            ),
            (
                "ironic",
                vec!["run"],
                vec!["upgrade"],
                vec!["reboot", "patch", "exec"],
            ),
        ] {
            let shown = page(Some(kind), &path);
            // A goal or a command is the first word of an indented line; a flag stands nowhere else.
            let lines = || shown.lines().filter(|line| line.starts_with("  "));
            let has = |word: &str| {
                let is_first = |line: &str| line.split_whitespace().next() == Some(word);
                lines().any(is_first) || word.starts_with('-') && shown.contains(word)
            };
            for word in theirs {
                assert!(has(word), "{kind} {path:?} without {word}: {shown}");
            }
            for word in others {
                assert!(!has(word), "{kind} {path:?} with {word}: {shown}");
            }
        }
        for word in ["ganeti", "ironic", "operator"] {
            assert!(page(None, &[]).contains(word), "{word}");
        }
    }

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

    /// Whoever is woken at three in the morning reads the last line first.
    #[test]
    fn what_is_needed_during_a_run_has_an_example() {
        fn without(command: &Command, path: &str, found: &mut Vec<String>) {
            let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
            for one in shown {
                let path = format!("{path} {}", one.get_name());
                let example = one.get_after_help().map(ToString::to_string);
                if !example.is_some_and(|text| text.starts_with("Example")) {
                    found.push(path.clone());
                }
                without(one, &path, found);
            }
        }
        let (mut command, mut found) = (super::command(), Vec::new());
        command.build();
        without(&command, "", &mut found);
        let daily = GROUPS[..3].iter().flat_map(|(_, names)| *names);
        let daily: BTreeSet<&str> = daily.copied().filter(|&name| name != "demo").collect();
        found.retain(|path| {
            path.split_whitespace()
                .next()
                .is_some_and(|name| daily.contains(name))
        });
        assert_eq!(found, [""; 0]);
    }
}
