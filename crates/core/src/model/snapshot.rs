//! The snapshot: everything observed of one cluster at one time.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Absent, Budgets, Bystander, Capacity, CapacityError, ClusterName, Condition, ConditionName, Drained,
    Interruption, Ix, Kind, Terms, Unit, UnitId, UnitState, Verdict,
};

/// All that was observed of one cluster at one time. Units are sorted as people count.
///
/// Copies share what they hold: what nothing has changed is observed again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "SnapshotDocument", into = "SnapshotDocument")]
pub struct Snapshot {
    cluster: ClusterName,
    observed_at: Timestamp,
    generation: String,
    units: Arc<Vec<Unit>>,
    budgets: Arc<Budgets>,
    recovered: Option<Arc<Budgets>>,
    conditions: Arc<BTreeMap<ConditionName, Condition>>,
    durations: Arc<BTreeMap<Kind, SignedDuration>>,
    capacity: Option<Arc<Capacity>>,
    terms: Arc<Terms>,
    absent: Vec<Absent>,
    interruptions: Vec<Interruption>,
    bystanders: Vec<Bystander>,
    drained: Vec<Drained>,
}

/// The document as stored and shown: `kind` and `version` first, so that a later release knows it.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct SnapshotDocument {
    kind: String,
    version: u32,
    cluster: ClusterName,
    observed_at: Timestamp,
    generation: String,
    units: Vec<Unit>,
    budgets: super::BudgetColumns,
    /// What may be down together once recovery is finished, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovered: Option<super::BudgetColumns>,
    conditions: Vec<Condition>,
    /// Seconds that one visit to a unit of that kind usually takes.
    #[serde(default)]
    durations: BTreeMap<Kind, i64>,
    /// What hosts carry, and what fits where.
    #[serde(default, rename = "rooms", skip_serializing_if = "Option::is_none")]
    capacity: Option<Capacity>,
    /// What its things are called, where not units, hosts and guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    terms: Option<Terms>,
    /// What the cluster's books name and nothing counts on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absent: Vec<Absent>,
    /// Services that are interrupted while units are down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    interruptions: Vec<Interruption>,
    /// Daemons that no stage is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    bystanders: Vec<Bystander>,
    /// Units that answer and are kept out of service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    drained: Vec<Drained>,
}

const DOCUMENT: &str = "snapshot";
const VERSION: u32 = 1;

/// A snapshot that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Two units of one name.
    #[error("two units are called {0}")]
    Twice(UnitId),
    /// The budgets speak of units that are not there, or their columns do not fit together.
    #[error("the budgets do not fit the units")]
    Budgets(#[source] super::BudgetError),
    /// A host of guests that is not among the units.
    #[error("the hosts do not fit the units")]
    Capacity(#[source] CapacityError),
    /// Another document, or one of a later version.
    #[error("this is a {kind} document of version {version}, and snapshots are read up to version {VERSION}")]
    Document {
        /// The kind found.
        kind: String,
        /// The version found.
        version: u32,
    },
}

impl Snapshot {
    /// A snapshot of these facts. `budgets` index `units` in the order given here; units are then
    /// sorted, and budgets follow.
    ///
    /// # Errors
    /// Two units of one name, or budgets whose members are not units.
    pub fn new(
        cluster: ClusterName,
        observed_at: Timestamp,
        generation: String,
        units: Vec<Unit>,
        budgets: Budgets,
        conditions: Vec<Condition>,
        durations: BTreeMap<Kind, SignedDuration>,
    ) -> Result<Self, SnapshotError> {
        budgets.fit(units.len()).map_err(SnapshotError::Budgets)?;
        let mut order: Vec<u32> = (0..units.len() as u32).collect();
        order.sort_by(|a, b| {
            units[*a as usize]
                .id
                .natural_key()
                .cmp(&units[*b as usize].id.natural_key())
        });
        let in_order = order.windows(2).all(|pair| pair[0] < pair[1]);
        let (units, budgets) = if in_order {
            (units, budgets)
        } else {
            let mut place = vec![0_u32; units.len()];
            for (new, old) in order.iter().enumerate() {
                place[*old as usize] = new as u32;
            }
            let mut slots: Vec<Option<Unit>> = units.into_iter().map(Some).collect();
            let sorted = order
                .iter()
                .filter_map(|old| slots[*old as usize].take())
                .collect();
            (sorted, budgets.renumbered(&place))
        };
        if let Some(pair) = units.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(SnapshotError::Twice(pair[0].id.clone()));
        }
        let conditions: BTreeMap<_, _> = conditions.into_iter().map(|c| (c.name.clone(), c)).collect();
        Ok(Self {
            cluster,
            observed_at,
            generation,
            units: Arc::new(units),
            budgets: Arc::new(budgets),
            recovered: None,
            conditions: Arc::new(conditions),
            durations: Arc::new(durations),
            capacity: None,
            terms: Arc::default(),
            absent: Vec::new(),
            interruptions: Vec::new(),
            bystanders: Vec::new(),
            drained: Vec::new(),
        })
    }

    /// The same with what its units carry.
    ///
    /// # Errors
    /// A host that is not a unit.
    pub fn with_capacity(mut self, capacity: Capacity) -> Result<Self, SnapshotError> {
        if let Some(host) = capacity
            .hosts()
            .iter()
            .find(|host| self.find(&host.unit).is_none())
        {
            return Err(SnapshotError::Capacity(CapacityError::NoUnit(host.unit.clone())));
        }
        self.capacity = Some(Arc::new(capacity));
        Ok(self)
    }

    /// The same with what its things are called.
    #[must_use]
    pub fn with_terms(mut self, terms: Terms) -> Self {
        self.terms = Arc::new(terms);
        self
    }

    /// The same with what may be down together once all that recovers by itself has done so: waves are planned by that,
    /// and no unit is ever stopped by it. `budgets` index `units` in the order of the snapshot.
    ///
    /// # Errors
    /// Members that are not units.
    pub fn with_recovered(mut self, budgets: Budgets) -> Result<Self, SnapshotError> {
        budgets.fit(self.units.len()).map_err(SnapshotError::Budgets)?;
        self.recovered = Some(Arc::new(budgets));
        Ok(self)
    }

    /// The same snapshot with members that the cluster's records name and nothing counts on. A unit is never
    /// absent.
    #[must_use]
    pub fn with_absent(mut self, absent: impl IntoIterator<Item = Absent>) -> Self {
        let mut absent: Vec<Absent> = absent
            .into_iter()
            .filter(|absent| self.find(&absent.unit).is_none())
            .collect();
        absent.sort_by(|a, b| a.unit.natural_key().cmp(&b.unit.natural_key()));
        absent.dedup_by(|later, first| later.unit == first.unit);
        self.absent = absent;
        self
    }

    /// The same snapshot with the services that are interrupted while units are down.
    #[must_use]
    pub fn with_interruptions(mut self, interruptions: impl IntoIterator<Item = Interruption>) -> Self {
        self.interruptions = interruptions.into_iter().collect();
        self.interruptions.sort();
        self
    }

    /// The same with daemons that no stage is for.
    #[must_use]
    pub fn with_bystanders(mut self, bystanders: impl IntoIterator<Item = Bystander>) -> Self {
        self.bystanders = bystanders.into_iter().collect();
        self.bystanders.sort();
        self
    }

    /// The same snapshot with units that answer and are kept out of service. Names that are no units are
    /// ignored.
    #[must_use]
    pub fn with_drained(mut self, drained: impl IntoIterator<Item = Drained>) -> Self {
        let is_unit = |drained: &Drained| self.find(&drained.unit).is_some();
        let mut drained: Vec<Drained> = drained.into_iter().filter(is_unit).collect();
        drained.sort();
        self.drained = drained;
        self
    }

    /// The same with what others measure of the cluster. It stands in place of a fact of the same name.
    #[must_use]
    pub fn with_conditions(mut self, measured: impl IntoIterator<Item = Condition>) -> Self {
        let named = measured
            .into_iter()
            .map(|condition| (condition.name.clone(), condition));
        Arc::make_mut(&mut self.conditions).extend(named);
        self
    }

    /// The same, observed once more at that time, when nothing had changed.
    #[must_use]
    pub fn reobserved_at(mut self, at: Timestamp) -> Self {
        self.observed_at = at;
        self
    }

    /// The same with these units serving.
    #[must_use]
    pub(crate) fn serving(mut self, units: &[UnitId]) -> Self {
        let all = Arc::make_mut(&mut self.units);
        for unit in all.iter_mut().filter(|unit| units.contains(&unit.id)) {
            unit.state = UnitState::Serving;
        }
        self
    }

    /// What its units carry, if they are hosts of guests.
    pub fn capacity(&self) -> Option<&Capacity> {
        self.capacity.as_deref()
    }

    /// What its things are called.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What the cluster's books name and nothing counts on, sorted as people count.
    pub fn absent(&self) -> &[Absent] {
        &self.absent
    }

    /// Services that are interrupted while units are down, by name.
    pub fn interruptions(&self) -> &[Interruption] {
        &self.interruptions
    }

    /// Daemons that no stage is for.
    pub fn bystanders(&self) -> &[Bystander] {
        &self.bystanders
    }

    /// Units that answer and are kept out of service, by name. They are down.
    pub fn drained(&self) -> &[Drained] {
        &self.drained
    }

    /// Which cluster.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// When the observation began.
    pub fn observed_at(&self) -> Timestamp {
        self.observed_at
    }

    /// The world's own name for this state: `osdmap 175`.
    pub fn generation(&self) -> &str {
        &self.generation
    }

    /// All units, sorted as people count.
    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    /// The unit at that place.
    pub fn unit(&self, ix: Ix) -> &Unit {
        &self.units[ix.at()]
    }

    /// The place of that unit.
    pub fn find(&self, id: &UnitId) -> Option<Ix> {
        let wanted = id.natural_key();
        self.units
            .binary_search_by(|unit| unit.id.natural_key().cmp(&wanted))
            .ok()
            .map(|at| Ix(at as u32))
    }

    /// What may be down together now.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The budgets as they will be once all recovery has finished: plans use these. A run waits at its gates
    /// for the recovery, and [`Snapshot::budgets`] decides for each unit.
    pub fn budgets_once_recovered(&self) -> &Budgets {
        self.recovered.as_deref().unwrap_or(&self.budgets)
    }

    /// Whether it recovers by itself, so that other things may be down together later than now.
    pub fn recovers(&self) -> bool {
        self.recovered.is_some()
    }

    /// The conditions by name.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.values()
    }

    /// That condition; one that was not observed is unknown.
    pub fn condition(&self, name: &ConditionName) -> Condition {
        self.conditions
            .get(name)
            .cloned()
            .unwrap_or_else(|| Condition::new(name.clone(), Verdict::Unknown, "not observed"))
    }

    /// How long one visit to a unit of that kind usually takes, if it was measured or given.
    pub fn duration(&self, kind: &Kind) -> Option<SignedDuration> {
        self.durations.get(kind).copied()
    }

    /// The units of that kind.
    pub fn of_kind<'a>(&'a self, kind: &'a Kind) -> impl Iterator<Item = (Ix, &'a Unit)> {
        self.units
            .iter()
            .enumerate()
            .filter(move |(_, u)| u.kind == *kind)
            .map(|(at, u)| (Ix(at as u32), u))
    }

    /// The units that do not serve now, whatever the cause; unknown counts as down.
    pub fn down(&self) -> super::Down {
        super::Down::of(self.units.iter().map(|unit| unit.state != UnitState::Serving))
    }

    /// SHA-256 of the document, in hexadecimal: what a journal keeps of a snapshot.
    pub fn digest(&self) -> String {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        hex(&Sha256::digest(bytes))
    }
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl TryFrom<SnapshotDocument> for Snapshot {
    type Error = SnapshotError;
    fn try_from(document: SnapshotDocument) -> Result<Self, SnapshotError> {
        let SnapshotDocument {
            kind,
            version,
            cluster,
            observed_at,
            generation,
            units,
            budgets,
            recovered,
            conditions,
            durations,
            capacity,
            terms,
            absent,
            interruptions,
            bystanders,
            drained,
        } = document;
        if kind != DOCUMENT || version > VERSION {
            return Err(SnapshotError::Document { kind, version });
        }
        let budgets = Budgets::try_from(budgets).map_err(SnapshotError::Budgets)?;
        let durations = durations
            .into_iter()
            .map(|(k, s)| (k, SignedDuration::from_secs(s)))
            .collect();
        let mut snapshot = Self::new(
            cluster,
            observed_at,
            generation,
            units,
            budgets,
            conditions,
            durations,
        )?
        .with_absent(absent)
        .with_interruptions(interruptions)
        .with_bystanders(bystanders)
        .with_drained(drained)
        .with_terms(terms.unwrap_or_default());
        if let Some(recovered) = recovered {
            let recovered = Budgets::try_from(recovered).map_err(SnapshotError::Budgets)?;
            snapshot = snapshot.with_recovered(recovered)?;
        }
        match capacity {
            Some(capacity) => snapshot.with_capacity(capacity),
            None => Ok(snapshot),
        }
    }
}

impl From<Snapshot> for SnapshotDocument {
    fn from(snapshot: Snapshot) -> Self {
        let Snapshot {
            cluster,
            observed_at,
            generation,
            units,
            budgets,
            recovered,
            conditions,
            durations,
            capacity,
            terms,
            absent,
            interruptions,
            bystanders,
            drained,
        } = snapshot;
        Self {
            kind: DOCUMENT.to_owned(),
            version: VERSION,
            cluster,
            observed_at,
            generation,
            units: Arc::unwrap_or_clone(units),
            budgets: Arc::unwrap_or_clone(budgets).into(),
            recovered: recovered.map(|recovered| Arc::unwrap_or_clone(recovered).into()),
            conditions: Arc::unwrap_or_clone(conditions).into_values().collect(),
            durations: durations.iter().map(|(k, d)| (k.clone(), d.as_secs())).collect(),
            capacity: capacity.map(Arc::unwrap_or_clone),
            terms: Some(Arc::unwrap_or_clone(terms)).filter(|terms| *terms != Terms::default()),
            absent,
            interruptions,
            bystanders,
            drained,
        }
    }
}
