//! The answer, with Ceph's fields.

use serde::{Serialize, Serializer};

use super::Largest;
use crate::facts::pg::PgId;

/// Whether a set of OSDs may stop, and which placement groups say so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OkToStopVerdict {
    /// The set asked about, sorted.
    pub osds: Vec<u32>,
    /// Groups of the whole cluster with an unknown state. One is enough for a refusal.
    pub unknown: Vec<PgId>,
    /// Groups of the set whose pool is gone.
    pub bad_no_pool: Vec<PgId>,
    /// Groups of the set that do not serve now.
    pub bad_already_inactive: Vec<PgId>,
    /// Groups that would continue with fewer copies.
    pub bad_become_inactive: Vec<PgId>,
    /// Groups that would go on with fewer copies.
    pub ok_become_degraded: Vec<PgId>,
    /// Groups that have fewer copies already, and would continue with still fewer.
    pub ok_become_more_degraded: Vec<PgId>,
    /// Groups that forbid the set by our rules and not by Ceph's, see [`super`].
    pub also_unsafe: Vec<PgId>,
}

impl OkToStopVerdict {
    /// Whether the set may stop by Ceph's rules alone.
    pub fn ok_by_ceph_rules(&self) -> bool {
        self.unknown.is_empty()
            && self.bad_no_pool.is_empty()
            && self.bad_already_inactive.is_empty()
            && self.bad_become_inactive.is_empty()
    }

    /// Whether the set may stop.
    pub fn ok(&self) -> bool {
        self.ok_by_ceph_rules() && self.also_unsafe.is_empty()
    }

    /// All groups that forbid it, sorted.
    pub fn blocking_groups(&self) -> Vec<PgId> {
        let Self {
            osds: _,
            unknown,
            bad_no_pool,
            bad_already_inactive,
            bad_become_inactive,
            ok_become_degraded: _,
            ok_become_more_degraded: _,
            also_unsafe,
        } = self;
        let lists = [
            unknown,
            bad_no_pool,
            bad_already_inactive,
            bad_become_inactive,
            also_unsafe,
        ];
        let mut all: Vec<PgId> = lists.into_iter().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

/// The answer as Ceph prints it: the same fields in the same order. Beside them stand
/// `also_unsafe_pgs`, where there are any, and `upper_bound` where a largest set was asked for.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OkToStopReport<'a> {
    ok_to_stop: bool,
    osds: &'a [u32],
    num_ok_pgs: usize,
    num_not_ok_pgs: usize,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    unknown_pgs: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    bad_no_pool_pgs: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    bad_already_inactive: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    bad_become_inactive: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    ok_become_degraded: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    ok_become_more_degraded: Names<'a>,
    #[serde(skip_serializing_if = "Names::none")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    also_unsafe_pgs: Names<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_bound: Option<u32>,
}

struct Names<'a>(&'a [PgId]);

impl Names<'_> {
    fn none(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Names<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(ToString::to_string))
    }
}

/// The answer as a document.
pub fn report<'a>(verdict: &'a OkToStopVerdict, largest: Option<&Largest>) -> OkToStopReport<'a> {
    OkToStopReport {
        ok_to_stop: verdict.ok(),
        osds: &verdict.osds,
        num_ok_pgs: verdict.ok_become_degraded.len() + verdict.ok_become_more_degraded.len(),
        num_not_ok_pgs: verdict.bad_no_pool.len()
            + verdict.bad_already_inactive.len()
            + verdict.bad_become_inactive.len(),
        unknown_pgs: Names(&verdict.unknown),
        bad_no_pool_pgs: Names(&verdict.bad_no_pool),
        bad_already_inactive: Names(&verdict.bad_already_inactive),
        bad_become_inactive: Names(&verdict.bad_become_inactive),
        ok_become_degraded: Names(&verdict.ok_become_degraded),
        ok_become_more_degraded: Names(&verdict.ok_become_more_degraded),
        also_unsafe_pgs: Names(&verdict.also_unsafe),
        upper_bound: largest.map(|largest| largest.upper_bound),
    }
}
