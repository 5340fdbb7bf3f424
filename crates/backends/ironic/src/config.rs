//! The `[cluster]` section of the configuration with `kind = "ironic"`: how an Ironic is observed, and the
//! commands that change its services.
//!
//! A command is a line for the shell of its host. Names in braces are placeholders; a value that is no plain
//! word is refused: `{service}`, `{kind}` (`conductor` or `api`), `{host}`, `{release}`, `{pin}`. It runs
//! once for each effect, even if stagger is killed meanwhile.

mod in_flight;
mod rabbitmq;
mod stopping;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stagger_core::model::{ClusterName, HostName, Kind, check_plain};
use stagger_engine::hosts::Hosts;
use stagger_engine::redact::redact;
use stagger_engine::secrets;

use crate::credentials::Auth;
pub use in_flight::{InFlight, NodesInFlight};
pub use rabbitmq::RabbitMq;
pub(crate) use rabbitmq::{LATE, PROMPT, own_server};
pub use stopping::{StopMode, Stopping};

/// An Ironic as the configuration has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IronicConfig {
    /// What it is called here.
    pub name: ClusterName,
    /// Its public API, as clients reach it: `https://ironic.example.org:6385`.
    pub endpoint: String,
    /// The authority that signed the certificates of its API, as a PEM file; the system's, if not given.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// The command, run here, that prints a token for the API: `openstack token issue -f value -c id`. Not needed where
    /// Ironic asks for none.
    #[serde(default)]
    pub token: Option<String>,
    /// Who asks the API, where it is not a `token` that a command prints.
    #[serde(default)]
    pub auth: Option<Auth>,
    /// Who calls a conductor by JSON-RPC, for `way = "mute"` (`[json_rpc] auth_strategy` of Ironic); nobody in particular, if not
    /// given.
    #[serde(default)]
    pub rpc_auth: Option<Auth>,
    /// Ironic's database, read only: `mysql://reader@db/ironic` or `postgres://…`. A `{password}` in it is replaced by
    /// the first line of `password_file`.
    pub database: String,
    /// A database of ours, for the lock and for what was installed where: `mysql://stagger@db/stagger`,
    /// `postgres://…`, or `sqlite:///var/lib/stagger/lab.db?mode=rwc` where stagger runs on one machine only.
    pub ours: String,
    /// The file with the password of both databases, which nobody else may read.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The release of services of which stagger has not installed anything yet: `26.1.6`.
    pub installed: String,
    /// The pin while two releases run; the number of the older one, if not given, which every newer code lists.
    #[serde(default)]
    pub pin: Option<String>,
    /// The conductors, all of them.
    pub conductors: Vec<Conductor>,
    /// The API services, all of them.
    pub apis: Vec<Api>,
    /// The commands of every service.
    #[serde(default)]
    pub commands: Commands,
    /// Where the tools of Ironic are run, and how.
    pub tools: Tools,
    /// The balancer in front of the API services, and of the conductors where they stand behind one.
    pub balancer: Balancer,
    /// RabbitMQ, where Ironic's services call each other over it (`rpc_transport = oslo`, its default): conductors are drained there.
    #[serde(default)]
    pub rabbitmq: Option<RabbitMq>,
    /// How conductors are stopped without failing requests.
    #[serde(default)]
    pub stopping: Stopping,
    /// What Ironic is doing with its nodes meanwhile.
    #[serde(default)]
    pub in_flight: InFlight,
    /// What others do before and after.
    #[serde(default)]
    pub hooks: IronicHooks,
    /// How long one question may take, in seconds.
    #[serde(default = "timeout")]
    pub timeout: u64,
    /// A lock not renewed for so many seconds may be taken over.
    #[serde(default = "lock_expires")]
    pub lock_expires: u64,
    /// Seconds between two observations while something is waited for.
    #[serde(default = "poll")]
    pub poll: u64,
    /// How long a service may take to serve after its start, in seconds.
    #[serde(default = "ready_timeout")]
    pub ready_timeout: u64,
    /// How long a service may take to have nothing to do any more, once it is drained, in seconds.
    #[serde(default = "drain_timeout")]
    pub drain_timeout: u64,
    /// Seconds that one visit to a service of a kind usually takes, for the forecast; 30 for a conductor and 10 for an API,
    /// if not given.
    #[serde(default)]
    pub durations: BTreeMap<Kind, u32>,
}

fn timeout() -> u64 {
    20
}
fn lock_expires() -> u64 {
    30
}
fn poll() -> u64 {
    2
}
fn ready_timeout() -> u64 {
    180
}
fn drain_timeout() -> u64 {
    600
}

/// One conductor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conductor {
    /// What it is called here, and in commands.
    pub name: String,
    /// The host on which its commands are run.
    pub host: String,
    /// As Ironic has it in `GET /v1/conductors`: its host, or `host:port`.
    pub registered: String,
    /// The other name that it has under a pin, where that changes it (RPC before 1.58).
    #[serde(default)]
    pub also_registered: Option<String>,
    /// Its place in each backend of the balancer that its JSON-RPC port stands in: its own, and those of its peers.
    #[serde(default)]
    pub servers: Vec<BalancerServer>,
    /// Its own JSON-RPC port, for `way = "mute"`: `http://10.0.0.5:8089`.
    #[serde(default)]
    pub rpc: Option<String>,
    /// Commands that differ from those of all services.
    #[serde(default)]
    pub commands: Commands,
}

impl Conductor {
    /// Under which names it may reserve nodes: as it is registered, or by its host alone. That may be another one's on the
    /// same host, and then this one counts as busy too.
    pub(crate) fn reserves_as(&self) -> BTreeSet<&str> {
        let registered = self.registered.as_str();
        let host = registered.rsplit_once(':').map_or(registered, |(host, _)| host);
        let also = self.also_registered.as_deref();
        [registered, host].into_iter().chain(also).collect()
    }
}

/// One API service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// What it is called here, and in commands.
    pub name: String,
    /// The host on which its commands are run.
    pub host: String,
    /// Where it answers itself, past the balancer: `http://10.0.0.7:6385`.
    pub url: String,
    /// Its place in each backend of the balancer.
    pub servers: Vec<BalancerServer>,
    /// Commands that differ from those of all services.
    #[serde(default)]
    pub commands: Commands,
}

/// A server of a backend of the balancer, written `backend/server`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BalancerServer {
    /// The backend.
    pub backend: String,
    /// The server in it.
    pub server: String,
}

impl TryFrom<String> for BalancerServer {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once('/') {
            Some((backend, server)) if !backend.is_empty() && !server.is_empty() && !server.contains('/') => {
                Ok(Self {
                    backend: backend.to_owned(),
                    server: server.to_owned(),
                })
            }
            Some(_) | None => Err(format!(
                "{text:?} is no server of a backend: write `backend/server`"
            )),
        }
    }
}

impl From<BalancerServer> for String {
    fn from(server: BalancerServer) -> Self {
        server.to_string()
    }
}

impl std::fmt::Display for BalancerServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { backend, server } = self;
        write!(f, "{backend}/{server}")
    }
}

/// The commands of a service, on its host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Commands {
    /// Makes `{release}` what the next start runs. The service keeps running.
    pub install: Option<String>,
    /// Prints the releases that the host can install, as `apt-cache madison ironic-common` and `pip index versions ironic` do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<String>,
    /// Writes `{pin}` into the configuration that the next start reads.
    pub write_pin: Option<String>,
    /// Takes the pin out of that configuration.
    pub remove_pin: Option<String>,
    /// Prints the pin of that configuration, or nothing where there is none.
    pub read_pin: Option<String>,
    /// Ends the service, and returns when it is gone.
    pub stop: Option<String>,
    /// Starts the service.
    pub start: Option<String>,
    /// Returns when the service that was just started serves: for a conductor, when its log says `Created RPC server`
    /// once more, since its port opens earlier. Without it only what can be seen from outside is waited for.
    pub ready: Option<String>,
    /// Prints its last log lines.
    pub logs: Option<String>,
}

impl Commands {
    /// These, with those of all services where they say nothing.
    #[must_use]
    pub fn over(&self, all: &Self) -> Self {
        let pick = |own: &Option<String>, all: &Option<String>| own.clone().or_else(|| all.clone());
        Self {
            install: pick(&self.install, &all.install),
            versions: pick(&self.versions, &all.versions),
            write_pin: pick(&self.write_pin, &all.write_pin),
            remove_pin: pick(&self.remove_pin, &all.remove_pin),
            read_pin: pick(&self.read_pin, &all.read_pin),
            stop: pick(&self.stop, &all.stop),
            start: pick(&self.start, &all.start),
            ready: pick(&self.ready, &all.ready),
            logs: pick(&self.logs, &all.logs),
        }
    }
}

/// Ironic's own tools, of the new release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tools {
    /// The host on which they are run.
    pub host: String,
    /// Installs `{release}` of the tools there, if the rest does not.
    #[serde(default)]
    pub install: Option<String>,
    /// `ironic-status upgrade check`.
    #[serde(default)]
    pub check: Option<String>,
    /// The Python that has `{release}`: `/opt/ironic/{release}/bin/python3`, `podman run --rm -i ironic:{release} python3`. It is given
    /// a few lines on its standard input that print what this release lists: releases, versions, pins, the head of its schema.
    /// Without it they are those of our table.
    #[serde(default)]
    pub python: Option<String>,
    /// What `python` is asked by now. It is read in inventories of before, and refused in a configuration.
    #[serde(default, skip_serializing)]
    pub pins: Option<String>,
    /// Saves Ironic's database before its schema is upgraded; it has to end well. `none` says that it is saved in another
    /// way. Without either nothing is begun.
    #[serde(default)]
    pub backup: Option<String>,
    /// `ironic-dbsync upgrade`.
    pub schema: String,
    /// `ironic-dbsync online_data_migrations --max-count {count}`.
    pub migrate: String,
    /// How many objects are migrated at once.
    #[serde(default = "batch")]
    pub batch: u32,
}

/// The word of `tools.backup` for a database that is saved in another way.
const NO_BACKUP: &str = "none";

impl Tools {
    /// The command that saves Ironic's database, if there is one.
    pub fn backup_command(&self) -> Option<&String> {
        self.backup.as_ref().filter(|command| *command != NO_BACKUP)
    }
}

fn batch() -> u32 {
    500
}

/// haproxy, by its admin socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balancer {
    /// The host on which it runs.
    pub host: String,
    /// Prints its statistics as CSV: `echo "show stat" | socat - /run/haproxy/admin.sock`.
    pub show: String,
    /// Brings a server into a state: `echo "set server {backend}/{server} state {state}" | socat - …`, where the
    /// state is `drain` or `ready`.
    pub set: String,
}

/// What others do, as commands on the host of the tools. Without one the step is confirmed or told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IronicHooks {
    /// Before anything else: the services that come before Ironic are of the new release.
    pub before: Option<String>,
    /// Brings the ramdisk image with the agent to `{release}`.
    pub ramdisk: Option<String>,
    /// The image was brought there by hand.
    pub ramdisk_is_done: bool,
    /// Upgrades clients and the services that use Ironic.
    pub clients: Option<String>,
    /// After all.
    pub after: Option<String>,
}

/// All that an Ironic backend is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IronicSettings {
    /// `[cluster]`
    pub cluster: IronicConfig,
    /// `[hosts]`
    pub hosts: Hosts,
    /// The times of it, in one place.
    pub pace: IronicTiming,
}

/// How long things take, and how long they are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IronicTiming {
    /// One question.
    pub call: Duration,
    /// Between two looks at what is waited for.
    pub poll: Duration,
    /// The expiry of the lock.
    pub lock: Duration,
    /// A service that was started.
    pub ready: Duration,
    /// A service that was drained.
    pub drain: Duration,
    /// The nodes in flight of a conductor that is drained.
    pub in_flight: Duration,
    /// How long a conductor that is muted is still asked.
    pub ring: Duration,
    /// How long a call may be on its way to a conductor whose calls go to another.
    pub settle: Duration,
    /// How long a process that has lost the lock may still tell RabbitMQ something.
    pub late: Duration,
}

impl IronicSettings {
    /// As the configuration says.
    pub fn new(mut cluster: IronicConfig, hosts: Hosts) -> Self {
        if cluster.rabbitmq.is_some() {
            for conductor in &mut cluster.conductors {
                conductor.servers = vec![own_server(&conductor.registered, &conductor.name)];
            }
        }
        let seconds = Duration::from_secs;
        let pace = IronicTiming {
            call: seconds(cluster.timeout.max(1)),
            poll: seconds(cluster.poll.max(1)),
            lock: seconds(cluster.lock_expires.max(6)),
            ready: seconds(cluster.ready_timeout.max(1)),
            drain: seconds(cluster.drain_timeout.max(1)),
            in_flight: seconds(cluster.in_flight.timeout),
            ring: seconds(cluster.stopping.ring) + Duration::from_millis(500),
            settle: seconds(3),
            late: LATE,
        };
        Self { cluster, hosts, pace }
    }
}

/// A service of either kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service<'a> {
    /// What it is called.
    pub name: &'a str,
    /// Of which kind.
    pub role: ServiceRole,
    /// Where its commands are run.
    pub host: &'a str,
    /// Its places at the balancer.
    pub servers: &'a [BalancerServer],
    /// Its commands.
    pub commands: Commands,
}

/// The kinds of services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceRole {
    /// `ironic-conductor`
    Conductor,
    /// `ironic-api`
    Api,
}

impl ServiceRole {
    /// The kind of unit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Conductor => "conductor",
            Self::Api => "api",
        }
    }
}

impl IronicConfig {
    /// All services, conductors first.
    pub fn services(&self) -> impl Iterator<Item = Service<'_>> {
        let conductors = self.conductors.iter().map(|conductor| Service {
            name: &conductor.name,
            role: ServiceRole::Conductor,
            host: &conductor.host,
            servers: &conductor.servers,
            commands: conductor.commands.over(&self.commands),
        });
        let apis = self.apis.iter().map(|api| Service {
            name: &api.name,
            role: ServiceRole::Api,
            host: &api.host,
            servers: &api.servers,
            commands: api.commands.over(&self.commands),
        });
        conductors.chain(apis)
    }

    /// The service of that name.
    pub fn service(&self, name: &str) -> Option<Service<'_>> {
        self.services().find(|service| service.name == name)
    }

    /// The conductor that Ironic calls so.
    pub fn conductor_registered(&self, registered: &str) -> Option<&Conductor> {
        self.conductors.iter().find(|conductor| {
            conductor.registered == registered || conductor.also_registered.as_deref() == Some(registered)
        })
    }

    /// Every host on which something is run.
    pub fn hosts(&self) -> BTreeSet<&str> {
        let services = self.services().map(|service| service.host);
        services
            .chain([self.tools.host.as_str(), self.balancer.host.as_str()])
            .collect()
    }

    /// What in it does not fit together.
    ///
    /// # Errors
    /// In words, with the names of the settings.
    pub fn verify(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        if let Some(twice) = self.services().find(|service| !names.insert(service.name)) {
            return Err(format!("two services are called {}", twice.name));
        }
        for service in self.services() {
            check_plain(service.name)
                .map_err(|why| format!("the service {:?} cannot be called so: {why}", service.name))?;
            for server in service.servers {
                for word in [&server.backend, &server.server] {
                    check_plain(word)
                        .map_err(|why| format!("{server:?} cannot be a server of the balancer: {why}"))?;
                }
            }
        }
        for host in self.hosts() {
            HostName::new(host).map_err(|error| error.to_string())?;
        }
        let mut registered = BTreeSet::new();
        for conductor in &self.conductors {
            let both = [Some(&conductor.registered), conductor.also_registered.as_ref()];
            if let Some(twice) = both.into_iter().flatten().find(|name| !registered.insert(*name)) {
                return Err(format!("two conductors are registered as {twice}"));
            }
        }
        if self.token.is_some() && self.auth.is_some() {
            return Err("there are `token` and `[cluster.auth]`: one of them asks the API".to_owned());
        }
        let auths = [("cluster.auth", &self.auth), ("cluster.rpc_auth", &self.rpc_auth)];
        for (section, auth) in auths {
            auth.as_ref().map_or(Ok(()), |auth| auth.verify(section))?;
        }
        let mut servers = BTreeSet::new();
        let all = self.services().flat_map(|service| service.servers.to_vec());
        for server in all {
            if !servers.insert(server.clone()) {
                return Err(format!("two services are the server {server}"));
            }
        }
        if self.tools.pins.is_some() {
            return Err("`tools.pins` is gone: `tools.python` names the Python of the new release, which is asked for its pins and for more".to_owned());
        }
        if self.tools.batch == 0 {
            return Err("`tools.batch` is 0: at least one object is migrated at once".to_owned());
        }
        if !self.tools.migrate.contains("{count}") {
            return Err("`tools.migrate` has no {count}: how many objects are migrated at once".to_owned());
        }
        let ways = self
            .conductors
            .iter()
            .filter_map(|conductor| conductor.rpc.as_ref());
        let doors = self.apis.iter().map(|api| &api.url).chain([&self.endpoint]);
        let doors = doors.chain(self.rabbitmq.iter().map(|rabbitmq| &rabbitmq.url));
        let written = self.stopping.database.iter().chain([&self.database, &self.ours]);
        let keystones = auths.iter().filter_map(|(_, auth)| match auth {
            Some(Auth::Keystone(keystone)) => Some(&keystone.url),
            Some(Auth::HttpBasic(_)) | None => None,
        });
        for url in ways.chain(doors).chain(written).chain(keystones) {
            if secrets::in_url(url) {
                return Err(format!(
                    "{} has a password in it: a configuration is read by many; write `{{password}}` for that of a database, \
                     and name the file with `password_file`",
                    redact(url.rsplit('@').next().unwrap_or_default())
                ));
            }
        }
        for url in [&self.database, &self.ours] {
            let scheme = url.split("://").next().unwrap_or_default();
            if !["mysql", "mariadb", "postgres", "postgresql", "sqlite"].contains(&scheme) {
                return Err(format!(
                    "{scheme:?} is no database: mysql://…, postgres://… or sqlite://…"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
