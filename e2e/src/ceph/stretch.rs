//! From a cluster whose OSDs stand in two data centres to one in stretch mode, by the steps of Ceph's own manual
//! (`rados/operations/stretch-mode`): monitors know where they stand, a rule puts two copies in each data centre, and one
//! command gives all pools that rule, four copies and `peering_crush_bucket_count` 2.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::spec::{CephSpec, Kind};
use crate::command::run;
use crate::rados::{Rados, Target};

/// By then data has moved to where the new rule wants it.
const LIMIT: Duration = Duration::from_mins(2);

/// The rule of all pools of such a cluster.
const RULE: &str = "stretch_rule";

/// Its text, as `crushtool` takes it. The number is one that no rule made before has.
const RULE_TEXT: &str = "
rule stretch_rule {
    id 10
    type replicated
    step take default
    step choose firstn 0 type datacenter
    step chooseleaf firstn 2 type host
    step emit
}
";

/// Switches stretch mode on. `crushtool` gives that program, without arguments yet.
pub(super) fn begin(
    spec: &CephSpec,
    dir: &Path,
    rados: &mut Rados,
    crushtool: impl Fn() -> Command,
) -> Result<()> {
    add_rule(dir, crushtool)?;
    let connectivity = json!({ "strategy": "connectivity" });
    rados.command(Target::Mon, "mon set election_strategy", connectivity)?;
    let mons = spec.daemons(Kind::Mon);
    for (index, mon) in (0_u32..).zip(&mons) {
        let place = format!("datacenter=dc{}", spec.site_of_mon(index));
        let fields = json!({ "name": mon.id, "args": [place] });
        rados.command(Target::Mon, "mon set_location", fields)?;
    }
    let tiebreaker = mons.last().context("there is no monitor")?;
    let fields = json!({
        "tiebreaker_mon": tiebreaker.id,
        "new_crush_rule": RULE,
        "dividing_bucket": "datacenter",
    });
    if let Err(error) = rados.command(Target::Mon, "mon enable_stretch_mode", fields) {
        // Where monitors elect meanwhile the client sends it once more, and it is refused if it was done the first time.
        let map = rados.command(Target::Mon, "mon dump", json!({}));
        let map = map.with_context(|| format!("looking whether stretch mode is on, after: {error:#}"))?;
        ensure!(map["stretch_mode"] == true, error);
    }
    // For seconds the manager goes on telling how the groups were before, which was clean.
    let begun = Instant::now();
    while !all_on_four(&rados.command(Target::Mgr, "pg dump", json!({}))?) {
        ensure!(
            begun.elapsed() < LIMIT,
            "not all placement groups had four OSDs {} s after stretch mode began",
            LIMIT.as_secs()
        );
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// Whether each group is clean on two OSDs of each site.
fn all_on_four(dump: &Value) -> bool {
    let groups = dump["pg_map"]["pg_stats"].as_array();
    let settled = |group: &Value| {
        let acting = group["acting"].as_array().map_or(0, Vec::len);
        group["state"] == "active+clean" && acting == 4
    };
    groups.is_some_and(|groups| !groups.is_empty() && groups.iter().all(settled))
}

/// A rule of two steps can only be written into the map itself.
fn add_rule(dir: &Path, crushtool: impl Fn() -> Command) -> Result<()> {
    let [map, text, new] = ["crush.map", "crush.txt", "crush.new"].map(|name| dir.join(name));
    let ceph = || Command::new(dir.join("ceph"));
    run(ceph().args(["osd", "getcrushmap", "-o"]).arg(&map))?;
    run(crushtool().arg("-d").arg(&map).arg("-o").arg(&text))?;
    let rules = fs::read_to_string(&text).with_context(|| format!("reading {}", text.display()))?;
    fs::write(&text, format!("{rules}{RULE_TEXT}")).with_context(|| format!("writing {}", text.display()))?;
    run(crushtool().arg("-c").arg(&text).arg("-o").arg(&new))?;
    run(ceph().args(["osd", "setcrushmap", "-i"]).arg(&new))?;
    Ok(())
}
