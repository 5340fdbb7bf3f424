//! The conditions for gates, and those that mark a step as done.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use stagger_core::model::{Condition, ConditionName, Fact, IdError, UnitState, Verdict};
use stagger_versioned::manifest::Place;

use crate::balancer::ServerState;
use crate::config::{BalancerServer, IronicConfig, ServiceRole, StopMode};
use crate::facts::IronicFacts;
use crate::goal::UpgradeGoal;
use crate::in_flight;
use crate::records::IronicRecords;
use crate::releases::Releases;
use crate::rings::{rings, stand_ins};
use crate::running_releases::Runs;
use crate::services::ServiceStatus;

/// Every API service answers, and gets requests.
pub const APIS_SERVE: &str = "apis-serve";
/// Every conductor is alive, and Ironic knows no other.
pub const CONDUCTORS_SERVE: &str = "conductors-serve";
/// What each service runs is known.
pub const SERVICES_KNOWN: &str = "services-known";
/// The database answers.
pub const DATABASE_ANSWERS: &str = "database-answers";
/// Every row says in which version it is written.
pub const ROWS_HAVE_VERSIONS: &str = "rows-have-versions";
/// Every service can read every row.
pub const ROWS_READABLE: &str = "rows-readable";
/// Conductors can be stopped in the way that is set.
pub const PREPARED: &str = "prepared";
/// No node is in flight, but for those that are accepted so.
pub const NODES_STABLE: &str = "nodes-stable";
/// The database was saved for this upgrade, or need not be.
pub const BACKED_UP: &str = "backed-up";
/// The schema is that of the wanted release.
pub const SCHEMA_UPGRADED: &str = "schema-upgraded";
/// Every service that starts is held to the older release.
pub const PINNED: &str = "pinned";
/// Every service runs the wanted release.
pub const NO_OLD_SERVICE: &str = "no-old-service";
/// Pins are being taken away.
pub const UNPIN_BEGUN: &str = "unpin-begun";
/// No conductor is held to the older release.
pub const CONDUCTORS_UNPINNED: &str = "conductors-unpinned";
/// No service is.
pub const UNPINNED: &str = "unpinned";
/// Every row is in the version that the wanted release writes.
pub const ROWS_CURRENT: &str = "rows-current";

/// What is done once and written down, with the condition that says so.
pub const MARKS: [(&str, &str); 5] = [
    ("before", "before-done"),
    ("ramdisk", "ramdisk-upgraded"),
    ("check", "checked"),
    ("clients", "clients-told"),
    ("after", "after-done"),
];

/// A backup that is older when the schema would be upgraded is made anew.
const BACKUP_LASTS: SignedDuration = SignedDuration::from_hours(12);

/// What stands against it, or what it says.
type ConditionDetail = Result<String, (Verdict, String)>;

fn unmet(why: impl Into<String>) -> ConditionDetail {
    Err((Verdict::No, why.into()))
}

fn unknown(why: impl Into<String>) -> ConditionDetail {
    Err((Verdict::Unknown, why.into()))
}

/// All of them; those of a way to a release only where one is wished.
///
/// # Errors
/// A name that is none.
pub fn conditions(
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    goal: Option<&UpgradeGoal>,
    statuses: &[ServiceStatus<'_>],
) -> Result<Vec<Condition>, IdError> {
    let mut found = vec![
        (APIS_SERVE, apis_serve(facts, config, statuses)),
        (CONDUCTORS_SERVE, conductors_serve(facts, config, statuses)),
        (SERVICES_KNOWN, services_known(statuses)),
        (DATABASE_ANSWERS, database_answers(facts)),
        (ROWS_HAVE_VERSIONS, rows_have_versions(facts)),
        (ROWS_READABLE, rows_readable(facts, table, statuses)),
        (PREPARED, prepared(facts, config)),
        (NODES_STABLE, nodes_stable(facts, config)),
    ];
    if let Some(goal) = goal {
        let to = table.find(&goal.to);
        let wanted = UpgradeConditions {
            facts,
            table,
            goal,
            statuses,
            records: facts.records.as_result(),
        };
        match to {
            Ok(to) => {
                found.push((SCHEMA_UPGRADED, wanted.schema(to.place)));
                found.push((BACKED_UP, wanted.backed_up(to.place)));
                found.push((PINNED, wanted.pinned(to.place)));
                found.push((NO_OLD_SERVICE, wanted.no_old_service(config)));
                found.push((UNPIN_BEGUN, wanted.marked("unpin")));
                found.push((CONDUCTORS_UNPINNED, wanted.unpinned(&[ServiceRole::Conductor])));
                found.push((
                    UNPINNED,
                    wanted.unpinned(&[ServiceRole::Conductor, ServiceRole::Api]),
                ));
                found.push((ROWS_CURRENT, wanted.rows_current(to.place)));
                for (mark, condition) in MARKS {
                    found.push((condition, wanted.marked(mark)));
                }
            }
            Err(error) => found.push((SCHEMA_UPGRADED, unknown(error.to_string()))),
        }
    }
    found
        .into_iter()
        .map(|(name, found)| {
            let (verdict, why) = match found {
                Ok(why) => (Verdict::Yes, why),
                Err(found) => found,
            };
            Ok(Condition::new(ConditionName::new(name)?, verdict, why))
        })
        .collect()
}

/// All that do not serve, or how many do.
fn all_serve(statuses: &[ServiceStatus<'_>], role: ServiceRole) -> ConditionDetail {
    let of_it = || statuses.iter().filter(|status| status.role == role);
    let not: Vec<&ServiceStatus<'_>> = of_it()
        .filter(|status| status.state.0 != UnitState::Serving)
        .collect();
    let why: Vec<String> = not
        .iter()
        .map(|status| format!("{}: {}", status.name, status.state.1))
        .collect();
    if not.iter().any(|status| status.state.0 == UnitState::Down) {
        return unmet(why.join("; "));
    }
    if !not.is_empty() {
        return unknown(why.join("; "));
    }
    Ok(format!("{} serve", of_it().count()))
}

fn apis_serve(facts: &IronicFacts, config: &IronicConfig, statuses: &[ServiceStatus<'_>]) -> ConditionDetail {
    if let Fact::No(why) = &facts.balancer {
        return unknown(why);
    }
    match unknown_apis(facts, config) {
        Some(why) => unmet(why),
        None => all_serve(statuses, ServiceRole::Api),
    }
}

fn conductors_serve(
    facts: &IronicFacts,
    config: &IronicConfig,
    statuses: &[ServiceStatus<'_>],
) -> ConditionDetail {
    if let Fact::No(why) = &facts.conductors {
        return unknown(why);
    }
    match unknown_conductors(facts, config) {
        Some(why) => unmet(why),
        None => all_serve(statuses, ServiceRole::Conductor),
    }
}

/// Conductors that are alive and not in the configuration; `None`: nobody sees any.
pub(crate) fn unknown_conductors(facts: &IronicFacts, config: &IronicConfig) -> Option<String> {
    let listed = facts.conductors.get()?.iter();
    let strangers: Vec<&str> = listed
        .filter(|(name, says)| says.alive && config.conductor_registered(name).is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    (!strangers.is_empty()).then(|| format!("alive, and not in the configuration: {}", strangers.join(", ")))
}

/// Servers that stand beside the API services at the balancer and are none of the configuration; `None`: nobody sees any.
/// One that is down or in maintenance is left out: it is what a place looks like where nobody is.
pub(crate) fn unknown_apis(facts: &IronicFacts, config: &IronicConfig) -> Option<String> {
    let ours: Vec<&BalancerServer> = config.apis.iter().flat_map(|api| &api.servers).collect();
    let listed = facts.balancer.get()?.servers.iter();
    let strangers: Vec<String> = listed
        .filter(|(server, says)| {
            says.state != ServerState::Down
                && !says.status.starts_with("MAINT")
                && ours.iter().any(|own| own.backend == server.backend)
                && !ours.contains(server)
        })
        .map(|(server, says)| format!("{server} ({})", says.status))
        .collect();
    (!strangers.is_empty()).then(|| {
        format!(
            "behind the balancer with the API services, and not in the configuration: {}",
            strangers.join(", ")
        )
    })
}

fn services_known(statuses: &[ServiceStatus<'_>]) -> ConditionDetail {
    let not: Vec<String> = statuses
        .iter()
        .filter_map(|status| status.runs.as_ref().err())
        .map(|reason| reason.detail.clone())
        .collect();
    if not.is_empty() {
        Ok(format!("{} services", statuses.len()))
    } else {
        unknown(not.join("; "))
    }
}

fn database_answers(facts: &IronicFacts) -> ConditionDetail {
    match &facts.database {
        Fact::Yes(database) => Ok(format!("revision {}", database.revision)),
        Fact::No(why) => unknown(why),
    }
}

fn nodes_stable(facts: &IronicFacts, config: &IronicConfig) -> ConditionDetail {
    let database = match &facts.database {
        Fact::No(why) => return unknown(why),
        Fact::Yes(database) => database,
    };
    let waited_for: Vec<_> = in_flight::blocking_nodes(&database.in_flight, &config.in_flight).collect();
    match (in_flight::listed(&waited_for), database.in_flight.len()) {
        (Some(nodes), _) => unmet(format!("nodes in flight: {nodes}")),
        (None, 0) => Ok("no node is in flight".to_owned()),
        (None, accepted) => Ok(format!("nodes in flight, which is accepted: {accepted}")),
    }
}

fn rows_have_versions(facts: &IronicFacts) -> ConditionDetail {
    let database = match &facts.database {
        Fact::No(why) => return unknown(why),
        Fact::Yes(database) => database,
    };
    let without = database.without_version();
    if without.is_empty() {
        return Ok(format!("{} tables", database.rows.len()));
    }
    let rows: Vec<String> = without
        .iter()
        .map(|(table, rows)| format!("{rows} of {table}"))
        .collect();
    unmet(format!("rows without a version: {}", rows.join(", ")))
}

/// One row that is newer than its reader breaks that reader's whole list.
fn rows_readable(facts: &IronicFacts, table: &Releases, statuses: &[ServiceStatus<'_>]) -> ConditionDetail {
    let database = match &facts.database {
        Fact::No(why) => return unknown(why),
        Fact::Yes(database) => database,
    };
    for status in statuses {
        let Ok(Runs { release, place, .. }) = &status.runs else {
            continue;
        };
        let reads = table.readable_versions(*place);
        for (name, rows) in &database.rows {
            let Some(newest) = reads.get(name.as_str()) else {
                continue;
            };
            if let Some((version, count)) = rows.unreadable_versions(*newest).first() {
                return unmet(format!(
                    "{count} rows of {name} are of version {version}, and {} on {release} reads up to {newest}: \
                     it answers every list with an error",
                    status.name
                ));
            }
        }
    }
    // Who cannot be judged may be of any release.
    match statuses.iter().find_map(|status| status.runs.as_ref().err()) {
        Some(reason) => unknown(&reason.detail),
        None => Ok("every service reads every row".to_owned()),
    }
}

/// Why conductors cannot be stopped in the way that is set, if so.
pub(crate) fn not_prepared(facts: &IronicFacts, config: &IronicConfig) -> Option<String> {
    match prepared(facts, config) {
        Err((Verdict::No, why)) => Some(why),
        Err((Verdict::Unknown | Verdict::Yes, _)) | Ok(_) => None,
    }
}

/// So many requests through the balancer, and not one call among them, say that calls go past it.
const ENOUGH: u64 = 1000;

fn prepared(facts: &IronicFacts, config: &IronicConfig) -> ConditionDetail {
    match config.stopping.way {
        StopMode::Drain => {}
        StopMode::Mute | StopMode::Hold => return Ok(config.stopping.way.cost().to_owned()),
    }
    if config.rabbitmq.is_some() {
        return match &facts.balancer {
            Fact::No(why) => unknown(why),
            Fact::Yes(_) => Ok("the calls of each conductor can be routed to a stand-in".to_owned()),
        };
    }
    let shown = match &facts.balancer {
        Fact::No(why) => return unknown(why),
        Fact::Yes(shown) => shown,
    };
    let rings = rings(facts, config);
    for conductor in &config.conductors {
        let name = &conductor.name;
        let stand_ins = stand_ins(&rings, name);
        if conductor.servers.is_empty() {
            return unmet(format!(
                "the RPC port of {name} is not behind the balancer: it has no `servers`"
            ));
        }
        for server in &conductor.servers {
            if !shown.servers.contains_key(server) {
                return unmet(format!("the balancer has no {server}, of {name}"));
            }
            // It has no stand-in: that is an interruption, and asked for by its name.
            if stand_ins.is_empty() {
                continue;
            }
            let others = config
                .conductors
                .iter()
                .filter(|other| stand_ins.contains(other.name.as_str()));
            let mut peers = others.flat_map(|other| &other.servers);
            if !peers.any(|peer| peer.backend == server.backend && shown.servers.contains_key(peer)) {
                return unmet(format!(
                    "no conductor of the same group with the same drivers is in {}: the calls of {name} have nowhere to go \
                     while it is away",
                    server.backend
                ));
            }
        }
    }
    let behind = config.conductors.iter().flat_map(|conductor| &conductor.servers);
    for backend in behind.map(|server| &server.backend).collect::<BTreeSet<_>>() {
        let requests = |here: bool| -> u64 {
            let counted = shown
                .servers
                .iter()
                .filter(|(server, _)| (server.backend == *backend) == here);
            counted.map(|(_, says)| says.total).sum()
        };
        let others = requests(false);
        if requests(true) == 0 && others >= ENOUGH {
            return unmet(format!(
                "of {others} requests through the balancer none came to {backend}: calls to its conductor go past it. The \
                 `host` of that conductor has to be an address of the balancer; if nobody has called it yet, `openstack \
                 baremetal node validate` with one of its nodes does"
            ));
        }
    }
    Ok("every conductor's RPC port has a peer to be drained to".to_owned())
}

/// What is asked on the way to a release.
struct UpgradeConditions<'a> {
    facts: &'a IronicFacts,
    table: &'a Releases,
    goal: &'a UpgradeGoal,
    statuses: &'a [ServiceStatus<'a>],
    records: Result<&'a IronicRecords, &'a str>,
}

impl UpgradeConditions<'_> {
    /// Whether every service runs it already, and we have not brought them there.
    fn is_already_upgraded(&self) -> bool {
        let marked = self
            .records
            .map(|records| records.is_marked(&self.goal.to, "unpin"));
        marked == Ok(false) && self.unpinned(&[ServiceRole::Conductor, ServiceRole::Api]).is_ok()
    }

    fn marked(&self, mark: &str) -> ConditionDetail {
        match self.records {
            Err(why) => unknown(why),
            Ok(_) if self.is_already_upgraded() => Ok(format!("every service runs {} already", self.goal.to)),
            Ok(records) if records.is_marked(&self.goal.to, mark) => Ok("it is recorded".to_owned()),
            Ok(_) => unmet("it is not recorded"),
        }
    }

    fn schema(&self, to: Place) -> ConditionDetail {
        let database = match &self.facts.database {
            Fact::No(why) => return unknown(why),
            Fact::Yes(database) => database,
        };
        let now = &database.revision;
        if let Some(head) = self.table.head(to) {
            return if *now == head {
                Ok(format!("revision {now}"))
            } else {
                unmet(format!("revision {now}, not {head}"))
            };
        }
        if self.is_already_upgraded() {
            return Ok(format!(
                "revision {now}, on which every service runs {}",
                self.goal.to
            ));
        }
        let records = match self.records {
            Err(why) => return unknown(why),
            Ok(records) => records,
        };
        let marked = records
            .marks
            .get(&self.goal.to)
            .and_then(|marks| marks.get("schema"));
        match marked {
            Some(revision) if revision == now => Ok(format!("revision {now}")),
            Some(revision) => unmet(format!("revision {now}, and it was brought to {revision}")),
            None => unmet(format!("revision {now}")),
        }
    }

    /// What was saved before the schema is of no use after it.
    fn backed_up(&self, to: Place) -> ConditionDetail {
        if self.schema(to).is_ok() {
            return Ok("the schema is upgraded already".to_owned());
        }
        let records = match self.records {
            Err(why) => return unknown(why),
            Ok(records) => records,
        };
        let marks = records.marks.get(&self.goal.to);
        let Some(saved) = marks.and_then(|marks| marks.get("backup")) else {
            return unmet("it is not recorded");
        };
        // A run that ended before its schema may lie far back.
        let at = saved.split(' ').next().unwrap_or_default();
        match at.parse::<Timestamp>() {
            Ok(at) if self.facts.at.duration_since(at) <= BACKUP_LASTS => Ok(format!("saved {saved}")),
            Ok(_) => unmet(format!(
                "saved {saved}, and a backup counts for {} h",
                BACKUP_LASTS.as_hours()
            )),
            Err(_) => unknown(format!("when it was saved cannot be read: {saved}")),
        }
    }

    fn pinned(&self, to: Place) -> ConditionDetail {
        if self.marked("unpin").is_ok() {
            return Ok("pins are being taken away already".to_owned());
        }
        let mut not = Vec::new();
        for status in self.statuses {
            match self.facts.pins.get(status.name) {
                Some(Fact::Yes(Some(pin)))
                    if self.table.pin(to, pin).is_some()
                        && self.table.pin(to, pin) == self.table.pin(to, &self.goal.pin) => {}
                Some(Fact::Yes(Some(pin))) => {
                    not.push(format!("{} would start pinned to {pin}", status.name));
                }
                Some(Fact::Yes(None)) => not.push(format!("{} would start without a pin", status.name)),
                Some(Fact::No(why)) => return unknown(format!("{}: {why}", status.name)),
                None => return unknown(format!("the pin of {} was not asked for", status.name)),
            }
        }
        if not.is_empty() {
            Ok(format!("each service starts pinned to {}", self.goal.pin))
        } else {
            unmet(not.join("; "))
        }
    }

    fn no_old_service(&self, config: &IronicConfig) -> ConditionDetail {
        let mut old = Vec::new();
        for status in self.statuses {
            match &status.runs {
                Err(reason) => return unknown(&reason.detail),
                Ok(runs) if runs.release != self.goal.to => {
                    old.push(format!("{} runs {}", status.name, runs.release));
                }
                Ok(_) => {}
            }
        }
        if !old.is_empty() {
            return unmet(old.join("; "));
        }
        conductors_serve(self.facts, config, self.statuses)?;
        Ok(format!("{} services run {}", self.statuses.len(), self.goal.to))
    }

    fn unpinned(&self, roles: &[ServiceRole]) -> ConditionDetail {
        let mut held = Vec::new();
        for status in self.statuses.iter().filter(|status| roles.contains(&status.role)) {
            match &status.runs {
                Err(reason) => return unknown(&reason.detail),
                Ok(runs) if runs.release != self.goal.to => {
                    held.push(format!("{} runs {}", status.name, runs.release));
                }
                Ok(runs) => {
                    if let Some(pin) = runs.pinned_to() {
                        held.push(format!("{} is pinned to {}", status.name, self.table.name(pin)));
                    }
                }
            }
        }
        if held.is_empty() {
            Ok(format!("each runs {} without a pin", self.goal.to))
        } else {
            unmet(held.join("; "))
        }
    }

    fn rows_current(&self, to: Place) -> ConditionDetail {
        let database = match &self.facts.database {
            Fact::No(why) => return unknown(why),
            Fact::Yes(database) => database,
        };
        let left = database.outdated_rows(&self.table.writes(to, None));
        if !left.is_empty() {
            let rows: Vec<String> = left
                .iter()
                .map(|(table, rows)| format!("{rows} of {table}"))
                .collect();
            return unmet(format!("rows of older versions: {}", rows.join(", ")));
        }
        // A migration may have more to do than versions tell.
        match self.marked("migrate") {
            Ok(_) => Ok("every row is current".to_owned()),
            Err((verdict, _)) => Err((
                verdict,
                "the online migrations have not come to their end".to_owned(),
            )),
        }
    }
}
