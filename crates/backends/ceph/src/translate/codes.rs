//! Ceph's health codes that a run itself causes.

/// A complaint that a run causes, and what says whether all is well in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cause {
    /// Ceph's code.
    pub code: &'static str,
    /// Why it comes during a run.
    pub why: &'static str,
    /// Whether it also stands between two runs when an upgrade was left half-way, so that it need not be
    /// accepted to go on.
    pub half_way: bool,
    /// The release that complains so of clusters that were well for the one before, new ones included: it tells nothing of
    /// how they are now, and need not be accepted where all run at least that release.
    pub asked_since: Option<u32>,
}

const fn passing(code: &'static str, why: &'static str) -> Cause {
    Cause {
        code,
        why,
        half_way: false,
        asked_since: None,
    }
}

const fn cause_in_transition(code: &'static str, why: &'static str) -> Cause {
    Cause {
        code,
        why,
        half_way: true,
        asked_since: None,
    }
}

const fn cause_since(major: u32, code: &'static str) -> Cause {
    Cause {
        code,
        why: "the new release asks what older ones did not; nothing has changed",
        half_way: true,
        asked_since: Some(major),
    }
}

/// The codes that a run causes. The condition `health` passes over them during a run; whether what they
/// speak of is well is asked more exactly by the conditions named here. `SLOW_OPS` is not among them: it
/// goes by itself when peering is over, and a wave may well wait for that.
pub const CAUSED: &[Cause] = &[
    cause_in_transition(
        "DAEMON_OLD_VERSION",
        "several versions run while an upgrade goes on; each unit's revision is looked at",
    ),
    passing(
        "CEPHADM_FAILED_DAEMON",
        "cephadm has looked while a daemon restarted, and looks no more for ten minutes; `daemons-running`",
    ),
    passing("CEPHADM_HOST_CHECK_FAILED", "a host reboots; `daemons-running`"),
    passing("CEPHADM_PAUSED", "the run's own pause of cephadm"),
    passing("FS_DEGRADED", "a rank changes hands; `mds-active`"),
    passing("FS_WITH_FAILED_MDS", "a rank changes hands; `mds-active`"),
    passing(
        "MDS_INSUFFICIENT_STANDBY",
        "a standby restarts; `daemons-running`",
    ),
    passing("MDS_UP_LESS_THAN_MAX", "a rank changes hands; `mds-active`"),
    passing("MGR_DOWN", "a manager restarts; `mgr-active`"),
    passing("MON_DOWN", "a monitor restarts; `quorum`"),
    passing(
        "OBJECT_DEGRADED",
        "objects wait for an OSD that restarts; `pgs-clean` or `pgs-not-degraded`",
    ),
    passing(
        "OBJECT_MISPLACED",
        "data moves while an OSD restarts; `pgs-clean`",
    ),
    passing("OSDMAP_FLAGS", "the run's own flags"),
    passing("OSD_DOWN", "an OSD restarts; `osds-up-in`"),
    passing("OSD_FLAGS", "the run's own noout on the OSDs of a wave"),
    passing("OSD_HOST_DOWN", "all OSDs of a host restart; `osds-up-in`"),
    passing("OSD_CHASSIS_DOWN", "all OSDs of a chassis restart; `osds-up-in`"),
    passing("OSD_RACK_DOWN", "all OSDs of a rack restart; `osds-up-in`"),
    passing(
        "PG_AVAILABILITY",
        "groups peer for a moment when an OSD stops or starts; `pgs-known`, `pgs-clean`",
    ),
    passing(
        "PG_DEGRADED",
        "groups lack the copy of an OSD that restarts; `pgs-clean` or `pgs-not-degraded`",
    ),
    passing("RECENT_MGR_MODULE_CRASH", "seen apart, by `no-crash-loop`"),
    passing("RECENT_CRASH", "seen apart, by `no-crash-loop`"),
    cause_in_transition(
        "OSD_UPGRADE_FINISHED",
        "all OSDs are new and `require-osd-release` is still to come",
    ),
    cause_since(20, "AUTH_INSECURE_CLIENT_KEY_TYPE"),
    cause_since(20, "AUTH_INSECURE_SERVICE_KEY_TYPE"),
    cause_since(20, "AUTH_INSECURE_KEYS_ALLOWED"),
    cause_since(20, "AUTH_INSECURE_KEYS_CREATABLE"),
    cause_since(20, "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE"),
    cause_since(20, "AUTH_INSECURE_SERVICE_TICKETS"),
    cause_in_transition(
        "AUTH_INSECURE_GLOBAL_ID_RECLAIM",
        "clients of an older release, as before",
    ),
    cause_in_transition(
        "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
        "a newer release asks what older ones did not",
    ),
    cause_in_transition(
        "MON_MSGR2_NOT_ENABLED",
        "a newer release asks what older ones did not",
    ),
];

/// The cause of a code, if a run can be one.
pub(super) fn caused(code: &str) -> Option<&'static Cause> {
    CAUSED.iter().find(|cause| cause.code == code)
}
