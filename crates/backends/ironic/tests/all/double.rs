//! An Ironic in memory: services that are installed, pinned, started and stopped by commands, a balancer, rows. It notes
//! whatever would have failed a request or lost a row.

mod broker;
mod commands;

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
use stagger_ironic::rabbitmq::{Routing, RoutingChange};
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
        inner.routing = Some(broker::of(conductors.map(|(name, _)| registered(name))));
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
        let lost = broker::change(routing, change.clone());
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
