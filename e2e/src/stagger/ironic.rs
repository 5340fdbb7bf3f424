//! The configuration with which an Ironic is brought to another release.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::Setting;
use super::config::Doors;
use crate::files::put;
use crate::ironic::{
    ADMIN, API_PORT, Calls, Cluster, DATABASE, DATABASE_OTHER, DATABASE_READER, DATABASE_USER, HOLD,
    IronicSpec, KEYSTONE, RABBITMQ, Service, TLS_PORT,
};

/// What the tests vary. The default is quick: short holds, doors that open by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IronicSetup {
    /// How one-way doors are passed.
    pub doors: Doors,
    /// After so many seconds without renewal the lock may be taken over.
    pub lock_expires: u32,
    /// How many objects the online migration takes at once.
    pub batch: u32,
    /// How long a service may take to serve after its start, in seconds.
    pub ready_timeout: u32,
    /// `gate_timeout`, in seconds.
    pub gate_timeout: u32,
    /// `max_in_parallel`.
    pub max_in_parallel: &'static str,
    /// What is done about nodes in flight, and for how many seconds they are waited for.
    pub in_flight: (&'static str, u32),
    /// `on_failure`: rollback, continue or stop.
    pub on_failure: &'static str,
    /// Services of which it is told nothing.
    pub without: Vec<Service>,
    /// How conductors are stopped. Other ways than by the balancer are for clusters whose conductors do not stand behind
    /// it.
    pub way: Way,
    /// Whether it may write into Ironic's table.
    pub writes_into_ironic: bool,
}

/// How conductors are stopped so that no request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Their ports are drained at the balancer.
    Drain,
    /// Their heartbeat is halted, and they are written down as away.
    Mute,
    /// All requests wait at the balancer.
    Hold,
}

impl Default for IronicSetup {
    fn default() -> Self {
        Self {
            doors: Doors::AutoAfter(1),
            lock_expires: 30,
            batch: 50,
            ready_timeout: 180,
            gate_timeout: 120,
            max_in_parallel: "15%",
            in_flight: ("wait", 1800),
            on_failure: "rollback",
            without: Vec::new(),
            way: Way::Drain,
            writes_into_ironic: false,
        }
    }
}

impl IronicSetup {
    /// How conductors are stopped.
    fn stopping(&self, cluster: &Cluster) -> String {
        let ring = cluster.spec().ring_seconds;
        let hold = cluster.dir().join(HOLD);
        let hold = hold.display();
        let (user, _) = DATABASE_USER;
        let writes = self.writes_into_ironic;
        let scheme = cluster.spec().database.scheme();
        let way = match self.way {
            Way::Drain => "way = \"drain\"\n".to_owned(),
            Way::Mute => format!(
                "way = \"mute\"\nwrites_into_ironic = {writes}\n\
                 database = \"{scheme}://{user}:{{password}}@127.0.0.1/{DATABASE}\"\n"
            ),
            // It ends by itself.
            Way::Hold => format!(
                "way = \"hold\"\nhold = \"echo $(($(date +%s) + 50)) >{hold}.new; mv {hold}.new {hold}\"\n\
                 let_go = \"rm -f {hold}\"\n"
            ),
        };
        format!("\n[cluster.stopping]\nring = {ring}\n{way}")
    }

    /// The services, each with where its commands are run.
    fn services(&self, spec: IronicSpec) -> Result<String> {
        let mut text = String::new();
        let hosts = ["h1", "h2"].into_iter().cycle();
        for (service, host) in spec.services().zip(hosts) {
            if self.without.contains(&service) {
                continue;
            }
            match spec.registered(service) {
                Some(registered) => {
                    write!(
                        text,
                        "\n[[cluster.conductors]]\nname = \"{service}\"\nhost = \"{host}\"\nregistered = \"{registered}\"\n"
                    )?;
                    if spec.calls == Calls::Balanced {
                        let of_pair = if ["c1", "c2"].contains(&service.name()) {
                            [1, 2]
                        } else {
                            [3, 4]
                        };
                        let servers = of_pair
                            .map(|backend| format!("\"rpc{backend}/{service}\""))
                            .join(", ");
                        writeln!(text, "servers = [{servers}]")?;
                    } else if spec.calls == Calls::Direct {
                        writeln!(text, "rpc = \"{}\"", service.url())?;
                    }
                }
                None => write!(
                    text,
                    "\n[[cluster.apis]]\nname = \"{service}\"\nhost = \"{host}\"\nurl = \"{}\"\n\
                     servers = [\"api/{service}\"]\n",
                    service.url()
                )?,
            }
        }
        Ok(text)
    }
}

/// By which names RabbitMQ and the API are asked, where they want to know.
fn who_asks(spec: IronicSpec, password_file: &Path) -> String {
    let password_file = password_file.display();
    let mut parts = Vec::new();
    if spec.calls == Calls::RabbitMq {
        let (url, user) = RABBITMQ;
        parts.push(format!(
            "\n[cluster.rabbitmq]\nurl = \"{url}\"\nuser = \"{user}\"\n"
        ));
    }
    if spec.keystone {
        parts.push(format!(
            "\n[cluster.auth]\nkind = \"keystone\"\nurl = \"{KEYSTONE}\"\nuser = \"{ADMIN}\"\n"
        ));
    }
    let with_password = |part: String| format!("{part}password_file = \"{password_file}\"\n");
    parts.into_iter().map(with_password).collect()
}

/// Where the API is asked, and whom it is believed by.
fn endpoint(cluster: &Cluster) -> String {
    if cluster.spec().keystone {
        let dir = cluster.dir().display();
        format!("endpoint = \"https://127.0.0.1:{TLS_PORT}\"\nca = \"{dir}/keystone/ca.pem\"")
    } else {
        format!("endpoint = \"http://127.0.0.1:{API_PORT}\"")
    }
}

impl Setting for IronicSetup {
    type Cluster = Cluster;

    fn folder(cluster: &Cluster) -> &Path {
        cluster.dir()
    }

    /// Nothing but the network is the cluster's: so a signal reaches the program itself.
    fn program(&self, cluster: &Cluster, _: &Path, binary: &Path) -> Result<Vec<String>> {
        let first = cluster.sandbox().first_pid().to_string();
        let binary = binary.display().to_string();
        let words = ["nsenter", "-t", &first, "-n", "--", &binary];
        Ok(words.map(str::to_owned).to_vec())
    }

    fn text(&self, cluster: &Cluster, own: &Path) -> Result<String> {
        let Self {
            doors,
            lock_expires,
            batch,
            ready_timeout,
            gate_timeout,
            max_in_parallel,
            in_flight: (nodes_in_flight, in_flight_seconds),
            on_failure,
            without: _,
            way: _,
            writes_into_ironic: _,
        } = self;
        let (reader, password) = DATABASE_READER;
        let (other, _) = DATABASE_OTHER;
        let password_file = own.join("password");
        put(&password_file, password)?;
        fs::set_permissions(&password_file, Permissions::from_mode(0o600))
            .with_context(|| format!("closing {}", password_file.display()))?;
        let dir = cluster.dir().display();
        let ctl = format!("{dir}/ironicctl");
        let release = cluster.spec().release;
        let scheme = cluster.spec().database.scheme();
        let doors = doors.text();
        let endpoint = endpoint(cluster);
        let mut text = String::new();
        write!(
            text,
            r#"[cluster]
kind = "ironic"
name = "lab"
{endpoint}
database = "{scheme}://{reader}:{{password}}@127.0.0.1/{DATABASE}"
ours = "{scheme}://{other}:{{password}}@127.0.0.1/{other}"
password_file = "{password_file}"
installed = "{release}"
lock_expires = {lock_expires}
ready_timeout = {ready_timeout}
poll = 1

[cluster.commands]
install = "{ctl} {{service}} install {{release}}"
write_pin = "{ctl} {{service}} pin {{pin}}"
remove_pin = "{ctl} {{service}} pin"
read_pin = "{ctl} {{service}} pinned"
stop = "{ctl} {{service}} stop"
start = "{ctl} {{service}} start"
ready = "{ctl} {{service}} ready"
logs = "tail -n 200 {dir}/log/{{service}}.log"

[cluster.tools]
host = "h1"
check = "{ctl} code {{release}} ironic-status upgrade check"
python = "{ctl} code {{release}} python3"
backup = "{ctl} db save before-{{release}}"
schema = "{ctl} code {{release}} ironic-dbsync upgrade"
migrate = "{ctl} code {{release}} ironic-dbsync online_data_migrations --max-count {{count}}"
batch = {batch}

[cluster.balancer]
host = "h1"
show = "{ctl} balancer ask show stat"
set = "{ctl} balancer ask set server {{backend}}/{{server}} state {{state}}"

[cluster.hooks]
ramdisk_is_done = true

[cluster.in_flight]
nodes = "{nodes_in_flight}"
timeout = {in_flight_seconds}
"#,
            password_file = password_file.display(),
        )?;
        text += &who_asks(*cluster.spec(), &password_file);
        text += &self.stopping(cluster);
        text += &self.services(*cluster.spec())?;
        write!(
            text,
            r#"
[policy]
doors = {doors}
growth = "none"
canary_soak = 0
gate_hold = 1
gate_timeout = {gate_timeout}
on_failure = "{on_failure}"
max_in_parallel = "{max_in_parallel}"

[hosts]
folder = "{dir}/hosts"
timeout = 300
"#,
        )?;
        Ok(text)
    }
}
