//! The answer to a request to evict an OSD now, from the last observation of its cluster.
//!
//! The budget permits what is proven safe, and refuses everything else without a reason. The webhook gives
//! the reason, and until when it holds. What the budget would permit is also put to Ceph's own oracle,
//! together with recent evictions.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{DesiredBudgets, EvictableOsds, OsdState};

/// A look older than this says nothing: while all is well there is one every five seconds.
const STALE: SignedDuration = SignedDuration::from_secs(15);

/// What was observed of a cluster, and what was decided by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// When it began.
    pub at: Timestamp,
    /// The OSDs that are down or leaving, and the failure domain of each OSD.
    down: BTreeSet<u32>,
    domains: BTreeMap<u32, String>,
    open: EvictableOsds,
    blocked: BTreeMap<String, String>,
    /// When `noout` goes, by domain.
    noout: BTreeMap<String, Timestamp>,
    recovery: Option<Recovery>,
}

/// How far Ceph is with making copies anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovery {
    /// Copies of objects that are missing.
    pub missing: u64,
    /// How many come back in a second.
    pub per_second: u64,
}

/// An answer about one OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionVerdict {
    /// Nobody misses it.
    Allowed,
    /// It is proven, and Ceph's oracle has the last word: may it stop together with these, which were let go since?
    IfCephAgrees {
        /// Not yet seen to be down.
        with: BTreeSet<u32>,
    },
    /// It may not.
    Denied {
        /// Why, and until when.
        why: String,
    },
}

impl Observation {
    /// What was decided by a look that began `at`.
    pub fn new(
        at: Timestamp,
        osds: &[OsdState],
        wanted: &DesiredBudgets,
        recovery: Option<Recovery>,
    ) -> Self {
        let domain = |osd: &OsdState| Some((osd.id, osd.domain.clone()?));
        Self {
            at,
            down: osds
                .iter()
                .filter(|osd| osd.is_down())
                .map(|osd| osd.id)
                .collect(),
            domains: osds.iter().filter_map(domain).collect(),
            open: wanted.open.clone(),
            blocked: wanted.blocked.clone(),
            noout: wanted.noout.clone(),
            recovery,
        }
    }

    /// Whether `osd` may go beside `granted`: those whose eviction was granted since this look began.
    pub fn may_go(&self, osd: u32, granted: &BTreeSet<u32>, now: Timestamp) -> EvictionVerdict {
        if self.down.contains(&osd) {
            return EvictionVerdict::Allowed;
        }
        let age = now.duration_since(self.at);
        if age > STALE {
            let why = format!(
                "the cluster was last observed {} s ago, which is too old to prove that an eviction is safe",
                age.as_secs()
            );
            return EvictionVerdict::Denied { why };
        }
        let with: BTreeSet<u32> = granted.iter().copied().filter(|other| *other != osd).collect();
        match &self.open {
            // One was proven, whichever it is.
            EvictableOsds::Any => match with.first() {
                None => EvictionVerdict::IfCephAgrees { with },
                Some(other) => EvictionVerdict::Denied {
                    why: format!(
                        "osd.{other} was let go just now, and one at a time is proven; it is looked at again within seconds"
                    ),
                },
            },
            EvictableOsds::Only(open) if open.contains(&osd) => EvictionVerdict::IfCephAgrees { with },
            EvictableOsds::Only(_) => EvictionVerdict::Denied {
                why: self.why_not(osd),
            },
        }
    }

    fn why_not(&self, osd: u32) -> String {
        let domain = self.domains.get(&osd);
        let why = domain.and_then(|domain| self.blocked.get(domain));
        let unproven = "it is not proven that its data stays available";
        let mut parts = vec![why.map_or(unproven, String::as_str).to_owned()];
        parts.extend(self.recovery.map(Recovery::until));
        let others = self.noout.iter().filter(|(other, _)| Some(*other) != domain);
        parts.extend(others.map(|(other, until)| format!("{other} keeps its place until {until:.0}")));
        parts.join("; ")
    }
}

impl Recovery {
    fn until(self) -> String {
        let Self { missing, per_second } = self;
        let when = match per_second {
            0 => "none of which comes back now".to_owned(),
            rate => format!("{} at the present rate", about(missing.div_ceil(rate))),
        };
        format!("until {missing} missing copies of objects are back, {when}")
    }
}

/// A time to come, no more exact than it is known.
fn about(seconds: u64) -> String {
    match seconds {
        0..=90 => format!("in about {seconds} s"),
        91..=5400 => format!("in about {} min", seconds.div_ceil(60)),
        _ => format!("in about {} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::OsdDisruptionBudget;
    use super::*;

    fn osd(id: u32, serves: bool) -> OsdState {
        OsdState {
            id,
            domain: Some(format!("host{}", id / 2)),
            serves,
            leaving: false,
            up: serves,
            cordoned: None,
            replaced: false,
        }
    }

    fn seconds(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Of host0 one is down, and the other one may go.
    fn draining(recovery: Option<Recovery>) -> Observation {
        let open = BTreeSet::from([1]);
        let wanted = DesiredBudgets {
            budget: Some(OsdDisruptionBudget {
                without: open.clone(),
                max_unavailable: 0,
            }),
            open: EvictableOsds::Only(open),
            blocked: BTreeMap::from([(
                "host1".to_owned(),
                "osd.0 down (host0 may go on draining)".to_owned(),
            )]),
            noout: BTreeMap::from([("host0".to_owned(), seconds(1800))]),
            ..DesiredBudgets::default()
        };
        let osds = [osd(0, false), osd(1, true), osd(2, true), osd(3, true)];
        Observation::new(seconds(0), &osds, &wanted, recovery)
    }

    #[test]
    fn what_is_let_go_is_left_to_ceph_beside_what_went_since() {
        let seen = draining(None);
        assert_eq!(
            seen.may_go(0, &BTreeSet::new(), seconds(1)),
            EvictionVerdict::Allowed
        );
        let with = BTreeSet::from([7]);
        assert_eq!(
            seen.may_go(1, &BTreeSet::from([1, 7]), seconds(1)),
            EvictionVerdict::IfCephAgrees { with }
        );
    }

    #[test]
    fn who_may_not_go_is_told_why_and_until_when() {
        let why = |recovery| match draining(recovery).may_go(2, &BTreeSet::new(), seconds(1)) {
            EvictionVerdict::Denied { why } => why,
            other => panic!("{other:?}"),
        };
        let waits = "osd.0 down (host0 may go on draining)";
        let place = "host0 keeps its place until 1970-01-01T00:30:00Z";
        assert_eq!(why(None), format!("{waits}; {place}"));
        let recovery = |missing, per_second| Some(Recovery { missing, per_second });
        assert_eq!(
            why(recovery(1000, 50)),
            format!(
                "{waits}; until 1000 missing copies of objects are back, in about 20 s at the present rate; {place}"
            )
        );
        assert_eq!(
            why(recovery(1000, 0)),
            format!(
                "{waits}; until 1000 missing copies of objects are back, none of which comes back now; {place}"
            )
        );
        assert_eq!([about(91), about(5401)], ["in about 2 min", "in about 2 h"]);
    }

    #[test]
    fn where_any_one_may_go_the_second_waits_for_the_next_look() {
        let osds = [osd(0, true), osd(2, true)];
        let seen = Observation::new(seconds(0), &osds, &DesiredBudgets::default(), None);
        let nobody = BTreeSet::new();
        assert_eq!(
            seen.may_go(0, &nobody, seconds(1)),
            EvictionVerdict::IfCephAgrees {
                with: BTreeSet::new()
            }
        );
        // Its own eviction was granted, and it asks again.
        assert_eq!(
            seen.may_go(0, &BTreeSet::from([0]), seconds(1)),
            EvictionVerdict::IfCephAgrees {
                with: BTreeSet::new()
            }
        );
        let second = seen.may_go(2, &BTreeSet::from([0]), seconds(1));
        assert!(
            matches!(second, EvictionVerdict::Denied { why } if why.contains("osd.0 was let go just now"))
        );
    }

    #[test]
    fn an_old_look_says_nothing() {
        let seen = draining(None);
        let old = seen.may_go(1, &BTreeSet::new(), seconds(16));
        assert!(matches!(old, EvictionVerdict::Denied { why } if why.contains("last observed 16 s ago")));
    }
}
