//! What Rook would have in `rook-config-override`: the harness's settings for daemons that are configured by
//! it alone.

/// `ceph.conf` of an OSD that the operator makes.
pub(super) const OVERRIDE: &str = "\
[global]
ms_bind_msgr1 = false
ms_bind_msgr2 = true
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_async_op_threads = 1
auth_allow_insecure_global_id_reclaim = false
osd_objectstore = bluestore
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
