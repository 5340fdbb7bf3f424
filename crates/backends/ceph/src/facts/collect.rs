//! Collects all facts of a cluster, at one epoch of the OSD map.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::cephadm::{self, CephadmFacts};
use super::health::{Health, read_crashes};
use super::mds::FsMap;
use super::mgr::MgrMap;
use super::mon::Quorum;
use super::osd::{self, OsdMap, OsdMetadata};
use super::pg::PgMap;
use super::rgw::CephStatus;
use super::tree::CrushTree;
use super::versions::DaemonVersions;
use super::{CephFacts, DaemonMetadata, ParseError, read_metadata};
use crate::api::{Body, CephApi, CephApiError, QueryTarget};
use stagger_core::model::Fact;

/// The extent of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CollectOptions {
    /// Up to so many placement groups are read in full, which is 2.2 KB each. Of more, the brief list is
    /// read (0.1 KB each), and in full only those that are not clean and those of OSDs that came up
    /// within `recent_epochs`.
    pub in_full: u64,
    /// An OSD that came up so many epochs ago has surely been reported on since.
    pub recent_epochs: u32,
    /// For at most so many such OSDs the groups are asked for, one question each; those of further ones
    /// count as not reported yet.
    pub lookups: usize,
    /// How often facts that contradict each other are read again.
    pub tries: u32,
    /// How long to wait before that.
    pub pause: Duration,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self {
            in_full: 8_192,
            recent_epochs: 100,
            lookups: 2_000,
            tries: 5,
            pause: Duration::from_millis(300),
        }
    }
}

/// Why there are no facts.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A question got no answer, or a no.
    #[error(transparent)]
    Api(#[from] CephApiError),
    /// An answer could not be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The map changed under every reading.
    #[error("facts-contradict: {why}, {tries} times in a row")]
    Contradict {
        /// What did not fit.
        why: String,
        /// How often it was read.
        tries: u32,
    },
}

impl CollectError {
    /// Whether observing again later may help.
    pub fn passes(&self) -> bool {
        match self {
            Self::Api(error) => error.passes(),
            // A manager that is just starting may send half an answer.
            Self::Parse(_) | Self::Contradict { .. } => true,
        }
    }
}

/// Reads all facts of a cluster: the OSD map before and after, and everything else between. When the two
/// differ in their epoch, or placement groups are missing that the map has, it is read again.
///
/// `now` is only noted in the result.
///
/// # Errors
/// No answer, an unreadable one, or facts that contradict each other every time.
pub async fn collect(
    api: &dyn CephApi,
    options: &CollectOptions,
    now: Timestamp,
) -> Result<CephFacts, CollectError> {
    let mut why = String::new();
    for attempt in 0..options.tries.max(1) {
        if attempt > 0 {
            tokio::time::sleep(options.pause).await;
        }
        let facts = read(api, options, now).await?;
        let after = osd::epoch(&ask(api, QueryTarget::Mon, "osd dump").await?, "osd dump")?;
        match contradiction(&facts, after) {
            None => return Ok(facts),
            Some(found) => why = found,
        }
    }
    Err(CollectError::Contradict {
        why,
        tries: options.tries.max(1),
    })
}

fn contradiction(facts: &CephFacts, after: u32) -> Option<String> {
    let before = &facts.osds;
    if before.epoch != after {
        return Some(format!(
            "the OSD map went from epoch {} to {after} while it was read",
            before.epoch
        ));
    }
    if before.fsid != facts.mons.fsid {
        return Some(format!(
            "the OSD map is of cluster {}, the monitors of {}",
            before.fsid, facts.mons.fsid
        ));
    }
    let strays = facts.tree.up.keys().find(|osd| !before.osds.contains_key(osd));
    strays.map(|osd| format!("osd.{osd} is in the tree and not in the OSD map"))
}

async fn ask(api: &dyn CephApi, whom: QueryTarget, prefix: &str) -> Result<Vec<u8>, CephApiError> {
    api.ask(whom, json!({ "prefix": prefix })).await
}

async fn read(
    api: &dyn CephApi,
    options: &CollectOptions,
    now: Timestamp,
) -> Result<CephFacts, CollectError> {
    let mon = QueryTarget::Mon;
    let osds = ask(api, mon, "osd dump").await?;
    let mgrs = MgrMap::read(&ask(api, mon, "mgr dump").await?, "mgr dump")?;
    let status = CephStatus::read(&ask(api, mon, "status").await?, "status")?;
    // A question to a manager that is not there would wait for one.
    let absent = (!mgrs.available || mgrs.active.is_none()).then(|| "no manager is active".to_owned());
    // The longest answer: it comes and is read while the others are asked for.
    let listed = async {
        match &absent {
            Some(why) => Ok(Fact::No(why.clone())),
            None => listed(api, options, status.placement_groups).await,
        }
    };
    let (listed, told) = tokio::try_join!(listed, of_monitors(api, osds))?;
    let OfMonitors {
        osds,
        tree,
        osd_metadata,
        mons,
        mon_metadata,
        mgr_metadata,
        fs,
        mds_metadata,
        health,
        versions,
    } = told;
    let pgs = match listed {
        Fact::Yes(listed) => placement_groups(api, options, &osds, listed).await?,
        Fact::No(why) => Fact::No(why),
    };
    let (crashes, (orchestrator, cephadm)) = match absent {
        Some(why) => (Fact::No(why.clone()), (Fact::No(why.clone()), Fact::No(why))),
        None => (crashes(api).await?, orchestrator(api, &mgrs).await?),
    };
    Ok(CephFacts {
        fsid: osds.fsid.clone(),
        collected_at: now,
        osds,
        tree,
        osd_metadata,
        pgs,
        mons,
        mon_metadata,
        mgrs,
        mgr_metadata,
        fs,
        mds_metadata,
        gateways: status.gateways,
        others: status.others,
        health,
        versions,
        crashes,
        orchestrator,
        cephadm,
    })
}

/// What the monitors tell whatever else there is.
struct OfMonitors {
    osds: OsdMap,
    tree: CrushTree,
    osd_metadata: Vec<OsdMetadata>,
    mons: Quorum,
    mon_metadata: Vec<DaemonMetadata>,
    mgr_metadata: Vec<DaemonMetadata>,
    fs: FsMap,
    mds_metadata: Vec<DaemonMetadata>,
    health: Health,
    versions: DaemonVersions,
}

/// `osds`: the map, as it was answered.
async fn of_monitors(api: &dyn CephApi, osds: Vec<u8>) -> Result<OfMonitors, CollectError> {
    let mon = QueryTarget::Mon;
    let map = OsdMap::read(&osds, "osd dump")?;
    drop(osds);
    let health = json!({ "prefix": "health", "detail": "detail" });
    Ok(OfMonitors {
        osds: map,
        tree: CrushTree::read(&ask(api, mon, "osd tree").await?, "osd tree")?,
        osd_metadata: osd::read_metadata(&ask(api, mon, "osd metadata").await?, "osd metadata")?,
        mons: Quorum::read(&ask(api, mon, "quorum_status").await?, "quorum_status")?,
        mon_metadata: read_metadata(&ask(api, mon, "mon metadata").await?, "mon metadata")?,
        mgr_metadata: read_metadata(&ask(api, mon, "mgr metadata").await?, "mgr metadata")?,
        fs: FsMap::read(&ask(api, mon, "fs dump").await?, "fs dump")?,
        mds_metadata: read_metadata(&ask(api, mon, "mds metadata").await?, "mds metadata")?,
        health: Health::read(&api.ask(mon, health).await?, "health detail")?,
        versions: DaemonVersions::read(&ask(api, mon, "versions").await?, "versions")?,
    })
}

/// An answer of the manager; why not, when it gave none that will do. Managers come and go: that it does
/// not answer now is a fact about the cluster, and no reason to know nothing of the rest.
fn of_manager<T>(answer: Result<T, CephApiError>) -> Result<Fact<T>, CephApiError> {
    match answer {
        Ok(answer) => Ok(Fact::Yes(answer)),
        Err(error @ (CephApiError::TimedOut { .. } | CephApiError::Refused { .. })) => {
            Ok(Fact::No(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// All placement groups, as they are being read.
struct Listed {
    /// Without what only the whole list has.
    brief: bool,
    reading: JoinHandle<Result<PgMap, ParseError>>,
}

async fn listed(
    api: &dyn CephApi,
    options: &CollectOptions,
    count: u64,
) -> Result<Fact<Listed>, CollectError> {
    let brief = count > options.in_full;
    let origin = if brief { "pg dump pgs_brief" } else { "pg dump" };
    let question = if brief {
        json!({ "prefix": "pg dump", "dumpcontents": ["pgs_brief"] })
    } else {
        json!({ "prefix": "pg dump" })
    };
    Ok(
        match of_manager(api.ask_for_much(QueryTarget::Mgr, question).await)? {
            Fact::Yes(answer) => Fact::Yes(Listed {
                brief,
                reading: tokio::task::spawn_blocking(move || match answer {
                    Body::Whole(answer) => PgMap::read_slice(&answer, origin),
                    Body::Coming(answer) => PgMap::read(answer, origin),
                }),
            }),
            Fact::No(why) => Fact::No(why),
        },
    )
}

async fn placement_groups(
    api: &dyn CephApi,
    options: &CollectOptions,
    osds: &OsdMap,
    listed: Listed,
) -> Result<Fact<PgMap>, CollectError> {
    let Listed { brief, reading } = listed;
    let all = match reading.await {
        Ok(read) => read?,
        // Nobody aborts it.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    };
    if !brief {
        return Ok(Fact::Yes(all));
    }
    collect_full_pgs(api, options, osds, all).await
}

/// The brief list with what it leaves out, where that matters.
async fn collect_full_pgs(
    api: &dyn CephApi,
    options: &CollectOptions,
    osds: &OsdMap,
    mut all: PgMap,
) -> Result<Fact<PgMap>, CollectError> {
    if all.iter().any(|pg| !pg.state.clean()) {
        let question = json!({ "prefix": "pg ls", "states": UNCLEAN });
        match of_manager(api.ask(QueryTarget::Mgr, question).await)? {
            Fact::Yes(answer) => all = all.with(&PgMap::read_slice(&answer, "pg ls")?),
            Fact::No(why) => return Ok(Fact::No(why)),
        }
    }
    let old = osds.epoch.saturating_sub(options.recent_epochs);
    let came_up: BTreeSet<u32> = osds
        .osds
        .iter()
        .filter(|(_, osd)| osd.up && osd.up_from > old)
        .map(|(id, _)| *id)
        .collect();
    let mut closer = PgMap::default();
    for osd in came_up.iter().take(options.lookups) {
        let question = json!({ "prefix": "pg ls-by-osd", "osd": osd });
        match of_manager(api.ask(QueryTarget::Mgr, question).await)? {
            Fact::Yes(answer) => closer.extend(&PgMap::read_slice(&answer, "pg ls-by-osd")?),
            Fact::No(why) => return Ok(Fact::No(why)),
        }
    }
    let mut all = all.with(&closer.distinct());
    // What was not looked at closer has only OSDs that came up long ago, or else it stays unreported.
    all.assume_reported(old, |osd| came_up.contains(&osd));
    Ok(Fact::Yes(all))
}

/// The states by which `pg ls` finds every group that is not clean. There is no word for "not clean".
const UNCLEAN: [&str; 12] = [
    "degraded",
    "undersized",
    "remapped",
    "peering",
    "activating",
    "peered",
    "down",
    "incomplete",
    "stale",
    "creating",
    "recovering",
    "backfilling",
];

async fn crashes(api: &dyn CephApi) -> Result<Fact<Vec<super::health::Crash>>, CollectError> {
    match of_manager(ask(api, QueryTarget::Mgr, "crash ls-new").await)? {
        Fact::Yes(answer) => Ok(Fact::Yes(read_crashes(&answer, "crash ls-new")?)),
        Fact::No(why) => Ok(Fact::No(why)),
    }
}

/// The orchestrator modules.
const ORCHESTRATORS: [&str; 2] = ["cephadm", "rook"];

/// `orch status` is refused where no orchestrator is set. Where a module is on that could be one, only
/// its word counts.
async fn orchestrator(
    api: &dyn CephApi,
    mgrs: &MgrMap,
) -> Result<(Fact<Option<String>>, Fact<CephadmFacts>), CollectError> {
    let none = || Fact::No("cephadm does not manage this cluster".to_owned());
    let module = mgrs
        .modules
        .iter()
        .find(|module| ORCHESTRATORS.contains(&module.as_str()));
    if module.is_none() {
        return Ok((Fact::Yes(None), none()));
    }
    match of_manager(ask(api, QueryTarget::Mgr, "orch status").await)? {
        Fact::Yes(answer) => {
            let status: Value = super::from_json(&answer, "orch status")?;
            let backend = status["backend"].as_str();
            let cephadm = match backend {
                Some("cephadm") => cephadm::ask(api, &status).await?,
                _ => none(),
            };
            Ok((Fact::Yes(backend.map(str::to_owned)), cephadm))
        }
        Fact::No(why) if why.contains("No orchestrator configured") => Ok((Fact::Yes(None), none())),
        Fact::No(why) => Ok((Fact::No(why.clone()), Fact::No(why))),
    }
}
