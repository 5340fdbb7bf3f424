//! A Ceph that answers from a map: what was recorded of a cluster, and what has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// What came of a question: the code, the answer, and words for people.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) rc: i32,
    pub(super) out: Vec<u8>,
    pub(super) err: String,
}

/// A placement group.
#[derive(Debug, Clone)]
struct Group {
    id: String,
    members: Vec<u32>,
}

/// The cluster.
#[derive(Debug)]
pub(super) struct Ceph {
    /// Answers that never change, by the question's words joined with `_`.
    recorded: BTreeMap<String, Vec<u8>>,
    osd_dump: Value,
    osd_tree: Value,
    groups: Vec<Group>,
    /// The groups of each OSD, by their place.
    of: BTreeMap<u32, Vec<usize>>,
    min_size: usize,
    epoch: u64,
    down: BTreeSet<u32>,
    up_from: BTreeMap<u32, u64>,
    /// What OSDs have said and no map has yet: whether each is up.
    said: Vec<(u32, bool)>,
    /// Who has `noout`.
    noout: BTreeSet<String>,
    /// Flags of the whole cluster that were set since.
    flags: BTreeSet<String>,
    balances: bool,
    keys: BTreeMap<String, String>,
    /// The most OSDs that were down at once, and the most groups that could not serve.
    worst: (usize, usize),
}

impl Ceph {
    /// The cluster whose answers are in a folder, in files named as the questions; all is well.
    pub(super) fn load(folder: &Path) -> Result<Self> {
        let mut recorded = BTreeMap::new();
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            recorded.insert(name.unwrap_or_default(), text);
        }
        let rules = json!([{ "rule_id": 0, "rule_name": "replicated_rule", "type": 1, "steps": [
            { "op": "take", "item": -1, "item_name": "default" },
            { "op": "chooseleaf_firstn", "num": 0, "type": "host" },
            { "op": "emit" },
        ] }]);
        recorded.insert("osd_crush_rule_dump".to_owned(), serde_json::to_vec(&rules)?);
        let mut take = |name: &str| -> Result<Value> {
            let text = recorded
                .remove(name)
                .with_context(|| format!("{} has no {name}.json", folder.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("reading {name}.json"))
        };
        let (osd_dump, osd_tree) = (take("osd_dump")?, take("osd_tree")?);
        let brief = take("pg_dump_pgs_brief")?;
        let mut groups = Vec::new();
        for group in brief["pg_stats"].as_array().context("no placement groups")? {
            let members = group["acting"].as_array().into_iter().flatten();
            groups.push(Group {
                id: group["pgid"].as_str().context("a group has no id")?.to_owned(),
                members: members.filter_map(|osd| Some(osd.as_u64()? as u32)).collect(),
            });
        }
        let mut of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, group) in groups.iter().enumerate() {
            for osd in &group.members {
                of.entry(*osd).or_default().push(at);
            }
        }
        Ok(Self {
            min_size: osd_dump["pools"][0]["min_size"].as_u64().unwrap_or(2) as usize,
            epoch: osd_dump["epoch"].as_u64().context("the map has no epoch")?,
            recorded,
            osd_dump,
            osd_tree,
            groups,
            of,
            down: BTreeSet::new(),
            up_from: BTreeMap::new(),
            said: Vec::new(),
            noout: BTreeSet::new(),
            flags: BTreeSet::new(),
            balances: true,
            keys: BTreeMap::new(),
            worst: (0, 0),
        })
    }

    /// Where each OSD is: host and rack.
    pub(super) fn places(&self) -> BTreeMap<u32, (String, String)> {
        let nodes: Vec<&Value> = self.osd_tree["nodes"].as_array().into_iter().flatten().collect();
        let parent = |id: &Value| {
            nodes.iter().find(|node| {
                let children = node["children"].as_array();
                children.is_some_and(|children| children.contains(id))
            })
        };
        let name = |node: Option<&&Value>| {
            let name = node.and_then(|node| node["name"].as_str());
            name.unwrap_or_default().to_owned()
        };
        let mut places = BTreeMap::new();
        for host in nodes.iter().filter(|node| node["type"] == "host") {
            let place = (name(Some(host)), name(parent(&host["id"])));
            let osds = host["children"].as_array().into_iter().flatten();
            places.extend(osds.filter_map(|osd| Some((osd.as_u64()? as u32, place.clone()))));
        }
        places
    }

    /// The names of the daemons of a kind, as their metadata has them.
    pub(super) fn names(&self, kind: &str) -> Vec<String> {
        let recorded = self.recorded.get(&format!("{kind}_metadata"));
        let all: Value = recorded
            .and_then(|text| serde_json::from_slice(text).ok())
            .unwrap_or_default();
        let names = all.as_array().into_iter().flatten();
        names
            .filter_map(|one| one["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// An OSD says that it starts or stops. The next map has it.
    pub(super) fn says(&mut self, osd: u32, up: bool) {
        let last = self.said.iter().rev().find(|(said, _)| *said == osd);
        let now = last.map_or(!self.down.contains(&osd), |(_, up)| *up);
        if now != up {
            self.said.push((osd, up));
        }
    }

    /// The monitors make a map of what was said, as they do about once a second: one change of each OSD.
    pub(super) fn next_map(&mut self) {
        let mut changed = BTreeSet::new();
        let said = std::mem::take(&mut self.said);
        for (osd, up) in said {
            if !changed.insert(osd) {
                self.said.push((osd, up));
            } else if up {
                self.down.remove(&osd);
                self.up_from.insert(osd, self.epoch + 1);
            } else {
                self.down.insert(osd);
            }
        }
        if !changed.is_empty() {
            self.epoch += 1;
            let cannot = |group: &&Group| self.live(group).count() < self.min_size;
            let stopped = self.groups.iter().filter(cannot).count();
            self.worst = (self.worst.0.max(self.down.len()), self.worst.1.max(stopped));
        }
    }

    /// The most OSDs that were down at once, and the most groups that could not serve.
    pub(super) fn worst(&self) -> (usize, usize) {
        self.worst
    }

    fn live<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = u32> + 'a {
        let members = group.members.iter().copied();
        members.filter(|osd| !self.down.contains(osd))
    }

    /// Answers a question, as `ceph … -f json` does.
    pub(super) fn answer(&mut self, question: &Value) -> Answer {
        let prefix = question["prefix"].as_str().unwrap_or_default();
        let text = |name: &str| question[name].as_str().unwrap_or_default().to_owned();
        let yes = |answer: &Value| Answer {
            rc: 0,
            out: answer.to_string().into_bytes(),
            err: String::new(),
        };
        match prefix {
            "osd dump" => yes(&self.osd_dump()),
            "osd tree" => yes(&self.osd_tree()),
            "health" => yes(&self.health()),
            "status" => yes(&self.status()),
            "pg dump" => {
                let all: Vec<usize> = (0..self.groups.len()).collect();
                let list = self.list(&all);
                let brief = question["dumpcontents"].is_array();
                let (open, close) = if brief { ("", "") } else { (r#""pg_map":{"#, "}") };
                raw(format!(r#"{{"pg_ready":true,{open}"pg_stats":{list}{close}}}"#))
            }
            "pg ls" => {
                let touched = self.down.iter().filter_map(|osd| self.of.get(osd)).flatten();
                let touched: BTreeSet<usize> = touched.copied().collect();
                let list = self.list(&touched.into_iter().collect::<Vec<_>>());
                raw(format!(r#"{{"pg_ready":true,"pg_stats":{list}}}"#))
            }
            "pg ls-by-osd" => {
                let osd = question["osd"].as_u64().unwrap_or(u64::MAX) as u32;
                let list = self.list(self.of.get(&osd).map_or(&[], Vec::as_slice));
                raw(format!(r#"{{"pg_ready":true,"pg_stats":{list}}}"#))
            }
            "osd ok-to-stop" => self.ok_to_stop(question),
            "mon ok-to-stop" => yes(&json!({})),
            "osd set-group" | "osd unset-group" => {
                let who = question["who"].as_array().into_iter().flatten();
                for one in who.filter_map(Value::as_str) {
                    if prefix == "osd set-group" {
                        self.noout.insert(one.to_owned());
                    } else {
                        self.noout.remove(one);
                    }
                }
                self.epoch += 1;
                yes(&json!({}))
            }
            "balancer status" => yes(&json!({ "active": self.balances, "mode": "upmap" })),
            "balancer off" | "balancer on" => {
                self.balances = prefix == "balancer on";
                yes(&json!({}))
            }
            "osd set" | "osd unset" => {
                let flag = text("key");
                if prefix == "osd set" {
                    self.flags.insert(flag);
                } else {
                    self.flags.remove(&flag);
                }
                self.epoch += 1;
                yes(&json!({}))
            }
            "config-key dump" => {
                let start = text("key");
                let found = self.keys.iter().filter(|(key, _)| key.starts_with(&start));
                yes(&json!(found.collect::<BTreeMap<_, _>>()))
            }
            "config-key set" => {
                self.keys.insert(text("key"), text("val"));
                yes(&json!({}))
            }
            "config-key rm" => {
                self.keys.remove(&text("key"));
                yes(&json!({}))
            }
            other => match self.recorded.get(&other.replace([' ', '-'], "_")) {
                Some(out) => Answer {
                    rc: 0,
                    out: out.clone(),
                    err: String::new(),
                },
                None => Answer {
                    rc: 22,
                    out: Vec::new(),
                    err: format!("this Ceph is only played, and has no answer to {other:?}"),
                },
            },
        }
    }

    fn osd_dump(&self) -> Value {
        let mut dump = self.osd_dump.clone();
        dump["epoch"] = json!(self.epoch);
        if !self.flags.is_empty() {
            let own: Vec<&str> = self.flags.iter().map(String::as_str).collect();
            let recorded = dump["flags"].as_str().unwrap_or_default();
            dump["flags"] = json!(format!("{recorded},{}", own.join(",")));
        }
        let osds = dump["osds"].as_array_mut().into_iter().flatten();
        for osd in osds {
            let id = osd["osd"].as_u64().unwrap_or_default() as u32;
            let up = !self.down.contains(&id);
            osd["up"] = json!(u8::from(up));
            let mut state = vec!["exists"];
            state.extend(up.then_some("up"));
            state.extend(self.noout.contains(&format!("osd.{id}")).then_some("noout"));
            osd["state"] = json!(state);
            if let Some(from) = self.up_from.get(&id) {
                osd["up_from"] = json!(from);
            }
        }
        let nodes = self.noout.iter().filter(|who| !who.starts_with("osd."));
        dump["crush_node_flags"] = nodes.map(|node| (node.clone(), json!(["noout"]))).collect();
        dump
    }

    fn osd_tree(&self) -> Value {
        let mut tree = self.osd_tree.clone();
        let nodes = tree["nodes"].as_array_mut().into_iter().flatten();
        for node in nodes.filter(|node| node["type"] == "osd") {
            let id = node["id"].as_u64().unwrap_or_default() as u32;
            node["status"] = json!(if self.down.contains(&id) { "down" } else { "up" });
        }
        tree
    }

    /// As much of it as is asked for.
    fn status(&self) -> Value {
        let osds = self.osd_dump["osds"].as_array().map_or(0, Vec::len);
        let touched = self.down.iter().filter_map(|osd| self.of.get(osd)).flatten();
        let touched: BTreeSet<&usize> = touched.collect();
        let mut states = vec![json!({
            "state_name": "active+clean", "count": self.groups.len() - touched.len(),
        })];
        if !touched.is_empty() {
            states.push(json!({ "state_name": "active+undersized+degraded", "count": touched.len() }));
        }
        json!({
            "quorum_names": self.names("mon"),
            "osdmap": {
                "epoch": self.epoch, "num_osds": osds, "num_up_osds": osds - self.down.len(),
            },
            "pgmap": { "pgs_by_state": states },
        })
    }

    fn health(&self) -> Value {
        if self.down.is_empty() {
            return json!({ "status": "HEALTH_OK", "checks": {}, "mutes": [] });
        }
        let told = |message: String, detail: Vec<String>| {
            let detail: Vec<_> = detail
                .into_iter()
                .map(|message| json!({ "message": message }))
                .collect();
            json!({
                "severity": "HEALTH_WARN", "muted": false, "detail": detail,
                "summary": { "message": message, "count": detail.len() },
            })
        };
        let down: Vec<String> = self.down.iter().map(|osd| format!("osd.{osd} is down")).collect();
        let degraded = self.down.iter().filter_map(|osd| self.of.get(osd)).flatten();
        let degraded: BTreeSet<&usize> = degraded.collect();
        json!({
            "status": "HEALTH_WARN", "mutes": [],
            "checks": {
                "OSD_DOWN": told(format!("{} osds down", down.len()), down),
                "PG_DEGRADED": told(format!("{} pgs degraded", degraded.len()), Vec::new()),
            },
        })
    }

    /// Groups as their primaries have reported them on this map.
    fn list(&self, places: &[usize]) -> String {
        let mut text = String::with_capacity(places.len() * 160);
        for at in places {
            let group = &self.groups[*at];
            let acting: Vec<u32> = self.live(group).collect();
            let state = if acting.len() == group.members.len() {
                "active+clean"
            } else if acting.len() >= self.min_size {
                "active+undersized+degraded"
            } else {
                "undersized+degraded+peered"
            };
            let complete: Vec<String> = acting.iter().map(u32::to_string).collect();
            let primary = acting.first().map_or(-1, |osd| i64::from(*osd));
            let comma = if text.is_empty() { "[" } else { "," };
            // Writing to a text cannot fail.
            let _ = write!(
                text,
                r#"{comma}{{"pgid":"{}","state":"{state}","reported_epoch":{},"up":{acting:?},"acting":{acting:?},"avail_no_missing":{complete:?},"up_primary":{primary},"acting_primary":{primary}}}"#,
                group.id, self.epoch
            );
        }
        if text.is_empty() {
            text.push('[');
        }
        text.push(']');
        text
    }

    /// Whether each group keeps `min_size` members without these OSDs.
    fn ok_to_stop(&self, question: &Value) -> Answer {
        let ids = question["ids"].as_array().into_iter().flatten();
        let set: BTreeSet<u32> = ids.filter_map(|id| id.as_str()?.parse().ok()).collect();
        let touched = set.iter().filter_map(|osd| self.of.get(osd)).flatten();
        let touched: BTreeSet<usize> = touched.copied().collect();
        let (mut bad, mut degraded) = (Vec::new(), Vec::new());
        for at in touched {
            let group = &self.groups[at];
            let left = self.live(group).filter(|osd| !set.contains(osd)).count();
            let list = if left < self.min_size {
                &mut bad
            } else {
                &mut degraded
            };
            list.push(group.id.as_str());
        }
        let answer = json!({
            "ok_to_stop": bad.is_empty(), "osds": set,
            "num_ok_pgs": degraded.len(), "num_not_ok_pgs": bad.len(),
            "bad_become_inactive": bad, "ok_become_degraded": degraded,
        });
        let err = match bad.len() {
            0 => String::new(),
            count => format!("unsafe to stop osd(s) at this time ({count} PGs are or would become offline)"),
        };
        Answer {
            rc: if bad.is_empty() { 0 } else { 16 },
            out: answer.to_string().into_bytes(),
            err,
        }
    }
}

fn raw(text: String) -> Answer {
    Answer {
        rc: 0,
        out: text.into_bytes(),
        err: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four hosts of one OSD; three groups of three.
    fn ceph() -> Ceph {
        let folder = tempfile::tempdir().unwrap();
        let save =
            |name: &str, answer: Value| fs::write(folder.path().join(name), answer.to_string()).unwrap();
        let osds: Vec<_> = (0..4)
            .map(|id| json!({ "osd": id, "up": 1, "in": 1, "up_from": 5 }))
            .collect();
        save(
            "osd_dump.json",
            json!({ "epoch": 9, "pools": [{ "min_size": 2 }], "osds": osds }),
        );
        let mut nodes =
            vec![json!({ "id": -9, "name": "rack0", "type": "rack", "children": [-1, -2, -3, -4] })];
        for id in 0..4 {
            nodes.push(
                json!({ "id": -1 - id, "name": format!("host{id}"), "type": "host", "children": [id] }),
            );
            nodes.push(json!({ "id": id, "name": format!("osd.{id}"), "type": "osd", "status": "up" }));
        }
        save("osd_tree.json", json!({ "nodes": nodes }));
        let group = |id: &str, acting: [u32; 3]| json!({ "pgid": id, "acting": acting });
        let groups = [
            group("1.0", [0, 1, 2]),
            group("1.1", [1, 2, 3]),
            group("1.2", [2, 3, 0]),
        ];
        save("pg_dump_pgs_brief.json", json!({ "pg_stats": groups }));
        save("mon_metadata.json", json!([{ "name": "a" }]));
        Ceph::load(folder.path()).unwrap()
    }

    fn asked(ceph: &mut Ceph, question: &Value) -> Value {
        let answer = ceph.answer(question);
        serde_json::from_slice(&answer.out).unwrap()
    }

    #[test]
    fn it_is_as_it_was_recorded() {
        let mut ceph = ceph();
        assert_eq!(ceph.places()[&3], ("host3".to_owned(), "rack0".to_owned()));
        assert_eq!(ceph.names("mon"), ["a"]);
        assert_eq!(
            asked(&mut ceph, &json!({ "prefix": "mon metadata" }))[0]["name"],
            "a"
        );
        assert_eq!(ceph.answer(&json!({ "prefix": "fs dump" })).rc, 22);
        let well = asked(&mut ceph, &json!({ "prefix": "status" }));
        assert_eq!(well["quorum_names"], json!(["a"]));
        assert_eq!(well["osdmap"]["num_osds"], well["osdmap"]["num_up_osds"]);
        assert_eq!(well["pgmap"]["pgs_by_state"].as_array().unwrap().len(), 1);
    }

    /// What goes down and comes up between two maps is down in one of them.
    #[test]
    fn each_map_has_one_change_of_an_osd() {
        let mut ceph = ceph();
        ceph.says(0, true);
        ceph.says(0, false);
        ceph.says(0, false);
        ceph.says(0, true);
        ceph.next_map();
        let osds = asked(&mut ceph, &json!({ "prefix": "osd dump" }));
        assert_eq!((&osds["epoch"], &osds["osds"][0]["up"]), (&json!(10), &json!(0)));
        let unclean = asked(&mut ceph, &json!({ "prefix": "pg ls", "states": ["degraded"] }));
        assert_eq!(unclean["pg_stats"].as_array().unwrap().len(), 2);
        assert_eq!(unclean["pg_stats"][0]["acting"], json!([1, 2]));
        ceph.next_map();
        let osds = asked(&mut ceph, &json!({ "prefix": "osd dump" }));
        assert_eq!(
            (&osds["osds"][0]["up"], &osds["osds"][0]["up_from"]),
            (&json!(1), &json!(11))
        );
        ceph.next_map();
        assert_eq!(asked(&mut ceph, &json!({ "prefix": "osd dump" }))["epoch"], 11);
        assert_eq!(ceph.worst(), (1, 0));
    }

    #[test]
    fn it_forbids_what_would_stop_a_group() {
        let mut ceph = ceph();
        let mut may = |ids: &[&str]| {
            let answer = ceph.answer(&json!({ "prefix": "osd ok-to-stop", "ids": ids }));
            let out: Value = serde_json::from_slice(&answer.out).unwrap();
            (answer.rc, out["bad_become_inactive"].clone())
        };
        assert_eq!(may(&["0"]), (0, json!([])));
        assert_eq!(may(&["0", "1"]), (16, json!(["1.0"])));
        ceph.says(3, false);
        ceph.next_map();
        let answer = ceph.answer(&json!({ "prefix": "osd ok-to-stop", "ids": ["1"] }));
        assert_eq!(answer.rc, 16);
    }

    #[test]
    fn keys_and_flags_are_kept() {
        let mut ceph = ceph();
        ceph.answer(&json!({ "prefix": "config-key set", "key": "a/b", "val": "x" }));
        let keys = asked(&mut ceph, &json!({ "prefix": "config-key dump", "key": "a/" }));
        assert_eq!(keys, json!({ "a/b": "x" }));
        ceph.answer(&json!({ "prefix": "config-key rm", "key": "a/b" }));
        let keys = asked(&mut ceph, &json!({ "prefix": "config-key dump", "key": "" }));
        assert_eq!(keys, json!({}));
        let set = json!({ "prefix": "osd set-group", "flags": "noout", "who": ["osd.1", "host2"] });
        ceph.answer(&set);
        let osds = asked(&mut ceph, &json!({ "prefix": "osd dump" }));
        assert_eq!(osds["osds"][1]["state"], json!(["exists", "up", "noout"]));
        assert_eq!(osds["crush_node_flags"], json!({ "host2": ["noout"] }));
    }
}
