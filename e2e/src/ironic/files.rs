//! The cluster's folder: what each service has, what the balancer knows, and the programs by which they are worked on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::keystone;
use super::root::Root;
use super::spec::{Calls, Database, IronicSpec, Service};
use super::{API_PORT, DATABASE, DATABASE_OTHER, DATABASE_READER, DATABASE_USER, TLS_PORT};
use crate::files::{put, script};
use crate::sandbox::Sandbox;

const IRONICCTL: &str = include_str!("ironicctl.sh");
const LOAD: &str = include_str!("load.py");

/// While this file in the cluster's folder has a time in seconds of Unix time that is to come, every request waits at
/// the balancer: where conductors do not stand behind it.
pub const HOLD: &str = "hold";

/// A request that waits for a file is asleep but for its look at it, twenty times a second.
const HOLD_LUA: &str = r#"core.register_action("hold", { "http-req" }, function()
  while true do
    local file = io.open("FILE")
    if not file then return end
    local last = tonumber(file:read("*l") or "") or 0
    file:close()
    if os.time() >= last then return end
    core.msleep(50)
  end
end)
"#;

/// Where the database has its files, below the cluster's folder.
pub(super) const DATABASE_FOLDER: &str = "mysql";
/// Its socket, as `ironicctl.sh` has it.
pub(super) const DATABASE_SOCKET: &str = "mysql.sock";

/// The path of a Unix socket may have 107 bytes; the longest below a cluster's folder has 13, and haproxy puts a number
/// behind it while it starts.
const LONGEST_DIR: usize = 80;

/// Writes everything that does not need the cluster to run.
pub(super) fn write(dir: &Path, spec: IronicSpec) -> Result<()> {
    ensure!(
        dir.as_os_str().len() <= LONGEST_DIR,
        "the cluster folder {} is too long for sockets in it; set STAGGER_CACHE to a shorter path",
        dir.display()
    );
    for folder in [
        "fault",
        "lib",
        "lock",
        "log",
        "mq",
        DATABASE_FOLDER,
        "run",
        "state",
    ] {
        make(&dir.join(folder))?;
    }
    put(&dir.join("mq/enabled_plugins"), "[rabbitmq_management].\n")?;
    let listens = "listeners.tcp.1 = 127.0.0.1:5672\nmanagement.tcp.ip = 127.0.0.1\n";
    put(&dir.join("mq/rabbitmq.conf"), listens)?;
    script(&dir.join("ironicctl.sh"), IRONICCTL)?;
    put(&dir.join("lib/load.py"), LOAD)?;
    put(&dir.join("ironic.conf"), &ironic_conf(dir, spec))?;
    put(&dir.join("engine"), spec.database.name())?;
    if spec.keystone {
        keystone::write(dir)?;
    }
    put(&dir.join("haproxy.cfg"), &haproxy_cfg(dir, spec))?;
    put(
        &dir.join("lib/hold.lua"),
        &HOLD_LUA.replace("FILE", &dir.join(HOLD).display().to_string()),
    )?;
    for service in spec.services() {
        put(&dir.join("log").join(format!("{service}.log")), "")?;
        write_service(&dir.join("services").join(service.name()), service, spec)?;
    }
    Ok(())
}

/// A service that is installed, not pinned, and was never started.
fn write_service(home: &Path, service: Service, spec: IronicSpec) -> Result<()> {
    make(home)?;
    let (address, port) = (service.address(), service.port());
    let conf = match spec.registered(service) {
        Some(name) => {
            put(&home.join("registered"), name)?;
            let group = match spec.group(service) {
                "" => String::new(),
                group => format!("[conductor]\nconductor_group = {group}\n"),
            };
            format!("[DEFAULT]\nhost = {name}\n[json_rpc]\nhost_ip = {address}\nport = {port}\n{group}")
        }
        None => format!("[api]\nhost_ip = {address}\nport = {port}\n"),
    };
    put(&home.join("service.conf"), &conf)?;
    put(&home.join("pin.conf"), "[DEFAULT]\n")?;
    put(&home.join("url"), &format!("{}/", service.url()))?;
    let link = home.join("code");
    symlink(Root::code(spec.release), &link).with_context(|| format!("linking {}", link.display()))
}

/// What all services share. Hardware is Ironic's own fake; services find each other by JSON-RPC; nobody has to log in.
fn ironic_conf(dir: &Path, spec: IronicSpec) -> String {
    let (ring, deploy) = (spec.ring_seconds, spec.deploy_seconds);
    let transport = if spec.calls == Calls::RabbitMq {
        "rpc_transport = oslo\ntransport_url = rabbit://guest:guest@127.0.0.1:5672/"
    } else {
        "rpc_transport = json-rpc"
    };
    let (auth, tokens) = if spec.keystone {
        ("keystone", keystone::of_ironic(dir))
    } else {
        ("noauth", String::new())
    };
    let dir = dir.display();
    let (user, password) = DATABASE_USER;
    let connection = match spec.database {
        Database::MariaDb => {
            format!("mysql+pymysql://{user}:{password}@127.0.0.1/{DATABASE}?charset=utf8mb3")
        }
        Database::Postgres => format!("postgresql+psycopg2://{user}:{password}@127.0.0.1/{DATABASE}"),
    };
    format!(
        "[DEFAULT]
auth_strategy = {auth}
{transport}
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = fake,no-bios
enabled_boot_interfaces = fake
enabled_console_interfaces = fake,no-console
enabled_deploy_interfaces = fake
enabled_firmware_interfaces = fake,no-firmware
enabled_inspect_interfaces = fake,no-inspect
enabled_management_interfaces = fake,noop
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = fake,no-raid
enabled_rescue_interfaces = fake,no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = fake,no-vendor
default_network_interface = noop
default_deploy_interface = fake
default_boot_interface = fake
state_path = {dir}/state
hash_ring_reset_interval = {ring}
graceful_shutdown_timeout = 15
[database]
connection = {connection}
[api]
api_workers = 1
[conductor]
automated_clean = false
heartbeat_interval = 2
heartbeat_timeout = 8
api_url = http://127.0.0.1:{API_PORT}
[fake]
deploy_delay = {deploy}
[dhcp]
dhcp_provider = none
[json_rpc]
auth_strategy = noauth
[oslo_concurrency]
lock_path = {dir}/lock
[pxe]
tftp_root = {dir}/state/tftp
[deploy]
http_root = {dir}/state/httpd
[service_catalog]
auth_type = none
endpoint_override = http://127.0.0.1:{API_PORT}
{tokens}"
    )
}

/// The APIs behind one address; and each conductor's RPC behind the address by which it is known, with the other one as
/// its backup, so that one can be taken out without a failed request. On a busy machine an API takes seconds to answer.
fn haproxy_cfg(dir: &Path, spec: IronicSpec) -> String {
    let (load, hold) = if spec.calls == Calls::Balanced {
        (String::new(), "")
    } else {
        (
            format!("  lua-load {}/lib/hold.lua\n", dir.display()),
            "  http-request lua.hold\n",
        )
    };
    let tls = if spec.keystone {
        let certificate = dir.join(keystone::FOLDER).join("both.pem");
        format!("  bind 127.0.0.1:{TLS_PORT} ssl crt {}\n", certificate.display())
    } else {
        String::new()
    };
    let mut text = format!(
        "global
  maxconn 1000
  nbthread 1
  stats socket {dir}/haproxy.sock mode 600 level admin
{load}defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
  timeout check 8s
  timeout queue 60s
  option http-server-close
  option redispatch
  retries 3
  retry-on conn-failure
frontend in-api
  bind 127.0.0.1:{API_PORT}
{tls}{hold}  default_backend api
backend api
  balance roundrobin
  option httpchk GET /
  default-server inter 1s fall 3 rise 1
",
        dir = dir.display()
    );
    let server = |service: Service| {
        format!(
            "  server {service} {}:{} check",
            service.address(),
            service.port()
        )
    };
    for api in Service::APIS {
        text.extend([server(api).as_str(), "\n"]);
    }
    if spec.calls != Calls::Balanced {
        return text;
    }
    let pairs = spec.conductors().as_chunks::<2>().0;
    let both_ways = pairs
        .iter()
        .flat_map(|[one, other]| [(*one, *other), (*other, *one)]);
    for (number, (own, other)) in (1..).zip(both_ways) {
        let both = format!(
            "frontend in-rpc{number}
  bind {host}:{port}
  default_backend rpc{number}
backend rpc{number}
{own} inter 500
{other} inter 500 backup
",
            host = own.registered().unwrap_or_default(),
            port = own.port(),
            own = server(own),
            other = server(other),
        );
        text += &both;
    }
    text
}

/// What the database is told first, each with the database that it is told in.
pub(super) fn grants(database: Database) -> Vec<(Option<&'static str>, String)> {
    let (user, password) = DATABASE_USER;
    let (reader, reader_password) = DATABASE_READER;
    let (other, other_password) = DATABASE_OTHER;
    match database {
        Database::MariaDb => {
            let all = format!(
                "create database {DATABASE} character set utf8mb3; \
                 create user {user}@'127.0.0.1' identified by '{password}'; \
                 grant all on {DATABASE}.* to {user}@'127.0.0.1'; \
                 create user {reader}@'127.0.0.1' identified by '{reader_password}'; \
                 grant select on {DATABASE}.* to {reader}@'127.0.0.1'; \
                 create database {other}; \
                 create user {other}@'127.0.0.1' identified by '{other_password}'; \
                 grant all on {other}.* to {other}@'127.0.0.1'; \
                 grant select, create on {other}.* to {reader}@'127.0.0.1';"
            );
            vec![(None, all)]
        }
        Database::Postgres => vec![
            (
                None,
                format!(
                    "create user {user} password '{password}'; create user {reader} password '{reader_password}'; \
                     create user {other} password '{other_password}'"
                ),
            ),
            (None, format!("create database {DATABASE} owner {user}")),
            (None, format!("create database {other} owner {other}")),
            (
                Some(DATABASE),
                format!("alter default privileges for role {user} grant select on tables to {reader}"),
            ),
        ],
    }
}

/// Writes the programs that lead in from outside.
pub(super) fn write_entrances(sandbox: &Sandbox, root: &Root) -> Result<()> {
    let dir = sandbox.dir();
    let entrance = |what: &str, command: &str| sandbox.entrance(&root.path, what, command);
    let inner = format!("'{}'", dir.join("ironicctl.sh").display());
    script(
        &dir.join("ironicctl"),
        &entrance("ironicctl SERVICE VERB [WORD…]: see ironicctl.sh.", &inner)?,
    )?;
    script(
        &dir.join("enter"),
        &entrance(
            "enter COMMAND…: runs a command inside, with the root's files.",
            "",
        )?,
    )
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_conductor_is_its_own_first_choice_and_the_other_s_backup() {
        let text = haproxy_cfg(Path::new("/c"), IronicSpec::default());
        let rpc2 = &text[text.find("frontend in-rpc2").unwrap()..];
        assert_eq!(
            rpc2,
            "frontend in-rpc2\n  bind 127.0.1.2:8089\n  default_backend rpc2\nbackend rpc2\n  \
             server c2 127.0.2.2:8089 check inter 500\n  server c1 127.0.2.1:8089 check inter 500 backup\n"
        );
        assert!(text.contains("  server a2 127.0.2.4:6385 check\n"));
    }

    #[test]
    fn a_service_has_what_is_its_own() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), IronicSpec::default()).unwrap();
        let home = folder.path().join("services/c2");
        let conf = fs::read_to_string(home.join("service.conf")).unwrap();
        assert_eq!(
            conf,
            "[DEFAULT]\nhost = 127.0.1.2\n[json_rpc]\nhost_ip = 127.0.2.2\nport = 8089\n"
        );
        assert_eq!(
            fs::read_link(home.join("code")).unwrap(),
            Path::new("/opt/ironic/29.0.6")
        );
        let far = folder.path().join("x".repeat(90));
        assert!(
            write(&far, IronicSpec::default()).is_err(),
            "sockets would not fit"
        );
    }
}
