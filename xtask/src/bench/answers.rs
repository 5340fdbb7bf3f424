//! A map written as the answers that a cluster on it would give.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::maps::{Map, Shape};
use crate::report::root;

/// Answers that do not depend on the map, of a real cluster.
const RECORDED: &str = "crates/backends/ceph/tests/fixtures/18.2.7";
/// The epoch of the map; every OSD came up long before it.
const EPOCH: u32 = 5_000;

/// Writes everything that planning asks for.
pub(crate) fn write(map: &Map, folder: &Path) -> Result<()> {
    let recorded = root().join(RECORDED);
    for entry in std::fs::read_dir(&recorded).with_context(|| format!("read {}", recorded.display()))? {
        let from = entry?.path();
        if let Some(name) = from
            .file_name()
            .filter(|name| name.to_string_lossy().ends_with(".json"))
        {
            std::fs::copy(&from, folder.join(name)).with_context(|| format!("copy {}", from.display()))?;
        }
    }
    let mut dump = read(&recorded.join("osd_dump.json"))?;
    let (osd, mut pool) = (dump["osds"][0].clone(), dump["pools"][0].clone());
    pool["size"] = json!(3);
    pool["min_size"] = json!(2);
    pool["pg_num"] = json!(map.groups.len());
    pool["pool_name"] = json!("rbd");
    dump["epoch"] = json!(EPOCH);
    dump["pools"] = json!([pool]);
    dump["osds"] = each(map, |id| {
        let mut osd = osd.clone();
        osd["osd"] = json!(id);
        osd["up_from"] = json!(5);
        osd
    });
    save(folder, "osd_dump.json", &dump)?;

    let metadata = read(&recorded.join("osd_metadata.json"))?[0].clone();
    let all = each(map, |id| {
        let mut metadata = metadata.clone();
        metadata["id"] = json!(id);
        metadata["hostname"] = json!(format!("host{}", id / map.shape.host));
        metadata
    });
    save(folder, "osd_metadata.json", &all)?;
    save(folder, "osd_tree.json", &tree(map))?;

    let mut status = read(&recorded.join("status.json"))?;
    status["pgmap"]["num_pgs"] = json!(map.groups.len());
    save(folder, "status.json", &status)?;
    let mut versions = read(&recorded.join("versions.json"))?;
    if let Some(osds) = versions["osd"].as_object_mut() {
        for count in osds.values_mut() {
            *count = json!(map.shape.osds);
        }
    }
    save(folder, "versions.json", &versions)?;

    let mut brief = BufWriter::new(File::create(folder.join("pg_dump_pgs_brief.json"))?);
    brief.write_all(br#"{"pg_ready":true,"pg_stats":["#)?;
    for (seed, [a, b, c]) in map.groups.iter().enumerate() {
        let comma = if seed == 0 { "" } else { "," };
        write!(
            brief,
            r#"{comma}{{"pgid":"1.{seed:x}","state":"active+clean","up":[{a},{b},{c}],"acting":[{a},{b},{c}],"up_primary":{a},"acting_primary":{a}}}"#
        )?;
    }
    brief.write_all(b"]}")?;
    brief.flush().context("write the brief dump")
}

/// Writes a full `pg dump`, as large as Ceph's; returns its size in bytes.
pub(crate) fn full_dump(map: &Map, folder: &Path) -> Result<u64> {
    let recorded = read(&root().join("crates/backends/ceph/tests/fixtures/16.2.15/pg_dump.json"))?;
    let mut stat = recorded["pg_map"]["pg_stats"][0].clone();
    // The recorded answers are cut to what is read; Ceph prints about 2.2 KB for each group.
    stat["stat_sum"] = (0..48)
        .map(|at| (format!("num_objects_of_kind_{at:02}"), json!(1_234_567)))
        .collect();
    stat["reported_epoch"] = json!(EPOCH);
    stat["state"] = json!("active+clean");
    let path = folder.join("pg_dump.json");
    let mut file = BufWriter::new(File::create(&path)?);
    file.write_all(br#"{"pg_ready":true,"pg_map":{"version":1,"pg_stats":["#)?;
    for (seed, members) in map.groups.iter().enumerate() {
        if seed > 0 {
            file.write_all(b",")?;
        }
        stat["pgid"] = json!(format!("1.{seed:x}"));
        stat["up"] = json!(members);
        stat["acting"] = json!(members);
        serde_json::to_writer(&mut file, &stat)?;
    }
    file.write_all(b"]}}")?;
    file.flush().context("write the full dump")?;
    Ok(std::fs::metadata(&path)?.len())
}

fn tree(map: &Map) -> Value {
    let Shape { osds, host, rack, .. } = map.shape;
    let hosts = osds.div_ceil(host);
    let racks = hosts.div_ceil(rack);
    let bucket = |id: i64, name: String, kind: &str, type_id: u32, children: Vec<i64>| json!({ "id": id, "name": name, "type": kind, "type_id": type_id, "pool_weights": {}, "children": children });
    let span = |from: u32, each: u32, all: u32| from * each..((from + 1) * each).min(all);
    let rack_id = |rack: u32| -2 - i64::from(rack);
    let host_id = |host: u32| -2 - i64::from(racks) - i64::from(host);
    let mut nodes = vec![bucket(
        -1,
        "default".to_owned(),
        "root",
        11,
        (0..racks).map(rack_id).collect(),
    )];
    for at in 0..racks {
        let children = span(at, rack, hosts).map(host_id).collect();
        nodes.push(bucket(rack_id(at), format!("rack{at}"), "rack", 3, children));
    }
    for at in 0..hosts {
        let children = span(at, host, osds).map(i64::from).collect();
        nodes.push(bucket(host_id(at), format!("host{at}"), "host", 1, children));
    }
    for id in 0..osds {
        nodes.push(json!({ "id": id, "device_class": "hdd", "name": format!("osd.{id}"), "type": "osd", "type_id": 0, "crush_weight": 1, "depth": 3, "pool_weights": {}, "exists": 1, "status": "up", "reweight": 1, "primary_affinity": 1 }));
    }
    json!({ "nodes": nodes, "stray": [] })
}

fn each(map: &Map, one: impl Fn(u32) -> Value) -> Value {
    (0..map.shape.osds).map(one).collect()
}

fn read(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("read {}", path.display()))
}

fn save(folder: &Path, name: &str, answer: &Value) -> Result<()> {
    std::fs::write(folder.join(name), serde_json::to_vec(answer)?).with_context(|| format!("write {name}"))
}
