//! Why a run is refused: all reasons at once.

use std::collections::{BTreeMap, BTreeSet};

use stagger_core::model::{Doors, Fact, Policy, Reason, UnitState};
use stagger_engine::cluster::Refusal;
use stagger_versioned::manifest::{Named, Place};

use crate::conditions::{unknown_apis, unknown_conductors};
use crate::config::{IronicConfig, NodesInFlight, ServiceRole, StopMode};
use crate::facts::IronicFacts;
use crate::goal::{UpgradeGoal, WantedRelease};
use crate::in_flight;
use crate::release_code::ReleaseCode;
use crate::releases::Releases;
use crate::services::{ServiceStatus, statuses};

/// An upgrade that nothing speaks against.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedUpgrade {
    pub(crate) goal: UpgradeGoal,
    pub(crate) from: Named,
    pub(crate) to: Named,
}

/// What is wanted of what runs, if nothing speaks against it.
pub(crate) fn accept_upgrade(
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    wanted: &WantedRelease,
    policy: &Policy,
) -> Result<AcceptedUpgrade, Refusal> {
    let mut reasons = Vec::new();
    let services = statuses(facts, config, table);
    let release = wanted.release.as_str();
    let to = found(table, wanted, config, &mut reasons);
    let from = running(&services, table, release, to, &mut reasons);
    reasons.extend(not_serving(facts, config, &services));
    reasons.extend(database(facts));
    reasons.extend(nodes_in_flight(facts, config));
    reasons.extend(stop_method(facts, config));
    reasons.extend(commands(config));
    let mut judged = None;
    if let (Some(to), Some((from, text))) = (to, from) {
        let supported = table.upgrade(from, to);
        if let Err(refused) = &supported {
            reasons.push(Reason::of_backend("upgrade-not-supported", refused.to_string()));
        }
        reasons.extend(too_new(facts, table, from.place, to.place));
        let pin = config.pin.clone().unwrap_or_else(|| table.number(from.place));
        if from.place != to.place {
            // Both codes read it: an old service that starts once more while it is written must start.
            let listed = |code: Place| table.pin(code, &pin) == Some(from.place);
            // On a way that nobody may go no pin would help.
            if supported.is_ok() && !(listed(to.place) && listed(from.place)) {
                let why = format!(
                    "{pin:?} is no pin that both {text} and {release} list for {text}; {} is",
                    table.number(from.place)
                );
                reasons.push(Reason::of_backend("pin-not-listed", why));
            }
            reasons.extend(no_backup(config));
            let hooks = &config.hooks;
            if !asks(policy) && hooks.ramdisk.is_none() && !hooks.ramdisk_is_done {
                let why = "points of no return pass unasked, and the ramdisk image is not confirmed as of the new release: give `hooks.ramdisk`, or set `hooks.ramdisk_is_done`";
                reasons.push(Reason::of_backend("ramdisk-not-confirmed", why));
            }
        }
        let goal = UpgradeGoal {
            to: release.to_owned(),
            from: text,
            pin,
            interruptions: policy.interruptions.clone(),
            code: recorded_code(table, wanted, from.place),
        };
        judged = Some(AcceptedUpgrade { goal, from, to });
    }
    match judged {
        Some(judged) if reasons.is_empty() => Ok(judged),
        Some(_) | None => Err(Refusal(reasons)),
    }
}

/// What a run keeps of what the new code has said.
fn recorded_code(table: &Releases, wanted: &WantedRelease, from: Place) -> Option<ReleaseCode> {
    let code = wanted.code.as_ref()?.get()?;
    let oldest = table.number(from).parse().ok()?;
    Some(code.clone().without_older(oldest))
}

fn found(
    table: &Releases,
    wanted: &WantedRelease,
    config: &IronicConfig,
    reasons: &mut Vec<Reason>,
) -> Option<Named> {
    let release = wanted.release.as_str();
    match table.find(release) {
        // What is installed is always one patch of a release.
        Ok(named) if named.patch.is_some() => Some(named),
        Ok(named) => {
            let number = table.number(named.place);
            let why = format!("{release} is a release with many patches: write which, as {number}.1");
            reasons.push(Reason::of_backend("release-without-patch", why));
            None
        }
        Err(error) => {
            let asked = match &wanted.code {
                Some(Fact::No(why)) => {
                    format!("; {why}: install it where the tools are, then plan again")
                }
                None if config.tools.python.is_none() => {
                    "; a newer one is known from its own code, once `tools.python` names its Python"
                        .to_owned()
                }
                Some(Fact::Yes(_)) | None => String::new(),
            };
            reasons.push(Reason::of_backend("unknown-release", format!("{error}{asked}")));
            None
        }
    }
}

/// Where services come from. Those that are on the wanted release already have been there before: a run that was
/// ended in between.
fn running(
    services: &[ServiceStatus<'_>],
    table: &Releases,
    release: &str,
    to: Option<Named>,
    reasons: &mut Vec<Reason>,
) -> Option<(Named, String)> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut held: BTreeSet<Place> = BTreeSet::new();
    let mut all_known = true;
    for status in services {
        match &status.runs {
            Err(reason) => {
                all_known = false;
                reasons.push(reason.clone());
            }
            Ok(runs) if runs.release == release => held.extend(runs.pinned_to()),
            Ok(runs) => {
                if let Some(pin) = runs.pinned_to() {
                    let why = format!(
                        "{} on {} is still pinned to {}: finish that upgrade first",
                        status.name,
                        runs.release,
                        table.name(pin)
                    );
                    reasons.push(Reason::of_backend("still-pinned", why));
                }
                found.entry(&runs.release).or_default().push(status.name);
            }
        }
    }
    if !all_known {
        return None;
    }
    let named = |text: &str| Some((table.find(text).ok()?, text.to_owned()));
    match found.len() {
        // All are there: only pins and rows may be left, and the pins say where they came from.
        0 => match held.first() {
            Some(pin) => named(&table.number(*pin)),
            None => to.and_then(|to| before(table, to)).or_else(|| named(release)),
        },
        1 => found.keys().next().and_then(|text| named(text)),
        _ => {
            let which: Vec<String> = found
                .iter()
                .map(|(release, names)| format!("{} on {release}", names.join(" ")))
                .collect();
            let why = format!(
                "services run several releases, and none of them is {release}: {}",
                which.join(", ")
            );
            reasons.push(Reason::of_backend("releases-mixed", why));
            None
        }
    }
}

/// The named release before that one: whatever is left to be done there was begun from it, or from one before.
fn before(table: &Releases, to: Named) -> Option<(Named, String)> {
    let older = table.before(to.place)?;
    let number = table.number(older);
    Some((table.find(&number).ok()?, number))
}

fn not_serving(facts: &IronicFacts, config: &IronicConfig, services: &[ServiceStatus<'_>]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let down = |status: &&ServiceStatus<'_>| status.state.0 != UnitState::Serving;
    for status in services.iter().filter(down) {
        let (slug, words) = if status.state.0 == UnitState::Down {
            ("service-down", "does not serve")
        } else {
            ("service-unknown", "may serve or not")
        };
        let why = format!("{} {words}: {}", status.name, status.state.1);
        reasons.push(Reason::of_backend(slug, why));
    }
    if let Fact::No(why) = &facts.conductors {
        reasons.push(Reason::of_backend("conductors-unknown", why.clone()));
    }
    for (slug, strangers) in [
        ("unknown-conductor", unknown_conductors(facts, config)),
        ("unknown-api", unknown_apis(facts, config)),
    ] {
        reasons.extend(
            strangers.map(|why| Reason::of_backend(slug, format!("{why}; they would not be upgraded"))),
        );
    }
    reasons
}

fn database(facts: &IronicFacts) -> Vec<Reason> {
    let database = match &facts.database {
        Fact::No(why) => return vec![Reason::of_backend("database-unknown", why.clone())],
        Fact::Yes(database) => database,
    };
    let without = database.without_version();
    if without.is_empty() {
        return Vec::new();
    }
    let rows: Vec<String> = without
        .iter()
        .map(|(table, rows)| format!("{rows} of {table}"))
        .collect();
    let why = format!(
        "rows without a version: {}. Services answer them with an error, and no tool of Ironic's repairs them: find out \
         which release wrote them, and write the version that it has of that object",
        rows.join(", ")
    );
    vec![Reason::of_backend("rows-without-version", why)]
}

/// Nodes in flight, where an upgrade is to begin with none.
fn nodes_in_flight(facts: &IronicFacts, config: &IronicConfig) -> Option<Reason> {
    let database = facts.database.get()?;
    if config.in_flight.nodes != NodesInFlight::Refuse {
        return None;
    }
    let nodes: Vec<_> = in_flight::blocking_nodes(&database.in_flight, &config.in_flight).collect();
    let why = in_flight::listed(&nodes)?;
    Some(Reason::of_backend("nodes-in-flight", why))
}

/// A schema is not brought back: whoever upgrades it says how the database is saved, or that it need not be.
fn no_backup(config: &IronicConfig) -> Option<Reason> {
    config.tools.backup.is_none().then(|| {
        let why = "Ironic cannot downgrade its schema, and no backup of its database is configured: give `tools.backup` a \
                   command, or \"none\" if it is saved otherwise";
        Reason::of_backend("backup-not-configured", why)
    })
}

/// Rows of versions that the release to go to does not know, or that are newer than what runs.
fn too_new(facts: &IronicFacts, table: &Releases, from: Place, to: Place) -> Vec<Reason> {
    let Some(database) = facts.database.get() else {
        return Vec::new();
    };
    let reads = table.readable_versions(from.max(to));
    let mut beyond = Vec::new();
    for (name, rows) in &database.rows {
        let Some(newest) = reads.get(name.as_str()) else {
            continue;
        };
        for (version, count) in rows.unreadable_versions(*newest) {
            beyond.push(format!("{count} of {name} of version {version}"));
        }
    }
    if beyond.is_empty() {
        return Vec::new();
    }
    let why = format!(
        "rows that {} does not know: {}; a newer release wrote them, and services of an older one answer each list \
         with an error",
        table.name(from.max(to)),
        beyond.join(", ")
    );
    vec![Reason::of_backend("rows-too-new", why)]
}

/// Whether conductors can be stopped in the way that is set.
fn stop_method(facts: &IronicFacts, config: &IronicConfig) -> Vec<Reason> {
    let stopping = &config.stopping;
    let mut reasons = Vec::new();
    if let Fact::No(why) = &facts.balancer {
        reasons.push(Reason::of_backend("balancer-unknown", why.clone()));
    }
    match stopping.way {
        StopMode::Drain => {
            if let Some(why) = crate::conditions::not_prepared(facts, config) {
                let why = format!("{why}; the guide says how to prepare it, and what else there is");
                reasons.push(Reason::of_backend("not-prepared", why));
            }
        }
        StopMode::Mute => {
            if !stopping.writes_into_ironic {
                let why = "`mute` writes into Ironic's table of conductors: set `stopping.writes_into_ironic` if it may";
                reasons.push(Reason::of_backend("mute-not-permitted", why));
            }
            let without: Vec<&str> = config
                .conductors
                .iter()
                .filter(|conductor| conductor.rpc.is_none())
                .map(|conductor| conductor.name.as_str())
                .collect();
            if stopping.database.is_none() || !without.is_empty() {
                let why = format!(
                    "`mute` needs `stopping.database`, and `rpc` of each conductor; without one: {}",
                    without.join(" ")
                );
                reasons.push(Reason::of_backend("not-prepared", why));
            }
        }
        StopMode::Hold => {
            if stopping.hold.is_none() || stopping.let_go.is_none() {
                reasons.push(Reason::of_backend(
                    "not-prepared",
                    "`hold` needs `stopping.hold` and `stopping.let_go`",
                ));
            }
        }
    }
    reasons
}

/// Refuses before anything begins what would fail in the middle.
fn commands(config: &IronicConfig) -> Vec<Reason> {
    let missing = config.services().filter_map(|service| {
        let commands = &service.commands;
        let needed = [
            ("install", &commands.install),
            ("write_pin", &commands.write_pin),
            ("remove_pin", &commands.remove_pin),
            ("read_pin", &commands.read_pin),
            ("stop", &commands.stop),
            ("start", &commands.start),
        ];
        let none: Vec<&str> = needed
            .iter()
            .filter(|(_, command)| command.is_none())
            .map(|(name, _)| *name)
            .collect();
        (!none.is_empty()).then(|| {
            let why = format!("{} has no command for: {}", service.name, none.join(" "));
            Reason::of_backend("command-missing", why)
        })
    });
    let unbalanced = config
        .services()
        .filter(|service| service.role == ServiceRole::Api && service.servers.is_empty())
        .map(|service| {
            let why = format!("{} has no `servers`: it cannot be drained", service.name);
            Reason::of_backend("not-prepared", why)
        });
    missing.chain(unbalanced).collect()
}

/// Whether doors are passed by a person's word.
fn asks(policy: &Policy) -> bool {
    matches!(policy.doors, Doors::Ask)
}
