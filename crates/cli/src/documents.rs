//! Every document that `--json` prints: its name, its version, and its schema.
//!
//! `cargo xtask generate` writes the schemas into `docs/reference/schemas/`. A field that is removed or
//! changes its meaning takes a new version; a new optional field does not.

pub(crate) mod leftovers;
mod rehearsal;
mod risks;
mod serve;
mod stores;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use stagger_asks::view::AskDocument;
use stagger_core::check::Finding as Fault;
use stagger_core::explain::Explanation;
use stagger_core::model::{RunId, Snapshot, UnitId, UnitState};
use stagger_core::plan::Plan;
use stagger_core::releases::{self, Own};
use stagger_core::run::Entry;
use stagger_core::view::{RunView, Schema};
use stagger_engine::inventory::Inventory;
use stagger_engine::preflight::Check;
use stagger_report::forecast::RunForecast;
use stagger_risks::RiskFinding;
use stagger_rook::client::status::MaintenanceStatus;
use stagger_versioned::chain::Unreadable;

use crate::error::CliError;

pub(crate) use rehearsal::{Case, Exposure, Guests, Rehearsal, RehearsalOutcome, RehearsalRisk, Time};
pub(crate) use risks::{KnownRisks, RiskRow};
pub(crate) use serve::{AskRows, TokenList, TokenRow};
pub(crate) use stores::{
    BrokenRule, LintReport, MigrationReport, MigrationRows, StoreReport, StoredRows, TableLock, WaivedRule,
};

/// What one document is called, and which version of it is printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name(&'static str, u32);

/// `observe`
pub(crate) const SNAPSHOT: Name = Name("snapshot", 1);
/// `plan`, and the file of `plan --out`
pub(crate) const PLAN: Name = Name(Plan::DOCUMENT, Plan::VERSION);
/// `check`
pub(crate) const CHECK: Name = Name("check", 1);
/// `versions`
pub(crate) const VERSIONS: Name = Name("versions", 1);
/// `status` of what an operator sees to, and what commands to it end with
pub(crate) const ROOK_STATUS: Name = Name("rook-status", 1);
/// `status` of a cluster of Rook's that nobody maintains
pub(crate) const ROOK_UNMANAGED: Name = Name("rook-unmanaged", 1);
/// `versions` of a cluster of Rook's
pub(crate) const ROOK_VERSIONS: Name = Name("rook-versions", 1);
/// A line of `history RUN`
pub(crate) const EVENT: Name = Name("event", 1);
/// `verify`
pub(crate) const VERIFICATION: Name = Name("verification", 1);
/// `explain`
pub(crate) const EXPLANATION: Name = Name("explanation", 1);
/// `simulate` with a goal
pub(crate) const REHEARSAL: Name = Name("rehearsal", 1);
/// `simulate` of a scenario, `demo`
pub(crate) const SIMULATION: Name = Name("simulation", 1);
/// `ceph ok-to-stop`
pub(crate) const OK_TO_STOP: Name = Name("ceph-ok-to-stop", 1);
/// `ceph guards`
pub(crate) const GUARDS: Name = Name("ceph-guards", 1);
/// `ganeti recover`
pub(crate) const LEFTOVERS: Name = Name("ganeti-leftovers", 1);
/// `artifacts`
pub(crate) const ARTIFACTS: Name = Name("artifacts", 1);
/// `lint migrations`
pub(crate) const LINT: Name = Name("lint-migrations", 1);
/// `db upgrade`, `db version`, `db check`
pub(crate) const STORE: Name = Name("store", 1);
/// `db online-data-migrations`
pub(crate) const MIGRATED: Name = Name("online-data-migrations", 1);
/// `config check`
pub(crate) const CONFIG_CHECK: Name = Name("config-check", 1);
/// `token list`
pub(crate) const TOKENS: Name = Name("tokens", 1);
/// `ask`
pub(crate) const ASK: Name = Name("ask", 1);
/// `ask list`, `ask done`
pub(crate) const ASKS: Name = Name("asks", 1);
/// `risks`
pub(crate) const RISKS: Name = Name("risks", 1);
/// `reason`
pub(crate) const REASONS: Name = Name("reasons", 1);
/// Any command that fails
pub(crate) const ERROR: Name = Name("error", 1);
/// `status`, and a line of `history`; the core makes it with its schema.
const RUN: Name = Name("run", RunView::VERSION);
/// The file of `observe --save`
const INVENTORY: Name = Name(Inventory::SCHEMA, Inventory::VERSION);

/// What `plan` prints with `--json`, and what `plan --out` writes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PlanFile<'a> {
    /// The plan.
    #[serde(flatten)]
    pub(crate) plan: &'a Plan,
    /// The flags with which `stagger run` makes it again.
    #[schemars(default)]
    pub(crate) flags: Vec<String>,
    /// Known risks of the way to its target, those that apply first.
    #[serde(skip_serializing_if = "<[RiskFinding]>::is_empty")]
    #[schemars(default)]
    pub(crate) risks: &'a [RiskFinding],
    /// How long it takes by earlier runs of the cluster; absent: nothing is known of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) learned: Option<RunForecast>,
}

/// `check`: what the judge says of a plan.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CheckReport {
    /// The plan's id.
    pub(crate) plan: String,
    /// Whether there are no findings.
    pub(crate) sound: bool,
    /// Every fault that was found.
    pub(crate) findings: Vec<Fault>,
    /// Known risks of the way to its target, those that apply first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(crate) risks: Vec<RiskFinding>,
}

/// `versions`: who runs what.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Versions {
    /// One row for each kind and revision.
    pub(crate) versions: Vec<VersionRow>,
    /// One row for each service of Ironic: what a release and a pin come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) services: Vec<ServiceRow>,
}

/// What a service of Ironic runs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServiceRow {
    /// Its unit.
    pub(crate) unit: UnitId,
    /// Whether it serves.
    pub(crate) state: UnitState,
    /// The release with its patch; absent where it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) release: Option<String>,
    /// The older release that it is held to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pin: Option<String>,
    /// The highest version of the API that it offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api: Option<String>,
    /// The highest version of the RPC that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rpc_cap: Option<String>,
    /// In which version it writes each object.
    pub(crate) objects: BTreeMap<String, String>,
    /// Why it is unknown, or why it does not serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

/// The units of one kind that run the same.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionRow {
    /// Their kind.
    pub(crate) kind: String,
    /// What they run; `unknown` where it is not known.
    pub(crate) revision: String,
    /// How many they are.
    pub(crate) count: usize,
    /// Which.
    pub(crate) units: Vec<UnitId>,
}

/// `simulate` of a scenario: how it ended, and what was true meanwhile.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Simulation {
    /// How it ended, in words.
    pub(crate) ending: String,
    /// Waves that were carried out.
    pub(crate) waves: u32,
    /// Waves of the first plan.
    pub(crate) planned_waves: usize,
    /// Units that serve on something else than before.
    pub(crate) units: usize,
    /// How long the first plan said that it takes.
    pub(crate) forecast_seconds: i64,
    /// How long it took on the cluster's clock.
    pub(crate) took_seconds: i64,
    /// Events in the journal.
    pub(crate) events: u64,
    /// Daemons that were stopped.
    pub(crate) stops: u32,
    /// Stops that were unsafe by the truth, in words.
    pub(crate) unsafe_stops: Vec<String>,
    /// All that the truth found against the run, each with its class.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<String>,
    /// Lies that no honest tool could have known.
    pub(crate) undetectable_lies: u32,
    /// Guards that were not cleared.
    pub(crate) guards_left: Vec<String>,
    /// Which run, in the journal.
    pub(crate) run: RunId,
    /// Where the journal is.
    pub(crate) journal: PathBuf,
}

/// A guard that is held in the cluster, whatever took it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeldGuard {
    /// Its name.
    pub(crate) guard: String,
    /// What it changed, if not the whole cluster: OSDs, or file systems.
    pub(crate) on: Vec<String>,
    /// Which run took it.
    pub(crate) run: String,
    /// When it goes by itself.
    #[schemars(with = "String")]
    pub(crate) until: Timestamp,
    /// Others had set it before, and it is left to them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    pub(crate) by_others: bool,
}

impl From<stagger_ceph::guards::CephHeldGuard> for HeldGuard {
    fn from(held: stagger_ceph::guards::CephHeldGuard) -> Self {
        Self {
            by_others: held.on.is_empty(),
            guard: held.guard,
            on: held.on,
            run: held.run,
            until: held.until,
        }
    }
}

impl From<stagger_ganeti::guards::GanetiHeldGuard> for HeldGuard {
    fn from(held: stagger_ganeti::guards::GanetiHeldGuard) -> Self {
        Self {
            guard: held.guard,
            on: Vec::new(),
            run: held.run,
            until: Timestamp::from_second(held.until).unwrap_or(Timestamp::MAX),
            by_others: held.by_others,
        }
    }
}

/// `guards`: what runs hold in the cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Guards {
    /// Each guard.
    pub(crate) guards: Vec<HeldGuard>,
}

/// `artifacts`: what was gathered of a run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArtifactList {
    /// Of which run.
    pub(crate) run: RunId,
    /// Where it is.
    pub(crate) folder: PathBuf,
    /// The files, from that folder on.
    pub(crate) files: Vec<PathBuf>,
    /// The file into which all was packed, if that was asked.
    pub(crate) bundle: Option<PathBuf>,
}

/// `config check`: whether a run would have what it needs.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigReport {
    /// Whether nothing failed.
    pub(crate) can_run: bool,
    /// Each thing that was looked at.
    pub(crate) checks: Vec<Check>,
}

/// `reason`: what the book says of reasons.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reasons {
    /// Each, or the one that was asked for.
    pub(crate) reasons: Vec<ReasonRow>,
}

/// A reason of a refusal, of a hold, or why a unit is skipped.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReasonRow {
    /// Its stable word.
    pub(crate) reason: String,
    /// What it means, what to look at, and what ends it.
    pub(crate) text: String,
}

/// Why a command failed.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorReport<'a> {
    /// The exit code.
    pub(crate) exit: u8,
    /// What was tried, and why it failed.
    pub(crate) error: &'a str,
    /// What is behind it, outermost first.
    pub(crate) causes: &'a [String],
    /// What to do.
    pub(crate) hints: &'a [String],
}

impl<'a> ErrorReport<'a> {
    /// What is told to scripts.
    pub(crate) fn of(error: &'a CliError) -> Self {
        Self {
            exit: error.exit.code(),
            error: &error.message,
            causes: &error.causes,
            hints: &error.hints,
        }
    }
}

/// A document with its name and version before it.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    schema: Schema,
    #[serde(flatten)]
    body: &'a T,
}

impl Name {
    /// That document.
    pub(crate) fn of<T: Serialize>(self, body: &T) -> Document<'_, T> {
        Document {
            schema: Schema {
                name: self.0.to_owned(),
                version: self.1,
            },
            body,
        }
    }

    /// Reads a document in the version that it has. Earlier builds stored it without its name and version.
    pub(crate) fn read<T: Own>(self, path: &Path, text: &str) -> Result<T, CliError> {
        let Self(name, newest) = self;
        let shown = path.display();
        let wrong = |why: String| CliError::usage(format!("{shown} is not a {name}: {why}"));
        let mut value: Map<String, Value> = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let mut number = None;
        if let Some(schema) = value.remove("schema") {
            let found: Schema = serde_json::from_value(schema).map_err(|e| wrong(e.to_string()))?;
            if found.name != name {
                return Err(wrong(format!("it is a document {:?}", found.name)));
            }
            if found.version > newest {
                return Err(wrong(format!(
                    "it is of version {}, and this program reads up to version {newest}",
                    found.version
                ))
                .hint("use the release that wrote it, or a later one"));
            }
            number = Some(found.version);
        }
        releases::document(number, value).map_err(|unreadable| match unreadable {
            Unreadable::Malformed { why, .. } => wrong(why),
            other => wrong(other.to_string()),
        })
    }

    fn schema<T: JsonSchema>(self, about: &str) -> Value {
        let Self(name, version) = self;
        let mut schema = SchemaSettings::draft2020_12()
            .for_serialize()
            .into_generator()
            .into_root_schema_for::<T>();
        let head = json_schema!({
            "description": "What this document is.",
            "type": "object",
            "properties": { "name": { "const": name }, "version": { "const": version } },
            "required": ["name", "version"],
            "additionalProperties": false,
        });
        let fields = schema.ensure_object();
        fields.insert("title".to_owned(), name.into());
        fields.insert("description".to_owned(), about.into());
        if let Some(properties) = fields
            .entry("properties")
            .or_insert_with(|| Map::new().into())
            .as_object_mut()
        {
            properties.insert("schema".to_owned(), head.to_value());
        }
        if let Some(required) = fields
            .entry("required")
            .or_insert_with(|| Vec::<Value>::new().into())
            .as_array_mut()
            && !required.contains(&"schema".into())
        {
            required.insert(0, "schema".into());
        }
        // All that this release prints.
        if !fields.contains_key("additionalProperties") {
            fields.insert("unevaluatedProperties".to_owned(), false.into());
        }
        schema.to_value()
    }
}

/// Which fields a schema permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaFields {
    /// Also those that later releases may add: for readers.
    Any,
    /// Those of this release alone: for tests of what it prints.
    OfThisRelease,
}

/// All schemas by the name of their document.
pub(crate) fn schemas(fields: SchemaFields) -> Vec<(&'static str, Value)> {
    let mut all = current_documents();
    if fields == SchemaFields::Any {
        for (_, schema) in &mut all {
            permit_new_fields(schema);
        }
    }
    all
}

/// Takes away what forbids fields that are not named.
fn permit_new_fields(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.retain(|key, value| {
                !(matches!(key.as_str(), "additionalProperties" | "unevaluatedProperties")
                    && *value == Value::Bool(false))
            });
            object.values_mut().for_each(permit_new_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(permit_new_fields),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn current_documents() -> Vec<(&'static str, Value)> {
    vec![
        (ARTIFACTS.0, ARTIFACTS.schema::<ArtifactList>("`artifacts --json`")),
        (
            INVENTORY.0,
            INVENTORY.schema::<Inventory>("The file that `observe --save` writes and `--from` reads."),
        ),
        (
            LINT.0,
            LINT.schema::<LintReport>("`lint migrations --json`"),
        ),
        (
            MIGRATED.0,
            MIGRATED.schema::<MigrationReport>("`db online-data-migrations --json`"),
        ),
        (
            STORE.0,
            STORE.schema::<StoreReport>("`db upgrade --json`, `db version --json`, `db check --json`"),
        ),
        (
            OK_TO_STOP.0,
            OK_TO_STOP.schema::<stagger_ceph::oktostop::OkToStopReport<'_>>(
                "`ceph ok-to-stop --json`: the fields of Ceph's own answer, and ours beside them.",
            ),
        ),
        (GUARDS.0, GUARDS.schema::<Guards>("`ceph guards --json`, `ganeti guards --json`")),
        (
            LEFTOVERS.0,
            LEFTOVERS.schema::<leftovers::Leftovers>("`ganeti recover --json`"),
        ),
        (ASK.0, ASK.schema::<AskDocument>("`ask --json`")),
        (ASKS.0, ASKS.schema::<AskRows>("`ask list --json`, `ask done --json`")),
        (CHECK.0, CHECK.schema::<CheckReport>("`check --json`")),
        (
            ERROR.0,
            ERROR.schema::<ErrorReport<'_>>("What a command that fails prints with `--json`."),
        ),
        (EVENT.0, EVENT.schema::<Entry>("A line of `history RUN --json`.")),
        (
            VERIFICATION.0,
            VERIFICATION.schema::<stagger_report::Verification>("`verify --json`"),
        ),
        (
            EXPLANATION.0,
            EXPLANATION.schema::<Explanation>("`explain --json`"),
        ),
        (
            PLAN.0,
            PLAN.schema::<PlanFile<'_>>("`plan --json`, and the file of `plan --out`."),
        ),
        (
            CONFIG_CHECK.0,
            CONFIG_CHECK.schema::<ConfigReport>("`config check --json`"),
        ),
        (RISKS.0, RISKS.schema::<KnownRisks>("`risks --json`")),
        (REASONS.0, REASONS.schema::<Reasons>("`reason --json`")),
        (
            REHEARSAL.0,
            REHEARSAL.schema::<Rehearsal>("`simulate GOAL --json`"),
        ),
        (
            ROOK_STATUS.0,
            ROOK_STATUS.schema::<MaintenanceStatus>(
                "`status --json` of a CephMaintenance, and what `pause`, `resume`, `approve`, `abort` and `rollback` of one end with.",
            ),
        ),
        (
            ROOK_UNMANAGED.0,
            ROOK_UNMANAGED
                .schema::<stagger_rook::client::unmanaged::Unmanaged>("`status --json` of a CephCluster that has no CephMaintenance."),
        ),
        (
            ROOK_VERSIONS.0,
            ROOK_VERSIONS.schema::<stagger_rook::client::versions::ClusterVersions>("`versions --json` of a CephCluster."),
        ),
        (
            RUN.0,
            RUN.schema::<RunView>("`status --json`, and a line of `history --json`."),
        ),
        (
            SIMULATION.0,
            SIMULATION.schema::<Simulation>("`simulate SCENARIO --json`, `demo --json`"),
        ),
        (TOKENS.0, TOKENS.schema::<TokenList>("`token list --json`")),
        (SNAPSHOT.0, SNAPSHOT.schema::<Snapshot>("`observe --json`")),
        (VERSIONS.0, VERSIONS.schema::<Versions>("`versions --json`")),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stagger_core::run::{Command, Event};
    use stagger_engine::store::Listed;
    use stagger_versioned::Registry;
    use stagger_versioned::shapes::Shapes;

    use super::*;

    /// Everything of stagger's own that is stored or sent.
    fn all() -> (Shapes, Registry) {
        fn add<T: Own + JsonSchema>((shapes, registry): (Shapes, Registry)) -> (Shapes, Registry) {
            (shapes.with::<T>(), registry.with(Arc::clone(T::chain())))
        }
        let none = (Shapes::new(), Registry::new());
        let stored = add::<Listed>(add::<Command>(add::<Event>(none)));
        add::<Snapshot>(add::<RunView>(add::<Plan>(stored)))
    }

    #[test]
    fn the_code_has_what_the_manifest_lists() {
        all().1.check(&releases::manifest()).unwrap();
    }

    /// What was released is in the stores of others, and so does not change. `SHAPES=write cargo test -p stagger-cli shapes`
    /// writes the file anew for what was not released yet; what to do otherwise is said by the test.
    #[test]
    fn shapes_are_those_of_the_file() {
        let (shapes, registry) = all();
        let manifest = releases::manifest();
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes.json");
        let golden = std::fs::read_to_string(&file).unwrap_or_default();
        if std::env::var_os("SHAPES").is_some_and(|say| say == "write") {
            let anew = shapes.update(&golden, &registry, &manifest).unwrap();
            std::fs::write(&file, anew).unwrap();
        } else {
            shapes.compare(&golden, &registry, &manifest).unwrap();
        }
    }
}
