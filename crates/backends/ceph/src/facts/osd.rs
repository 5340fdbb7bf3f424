//! The OSD map: OSDs, pools and flags.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ParseError, from_json, invalid, release};

/// The OSD map, as `osd dump` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OsdMap {
    /// Grows with every change of the map.
    pub epoch: u32,
    /// The cluster's id.
    pub fsid: String,
    /// The release that every OSD must have at least, as its major number.
    pub require_osd_release: Option<u32>,
    /// Flags of the whole cluster: `noout`, `pause`.
    pub flags: Vec<String>,
    /// How it spans two sites with a tiebreaker monitor, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretch_mode: Option<StretchMode>,
    /// Flags of single CRUSH nodes and OSDs, by their name.
    pub node_flags: BTreeMap<String, Vec<String>>,
    /// The pools, by number.
    pub pools: BTreeMap<u32, Pool>,
    /// The OSDs, by number.
    pub osds: BTreeMap<u32, Osd>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How many copies or shards there should be.
    pub size: u32,
    /// With fewer copies there is no I/O.
    pub min_size: u32,
    /// How many placement groups it has.
    pub pg_num: u32,
    /// Whether it is erasure-coded.
    pub erasure: bool,
    /// How many of its shards hold all its data: 1 of a replicated pool. `None` if the answer did not say.
    pub data_shards: Option<u32>,
    /// What its placement groups need besides `min_size` to serve: OSDs in several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Stretch>,
}

/// A cluster that `mon enable_stretch_mode` has made one of two sites.
///
/// Where a site's OSDs and its monitors are all gone, Ceph degrades it: groups peer with the other site's OSDs alone, and
/// with one copy. It recovers while the site's OSDs are back and not clean yet, and until then the other site must not go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StretchMode {
    /// How many sites there are.
    pub sites: u32,
    /// The level of the sites, by its number.
    pub level: u32,
    /// A site is down, and the other one continues alone.
    pub degraded: bool,
    /// A site has come back, and does not count yet.
    pub recovering: bool,
}

/// A group of a stretch pool peers only with OSDs below so many buckets of a level, whatever its `min_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// How many of these buckets there must be.
    pub buckets: u32,
    /// Their level, by its number.
    pub barrier: u32,
    /// The bucket that must be among them, if one must.
    pub mandatory: Option<i64>,
}

/// An OSD in the map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Osd {
    /// It runs, as far as the monitors know.
    pub up: bool,
    /// Data is placed on it.
    pub inside: bool,
    /// The epoch at which it came up last.
    pub up_from: u32,
    /// Its data is gone for good and its number kept for the OSD that takes its place.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub destroyed: bool,
    /// Its own flags: `noout`.
    pub flags: Vec<String>,
}

#[derive(Deserialize)]
struct RawMap {
    epoch: u32,
    fsid: String,
    #[serde(default)]
    require_osd_release: String,
    #[serde(default)]
    flags: String,
    #[serde(default)]
    crush_node_flags: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    stretch_mode: RawStretchMode,
    #[serde(default)]
    erasure_code_profiles: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    pools: Vec<RawPool>,
    osds: Vec<RawOsd>,
}

#[derive(Deserialize, Default)]
struct RawStretchMode {
    #[serde(default)]
    stretch_mode_enabled: bool,
    #[serde(default)]
    stretch_bucket_count: u32,
    #[serde(default)]
    stretch_mode_bucket: u32,
    #[serde(default)]
    degraded_stretch_mode: u32,
    #[serde(default)]
    recovering_stretch_mode: u32,
}

impl RawStretchMode {
    fn known_stretch_mode(&self) -> Option<StretchMode> {
        self.stretch_mode_enabled.then_some(StretchMode {
            sites: self.stretch_bucket_count,
            level: self.stretch_mode_bucket,
            degraded: self.degraded_stretch_mode > 0,
            recovering: self.recovering_stretch_mode > 0,
        })
    }
}

#[derive(Deserialize)]
struct RawPool {
    pool: i64,
    pool_name: String,
    #[serde(rename = "type")]
    kind: u32,
    size: u32,
    min_size: u32,
    pg_num: u32,
    #[serde(default)]
    erasure_code_profile: String,
    #[serde(default)]
    peering_crush_bucket_count: u32,
    #[serde(default)]
    peering_crush_bucket_barrier: u32,
    #[serde(default = "no_bucket", alias = "peering_crush_mandatory_member")]
    peering_crush_bucket_mandatory_member: i64,
}

/// `CRUSH_ITEM_NONE`
const NO_BUCKET: i64 = 0x7fff_ffff;

fn no_bucket() -> i64 {
    NO_BUCKET
}

#[derive(Deserialize)]
struct RawOsd {
    osd: i64,
    up: u8,
    #[serde(rename = "in")]
    inside: u8,
    #[serde(default)]
    up_from: u32,
    #[serde(default)]
    state: Vec<String>,
}

/// An erasure-coded pool's `type`; a replicated one is 1.
const ERASURE: u32 = 3;
/// Words of an OSD's `state` that are no flags.
const NO_FLAGS: [&str; 8] = [
    "exists",
    "up",
    "autoout",
    "new",
    "full",
    "nearfull",
    "backfillfull",
    DESTROYED,
];
const DESTROYED: &str = "destroyed";

impl OsdMap {
    /// Reads `osd dump`.
    ///
    /// # Errors
    /// No JSON, not that shape, numbers out of range, or a thing that stands there twice.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ParseError> {
        let raw: RawMap = from_json(bytes, origin)?;
        let mut pools = BTreeMap::new();
        for pool in raw.pools {
            let id = u32::try_from(pool.pool).map_err(|_| {
                invalid(
                    origin,
                    format!("pool {:?} has the number {}", pool.pool_name, pool.pool),
                )
            })?;
            let stretch = (pool.peering_crush_bucket_count > 0).then_some(Stretch {
                buckets: pool.peering_crush_bucket_count,
                barrier: pool.peering_crush_bucket_barrier,
                mandatory: Some(pool.peering_crush_bucket_mandatory_member)
                    .filter(|bucket| *bucket != NO_BUCKET),
            });
            let RawPool {
                pool_name: name,
                kind,
                size,
                min_size,
                pg_num,
                ..
            } = pool;
            if min_size > size || size > 255 {
                return Err(invalid(
                    origin,
                    format!("pool {name:?} has size {size} and min_size {min_size}"),
                ));
            }
            let erasure = kind == ERASURE;
            let profile = raw.erasure_code_profiles.get(&pool.erasure_code_profile);
            let k = profile.and_then(|profile| profile.get("k")?.as_str()?.parse().ok());
            let known = Pool {
                data_shards: if erasure { k } else { Some(1) },
                name,
                size,
                min_size,
                pg_num,
                erasure,
                stretch,
            };
            if pools.insert(id, known).is_some() {
                return Err(invalid(origin, format!("pool {id} is listed twice")));
            }
        }
        let mut osds = BTreeMap::new();
        for osd in raw.osds {
            let id = super::tree::osd_id(osd.osd)
                .ok_or_else(|| invalid(origin, format!("an OSD has the number {}", osd.osd)))?;
            let destroyed = osd.state.iter().any(|word| word == DESTROYED);
            let flags = osd
                .state
                .into_iter()
                .filter(|word| !NO_FLAGS.contains(&word.as_str()));
            let known = Osd {
                up: osd.up != 0,
                inside: osd.inside != 0,
                up_from: osd.up_from,
                destroyed,
                flags: flags.collect(),
            };
            if osds.insert(id, known).is_some() {
                return Err(invalid(origin, format!("osd.{id} is listed twice")));
            }
        }
        Ok(Self {
            epoch: raw.epoch,
            fsid: raw.fsid,
            require_osd_release: release::major(&raw.require_osd_release),
            flags: raw
                .flags
                .split(',')
                .filter(|f| !f.is_empty())
                .map(str::to_owned)
                .collect(),
            stretch_mode: raw.stretch_mode.known_stretch_mode(),
            node_flags: raw.crush_node_flags,
            pools,
            osds,
        })
    }
}

/// The epoch alone of `osd dump`.
///
/// # Errors
/// No JSON, or not that shape.
pub fn epoch(bytes: &[u8], origin: &str) -> Result<u32, ParseError> {
    #[derive(Deserialize)]
    struct Raw {
        epoch: u32,
    }
    let raw: Raw = from_json(bytes, origin)?;
    Ok(raw.epoch)
}

/// What an OSD says about itself, as of its last start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsdMetadata {
    /// Its number.
    pub id: u32,
    /// `18.2.7`; an OSD that never started has none.
    #[serde(
        default,
        rename = "ceph_version_short",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<String>,
    /// The host that it runs on.
    #[serde(default, rename = "hostname", skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `bluestore`, `filestore`, `memstore`.
    #[serde(default, rename = "osd_objectstore", skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// The database in a `filestore`: `rocksdb`, `leveldb`.
    #[serde(
        default,
        rename = "filestore_backend",
        skip_serializing_if = "Option::is_none"
    )]
    pub backend: Option<String>,
    /// The image that it runs in, if it runs in a container: by its tag or its digest.
    #[serde(default, rename = "container_image", skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Reads `osd metadata`.
///
/// # Errors
/// No JSON, not that shape, or an OSD that stands there twice.
pub fn read_metadata(bytes: &[u8], origin: &str) -> Result<Vec<OsdMetadata>, ParseError> {
    let mut all: Vec<OsdMetadata> = from_json(bytes, origin)?;
    all.sort_by_key(|osd| osd.id);
    match all.windows(2).find(|pair| pair[0].id == pair[1].id) {
        Some(pair) => Err(invalid(origin, format!("osd.{} is listed twice", pair[0].id))),
        None => Ok(all),
    }
}
