//! The codes of Ceph's health checks.
//!
//! Source: `doc/rados/operations/health-checks.rst` and `doc/cephfs/health-messages.rst` of Ceph, and the
//! texts in the programs of 16.2.15, 18.2.7 and 20.2.4. An unlisted code may belong to a later release: it
//! gives a question, never a refusal.

/// All that have a fixed name, sorted.
const CODES: &[&str] = &[
    "ALERTS_SMTP_ERROR",
    "AUTH_BAD_CAPS",
    "AUTH_EMERGENCY_CIPHERS_SET",
    "AUTH_INSECURE_CLIENT_KEY_TYPE",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
    "AUTH_INSECURE_KEYS_ALLOWED",
    "AUTH_INSECURE_KEYS_CREATABLE",
    "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE",
    "AUTH_INSECURE_SERVICE_KEY_TYPE",
    "AUTH_INSECURE_SERVICE_TICKETS",
    "BLOCK_DEVICE_STALLED_READ_ALERT",
    "BLUEFS_AVAILABLE_SPACE",
    "BLUEFS_LOW_SPACE",
    "BLUEFS_SPILLOVER",
    "BLUESTORE_DISK_SIZE_MISMATCH",
    "BLUESTORE_FRAGMENTATION",
    "BLUESTORE_LEGACY_STATFS",
    "BLUESTORE_NO_COMPRESSION",
    "BLUESTORE_NO_PER_PG_OMAP",
    "BLUESTORE_NO_PER_POOL_OMAP",
    "BLUESTORE_SLOW_OP_ALERT",
    "BLUESTORE_SPURIOUS_READ_ERRORS",
    "CACHE_POOL_NEAR_FULL",
    "CACHE_POOL_NO_HIT_SET",
    "DAEMON_OLD_VERSION",
    "DASHBOARD_DEBUG",
    "DB_DEVICE_STALLED_READ_ALERT",
    "DEGRADED_STRETCH_MODE",
    "DEVICE_HEALTH",
    "DEVICE_HEALTH_IN_USE",
    "DEVICE_HEALTH_TOOMANY",
    "FS_DEGRADED",
    "FS_INLINE_DATA_DEPRECATED",
    "FS_WITH_FAILED_MDS",
    "INCORRECT_NUM_BUCKETS_STRETCH_MODE",
    "LARGE_OMAP_OBJECTS",
    "MANY_OBJECTS_PER_PG",
    "MDS_ALL_DOWN",
    "MDS_CACHE_OVERSIZED",
    "MDS_CLIENTS_BROKEN_ROOTSQUASH",
    "MDS_CLIENTS_LAGGY",
    "MDS_CLIENTS_LAGGY_MANY",
    "MDS_CLIENT_LATE_RELEASE",
    "MDS_CLIENT_LATE_RELEASE_MANY",
    "MDS_CLIENT_OLDEST_TID",
    "MDS_CLIENT_OLDEST_TID_MANY",
    "MDS_CLIENT_RECALL",
    "MDS_CLIENT_RECALL_MANY",
    "MDS_DAMAGE",
    "MDS_DUMMY",
    "MDS_ESTIMATED_REPLAY_TIME",
    "MDS_HEALTH_CACHE_OVERSIZED",
    "MDS_HEALTH_READ_ONLY",
    "MDS_INSUFFICIENT_STANDBY",
    "MDS_READ_ONLY",
    "MDS_SLOW_METADATA_IO",
    "MDS_SLOW_REQUEST",
    "MDS_TRIM",
    "MDS_UP_LESS_THAN_MAX",
    "MGR_DOWN",
    "MGR_INFLUX_DB_LIST_FAILED",
    "MGR_INFLUX_NO_SERVER",
    "MGR_INFLUX_QUEUE_FULL",
    "MGR_INFLUX_SEND_FAILED",
    "MGR_INSIGHTS_WARNING",
    "MGR_MODULE_DEPENDENCY",
    "MGR_MODULE_ERROR",
    "MGR_ZABBIX_NO_SERVER",
    "MGR_ZABBIX_SEND_FAILED",
    "MON_CLOCK_SKEW",
    "MON_DISK_BIG",
    "MON_DISK_CRIT",
    "MON_DISK_LOW",
    "MON_DOWN",
    "MON_MSGR2_NOT_ENABLED",
    "MON_NETSPLIT",
    "NONEXISTENT_MON_CRUSH_LOC_STRETCH_MODE",
    "NVMEOF_GATEWAY_DELETING",
    "NVMEOF_GATEWAY_DOWN",
    "NVMEOF_SINGLE_GATEWAY",
    "OBJECT_DEGRADED",
    "OBJECT_MISPLACED",
    "OBJECT_UNFOUND",
    "OLD_CRUSH_STRAW_CALC_VERSION",
    "OLD_CRUSH_TUNABLES",
    "OSDMAP_FLAGS",
    "OSD_BACKFILLFULL",
    "OSD_DOWN",
    "OSD_FILESTORE",
    "OSD_FLAGS",
    "OSD_FULL",
    "OSD_NEARFULL",
    "OSD_NO_DOWN_OUT_INTERVAL",
    "OSD_NO_SORTBITWISE",
    "OSD_ORPHAN",
    "OSD_OUT_OF_ORDER_FULL",
    "OSD_SCRUB_ERRORS",
    "OSD_SLOW_PING_TIME_BACK",
    "OSD_SLOW_PING_TIME_FRONT",
    "OSD_TOO_MANY_REPAIRS",
    "OSD_UNREACHABLE",
    "OSD_UPGRADE_FINISHED",
    "PG_AVAILABILITY",
    "PG_BACKFILL_FULL",
    "PG_DAMAGED",
    "PG_DEGRADED",
    "PG_NOT_DEEP_SCRUBBED",
    "PG_NOT_SCRUBBED",
    "PG_RECOVERY_FULL",
    "PG_SLOW_SNAP_TRIMMING",
    "POOL_APP_NOT_ENABLED",
    "POOL_BACKFILLFULL",
    "POOL_FULL",
    "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
    "POOL_NEARFULL",
    "POOL_NEAR_FULL",
    "POOL_NO_REDUNDANCY",
    "POOL_PG_NUM_NOT_POWER_OF_TWO",
    "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
    "POOL_TOO_FEW_PGS",
    "POOL_TOO_MANY_PGS",
    "RECENT_CRASH",
    "RECENT_MGR_MODULE_CRASH",
    "RECOVERING_STRETCH_MODE",
    "REQUEST_SLOW",
    "REQUEST_STUCK",
    "SLOW_OPS",
    "SMALLER_PGP_NUM",
    "TELEMETRY_CHANGED",
    "TOO_FEW_OSDS",
    "TOO_FEW_PGS",
    "TOO_MANY_PGS",
    "UNEQUAL_WEIGHTS_STRETCH_MODE",
    "UPGRADE_EXCEPTION",
    "WAL_DEVICE_STALLED_READ_ALERT",
];

/// Whether Ceph is known to complain by that code.
pub fn is_known(code: &str) -> bool {
    // A level of the CRUSH map stands in the middle, and cephadm has some dozens of its own.
    let of_a_level = code.starts_with("OSD_") && code.ends_with("_DOWN");
    of_a_level || code.starts_with("CEPHADM_") || CODES.binary_search(&code).is_ok()
}

/// All that have a fixed name.
pub fn all() -> impl Iterator<Item = &'static str> {
    CODES.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::CAUSED;

    #[test]
    fn codes_are_sorted_and_those_of_a_run_are_among_them() {
        assert!(CODES.is_sorted());
        let unknown: Vec<&str> = CAUSED
            .iter()
            .map(|cause| cause.code)
            .filter(|code| !is_known(code))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(is_known("OSD_RACK_DOWN") && is_known("CEPHADM_FAILED_DAEMON"));
        assert!(!is_known("SLOW_OP") && !is_known("osd_down") && !is_known(""));
    }
}
