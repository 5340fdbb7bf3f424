//! An Ironic in memory: services that are installed, pinned, started and stopped by commands, a balancer, rows. It notes
//! whatever would have failed a request or lost a row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use stagger_core::model::Fact;
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::Ran;
use stagger_ironic::client::IronicClient;
use stagger_ironic::facts::{ApiReport, ConductorReport, ConductorRow, DatabaseFacts, NodeCount, Rows};
use stagger_ironic::in_flight::NodeInFlight;
use stagger_ironic::rabbitmq::{Exchange, QueueReport, Routing, RoutingChange};
use stagger_ironic::release_code::ReleaseCode;
use stagger_ironic::releases::Releases;
use tokio::sync::Notify;

/// The last revision of each release's schema.
const HEADS: [(&str, &str); 5] = [
    ("26.1", "66bd9c5604d5"),
    ("29.0", "21c48150dea9"),
    ("32.0", "3ef27505c9fb"),
    ("35.0", "2a3b4c5d6e7f"),
    ("39.0", "9fb44677ef15"),
];

/// What the code of 39.0.0 was heard to say.
pub const OF_39: &str = include_str!("../../src/code/39.0.0.json");

pub fn code_of_39() -> ReleaseCode {
    serde_json::from_str(OF_39).unwrap()
}

/// A service.
#[derive(Debug, Clone, Default)]
pub struct Service {
    pub is_api: bool,
    pub installed: String,
    pub pin_file: Option<String>,
    /// Release and pin that it runs.
    pub runs: Option<(String, Option<String>)>,
    pub stops: u32,
}

/// When a process dies that runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dies {
    Before,
    After,
    /// The command comes to its host so many commands later.
    Late(u32),
}

#[derive(Debug, Clone)]
struct Sent {
    host: String,
    key: String,
    fence: u64,
    command: String,
}

#[derive(Debug, Default)]
pub struct Inner {
    pub services: BTreeMap<String, Service>,
    /// By backend and server: whether it is drained.
    pub servers: BTreeMap<(String, String), bool>,
    pub sessions: BTreeMap<String, u64>,
    /// Backends that calls go past.
    pub passed: BTreeSet<String>,
    pub reserved: BTreeMap<String, u64>,
    /// Each with how many more looks at the database find it in flight.
    pub in_flight: Vec<(NodeInFlight, u64)>,
    pub schema: String,
    pub rows: BTreeMap<String, BTreeMap<String, u64>>,
    pub null: BTreeMap<String, u64>,
    /// Conductors that nobody has configured.
    pub strangers: Vec<String>,
    pub groups: BTreeMap<String, String>,
    /// By the conductor's name.
    pub drivers: BTreeMap<String, BTreeSet<String>>,
    pub nodes: Vec<NodeCount>,
    /// The most conductors that were drained at once.
    pub drained_at_once: usize,
    pub conductor_rows: BTreeMap<String, (String, bool)>,
    results: BTreeMap<(String, String), Ran>,
    fences: BTreeMap<String, u64>,
    late: VecDeque<(u32, Sent)>,
    /// How many commands came.
    pub commands: u64,
    pub kill: Option<(u64, Dies)>,
    /// What commands that begin so come to, once each.
    pub faults: Vec<(String, Ran)>,
    /// Releases on which a service never starts.
    pub broken: Vec<(String, String)>,
    /// So many looks at the database get no answer.
    pub away: u32,
    /// Migrations migrate nothing, and say that there is more.
    pub stuck: bool,
    pub muted: Vec<String>,
    pub held: bool,
    /// Requests that had passed the door when it was shut; each look at the balancer finds one less.
    pub under_way: u64,
    /// Services whose pin somebody's tool takes away when they are installed, once each.
    pub emptied: Vec<String>,
    /// Commands that begin so are carried out, and the answer is lost; once each.
    pub lost: Vec<String>,
    /// Each conductor gets one more task when it is muted, or the door is shut, which ends after so many looks.
    pub one_more_task: u64,
    ending: BTreeMap<String, u64>,
    /// What would have failed a request, or lost a row.
    pub violations: Vec<String>,
    pub log: Vec<String>,
    /// Conductors are stopped otherwise than by draining them.
    pub other_way: bool,
    /// Conductors are called over RabbitMQ, which routes their calls so.
    pub routing: Option<Routing>,
    /// Stagger dies before the change that comes after so many.
    pub changes_left: Option<u32>,
    /// So many changes are refused.
    pub refusals: u32,
    /// How often a Python was asked what the code of its release says.
    pub codes_asked: u32,
}

impl Inner {
    fn begin_one_more(&mut self, conductor: &str) {
        if self.one_more_task > 0 {
            self.ending.insert(conductor.to_owned(), self.one_more_task);
        }
    }

    /// Nodes that each conductor has reserved.
    fn tasks(&self) -> BTreeMap<String, u64> {
        let mut tasks = self.reserved.clone();
        for conductor in self.ending.keys() {
            *tasks.entry(conductor.clone()).or_default() += 1;
        }
        tasks
    }
}

#[derive(Debug)]
pub struct Lab {
    inner: Mutex<Inner>,
    table: Releases,
    pub killed: Arc<Notify>,
}

pub fn registered(name: &str) -> String {
    format!("{name}:8089")
}

impl Lab {
    /// Two conductors and two API services of that release, with some rows.
    pub fn new(release: &str) -> Self {
        Self::of_groups(release, &[("", ["c1", "c2"])])
    }

    /// The same with two conductors in each of these groups.
    pub fn of_groups(release: &str, groups: &[(&str, [&str; 2])]) -> Self {
        let conductors: Vec<&str> = groups.iter().flat_map(|(_, pair)| *pair).collect();
        let lab = Self {
            inner: Mutex::new(Inner::default()),
            table: Releases::built_in().with(&code_of_39()).unwrap(),
            killed: Arc::new(Notify::new()),
        };
        {
            let mut inner = lab.now();
            let number = &release[..4];
            let head = HEADS.iter().find(|(known, _)| *known == number).unwrap().1;
            head.clone_into(&mut inner.schema);
            for name in ["a1", "a2"].iter().chain(&conductors) {
                let service = Service {
                    is_api: name.starts_with('a'),
                    installed: release.to_owned(),
                    runs: Some((release.to_owned(), None)),
                    ..Service::default()
                };
                inner.services.insert((*name).to_owned(), service);
            }
            let of_conductors = groups.iter().flat_map(|(_, pair)| {
                let of_one = |name: &str| (format!("rpc{}", name.trim_start_matches('c')), *pair);
                pair.map(of_one)
            });
            for (backend, servers) in of_conductors.chain([("b".to_owned(), ["a1", "a2"])]) {
                for server in servers {
                    inner.servers.insert((backend.clone(), server.to_owned()), false);
                }
            }
            for (group, pair) in groups {
                for name in pair {
                    inner.groups.insert((*name).to_owned(), (*group).to_owned());
                }
            }
            let place = lab.table.find(release).unwrap().place;
            for (table, version) in lab.table.writes(place, None) {
                let rows = match table {
                    "nodes" => 12,
                    "ports" => 7,
                    _ => 0,
                };
                let rows = if rows == 0 {
                    BTreeMap::new()
                } else {
                    BTreeMap::from([(version.to_string(), rows)])
                };
                inner.rows.insert(table.to_owned(), rows);
            }
            for name in conductors {
                let version = lab.table.conductor_row(place, None).unwrap().to_string();
                inner.conductor_rows.insert(registered(name), (version, true));
            }
        }
        lab
    }

    /// Conductors are called over RabbitMQ from now on.
    pub fn with_rabbitmq(&self) {
        let mut inner = self.now();
        let conductors = inner.services.iter().filter(|(_, service)| !service.is_api);
        let queues = conductors.map(|(name, _)| {
            let queue = QueueReport {
                is_bound: true,
                consumers: 2,
                calls: 0,
            };
            (registered(name), queue)
        });
        inner.routing = Some(Routing {
            queues: queues.collect(),
            ..Routing::default()
        });
        inner
            .servers
            .retain(|(backend, _), _| !backend.starts_with("rpc"));
    }

    pub fn now(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// All commands that came, in their order.
    pub fn log(&self) -> Vec<String> {
        self.now().log.clone()
    }

    fn carry_out(&self, inner: &mut Inner, sent: &Sent) -> Ran {
        let Sent {
            host,
            key,
            fence,
            command,
        } = sent;
        let seen = inner.fences.entry(host.clone()).or_default();
        if *seen > *fence {
            return Ran {
                code: 97,
                output: format!("fenced by {seen}"),
            };
        }
        *seen = *fence;
        let at = (host.clone(), key.clone());
        if let Some(ran) = inner.results.get(&at) {
            return ran.clone();
        }
        inner.log.push(command.clone());
        let fault = inner
            .faults
            .iter()
            .position(|(begins, _)| command.starts_with(begins));
        let ran = match fault {
            Some(at) => inner.faults.remove(at).1,
            None => self.command(inner, command),
        };
        inner.results.insert(at, ran.clone());
        ran
    }

    fn command(&self, inner: &mut Inner, command: &str) -> Ran {
        let words: Vec<&str> = command.split(' ').collect();
        let ok = |output: &str| Ran {
            code: 0,
            output: output.to_owned(),
        };
        match words.as_slice() {
            ["install", name, release] => {
                let emptied = inner.emptied.iter().position(|emptied| emptied == name);
                let service = inner.services.get_mut(*name).unwrap();
                (*release).clone_into(&mut service.installed);
                if let Some(at) = emptied {
                    inner.emptied.remove(at);
                    service.pin_file = None;
                    let nothing = Ran {
                        code: 0,
                        output: String::new(),
                    };
                    inner.faults.push((format!("pin {name}"), nothing));
                }
                ok("")
            }
            ["pin", name, pin] => {
                inner.services.get_mut(*name).unwrap().pin_file = Some((*pin).to_owned());
                ok("")
            }
            ["unpin", name] => {
                inner.services.get_mut(*name).unwrap().pin_file = None;
                ok("")
            }
            ["stop", name] => {
                Self::stop(inner, name);
                ok("")
            }
            ["start", name] => self.start(inner, name),
            ["ready", name] => match inner.services[*name].runs {
                Some(_) => ok(""),
                None => Ran {
                    code: 124,
                    output: "it has not served".to_owned(),
                },
            },
            ["set", backend, server, state] => {
                inner
                    .servers
                    .insert(((*backend).to_owned(), (*server).to_owned()), *state == "drain");
                let drained = inner.servers.iter().filter(|(_, drained)| **drained);
                let drained: BTreeSet<&String> = drained.map(|((_, server), _)| server).collect();
                inner.drained_at_once = inner.drained_at_once.max(drained.len());
                for backend in inner
                    .servers
                    .keys()
                    .map(|(backend, _)| backend.clone())
                    .collect::<Vec<_>>()
                {
                    let serves = |(of, server): (&(String, String), &bool)| {
                        of.0 == backend && !*server && inner.services[&of.1].runs.is_some()
                    };
                    if !inner.servers.iter().any(|(of, drained)| serves((of, drained))) {
                        inner.violations.push(format!("nobody in {backend}: {command}"));
                    }
                }
                ok("")
            }
            ["schema", release] => {
                let head = HEADS
                    .iter()
                    .find(|(known, _)| release.starts_with(known))
                    .unwrap()
                    .1;
                head.clone_into(&mut inner.schema);
                ok("upgraded")
            }
            ["check", ..] => ok("fine"),
            ["hold"] => {
                inner.held = true;
                inner.under_way = 3;
                for name in ["c1", "c2"] {
                    inner.begin_one_more(&registered(name));
                }
                ok("")
            }
            ["let-go"] => {
                inner.held = false;
                ok("")
            }
            ["migrate", count] => self.migrate(inner, count.parse().unwrap()),
            ["hook", ..] => ok("done"),
            other => panic!("{other:?}"),
        }
    }

    fn stop(inner: &mut Inner, name: &str) {
        let is_api = inner.services[name].is_api;
        if inner.services[name].runs.is_some() {
            if inner.tasks().contains_key(&registered(name)) {
                inner.violations.push(format!("{name} was stopped in a task"));
            }
            let drained = inner
                .servers
                .iter()
                .all(|((_, server), drained)| server != name || *drained);
            let quiet = inner.muted.iter().any(|muted| *muted == registered(name)) || inner.held;
            if let Some(routing) = inner.routing.as_ref().filter(|_| !is_api) {
                let own = registered(name);
                let stand_ins = routing.stand_ins.get(&own).map_or(0, BTreeSet::len);
                if routing.queues[&own].is_bound || stand_ins != 1 || !routing.diverts {
                    let why = format!("{name} was stopped while calls came to it, or to nobody");
                    inner.violations.push(why);
                }
            }
            if !drained && (is_api || !inner.other_way) {
                inner
                    .violations
                    .push(format!("{name} was stopped while it got requests"));
            }
            if inner.other_way && !is_api && !quiet {
                inner
                    .violations
                    .push(format!("{name} was stopped while it was asked"));
            }
            if inner.held && inner.under_way > 0 {
                inner
                    .violations
                    .push(format!("{name} was stopped with requests under way"));
            }
            let others = inner.services.iter().filter(|(other, of)| {
                *other != name
                    && of.is_api == is_api
                    && of.runs.is_some()
                    && inner.groups.get(*other) == inner.groups.get(name)
            });
            if others.count() == 0 {
                inner.violations.push(format!("{name} was the last of its kind"));
            }
        }
        if let Some(queue) = inner
            .routing
            .as_mut()
            .and_then(|routing| routing.queues.get_mut(&registered(name)))
        {
            queue.consumers = 0;
        }
        let service = inner.services.get_mut(name).unwrap();
        service.runs = None;
        service.stops += 1;
        if let Some(row) = inner.conductor_rows.get_mut(&registered(name)) {
            row.1 = false;
        }
    }

    fn start(&self, inner: &mut Inner, name: &str) -> Ran {
        let failed = |why: &str| Ran {
            code: 1,
            output: why.to_owned(),
        };
        let service = inner.services[name].clone();
        if service.runs.is_some() {
            return failed("it runs already");
        }
        let release = service.installed.clone();
        let broken = |(of, on): &(String, String)| of == name && *on == release;
        if inner.broken.iter().any(broken) {
            // It starts, and is gone a moment later.
            return Ran {
                code: 0,
                output: String::new(),
            };
        }
        if let Some(queue) = inner
            .routing
            .as_mut()
            .and_then(|routing| routing.queues.get_mut(&registered(name)))
        {
            // It binds its queue itself.
            (queue.consumers, queue.is_bound) = (2, true);
        }
        let place = self.table.find(&release).unwrap().place;
        let pin = match &service.pin_file {
            None => None,
            Some(pin) => match self.table.pin(place, pin) {
                Some(pin) => Some(pin),
                None => return failed("ConfigFileValueError: pin_release_version"),
            },
        };
        let head = HEADS
            .iter()
            .find(|(known, _)| release.starts_with(known))
            .unwrap();
        let schema = HEADS
            .iter()
            .position(|(_, known)| *known == inner.schema)
            .unwrap();
        let own = HEADS.iter().position(|known| known == head).unwrap();
        if schema < own {
            inner.violations.push(format!(
                "{name} on {release} was started on the schema of an older release"
            ));
        }
        let held = pin.filter(|pin| *pin < place);
        for (other, of) in &inner.services {
            let Some((others, pinned)) = &of.runs else {
                continue;
            };
            if other == name {
                continue;
            }
            let theirs = self.table.find(others).unwrap().place;
            let their_pin = pinned
                .as_ref()
                .and_then(|pin| self.table.pin(theirs, pin))
                .filter(|pin| *pin < theirs);
            if held.is_none() && theirs < place {
                inner.violations.push(format!(
                    "{name} was started without a pin beside {other} on {others}"
                ));
            }
            // What it takes from clients, and that conductor drops in silence.
            let drops = their_pin.is_some_and(|pin| pin < place);
            if service.is_api && held.is_none() && !of.is_api && drops {
                inner
                    .violations
                    .push(format!("{name} was unpinned before {other}"));
            }
        }
        let reads = self.table.readable_versions(place);
        for (table, rows) in &inner.rows {
            for version in rows.keys() {
                let version: stagger_versioned::Version = version.parse().unwrap();
                if version > reads[table.as_str()] {
                    inner
                        .violations
                        .push(format!("{name} on {release} cannot read {table} {version}"));
                }
            }
        }
        if !service.is_api {
            let row = self.table.conductor_row(place, held).unwrap().to_string();
            inner.conductor_rows.insert(registered(name), (row, true));
            // Traffic touches a row.
            let writes = self.table.writes(place, held)["nodes"].to_string();
            let nodes = inner.rows.get_mut("nodes").unwrap();
            if let Some(old) = nodes.keys().find(|version| **version != writes).cloned() {
                *nodes.get_mut(&old).unwrap() -= 1;
                nodes.retain(|_, rows| *rows > 0);
                *nodes.entry(writes).or_default() += 1;
            }
        }
        inner.muted.retain(|muted| *muted != registered(name));
        inner.services.get_mut(name).unwrap().runs = Some((release, service.pin_file));
        Ran {
            code: 0,
            output: String::new(),
        }
    }

    fn migrate(&self, inner: &mut Inner, count: u64) -> Ran {
        let newest = HEADS.iter().position(|(_, head)| *head == inner.schema).unwrap();
        let writes = self
            .table
            .writes(self.table.find(HEADS[newest].0).unwrap().place, None);
        let (mut left, mut total) = (if inner.stuck { 0 } else { count }, 0);
        for (table, rows) in &mut inner.rows {
            let to = writes[table.as_str()].to_string();
            let old: Vec<String> = rows.keys().filter(|version| **version != to).cloned().collect();
            for version in old {
                let moves = rows[&version].min(left);
                total += rows[&version];
                left -= moves;
                *rows.get_mut(&version).unwrap() -= moves;
                *rows.entry(to.clone()).or_default() += moves;
            }
            rows.retain(|_, rows| *rows > 0);
        }
        let done = if inner.stuck { 0 } else { count - left };
        let output = format!("update_to_latest_versions() migrated {done} of {total} objects.");
        // It does not look ahead.
        let code = i32::from(inner.stuck || done >= count);
        Ran { code, output }
    }

    /// What is late comes a step nearer.
    fn tick(&self, inner: &mut Inner) {
        for (left, _) in &mut inner.late {
            *left = left.saturating_sub(1);
        }
        while inner.late.front().is_some_and(|(left, _)| *left == 0) {
            let (_, sent) = inner.late.pop_front().unwrap();
            self.carry_out(inner, &sent);
        }
    }

    /// Everything that is late comes now.
    pub fn all_late_comes(&self) {
        for _ in 0..100 {
            self.tick(&mut self.now());
        }
    }
}

#[async_trait]
impl IronicClient for Lab {
    async fn apis(&self) -> BTreeMap<String, ApiReport> {
        let inner = self.now();
        let apis = inner.services.iter().filter(|(_, service)| service.is_api);
        apis.map(|(name, service)| {
            let says = match &service.runs {
                None => ApiReport::Away("connection refused".to_owned()),
                Some((release, pin)) => {
                    let place = self.table.find(release).unwrap().place;
                    let pin = pin.as_ref().and_then(|pin| self.table.pin(place, pin));
                    ApiReport::Offers(self.table.api(place, pin))
                }
            };
            (name.clone(), says)
        })
        .collect()
    }

    async fn conductors(&self) -> Fact<BTreeMap<String, ConductorReport>> {
        let inner = self.now();
        if inner
            .services
            .values()
            .all(|service| !service.is_api || service.runs.is_none())
        {
            return Fact::No("connection refused".to_owned());
        }
        let says = |name: &str, alive| ConductorReport {
            alive,
            group: inner.groups.get(name).cloned().unwrap_or_default(),
        };
        let ours = inner
            .services
            .iter()
            .filter(|(_, service)| !service.is_api)
            .map(|(name, service)| (registered(name), says(name, service.runs.is_some())));
        let strangers = inner
            .strangers
            .iter()
            .map(|name| (name.clone(), says(name, true)));
        Fact::Yes(ours.chain(strangers).collect())
    }

    async fn database(&self) -> Fact<DatabaseFacts> {
        let mut inner = self.now();
        if inner.away > 0 {
            inner.away -= 1;
            return Fact::No("Can't connect to server".to_owned());
        }
        let rows = inner.rows.iter().map(|(table, versions)| {
            let rows = Rows {
                versions: versions.clone(),
                null: inner.null.get(table).copied().unwrap_or(0),
            };
            (table.clone(), rows)
        });
        let conductors = inner.conductor_rows.iter().map(|(name, (version, online))| {
            let row = ConductorRow {
                version: Some(version.clone()),
                online: *online,
            };
            (name.clone(), row)
        });
        Fact::Yes(DatabaseFacts {
            revision: inner.schema.clone(),
            rows: rows.collect(),
            conductors: conductors.collect(),
            drivers: {
                let runs = |name: &str| inner.services[name].runs.is_some();
                let drivers = inner.drivers.iter().filter(|(name, _)| runs(name));
                drivers
                    .map(|(name, drivers)| (registered(name), drivers.clone()))
                    .collect()
            },
            nodes: inner.nodes.clone(),
            reserved: {
                let tasks = inner.tasks();
                inner.ending.retain(|_, looks| {
                    *looks -= 1;
                    *looks > 0
                });
                tasks
            },
            in_flight: {
                for (_, looks) in &mut inner.in_flight {
                    *looks = looks.saturating_sub(1);
                }
                inner.in_flight.retain(|(_, looks)| *looks > 0);
                inner.in_flight.iter().map(|(node, _)| node.clone()).collect()
            },
        })
    }

    async fn ask(&self, _: &str, question: &str) -> Result<Ran, BackendError> {
        let mut inner = self.now();
        if question.contains("RELEASE_MAPPING") {
            inner.codes_asked += 1;
            let output = match question.split(' ').next().unwrap() {
                "python-39.0.0" => OF_39.to_owned(),
                other => panic!("{other:?}"),
            };
            return Ok(Ran { code: 0, output });
        }
        let output = match question.split(' ').collect::<Vec<_>>().as_slice() {
            ["read-pin", name] => inner.services[*name].pin_file.clone().unwrap_or_default(),
            ["show"] => {
                let mut csv = "# pxname,svname,qcur,qmax,scur,stot,status,\n".to_owned();
                for ((backend, server), drained) in &inner.servers {
                    let status = match (inner.services[server].runs.is_some(), drained) {
                        (false, _) => "DOWN",
                        (true, true) => "DRAIN",
                        (true, false) => "UP",
                    };
                    let total = if inner.passed.contains(backend) { 0 } else { 600 };
                    let mut sessions = inner.sessions.get(server).copied().unwrap_or(0);
                    if server == "a1" {
                        sessions += inner.under_way;
                    }
                    writeln!(csv, "{backend},{server},0,0,{sessions},{total},{status},").unwrap();
                }
                inner.under_way = inner.under_way.saturating_sub(1);
                csv
            }
            other => panic!("{other:?}"),
        };
        Ok(Ran { code: 0, output })
    }

    async fn run(&self, host: &str, key: &str, fence: u64, command: &str) -> Result<Ran, BackendError> {
        let sent = Sent {
            host: host.to_owned(),
            key: key.to_owned(),
            fence,
            command: command.to_owned(),
        };
        let (ran, dies) = {
            let mut inner = self.now();
            inner.commands += 1;
            self.tick(&mut inner);
            let dies = inner
                .kill
                .filter(|(at, _)| *at <= inner.commands)
                .map(|(_, dies)| dies);
            let ran = match dies {
                Some(Dies::Before) => None,
                Some(Dies::Late(commands)) => {
                    inner.late.push_back((commands, sent));
                    None
                }
                Some(Dies::After) | None => Some(self.carry_out(&mut inner, &sent)),
            };
            if dies.is_some() {
                inner.kill = None;
                // Until the next process comes the door has opened by itself.
                inner.held = false;
            }
            let lost = inner.lost.iter().position(|begins| command.starts_with(begins));
            if let Some(at) = lost {
                inner.lost.remove(at);
                return Err(BackendError::transient(command, "the connection was lost").outcome_unknown());
            }
            (ran, dies)
        };
        if dies.is_some() {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
        match ran {
            Some(Ran { code: 97, output }) => Err(BackendError::permanent(command, output)),
            Some(ran) => Ok(ran),
            None => unreachable!("it is dead"),
        }
    }

    async fn raise_fence(&self, host: &str, fence: u64) -> Result<(), BackendError> {
        let mut inner = self.now();
        let seen = inner.fences.entry(host.to_owned()).or_default();
        if *seen > fence {
            return Err(BackendError::permanent(
                "raise the fence",
                format!("fenced by {seen}"),
            ));
        }
        *seen = fence;
        Ok(())
    }

    async fn routing(&self) -> Option<Fact<Routing>> {
        self.now().routing.clone().map(Fact::Yes)
    }

    async fn reroute(&self, change: &RoutingChange) -> Result<(), String> {
        let dies = {
            let mut inner = self.now();
            let left = inner.changes_left;
            inner.changes_left = left.and_then(|left| left.checked_sub(1));
            left == Some(0)
        };
        if dies {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
        let mut inner = self.now();
        if inner.refusals > 0 {
            inner.refusals -= 1;
            return Err("503".to_owned());
        }
        let routing = inner.routing.as_mut().unwrap();
        match change.clone() {
            RoutingChange::Prepare => routing.diverts = true,
            RoutingChange::Bind {
                exchange: Exchange::Ironic,
                queue,
                ..
            } => {
                routing.queues.get_mut(&queue).unwrap().is_bound = true;
            }
            RoutingChange::Unbind {
                exchange: Exchange::Ironic,
                queue,
                ..
            } => {
                routing.queues.get_mut(&queue).unwrap().is_bound = false;
            }
            RoutingChange::Bind { conductor, queue, .. } => {
                routing.stand_ins.entry(conductor).or_default().insert(queue);
            }
            RoutingChange::Unbind { conductor, queue, .. } => {
                routing.stand_ins.entry(conductor).or_default().remove(&queue);
            }
        }
        let lost = routing.queues.iter().find_map(|(name, queue)| {
            let taken = routing.stand_ins.get(name).map_or(0, BTreeSet::len);
            let goes_on = queue.is_bound || (routing.diverts && taken == 1);
            (!goes_on).then(|| format!("calls to {name} go to {taken} queues"))
        });
        inner.violations.extend(lost);
        Ok(())
    }

    async fn halt_keepalive(&self, _: &str) -> Result<(), BackendError> {
        self.now().log.push("halt".to_owned());
        Ok(())
    }

    async fn write_offline(&self, registered: &str) -> Result<(), BackendError> {
        let mut inner = self.now();
        if !inner.muted.iter().any(|muted| muted == registered) {
            inner.begin_one_more(registered);
        }
        inner.muted.push(registered.to_owned());
        if let Some(row) = inner.conductor_rows.get_mut(registered) {
            row.1 = false;
        }
        Ok(())
    }
}
