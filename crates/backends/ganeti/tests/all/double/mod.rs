//! A cluster's RAPI in this process: the job queue, filters and failures as Ganeti 3.0 has them, over real
//! HTTP, with a time of its own: each request is a tick.

pub mod http;
pub mod queue;
pub mod rules;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// MiB of each instance.
const MEMORY: u64 = 1024;
/// How a tag begins that says how a node had booted before a visit.
const BOOT: &str = "stagger:boot:";

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
    /// M, C, R, D or O.
    pub role: &'static str,
    pub tags: BTreeSet<String>,
    pub boot: u32,
    pub up: bool,
    /// Ticks until it goes down, then until it is up again.
    pub down_in: Option<u32>,
    pub up_in: Option<u32>,
}

/// An instance.
#[derive(Debug, Clone)]
pub struct Instance {
    pub uuid: String,
    pub pnode: String,
    pub snode: Option<String>,
    pub template: &'static str,
    pub admin_up: bool,
    pub running: bool,
    pub degraded: bool,
    /// Looks until a resync is over.
    pub resync: u32,
}

#[derive(Debug, Clone)]
pub struct Filter {
    pub uuid: String,
    pub priority: u64,
    pub predicates: Value,
    pub action: Value,
    pub reason: Value,
    pub watermark: u64,
}

/// What the configuration holds: what RAPI shows may be older than what is so.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub nodes: BTreeMap<String, Node>,
    pub instances: BTreeMap<String, Instance>,
    pub filters: BTreeMap<String, Filter>,
    pub master: String,
}

/// What goes wrong, once, with a request whose path has that text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is carried out, and its answer is lost.
    LoseAnswer,
    /// Its answer is lost, and it is carried out so many requests later.
    Late(u32),
    /// It is not carried out.
    Status(u16),
    /// It is not, as the queue is drained.
    QueueDrained,
    /// It is, and answered so.
    DoneAndStatus(u16),
    /// Its answer is no JSON.
    Garbage,
    /// The job that it submits fails.
    FailJob,
}

#[derive(Debug, Default)]
pub struct World {
    pub now: Config,
    pub shown: Config,
    /// How many master candidates there should be.
    pub pool: usize,
    /// What is changed is shown so many requests later.
    pub lag: u32,
    stale: u32,
    pub jobs: Vec<queue::Job>,
    /// What was asked of each migration.
    pub migrations: Vec<(String, Value)>,
    /// The primary addresses of nodes.
    pub addresses: BTreeMap<String, &'static str>,
    /// Ganeti shuts these down instead of migrating them.
    pub always_failover: BTreeSet<String>,
    /// These cannot be migrated live.
    pub never_live: BTreeSet<String>,
    /// The job that is submitted next fails.
    pub fails_next: bool,
    /// Jobs in the order in which they ended.
    pub ended: Vec<u64>,
    pub faults: Vec<(String, Fault)>,
    late: VecDeque<(u32, Request)>,
    pub never_returns: BTreeSet<String>,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    /// Copies that a reboot cut off: on which node, of which instance.
    pub degraded_by_reboot: Vec<(String, String)>,
    pub powercycles: BTreeMap<String, u32>,
    /// So many ticks a node that is told to reboot answers on.
    pub down_after: u32,
    /// Migrations at work on each node at once, at most.
    pub most_migrations: BTreeMap<String, usize>,
    pub requests: u64,
    /// Our password is another by now.
    pub locked_out: bool,
    /// What was asked, by method and path.
    pub questions: Vec<String>,
    /// Questions that wait for a change, now and at most.
    pub waits: usize,
    pub most_waits: usize,
    /// So many ticks no job is begun.
    pub holds_queued: u32,
    /// The command that makes another node the master writes that node's name there.
    pub new_master: Option<std::path::PathBuf>,
    /// Others take the node back into service whose name is written there.
    pub undrained: Option<std::path::PathBuf>,
    /// A disk of that instance fails when it has been migrated, once.
    pub fails_when_moved: Option<&'static str>,
    /// At this request its client dies.
    pub kill: Option<(u64, Dies)>,
    pub killed: std::sync::Arc<tokio::sync::Notify>,
    /// Something that happens at a request, once.
    pub then: Vec<(u64, Then)>,
}

/// What becomes of the request at which its client dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    /// It was never sent.
    Before,
    /// It is carried out.
    After,
    /// If it submits a job it is carried out so many requests later, when another process is at work.
    Late(u32),
}

/// What others do meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// They make an instance: its name, template, primary and secondary node.
    Create(&'static str, &'static str, &'static str, Option<&'static str>),
    /// They change the password of our user.
    ChangePassword,
    /// They restart the daemon that RAPI asks: so many questions get no answer.
    Restart(usize),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: Vec<(String, String)>,
    pub body: Value,
}

impl Request {
    pub fn word(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What RAPI says.
pub type Reply = (u16, Value);

pub fn no(code: u16, why: &str) -> Reply {
    (
        code,
        json!({ "code": code, "message": why, "explain": "what that status means" }),
    )
}

impl World {
    /// Nodes `n1`, `n2` …, of which the first is the master and all are candidates.
    pub fn with_nodes(count: usize) -> Self {
        let mut world = Self {
            pool: 10,
            down_after: 2,
            ..Self::default()
        };
        for at in 1..=count {
            let node = Node {
                role: if at == 1 { "M" } else { "C" },
                tags: BTreeSet::from(["rack:a".to_owned()]),
                boot: 1,
                up: true,
                down_in: None,
                up_in: None,
            };
            world.now.nodes.insert(format!("n{at}"), node);
        }
        "n1".clone_into(&mut world.now.master);
        world.shown = world.now.clone();
        world
    }

    /// One more instance, which runs.
    pub fn add(&mut self, name: &str, template: &'static str, pnode: &str, snode: Option<&str>) {
        let uuid = format!("00000000-0000-4000-8000-{:012}", self.now.instances.len() + 1);
        let instance = Instance {
            uuid,
            pnode: pnode.to_owned(),
            snode: snode.map(str::to_owned),
            template,
            admin_up: true,
            running: true,
            degraded: false,
            resync: 0,
        };
        self.now.instances.insert(name.to_owned(), instance);
        self.shown = self.now.clone();
    }

    /// One that is down.
    pub fn add_down(&mut self, name: &str, template: &'static str, pnode: &str, snode: Option<&str>) {
        self.add(name, template, pnode, snode);
        let instance = self.now.instances.get_mut(name).unwrap();
        (instance.admin_up, instance.running) = (false, false);
        self.shown = self.now.clone();
    }

    pub fn fault(&mut self, path: &str, fault: Fault) {
        self.faults.push((path.to_owned(), fault));
    }

    /// How many questions had that text.
    pub fn asked(&self, text: &str) -> usize {
        self.questions
            .iter()
            .filter(|question| question.contains(text))
            .count()
    }

    fn take_fault(&mut self, request: &Request) -> Option<Fault> {
        let whole = format!("{} {}", request.method, request.path);
        let at = self
            .faults
            .iter()
            .position(|(path, _)| whole.contains(path.as_str()))?;
        Some(self.faults.remove(at).1)
    }

    /// Something of the configuration has changed.
    pub fn changed(&mut self) {
        self.stale = self.lag + 1;
    }

    /// The next tick: nodes boot, jobs go on, late requests land, changes are shown.
    pub fn tick(&mut self) {
        self.requests += 1;
        self.others();
        for (left, _) in &mut self.late {
            *left = left.saturating_sub(1);
        }
        while self.late.front().is_some_and(|(left, _)| *left == 0) {
            let (_, request) = self.late.pop_front().unwrap();
            self.answer(&request);
        }
        self.boot();
        self.run_jobs();
        if self.stale > 0 {
            self.stale -= 1;
            if self.stale == 0 {
                self.shown = self.now.clone();
            }
        }
    }

    fn others(&mut self) {
        if let Some(file) = &self.new_master
            && let Ok(name) = std::fs::read_to_string(file)
            && name.ends_with('\n')
        {
            std::fs::remove_file(file).unwrap();
            self.fail_over(name.trim());
        }
        if let Some(file) = &self.undrained
            && let Ok(name) = std::fs::read_to_string(file)
            && name.ends_with('\n')
        {
            std::fs::remove_file(file).unwrap();
            self.now.nodes.get_mut(name.trim()).unwrap().role = "C";
            self.shown = self.now.clone();
        }
        let now = self.requests;
        while let Some(at) = self.then.iter().position(|(when, _)| *when <= now) {
            match self.then.remove(at).1 {
                Then::Create(name, template, pnode, snode) => self.add(name, template, pnode, snode),
                Then::ChangePassword => self.locked_out = true,
                Then::Restart(questions) => {
                    let away = ("GET /2/".to_owned(), Fault::Status(502));
                    self.faults.extend(std::iter::repeat_n(away, questions));
                }
            }
        }
    }

    fn boot(&mut self) {
        let names: Vec<String> = self.now.nodes.keys().cloned().collect();
        for name in names {
            let node = self.now.nodes.get_mut(&name).unwrap();
            if let Some(left) = node.down_in {
                node.down_in = left.checked_sub(1);
                if left == 0 {
                    self.goes_down(&name);
                }
                continue;
            }
            if let Some(left) = node.up_in
                && !self.never_returns.contains(&name)
            {
                node.up_in = left.checked_sub(1);
                if left == 0 {
                    node.up = true;
                    node.boot += 1;
                }
            }
        }
    }

    fn goes_down(&mut self, name: &str) {
        let node = self.now.nodes.get_mut(name).unwrap();
        node.up = false;
        node.up_in = Some(6);
        if self.now.master == name {
            self.violations.push(format!("the master {name} went down"));
        }
        let down: BTreeSet<String> = self
            .now
            .nodes
            .iter()
            .filter(|(_, node)| !node.up)
            .map(|(name, _)| name.clone())
            .collect();
        for (instance, of) in &mut self.now.instances {
            let touches = of.pnode == name || of.snode.as_deref() == Some(name);
            if of.pnode == name && of.running {
                of.running = false;
                self.violations
                    .push(format!("{instance} was at work on {name} when it went down"));
            }
            if touches && of.template == "drbd" {
                if of.running && of.degraded {
                    self.violations
                        .push(format!("{instance} lost a copy while it was degraded"));
                }
                of.degraded = true;
                self.degraded_by_reboot.push((name.to_owned(), instance.clone()));
                if down.contains(&of.pnode) && of.snode.as_ref().is_some_and(|snode| down.contains(snode)) {
                    self.violations
                        .push(format!("both copies of {instance} are down"));
                }
            }
        }
    }

    /// A node is rebooted by whatever way.
    pub fn powercycle(&mut self, name: &str) {
        *self.powercycles.entry(name.to_owned()).or_insert(0) += 1;
        self.now.nodes.get_mut(name).unwrap().down_in = Some(self.down_after);
    }

    /// Another node becomes master, as the command does it.
    pub fn fail_over(&mut self, to: &str) {
        let from = std::mem::replace(&mut self.now.master, to.to_owned());
        self.now.nodes.get_mut(&from).unwrap().role = "C";
        self.now.nodes.get_mut(to).unwrap().role = "M";
        self.shown = self.now.clone();
    }

    pub fn boot_id(node: &Node) -> String {
        format!("boot-{}", node.boot)
    }

    fn status(&self, instance: &Instance) -> &'static str {
        match (instance.admin_up, instance.running) {
            (true, true) => "running",
            (true, false) if !self.now.nodes[&instance.pnode].up => "ERROR_nodedown",
            (true, false) => "ERROR_down",
            (false, true) => "ERROR_up",
            (false, false) => "ADMIN_down",
        }
    }

    pub fn instance_document(&self, name: &str) -> Value {
        let instance = &self.shown.instances[name];
        // Whether it runs is asked of its node, and never old.
        let live = &self.now.instances[name];
        json!({
            "name": name,
            "uuid": instance.uuid,
            "pnode": instance.pnode,
            "snodes": instance.snode.iter().collect::<Vec<_>>(),
            "disk_template": instance.template,
            "status": self.status(live),
            "tags": [],
            "disk_usage": 1024,
            "beparams": { "maxmem": MEMORY, "vcpus": 1, "auto_balance": true,
                "always_failover": self.always_failover.contains(name) },
            "oper_ram": live.running.then_some(MEMORY),
        })
    }

    pub fn node_document(&self, name: &str) -> Value {
        let node = &self.shown.nodes[name];
        json!({
            "name": name,
            "role": node.role,
            "group.uuid": "g1",
            "vm_capable": true,
            "tags": node.tags,
            "offline": node.role == "O",
            "drained": node.role == "D",
            "ndparams": {},
            "mtotal": 32 * MEMORY,
            "mnode": MEMORY,
            "mfree": 31 * MEMORY - self.used_on(name),
            "dtotal": 1_024_000,
            "dfree": 900_000,
            "ctotal": 16,
        })
    }

    fn used_on(&self, node: &str) -> u64 {
        let runs = |of: &&Instance| of.pnode == node && of.running;
        MEMORY * self.now.instances.values().filter(runs).count() as u64
    }

    /// What instances may be.
    pub fn ipolicy() -> Value {
        let spec = |of: u64| {
            let keys = [
                "memory-size",
                "cpu-count",
                "disk-size",
                "disk-count",
                "nic-count",
                "spindle-use",
            ];
            let spec = keys.map(|key| (key.to_owned(), json!(of)));
            Value::Object(spec.into_iter().collect())
        };
        json!({
            "std": spec(1),
            "minmax": [{ "min": spec(0), "max": spec(1_000_000) }],
            "disk-templates": ["drbd", "plain", "file", "sharedfile", "rbd", "diskless"],
            "vcpu-ratio": 4.0,
            "spindle-ratio": 32.0,
        })
    }

    /// Where each instance runs, and whether it does.
    pub fn layout(&self) -> BTreeMap<String, (String, Option<String>, bool)> {
        self.now
            .instances
            .iter()
            .map(|(name, of)| (name.clone(), (of.pnode.clone(), of.snode.clone(), of.running)))
            .collect()
    }

    /// How each node had booted before its last visit, as that has noted it.
    pub fn noted_boots(&self) -> BTreeMap<String, Vec<String>> {
        let noted = |tags: &BTreeSet<String>| -> Vec<String> {
            let boots = tags
                .iter()
                .filter_map(|tag| tag.strip_prefix(BOOT)?.split('@').next());
            boots.map(str::to_owned).collect()
        };
        let nodes = self.now.nodes.iter();
        nodes
            .map(|(name, node)| (name.clone(), noted(&node.tags)))
            .collect()
    }

    /// What a run leaves behind: tags and filters of ours, but for the tags that stay.
    pub fn left_behind(&self) -> Vec<String> {
        let tags = self.now.nodes.iter().flat_map(|(name, node)| {
            node.tags
                .iter()
                .filter(|tag| tag.starts_with("stagger:") && !tag.starts_with(BOOT))
                .map(move |tag| format!("{name} {tag}"))
        });
        let filters = self
            .now
            .filters
            .values()
            .filter(|filter| filter.action == "PAUSE" || filter.action == "ACCEPT")
            .map(|filter| format!("filter {}", filter.action));
        tags.chain(filters).collect()
    }
}
