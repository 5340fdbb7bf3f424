//! The job queue and what jobs do.

use serde_json::{Value, json};

use super::{World, rules};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Role {
        node: String,
        role: String,
        promotes: bool,
    },
    TagsSet {
        node: String,
        tags: Vec<String>,
    },
    TagsDel {
        node: String,
        tags: Vec<String>,
    },
    Migrate {
        instance: String,
        target: Option<String>,
    },
    Replace {
        instance: String,
        to: String,
    },
    Shutdown {
        instance: String,
    },
    Startup {
        instance: String,
    },
    Activate {
        instance: String,
    },
    Info {
        instance: String,
    },
    Powercycle {
        node: String,
    },
    /// What others do with an instance, by the name that they typed.
    Export {
        instance: String,
        ticks: u32,
    },
    /// What others do, for so many ticks.
    Other {
        ticks: u32,
    },
}

#[derive(Debug, Clone)]
pub struct Job {
    pub id: u64,
    pub op: Op,
    /// Sources and texts.
    pub reasons: Vec<(String, String)>,
    pub status: &'static str,
    pub result: Value,
    pub fails: bool,
    ticks: u32,
}

impl Job {
    pub fn is_final(&self) -> bool {
        ["success", "error", "canceled"].contains(&self.status)
    }

    pub fn has_begun(&self) -> bool {
        !["queued", "waiting", "canceled"].contains(&self.status)
    }

    /// The field by which its opcode names something.
    pub fn field(&self) -> Option<(&'static str, &str)> {
        match &self.op {
            Op::Export { instance, .. } | Op::Migrate { instance, .. } => Some(("instance_name", instance)),
            Op::Role { node, .. } | Op::Powercycle { node } => Some(("node_name", node)),
            _ => None,
        }
    }

    fn summary(&self) -> String {
        match &self.op {
            Op::Migrate { instance, .. } => format!("INSTANCE_MIGRATE({instance})"),
            Op::Replace { instance, .. } => format!("INSTANCE_REPLACE_DISKS({instance})"),
            other => format!("{other:?}"),
        }
    }

    pub fn document(&self) -> Value {
        let trail: Vec<Value> = self
            .reasons
            .iter()
            .map(|(source, text)| json!([source, text, 1_795_219_724_236_842_496_u64]))
            .collect();
        let mut op = json!({ "OP_ID": "OP", "reason": trail });
        if let Some((field, name)) = self.field() {
            op[field] = json!(name);
        }
        json!({
            "id": self.id,
            "status": self.status,
            "summary": [self.summary()],
            "start_ts": self.has_begun().then_some([1_795_219_724 + 100 * self.id, 250_000]),
            "end_ts": self.is_final().then_some([1_795_219_730 + 100 * self.id, 750_000]),
            "ops": [op],
            "opstatus": [self.status],
            "opresult": [self.result],
        })
    }
}

type Ended = Result<Value, String>;

impl World {
    pub fn submit(&mut self, op: Op, reason: Option<&str>) -> u64 {
        let id = self.jobs.len() as u64 + 1;
        let mut reasons = Vec::new();
        if let Some(text) = reason {
            reasons.push(("gnt:user".to_owned(), text.to_owned()));
        }
        reasons.push(("gnt:library:rlib2:x".to_owned(), String::new()));
        self.jobs.push(Job {
            id,
            op,
            reasons,
            status: "queued",
            result: Value::Null,
            fails: std::mem::take(&mut self.fails_next),
            ticks: 0,
        });
        id
    }

    /// Each job goes one step on.
    pub fn run_jobs(&mut self) {
        self.holds_queued = self.holds_queued.saturating_sub(1);
        for at in 0..self.jobs.len() {
            let job = &self.jobs[at];
            match job.status {
                // The queue's rules are those that are shown: both are read from one place.
                "queued" => match rules::action(&self.shown, job.id, &job.reasons, job.field()).as_str() {
                    "PAUSE" => {}
                    "REJECT" => self.jobs[at].status = "canceled",
                    _ if self.holds_queued > 0 => {}
                    _ => self.jobs[at].status = "waiting",
                },
                "waiting" => {
                    self.jobs[at].status = "running";
                    self.count_migrations();
                }
                "running" => {
                    let ends = match &job.op {
                        Op::Other { ticks } | Op::Export { ticks, .. } => job.ticks >= *ticks,
                        _ => job.ticks >= 1,
                    };
                    self.jobs[at].ticks += 1;
                    if ends {
                        self.end(at);
                    }
                }
                _ => {}
            }
        }
    }

    fn count_migrations(&mut self) {
        let mut at_work: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        for job in self.jobs.iter().filter(|job| job.status == "running") {
            if let Op::Migrate { instance, target } = &job.op
                && let Some(of) = self.now.instances.get(instance)
            {
                let to = target.clone().or_else(|| of.snode.clone()).unwrap();
                for node in [&of.pnode, &to] {
                    *at_work.entry(node.clone()).or_insert(0) += 1;
                }
            }
        }
        for (node, count) in at_work {
            let most = self.most_migrations.entry(node).or_insert(0);
            *most = (*most).max(count);
        }
    }

    fn end(&mut self, at: usize) {
        self.ended.push(self.jobs[at].id);
        let op = self.jobs[at].op.clone();
        let ended = if self.jobs[at].fails {
            Err("the test said so".to_owned())
        } else {
            self.carry_out(&op)
        };
        let job = &mut self.jobs[at];
        match ended {
            Ok(result) => (job.status, job.result) = ("success", result),
            Err(why) => {
                (job.status, job.result) = ("error", json!(["OpExecError", [why, "wrong_state"]]));
            }
        }
        self.changed();
    }

    fn reachable(&self, node: &str) -> Result<(), String> {
        if self.now.nodes[node].up {
            Ok(())
        } else {
            Err(format!("node {node} cannot be reached"))
        }
    }

    /// As `LUNodeSetParams` has it.
    fn candidates_are_left(&mut self, node: &str, role: &str, promotes: bool) -> Result<(), String> {
        if role == "master-candidate" || self.now.nodes[node].role != "C" {
            return Ok(());
        }
        let others = || self.now.nodes.iter().filter(|(name, _)| *name != node);
        let possible = others()
            .filter(|(_, other)| !["D", "O"].contains(&other.role))
            .count();
        let left = others()
            .filter(|(_, other)| ["M", "C"].contains(&other.role))
            .count();
        let should = possible.min(self.pool);
        if left >= should {
            return Ok(());
        }
        if !promotes {
            return Err("Not enough master candidates, please pass auto promote option".to_owned());
        }
        let regular = others().find(|(_, other)| other.role == "R");
        let promoted = regular.map(|(name, _)| name.clone()).unwrap();
        self.now.nodes.get_mut(&promoted).unwrap().role = "C";
        Ok(())
    }

    fn carry_out(&mut self, op: &Op) -> Ended {
        match op {
            Op::Role { node, role, promotes } => {
                self.reachable(node)?;
                self.candidates_are_left(node, role, *promotes)?;
                let word = match role.as_str() {
                    "drained" => "D",
                    "master-candidate" => "C",
                    "regular" => "R",
                    other => return Err(format!("no role {other}")),
                };
                let node = self.now.nodes.get_mut(node).unwrap();
                if node.role == "M" {
                    return Err("the master cannot be drained".to_owned());
                }
                node.role = word;
                Ok(Value::Null)
            }
            Op::TagsSet { node, tags } => {
                let known = &mut self.now.nodes.get_mut(node).unwrap().tags;
                known.extend(tags.iter().cloned());
                Ok(Value::Null)
            }
            Op::TagsDel { node, tags } => {
                let known = &mut self.now.nodes.get_mut(node).unwrap().tags;
                if let Some(missing) = tags.iter().find(|tag| !known.contains(*tag)) {
                    return Err(format!("Tag(s) {missing} not found"));
                }
                known.retain(|tag| !tags.contains(tag));
                Ok(Value::Null)
            }
            Op::Migrate { instance, target } => self.migrate(instance, target.as_deref()),
            Op::Replace { instance, to } => {
                let of = self
                    .now
                    .instances
                    .get(instance)
                    .ok_or("no such instance")?
                    .clone();
                if of.template != "drbd" || of.pnode == *to {
                    return Err("not for this instance".to_owned());
                }
                self.reachable(&of.pnode)?;
                self.reachable(to)?;
                if self.now.nodes[to].role == "D" {
                    return Err(format!("node {to} is drained"));
                }
                let of = self.now.instances.get_mut(instance).unwrap();
                of.snode = Some(to.clone());
                (of.degraded, of.resync) = (false, 0);
                Ok(Value::Null)
            }
            Op::Shutdown { instance } => {
                let of = self.now.instances.get_mut(instance).ok_or("no such instance")?;
                (of.admin_up, of.running) = (false, false);
                Ok(Value::Null)
            }
            Op::Startup { instance } => {
                let pnode = self.now.instances[instance].pnode.clone();
                self.reachable(&pnode)?;
                let of = self.now.instances.get_mut(instance).unwrap();
                (of.admin_up, of.running) = (true, true);
                Ok(Value::Null)
            }
            Op::Activate { instance } => {
                let of = self.now.instances[instance].clone();
                self.reachable(&of.pnode)?;
                self.reachable(of.snode.as_ref().unwrap())?;
                let of = self.now.instances.get_mut(instance).unwrap();
                if of.degraded {
                    (of.degraded, of.resync) = (false, 2);
                }
                Ok(Value::Null)
            }
            Op::Info { instance } => Ok(self.info(instance)),
            Op::Powercycle { node } => {
                if self.now.nodes[node].role == "M" {
                    return Err("the node is the master and force was not given".to_owned());
                }
                self.reachable(node)?;
                self.powercycle(node);
                Ok(json!("Reboot scheduled in 5 seconds"))
            }
            Op::Other { .. } | Op::Export { .. } => Ok(Value::Null),
        }
    }

    fn migrate(&mut self, name: &str, target: Option<&str>) -> Ended {
        let of = self.now.instances.get(name).ok_or("no such instance")?.clone();
        if !of.running {
            return Err("instance is not running, please use failover".to_owned());
        }
        let to = match (of.template, target) {
            ("drbd", Some(_)) => return Err("drbd cannot be migrated to arbitrary nodes".to_owned()),
            ("drbd", None) => of.snode.clone().unwrap(),
            ("plain" | "file", _) => return Err(format!("{} cannot be migrated", of.template)),
            (_, Some(target)) => target.to_owned(),
            (_, None) => return Err("neither an iallocator nor a node".to_owned()),
        };
        self.reachable(&of.pnode)?;
        self.reachable(&to)?;
        if ["D", "O"].contains(&self.now.nodes[&to].role) {
            return Err(format!("node {to} is drained"));
        }
        if of.degraded || of.resync > 0 {
            return Err(format!("disk of {name} is degraded"));
        }
        let from = of.pnode;
        let fails = self.fails_when_moved.take_if(|fails| *fails == name).is_some();
        let of = self.now.instances.get_mut(name).unwrap();
        of.degraded |= fails;
        of.pnode = to;
        if of.template == "drbd" {
            of.snode = Some(from);
        }
        Ok(Value::Null)
    }

    fn info(&mut self, name: &str) -> Value {
        let of = self.now.instances.get_mut(name).unwrap();
        let percent = (of.resync > 0).then_some(13.3);
        of.resync = of.resync.saturating_sub(1);
        let bad = of.degraded || percent.is_some();
        let status = json!(["/dev/drbd0", 147, 0, percent, null, bad, if bad { 2 } else { 1 }]);
        let disks = if of.template == "drbd" {
            json!([{ "iv_name": "disk/0", "dev_type": "drbd", "pstatus": status, "sstatus": status }])
        } else {
            json!([])
        };
        json!({ name: { "name": name, "disks": disks } })
    }
}
