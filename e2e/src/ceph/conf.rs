//! The cluster's `ceph.conf`.
//!
//! Everything in it is either a place (each cluster has its own folder), a shape (crush locations), or
//! there to be quick and small on a machine with two cores. Nothing in it makes an unsafe step look safe.

use std::fmt::Write as _;
use std::path::Path;

use super::auth::LOAD_CLIENT;
use super::spec::{CephSpec, Kind};

/// The port of the first mon; the namespaces are the cluster's own, so ports may be fixed.
const FIRST_MON_PORT: u32 = 41000;
/// The port of the first gateway.
const FIRST_RGW_PORT: u32 = 8000;

/// The optional modules of the mgr of all releases. Those that are always on must not be named here.
const MGR_MODULES_OFF: &str = "dashboard restful prometheus influx zabbix telegraf k8sevents rook cephadm \
    diskprediction_local insights snap_schedule nfs mirroring selftest test_orchestrator osd_support \
    osd_perf_query iostat alerts localpool mds_autoscaler stats feedback smb";

/// Where the mon number `index` listens.
pub(super) fn mon_address(index: usize) -> String {
    format!("127.0.0.1:{}", FIRST_MON_PORT + index as u32)
}

/// Where the gateway number `index` listens.
pub(crate) fn rgw_address(index: usize) -> String {
    format!("127.0.0.1:{}", FIRST_RGW_PORT + index as u32)
}

/// The text of `ceph.conf`.
pub(super) fn text(dir: &Path, fsid: &str, spec: &CephSpec) -> String {
    let mons = spec.daemons(Kind::Mon).len();
    let hosts = (0..mons)
        .map(|index| format!("v2:{}", mon_address(index)))
        .collect::<Vec<_>>()
        .join(",");
    let mut conf = COMMON
        .replace("{dir}", &dir.display().to_string())
        .replace("{fsid}", fsid)
        .replace("{mon_host}", &hosts)
        .replace("{load}", LOAD_CLIENT);
    conf = quick(&conf);
    for osd in 0..spec.osds {
        let location = spec.crush_location(osd);
        add(
            &mut conf,
            format_args!("[osd.{osd}]\ncrush_location = {location}\n"),
        );
    }
    for (index, daemon) in spec.daemons(Kind::Rgw).iter().enumerate() {
        let (name, place) = (daemon.ceph_name(), dir.join(daemon.to_string()));
        add(
            &mut conf,
            format_args!(
                "[{name}]\nrgw_frontends = beast endpoint={}\nrgw_data = {}\nrgw_thread_pool_size = 16\n\
                 rgw_run_sync_thread = false\n",
                rgw_address(index),
                place.display()
            ),
        );
    }
    conf
}

/// Puts the settings of every cluster here, which are to be quick and small, where a text has their names.
pub(crate) fn quick(text: &str) -> String {
    text.replace("{quick_global}", QUICK_GLOBAL)
        .replace("{quick_mon}", QUICK_MON)
        .replace("{quick_mgr}", QUICK_MGR)
        .replace("{quick_osd}", QUICK_OSD)
        .replace("{modules}", MGR_MODULES_OFF)
}

fn add(conf: &mut String, words: std::fmt::Arguments<'_>) {
    conf.write_fmt(words).expect("a String takes everything");
}

const COMMON: &str = "\
[global]
fsid = {fsid}
mon_host = {mon_host}
keyring = {dir}/keyring/$name
ms_bind_msgr1 = false
ms_bind_msgr2 = true
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
run_dir = {dir}/run
admin_socket = {dir}/run/$name.asok
pid_file = {dir}/run/$name.pid
log_file = {dir}/log/$name.log
log_to_stderr = false
mon_cluster_log_file = {dir}/log/cluster.log
mon_data = {dir}/mon.$id
mgr_data = {dir}/mgr.$id
osd_data = {dir}/osd.$id
mds_data = {dir}/mds.$id
crash_dir = {dir}/crash
{quick_global}[mon]
keyring = {dir}/mon.$id/keyring
{quick_mon}[mgr]
{quick_mgr}[osd]
{quick_osd}[client.admin]
# Many of them run at the same time, and nobody asks them anything.
admin_socket =
log_file =
pid_file =
[{load}]
admin_socket =
log_file =
pid_file =
";

const QUICK_GLOBAL: &str = "\
debug_none = 0/0
ms_async_op_threads = 1
# Clients prove who they are by the newer protocol; the older one only earns a warning.
auth_allow_insecure_global_id_reclaim = false
# The machine's disk may be nearly full, which is no news about this cluster. What it needs was asked for
# in bytes before it was made.
mon_data_avail_crit = 0
mon_data_avail_warn = 0
mon_allow_pool_delete = true
mon_pg_warn_min_per_osd = 0
mon_max_pg_per_osd = 2000
mon_osd_reporter_subtree_level = osd
mon_osd_min_down_reporters = 1
# The defaults are for clusters that have minutes.
mon_tick_interval = 1
mon_election_timeout = 1
mon_lease = 5
paxos_propose_interval = 0.1
paxos_min_wait = 0.02
osd_pool_default_pg_autoscale_mode = off
osd_pool_default_pg_num = 1
osd_pool_default_pgp_num = 1
osd_pool_default_size = 3
osd_pool_default_min_size = 2
";

const QUICK_MON: &str = "mon_rocksdb_options = write_buffer_size=1048576,compression=kNoCompression\n";

const QUICK_MGR: &str = "\
mgr_tick_period = 1
mgr_stats_period = 1
mgr_disabled_modules = {modules}
";

const QUICK_OSD: &str = "\
osd_objectstore = bluestore
bluestore_block_size = 1073741824
bluestore_block_create = true
# Best fit always: next fit would walk through the whole of each file, and fill the machine's disk.
bluestore_allocator = hybrid
bluestore_avl_alloc_bf_free_pct = 100
bluestore_btree_alloc_bf_free_pct = 100
# The machine has a limit for all processes, which one cluster would use up.
bdev_aio_max_queue_depth = 64
bluestore_cache_autotune = false
bluestore_cache_size = 8388608
bluestore_fsck_quick_fix_on_mount = false
osd_memory_target = 939524096
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 1
osd_crush_update_on_start = true
osd_crush_initial_weight = 1.0
osd_heartbeat_interval = 1
osd_heartbeat_grace = 6
osd_mon_heartbeat_interval = 5
osd_max_backfills = 8
osd_recovery_sleep = 0
";
