//! Shell completion: runs, points of no return and units of the store; reasons and documents of this release.
//!
//! `stagger completions SHELL` prints a script by which the shell calls this program. What cannot be read is
//! not completed: an error in the middle of a command line does not help.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::{Command, Parser as _};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use stagger_core::model::Topology;
use stagger_core::plan::Plan;
use stagger_core::run::{Event, Run};
use stagger_engine::database::StoreLocation;
use stagger_engine::store::JournalStore;
use stagger_engine::supervisor;

use crate::args::{self, Cli};
use crate::commands::reason;
use crate::config::typed;
use crate::documents;
use crate::error::CliError;
use crate::exit::Exit;
use crate::state::store_location;

/// The variable by which a shell asks. Nobody sets one of that name for another reason.
const ASKED_BY: &str = "STAGGER_COMPLETE";
/// So many runs are offered, the newest first.
const RUNS: usize = 20;

/// The commands that take a run.
const OF_RUNS: [&str; 13] = [
    "resume",
    "status",
    "pause",
    "approve",
    "abort",
    "rollback",
    "confirm",
    "settle",
    "history",
    "verify",
    "report",
    "watch",
    "artifacts",
];

/// The goals of each command that has some: their flags select units.
const GOALS: [(&str, &str); 20] = {
    const COMMANDS: [&str; 4] = ["plan", "run", "simulate", "explain"];
    const NAMES: [&str; 5] = ["upgrade", "reboot", "patch", "restart", "exec"];
    let mut all = [("", ""); 20];
    let mut at = 0;
    while at < all.len() {
        all[at] = (COMMANDS[at / NAMES.len()], NAMES[at % NAMES.len()]);
        at += 1;
    }
    all
};

/// Answers a shell that asks, and ends then.
pub(crate) fn answer_a_shell() {
    CompleteEnv::with_factory(command).var(ASKED_BY).complete();
}

/// The command line, with what is to be asked where.
fn command() -> Command {
    let of = |command: Command, name: &str, arg: &str, completer: ArgValueCompleter| {
        command.mut_subcommand(name, |named| named.mut_arg(arg, |arg| arg.add(completer)))
    };
    let all = OF_RUNS
        .iter()
        .fold(args::command(), |all, name| of(all, name, "run", runs()));
    let all = GOALS.into_iter().fold(all, |all, (goals, goal)| {
        all.mut_subcommand(goals, |command| {
            command.mut_subcommand(goal, |command| {
                command
                    .mut_arg("units", |arg| arg.add(units()))
                    .mut_arg("kinds", |arg| arg.add(kinds()))
                    .mut_arg("hosts", |arg| arg.add(hosts()))
                    .mut_arg("domains", |arg| arg.add(domains()))
            })
        })
    });
    let all = of(all, "confirm", "host", hosts());
    let all = of(all, "settle", "intent", intents());
    // An argument that was changed goes behind the others: those that follow it are to stay behind it.
    let all = all.mut_subcommand("confirm", |confirm| confirm.mut_arg("word", |word| word));
    let all = all.mut_subcommand("settle", |settle| settle.mut_arg("how", |how| how));
    let all = of(all, "approve", "door", doors());
    let all = of(all, "explain", "unit", units());
    let all = of(all, "reason", "reason", reasons());
    of(all, "schema", "document", schemas())
}

/// The script that has a shell ask this program.
pub(crate) fn script(shell: clap_complete::Shell) -> Result<String, CliError> {
    let failed = |why: String| CliError::new(Exit::Internal, format!("write completions for {shell}: {why}"));
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells
        .completer(&name)
        .ok_or_else(|| failed("this shell is not known".to_owned()))?;
    let mut text = Vec::new();
    completer
        .write_registration(ASKED_BY, "stagger", "stagger", "stagger", &mut text)
        .map_err(|error| failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Runs in the store.
fn runs() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let listed = query_store(async |store| store.runs().await.ok()).unwrap_or_default();
        let shown = listed.into_iter().take(RUNS).map(|listed| {
            let help = format!("{}, started {:.0}", listed.cluster, listed.started);
            CompletionCandidate::new(listed.run.to_string()).help(Some(help.into()))
        });
        matching(current, shown)
    })
}

/// Points of no return of the newest run, and the interruptions that it asks for.
fn doors() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let found = newest().map(|run| {
            let doors = run.start().target.doors().map(ToString::to_string);
            let interruptions = run.plan().into_iter().flat_map(|plan| &plan.interruptions);
            let asked = interruptions.filter(|found| !found.permitted);
            doors
                .chain(asked.map(|found| found.name.clone()))
                .collect::<BTreeSet<String>>()
        });
        let found = found.unwrap_or_default().into_iter();
        matching(current, found.map(CompletionCandidate::new))
    })
}

/// Units of the newest run's first plan: the last one has only those that are left.
fn units() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let found = first_plan().map(|plan| {
            let waves = plan.stages().flat_map(|stage| &stage.waves);
            let units = waves.flat_map(|wave| &wave.units).map(ToString::to_string);
            units.collect::<BTreeSet<String>>()
        });
        let found = found.unwrap_or_default().into_iter();
        matching(current, found.map(CompletionCandidate::new))
    })
}

/// Kinds of units of the newest run: what stands before the dot of their names.
fn kinds() -> ArgValueCompleter {
    of_topology(|topology| {
        let units = topology.hosts.iter().flat_map(|host| &host.units);
        units
            .filter_map(|unit| Some(unit.as_str().split_once('.')?.0.to_owned()))
            .collect()
    })
}

/// Hosts of the newest run.
fn hosts() -> ArgValueCompleter {
    of_topology(|topology| topology.hosts.iter().map(|host| host.name.clone()).collect())
}

/// Failure domains of the newest run: `rack=r3`.
fn domains() -> ArgValueCompleter {
    of_topology(|topology| {
        let Some(level) = &topology.above else {
            return BTreeSet::new();
        };
        let within = topology.hosts.iter().filter_map(|host| host.within.as_ref());
        within.map(|name| format!("{level}={name}")).collect()
    })
}

fn of_topology(names: fn(&Topology) -> BTreeSet<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let found = newest()
            .map(|run| names(&run.start().topology))
            .unwrap_or_default();
        matching(current, found.into_iter().map(CompletionCandidate::new))
    })
}

/// Calls of the newest run whose outcome is not known, by the numbers of their intents.
fn intents() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let found: Vec<String> = newest()
            .map(|run| run.open().map(|(seq, _)| seq.to_string()).collect())
            .unwrap_or_default();
        matching(current, found.into_iter().map(CompletionCandidate::new))
    })
}

/// Reasons that `stagger reason` explains.
fn reasons() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        matching(current, reason::names().into_iter().map(CompletionCandidate::new))
    })
}

/// Documents that `stagger schema` prints.
fn schemas() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let names = documents::schemas(documents::SchemaFields::Any)
            .into_iter()
            .map(|(name, _)| name);
        matching(current, names.map(CompletionCandidate::new))
    })
}

fn matching(current: &OsStr, all: impl Iterator<Item = CompletionCandidate>) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    all.filter(|one| one.get_value().to_string_lossy().starts_with(&*begun))
        .collect()
}

fn newest() -> Option<Run> {
    query_store(async |store| {
        let listed = store.runs().await.ok()?.into_iter().next()?;
        supervisor::replay(store, &listed.run).await.ok()
    })
}

fn first_plan() -> Option<Plan> {
    let entries = query_store(async |store| {
        let listed = store.runs().await.ok()?.into_iter().next()?;
        store.journal(&listed.run).await.ok()
    });
    entries?.into_iter().find_map(|entry| match entry.event {
        Event::Planned { plan } => Some(*plan),
        _ => None,
    })
}

/// Asks the store that the command line names so far, if there is one, in a runtime of its own: a shell waits.
fn query_store<T>(ask: impl AsyncFnOnce(&dyn JournalStore) -> Option<T>) -> Option<T> {
    let place = nearby_store()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.ok()?.block_on(async {
        let store = place.open().await.ok()?;
        ask(&*store).await
    })
}

/// Where that store is: nothing is made by asking.
fn nearby_store() -> Option<StoreLocation> {
    let mut words = vec!["stagger".to_owned()];
    for flag in ["--config", "--state"] {
        words.extend(typed(flag).map(|given| format!("{flag}={given}")));
    }
    words.push("history".to_owned());
    let place = store_location(&Cli::try_parse_from(words).ok()?).ok()?;
    // A server may be long in answering.
    let is_near = matches!(place, StoreLocation::File(_)) && place.exists();
    is_near.then_some(place)
}
