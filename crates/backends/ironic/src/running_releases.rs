//! The release of each service: stagger's record of it, compared with the observation.

use stagger_core::model::{Fact, IdError, Reason, Revision, UnitState};
use stagger_versioned::manifest::Place;

use crate::balancer::ServerState;
use crate::config::{Conductor, IronicConfig, Service, ServiceRole};
use crate::facts::{ApiReport, IronicFacts};
use crate::records::RecordState;
use crate::releases::Releases;

/// What a service runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    /// The release with its patch, `29.0.6`.
    pub release: String,
    /// The release in the table.
    pub place: Place,
    /// The pin that it has read at its start, as written and as a release.
    pub pin: Option<(String, Place)>,
}

impl Runs {
    /// The older release to which it is held; `None`: it is not, or to its own.
    pub fn pinned_to(&self) -> Option<Place> {
        let (_, pin) = self.pin.as_ref()?;
        (*pin < self.place).then_some(*pin)
    }

    /// As a revision: `29.0.6`, or `29.0.6-pinned-2024.2`.
    ///
    /// # Errors
    /// The release is no word.
    pub fn revision(&self, table: &Releases) -> Result<Revision, IdError> {
        revision(
            &self.release,
            self.pinned_to().map(|pin| table.name(pin)).as_deref(),
        )
    }
}

/// Between the release and what it is held to.
const PINNED: &str = "-pinned-";

/// The revision of a service that runs that release, held to that older one.
///
/// # Errors
/// They are no words.
pub fn revision(release: &str, held_to: Option<&str>) -> Result<Revision, IdError> {
    match held_to {
        Some(held_to) => Revision::new(format!("{release}{PINNED}{held_to}")),
        None => Revision::new(release),
    }
}

/// The release of a revision, and whether it is held to an older one.
pub fn release_of(revision: &Revision) -> (&str, Option<&str>) {
    match revision.as_str().split_once(PINNED) {
        Some((release, held_to)) => (release, Some(held_to)),
        None => (revision.as_str(), None),
    }
}

/// What a service runs.
///
/// # Errors
/// Why nobody could tell: there is no record of it and no pin to be read, it is being changed, or what it says is not
/// what our record says.
pub fn runs(
    service: &Service<'_>,
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
) -> Result<Runs, Reason> {
    let name = service.name;
    let records = facts.records.as_result().map_err(|why| {
        Reason::of_backend("record-unknown", format!("what {name} runs is not known: {why}"))
    })?;
    let (release, pin) = match records.services.get(name) {
        Some(record) if record.state == RecordState::Changing => {
            let why = format!(
                "{name} is being changed to {}, and has not served since",
                record.release
            );
            return Err(Reason::of_backend("change-under-way", why));
        }
        Some(record) => (record.release.clone(), record.pin.clone()),
        None => {
            let pin = facts
                .pins
                .get(name)
                .map_or(Err("it was not asked for"), Fact::as_result);
            let pin =
                pin.map_err(|why| Reason::of_backend("pin-unknown", format!("the pin of {name}: {why}")))?;
            (config.installed.clone(), pin.clone())
        }
    };
    let place = table
        .find(&release)
        .map_err(|error| Reason::of_backend("release-unknown", format!("{name}: {error}")))?
        .place;
    let pin = match pin {
        None => None,
        Some(pin) => {
            let held_to = table.pin(place, &pin).ok_or_else(|| {
                let why =
                    format!("{name} on {release} is pinned to {pin:?}, which that release does not list");
                Reason::of_backend("pin-unknown", why)
            })?;
            Some((pin, held_to))
        }
    };
    let found = Runs { release, place, pin };
    match contradiction(service, facts, config, table, &found) {
        None => Ok(found),
        Some(why) => Err(Reason::of_backend("record-contradicted", why)),
    }
}

/// What a service says that cannot be, if it runs that.
fn contradiction(
    service: &Service<'_>,
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    runs: &Runs,
) -> Option<String> {
    let Runs { release, place, .. } = runs;
    let name = service.name;
    let told = || match runs.pinned_to() {
        Some(pin) => format!("{release} pinned to {}", table.name(pin)),
        None => release.clone(),
    };
    match service.role {
        ServiceRole::Api => {
            let Some(ApiReport::Offers(offered)) = facts.apis.get(name) else {
                return None;
            };
            let expected = table.api(*place, runs.pinned_to());
            (*offered != expected).then(|| {
                format!(
                    "{name} offers API {offered}, and {} offers {expected}: others have changed it",
                    told()
                )
            })
        }
        ServiceRole::Conductor => {
            let conductor = config
                .conductors
                .iter()
                .find(|conductor| conductor.name == name)?;
            let (registered, says) = registered(conductor, facts)?;
            // The row of one that is away is that of its last life.
            if !says {
                return None;
            }
            let row = facts.database.get()?.conductors.get(registered)?;
            let version = row.version.as_deref()?;
            let expected = table.conductor_row(*place, runs.pinned_to())?.to_string();
            // Online migrations raise the row of one that is pinned no more, and of nobody else.
            (version != expected).then(|| {
                format!(
                    "{name} has written its row as Conductor {version}, and {} writes {expected}: others have changed it",
                    told()
                )
            })
        }
    }
}

/// Under which name a conductor is registered now, and whether it is alive; `None`: under none, or nobody could tell.
pub fn registered<'a>(conductor: &'a Conductor, facts: &IronicFacts) -> Option<(&'a str, bool)> {
    let listed = facts.conductors.get()?;
    let names = [Some(&conductor.registered), conductor.also_registered.as_ref()];
    let mut found = names.into_iter().flatten().filter_map(|name| {
        let says = listed.get(name)?;
        Some((name.as_str(), says.alive))
    });
    // Of two rows that of the other name is one that it had.
    let first = found.next()?;
    if first.1 {
        Some(first)
    } else {
        found.find(|(_, alive)| *alive).or(Some(first))
    }
}

/// Whether a service serves, and why not.
pub fn serves(service: &Service<'_>, facts: &IronicFacts, config: &IronicConfig) -> (UnitState, String) {
    let own = match service.role {
        ServiceRole::Api => match facts.apis.get(service.name) {
            Some(ApiReport::Offers(_)) => None,
            Some(ApiReport::Away(why)) => Some((UnitState::Down, why.clone())),
            Some(ApiReport::Unclear(why)) => Some((UnitState::Unknown, why.clone())),
            None => Some((UnitState::Unknown, "it was not asked".to_owned())),
        },
        ServiceRole::Conductor => match &facts.conductors {
            Fact::No(why) => Some((UnitState::Unknown, why.clone())),
            Fact::Yes(_) => {
                let conductor = config.conductors.iter().find(|known| known.name == service.name);
                match conductor.and_then(|conductor| registered(conductor, facts)) {
                    Some((_, true)) => None,
                    Some((name, false)) => Some((UnitState::Down, format!("{name} is not alive"))),
                    None => Some((UnitState::Down, "Ironic does not list it".to_owned())),
                }
            }
        },
    };
    if let Some(found) = own {
        return found;
    }
    if service.servers.is_empty() {
        return (UnitState::Serving, String::new());
    }
    let shown = match &facts.balancer {
        Fact::No(why) => return (UnitState::Unknown, why.clone()),
        Fact::Yes(shown) => shown,
    };
    for server in service.servers {
        let says = shown.server(server);
        let state = match says.state {
            ServerState::Up => continue,
            ServerState::Down | ServerState::Drained => UnitState::Down,
            ServerState::Unclear => UnitState::Unknown,
        };
        return (state, format!("the balancer has {server} as {}", says.status));
    }
    (UnitState::Serving, String::new())
}
