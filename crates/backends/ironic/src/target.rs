//! From the wanted release to the stages and steps that lead there.
//!
//! The order is that of Ironic's own design of rolling upgrades: the ramdisk first, then the schema, then new
//! code pinned to the old release, conductors before API services; then the removal of the pins in the same
//! order; then the online data migrations, and finally the clients of Ironic. The schema upgrade and the
//! unpin are points of no return.

use jiff::SignedDuration;
use stagger_core::model::{
    ConditionName, Door, Gate, GoingBack, IdError, Kind, Part, PartName, Phase, Policy, Reason, Revision,
    StageSpec, StepSpec, Target, Width,
};
use stagger_versioned::manifest::Named;

use stagger_engine::cluster::Refusal;

use crate::conditions::{
    APIS_SERVE, BACKED_UP, CONDUCTORS_SERVE, CONDUCTORS_UNPINNED, DATABASE_ANSWERS, NO_OLD_SERVICE,
    NODES_STABLE, PINNED, PREPARED, ROWS_CURRENT, ROWS_HAVE_VERSIONS, ROWS_READABLE, SCHEMA_UPGRADED,
    SERVICES_KNOWN, UNPIN_BEGUN, UNPINNED,
};
use crate::config::{IronicConfig, NodesInFlight, ServiceRole, StopMode};
use crate::facts::IronicFacts;
use crate::goal::{UpgradeGoal, WantedRelease};
use crate::refusal::accept_upgrade;
use crate::releases::Releases;
use crate::running_releases::revision;

/// The names of the steps and stages.
pub mod part {
    /// The hook before all else.
    pub const BEFORE: &str = "before";
    /// The ramdisk image with the agent.
    pub const RAMDISK: &str = "ramdisk";
    /// `ironic-status upgrade check`.
    pub const CHECK: &str = "check";
    /// Ironic's database is saved.
    pub const BACKUP: &str = "backup";
    /// `ironic-dbsync upgrade`.
    pub const SCHEMA: &str = "schema";
    /// The pins are written.
    pub const PIN: &str = "pin";
    /// New code for the conductors.
    pub const CONDUCTORS: &str = "conductors";
    /// New code for the API services.
    pub const APIS: &str = "apis";
    /// From here on pins are taken away.
    pub const UNPIN: &str = "unpin";
    /// Conductors without a pin.
    pub const UNPIN_CONDUCTORS: &str = "unpin-conductors";
    /// No conductor has one.
    pub const VERIFY: &str = "verify-conductors";
    /// API services without a pin.
    pub const UNPIN_APIS: &str = "unpin-apis";
    /// The online data migrations.
    pub const MIGRATE: &str = "migrate";
    /// Clients, and the services that use Ironic.
    pub const CLIENTS: &str = "clients";
    /// The hook after all.
    pub const AFTER: &str = "after";
}

/// An upgrade that nothing speaks against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// What a run keeps of it.
    pub goal: UpgradeGoal,
    /// The stages and steps.
    pub target: Target,
}

/// The way to the release that is wanted, from what runs now.
///
/// # Errors
/// All reasons why nothing should be begun, not only the first.
pub fn upgrade(
    facts: &IronicFacts,
    config: &IronicConfig,
    table: &Releases,
    wanted: &WantedRelease,
    policy: &Policy,
) -> Result<Upgrade, Refusal> {
    let reason = |error: IdError| Refusal(vec![Reason::of_backend("bad-name", error.to_string())]);
    let judged = accept_upgrade(facts, config, table, wanted, policy)?;
    let compiler = Compiler {
        config,
        table,
        policy,
        goal: &judged.goal,
        from: judged.from,
        to: judged.to,
    };
    let target = compiler.target().map_err(reason)?;
    Ok(Upgrade {
        goal: judged.goal,
        target,
    })
}

struct Compiler<'a> {
    config: &'a IronicConfig,
    table: &'a Releases,
    policy: &'a Policy,
    goal: &'a UpgradeGoal,
    from: Named,
    to: Named,
}

impl Compiler<'_> {
    fn target(&self) -> Result<Target, IdError> {
        let UpgradeGoal { to, from, .. } = self.goal;
        let mut parts = Vec::new();
        let hooks = &self.config.hooks;
        if hooks.before.is_some() {
            parts.push(self.notice(
                part::BEFORE,
                "before-done",
                "the hook `before`: what comes before Ironic",
            )?);
        }
        if self.from.place == self.to.place {
            // A patch speaks and writes as the release does: nothing is to be held to anything.
            let revision = revision(to, None)?;
            parts.push(self.code(part::CONDUCTORS, "conductor", &revision)?);
            parts.push(self.code(part::APIS, "api", &revision)?);
        } else {
            self.full_upgrade(&mut parts)?;
        }
        if hooks.after.is_some() {
            parts.push(self.notice(part::AFTER, "after-done", "the hook `after`")?);
        }
        Ok(Target {
            title: format!("ironic {from} to {to}"),
            parts,
            only: None,
        })
    }

    fn full_upgrade(&self, parts: &mut Vec<Part>) -> Result<(), IdError> {
        let UpgradeGoal { to, pin, .. } = self.goal;
        let older = self.table.name(self.from.place);
        parts.push(self.ramdisk()?);
        if self.config.tools.check.is_some() {
            let why = format!("`ironic-status upgrade check` of {to}, which is shown");
            parts.push(self.notice(part::CHECK, "checked", &why)?);
        }
        if self.config.tools.backup_command().is_some() {
            let why = "Ironic's database is saved: Ironic cannot downgrade its schema";
            parts.push(self.step(part::BACKUP, BACKED_UP, &[DATABASE_ANSWERS], None, why.to_owned())?);
        }
        parts.push(self.schema()?);
        let way = self.config.stopping.way.cost();
        let known = self.table.fails(self.from.place, self.to.place);
        let known = known.map_or_else(String::new, |known| format!(". Known: {known}"));
        parts.push(self.step(
            part::PIN,
            PINNED,
            &[SCHEMA_UPGRADED, SERVICES_KNOWN],
            None,
            format!("every start from here on is held to {pin}. A conductor is stopped so: {way}{known}"),
        )?);
        let held = revision(to, Some(&older))?;
        parts.push(self.code(part::CONDUCTORS, "conductor", &held)?);
        parts.push(self.code(part::APIS, "api", &held)?);
        parts.push(self.unpin()?);
        let free = revision(to, None)?;
        parts.push(self.free(part::UNPIN_CONDUCTORS, "conductor", &free)?);
        // A step lets nobody past who was left alone: an API without a pin takes what a pinned conductor drops.
        parts.push(self.step(
            part::VERIFY,
            CONDUCTORS_UNPINNED,
            &[],
            None,
            "no conductor is pinned any more before an API is not".to_owned(),
        )?);
        parts.push(self.free(part::UNPIN_APIS, "api", &free)?);
        parts.push(self.step(
            part::MIGRATE,
            ROWS_CURRENT,
            &[UNPINNED, ROWS_HAVE_VERSIONS, DATABASE_ANSWERS],
            None,
            format!(
                "brings rows of older versions up, {} at a time",
                self.config.tools.batch
            ),
        )?);
        let why = match self.config.hooks.clients {
            Some(_) => "the hook `clients`: clients, and what uses Ironic",
            None => "now clients may be upgraded, and what uses Ironic, as Nova",
        };
        parts.push(self.notice(part::CLIENTS, "clients-told", why)?);
        Ok(())
    }

    fn gates(&self, names: &[&str]) -> Result<Vec<Gate>, IdError> {
        let gate = |name: &&str| {
            Ok(Gate {
                condition: ConditionName::new(*name)?,
                hold: SignedDuration::from_secs(i64::from(self.policy.gate_hold)),
                timeout: SignedDuration::from_secs(i64::from(self.policy.gate_timeout)),
            })
        };
        names.iter().map(gate).collect()
    }

    /// Nodes in flight are waited for before what cannot be undone, unless they are accepted.
    fn gated_by_nodes(&self, step: Part) -> Result<Part, IdError> {
        let in_flight = &self.config.in_flight;
        match step {
            Part::Step(mut step) if in_flight.nodes != NodesInFlight::Accept => {
                let seconds = i64::try_from(in_flight.timeout).unwrap_or(i64::MAX);
                step.before.push(Gate {
                    condition: ConditionName::new(NODES_STABLE)?,
                    hold: SignedDuration::ZERO,
                    timeout: SignedDuration::from_secs(seconds),
                });
                Ok(Part::Step(step))
            }
            other @ (Part::Step(_) | Part::Stage(_)) => Ok(other),
        }
    }

    fn step(
        &self,
        name: &str,
        done: &str,
        before: &[&str],
        door: Option<String>,
        why: String,
    ) -> Result<Part, IdError> {
        let door = match door {
            Some(why) => Some(Door {
                name: PartName::new(name)?,
                why,
            }),
            None => None,
        };
        Ok(Part::Step(StepSpec {
            name: PartName::new(name)?,
            done_when: ConditionName::new(done)?,
            before: self.gates(before)?,
            door,
            why,
        }))
    }

    /// Something that others do, or that is only told.
    fn notice(&self, name: &str, done: &str, why: &str) -> Result<Part, IdError> {
        self.step(name, done, &[], None, why.to_owned())
    }

    fn ramdisk(&self) -> Result<Part, IdError> {
        let hooks = &self.config.hooks;
        let to = &self.goal.to;
        // Nobody but a person knows about an image that stagger does not bring there: the word is asked for.
        let by_hand = hooks.ramdisk.is_none() && !hooks.ramdisk_is_done;
        let door = by_hand.then(|| {
            format!(
                "the ramdisk image with the agent is of {to}: bring it there by hand, then say so by passing this; \
                 an older agent may not understand the new conductors"
            )
        });
        let why = format!("the ramdisk image with the agent is of {to} before Ironic");
        self.step(part::RAMDISK, "ramdisk-upgraded", &[DATABASE_ANSWERS], door, why)
    }

    fn schema(&self) -> Result<Part, IdError> {
        let UpgradeGoal { to, from, .. } = self.goal;
        let door = format!(
            "Ironic cannot downgrade its schema: services of {from} continue to work on that of {to}, their tools do not"
        );
        let why = format!("`ironic-dbsync upgrade` of {to}, under services of {from}");
        let step = self.step(
            part::SCHEMA,
            SCHEMA_UPGRADED,
            &[
                DATABASE_ANSWERS,
                ROWS_HAVE_VERSIONS,
                SERVICES_KNOWN,
                CONDUCTORS_SERVE,
                APIS_SERVE,
                PREPARED,
            ],
            Some(door),
            why,
        )?;
        self.gated_by_nodes(step)
    }

    fn unpin(&self) -> Result<Part, IdError> {
        let UpgradeGoal { to, from, .. } = self.goal;
        let door = format!(
            "from the first service without a pin on rows are written that {from} cannot read, and one such row \
             breaks its lists: no rollback to {from} after it"
        );
        let renames = self.table.renames(self.from.place, self.to.place);
        let why = if renames {
            "each conductor is registered by another name without its pin: the hash ring is shuffled, and nodes \
             change their conductor"
                .to_owned()
        } else {
            format!("from here on services of {to} write as {to} does")
        };
        let step = self.step(
            part::UNPIN,
            UNPIN_BEGUN,
            &[
                NO_OLD_SERVICE,
                SERVICES_KNOWN,
                CONDUCTORS_SERVE,
                APIS_SERVE,
                ROWS_READABLE,
            ],
            Some(door),
            why,
        )?;
        self.gated_by_nodes(step)
    }

    /// New code, held to the old release: up to the unpin a service goes back by a start of the old code.
    fn code(&self, name: &str, kind: &str, revision: &Revision) -> Result<Part, IdError> {
        let gates = [CONDUCTORS_SERVE, APIS_SERVE, ROWS_READABLE, PREPARED];
        self.stage(name, kind, revision, &gates, GoingBack::Restart)
    }

    /// The same code without its pin.
    fn free(&self, name: &str, kind: &str, revision: &Revision) -> Result<Part, IdError> {
        let gates = [CONDUCTORS_SERVE, APIS_SERVE, ROWS_READABLE, PREPARED];
        let why = format!("rows that {} cannot read may have been written", self.goal.from);
        self.stage(name, kind, revision, &gates, GoingBack::Impossible { why })
    }

    /// Conductors of several rings go together, if each is drained by itself. Otherwise one goes at a time: what holds all
    /// requests, or writes into Ironic's table, is not done for two at once.
    fn width(&self, kind: &str) -> Width {
        if kind == ServiceRole::Conductor.as_str() && self.config.stopping.way == StopMode::Drain {
            Width::Policy
        } else {
            Width::Single
        }
    }

    fn stage(
        &self,
        name: &str,
        kind: &str,
        revision: &Revision,
        gates: &[&str],
        going_back: GoingBack,
    ) -> Result<Part, IdError> {
        Ok(Part::Stage(StageSpec {
            name: PartName::new(name)?,
            kind: Kind::new(kind)?,
            revision: revision.clone(),
            width: self.width(kind),
            phases: Phase::all(),
            guards: Vec::new(),
            gates: self.gates(gates)?,
            door_before_last: None,
            may_be_left: false,
            going_back,
            maintenance: None,
        }))
    }
}
