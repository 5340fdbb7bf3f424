//! A real Ironic on this machine: two conductors and two APIs of any release in the root, haproxy before them, MariaDB
//! behind them, and hardware that is Ironic's own fake.
//!
//! `Cluster::boot` makes one from nothing, in namespaces of its own. Everything is in one folder:
//!
//! - `ironicctl SERVICE VERB` is what package manager, init and an operator's scripts are: see `ironicctl.sh`;
//! - `enter COMMAND…` runs a command inside, with the root's files;
//! - `services/SERVICE` has the code that is installed (a link), `pin.conf` and `service.conf`;
//! - `haproxy.sock` is the balancer's admin socket: the backend `api` has the servers `a1` and `a2`, `rpc1` and `rpc2`
//!   have `c1` and `c2`, each the backup of the other;
//! - `log/` has one log for each; a line `29.0.6 fail` in `fault/SERVICE` makes its start on that release fail.

mod boot;
mod failure;
mod files;
mod hand;
mod keystone;
mod load;
mod report;
mod root;
mod signatures;
mod spec;
mod state;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub use crate::ceph::Lap;
use crate::command::{ends_of_logs, output, run};
use crate::folder::Folder;
use crate::sandbox::Sandbox;
pub use failure::Failure;
pub use files::HOLD;
pub use hand::{Hand, Step};
pub use keystone::{ADMIN, KEYSTONE, TLS_PORT};
pub use load::Load;
pub use report::{Figures, Judged, Report};
pub use root::Root;
pub use signatures::{SIGNATURES, Signature};
pub use spec::{Calls, Database, IronicSpec, Release, Service};

/// The port of the balancer, at 127.0.0.1, by which clients reach the APIs.
pub const API_PORT: u16 = 6385;
/// The name of the database, which listens at 127.0.0.1 on MariaDB's own port.
pub const DATABASE: &str = "ironic";
/// Who the services are to the database: name and password.
pub const DATABASE_USER: (&str, &str) = ("ironic", "secret");
/// Who may only read there.
pub const DATABASE_READER: (&str, &str) = ("reader", "secret");
/// Who has a database of their own name beside it, for what is not Ironic's.
pub const DATABASE_OTHER: (&str, &str) = ("stagger", "secret");

/// The management API of RabbitMQ, and who may do there what the guide says and no more; the password is that of the database.
pub const RABBITMQ: (&str, &str) = ("http://127.0.0.1:15672", "stagger");

/// The microversion that is asked for where nothing else is said. Every release in the root has it.
const MICROVERSION: &str = "1.80";

/// What the API answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The newest microversion that it says it has.
    pub newest: Option<String>,
    /// The body, null where there is none.
    pub body: Value,
}

/// A running cluster. Dropping it ends every process of it and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    sandbox: Sandbox,
    // After the sandbox, whose end removes it.
    _folder: Folder,
    root: Root,
    spec: IronicSpec,
    laps: Vec<Lap>,
    /// By which its API is asked, where it wants one.
    token: Option<String>,
}

impl Cluster {
    /// Makes a cluster and waits until it serves. A missing root is built first, which takes minutes.
    ///
    /// # Errors
    /// Something does not come up; the ends of the logs are told.
    pub fn boot(spec: IronicSpec) -> Result<Self> {
        boot::boot(Root::ensure(spec.releases)?, spec)
    }

    /// The folder of the cluster: the same path outside and in the root inside.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// The namespaces that it runs in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The root that it runs from.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// What it consisted of when it was made.
    pub fn spec(&self) -> &IronicSpec {
        &self.spec
    }

    /// How long the parts of the boot took.
    pub fn laps(&self) -> &[Lap] {
        &self.laps
    }

    /// A command with the root's files, in the cluster's namespaces.
    pub fn command(&self, program: &str) -> Command {
        self.sandbox.command_in(&self.root.path, program)
    }

    fn ironicctl(&self, name: &str, verb: &str, words: &[&str]) -> Command {
        let mut command = self
            .sandbox
            .command_in(&self.root.path, self.dir().join("ironicctl.sh"));
        command.args([name, verb]).args(words);
        command
    }

    /// Works on a service: a verb of `ironicctl`, which must succeed. Gives what it printed.
    ///
    /// # Errors
    /// It did not succeed; what it printed is told.
    pub fn service(&self, service: Service, verb: &str, words: &[&str]) -> Result<String> {
        run(&mut self.ironicctl(service.name(), verb, words))
    }

    /// Works on the database: `start`, `stop`, `kill`.
    ///
    /// # Errors
    /// It did not succeed; what it printed is told.
    pub fn database(&self, verb: &str) -> Result<()> {
        run(&mut self.ironicctl("db", verb, &[])).map(drop)
    }

    /// Works on RabbitMQ: `start`, `stop`, `kill`.
    ///
    /// # Errors
    /// It did not succeed; what it printed is told.
    pub fn rabbitmq(&self, verb: &str) -> Result<()> {
        run(&mut self.ironicctl("mq", verb, &[])).map(drop)
    }

    /// Asks the balancer's admin socket.
    ///
    /// # Errors
    /// It does not answer.
    pub fn balancer(&self, words: &[&str]) -> Result<String> {
        run(&mut self.ironicctl("balancer", "ask", words))
    }

    /// Runs `ironic-dbsync` or `ironic-status` of a release. Gives its exit code and what it printed.
    ///
    /// # Errors
    /// It could not be started, or was ended by a signal.
    pub fn code(&self, release: Release, program: &str, words: &[&str]) -> Result<(i32, String)> {
        let all = [&[program], words].concat();
        let out = output(&mut self.ironicctl("code", release.version(), &all))?;
        let text = [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let code = out
            .status
            .code()
            .with_context(|| format!("{program} of {release} ended with {}", out.status))?;
        Ok((code, text.concat()))
    }

    /// Asks Ironic's database as its administrator. Gives the rows, fields parted by tabs.
    ///
    /// # Errors
    /// It refuses, or is not there.
    pub fn sql(&self, query: &str) -> Result<Vec<String>> {
        self.sql_in(Some(DATABASE), query)
    }

    /// The same of a database of that name; none: where no database is needed.
    ///
    /// # Errors
    /// It refuses, or is not there.
    pub fn sql_in(&self, database: Option<&str>, query: &str) -> Result<Vec<String>> {
        let mut client = match self.spec.database {
            Database::MariaDb => {
                let mut client = self.command("mariadb");
                client.arg("--no-defaults");
                client
                    .arg("--socket")
                    .arg(self.dir().join(files::DATABASE_SOCKET));
                client.args(["--batch", "--skip-column-names", "--execute", query]);
                client.args(database);
                client
            }
            Database::Postgres => {
                let mut client = self.command("psql");
                client.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
                client.args(["--set", "ON_ERROR_STOP=1", "--pset", "null=NULL"]);
                client.args([
                    "--field-separator",
                    "\t",
                    "--host",
                    "127.0.0.1",
                    "--username",
                    "postgres",
                ]);
                client.args(["--dbname", database.unwrap_or("postgres"), "--command", query]);
                client
            }
        };
        Ok(run(&mut client)?.lines().map(str::to_owned).collect())
    }

    /// How many rows of a table (`nodes`, `ports` …) have which version of their object; `None` is a row without.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn row_versions(&self, table: &str) -> Result<BTreeMap<Option<String>, u64>> {
        let query = format!("select version, count(*) from {table} group by version");
        let rows = self.sql(&query)?.into_iter().map(|row| {
            let (version, count) = row
                .split_once('\t')
                .with_context(|| format!("no version and count: {row}"))?;
            let count = count.parse().with_context(|| format!("no count: {row}"))?;
            Ok(((version != "NULL").then(|| version.to_owned()), count))
        });
        rows.collect()
    }

    /// Asks the API through the balancer, at a microversion that every release has.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn api(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        self.api_at("127.0.0.1", method, path, body)
    }

    /// Asks one API past the balancer.
    ///
    /// # Errors
    /// It does not answer.
    pub fn api_of(&self, api: Service, method: &str, path: &str) -> Result<Reply> {
        self.api_at(api.address(), method, path, None)
    }

    fn api_at(&self, address: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Reply> {
        let mut curl = self.command("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60"]);
        curl.args(["--request", method, "--write-out"]);
        // The name of the header is written in another case by another server.
        curl.arg("\n%{http_code} %header{x-openstack-ironic-api-maximum-version}");
        curl.arg("--header")
            .arg(format!("X-OpenStack-Ironic-API-Version: {MICROVERSION}"));
        if let Some(token) = &self.token {
            curl.arg("--header").arg(format!("X-Auth-Token: {token}"));
        }
        if let Some(body) = body {
            curl.args(["--header", "Content-Type: application/json", "--data"])
                .arg(body.to_string());
        }
        let said = run(curl.arg(format!("http://{address}:{API_PORT}{path}")))?;
        reply(&said).with_context(|| format!("{method} {path} at {address}"))
    }

    /// The conductors that the API knows, and whether they are alive.
    ///
    /// # Errors
    /// The API does not answer, or another thing.
    pub fn conductors(&self) -> Result<BTreeMap<String, bool>> {
        let reply = self.api("GET", "/v1/conductors", None)?;
        let rows = reply.body["conductors"]
            .as_array()
            .with_context(|| format!("no conductors: {reply:?}"))?;
        let one = |row: &Value| Some((row["hostname"].as_str()?.to_owned(), row["alive"].as_bool()?));
        rows.iter()
            .map(|row| one(row).with_context(|| format!("not understood as a conductor: {row}")))
            .collect()
    }

    /// Asks again and again until something is so. Gives how long it took.
    ///
    /// # Errors
    /// It is not so in time, or asking failed.
    pub fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        loop {
            if done(self)? {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > limit {
                bail!("{what}: not within {} s", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Every line of the services' logs.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn log(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for service in self.spec.services() {
            let path = self.dir().join("log").join(format!("{service}.log"));
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            all.extend(String::from_utf8_lossy(&text).lines().map(str::to_owned));
        }
        Ok(all)
    }

    /// The last lines of every log that has any, for the message of a failed test.
    pub fn logs_tail(&self) -> String {
        ends_of_logs(&[self.dir().join("log")])
    }

    /// Memory of all processes inside, in bytes (resident, shared pages counted for each).
    ///
    /// # Errors
    /// `ps` failed.
    pub fn memory(&self) -> Result<u64> {
        let list = output(self.sandbox.command("ps").args(["-e", "-o", "rss="]))?;
        ensure!(list.status.success(), "`ps` failed in the sandbox");
        Ok(String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter_map(|line| line.trim().parse::<u64>().ok())
            .sum::<u64>()
            * 1024)
    }

    /// Ends the cluster and waits until nothing of it is left. `keep` leaves its folder.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(mut self, keep: bool) -> Result<()> {
        if keep {
            self.sandbox.keep_folder()?;
        }
        self.sandbox.stop()
    }
}

/// What `curl` printed: the body, and on a line of its own the status and the newest microversion.
fn reply(said: &str) -> Result<Reply> {
    let (body, end) = said.rsplit_once('\n').context("no status at the end")?;
    let (status, newest) = end.split_once(' ').unwrap_or((end, ""));
    let status = status.parse().with_context(|| format!("no status: {end}"))?;
    let body = if body.trim().is_empty() {
        Value::Null
    } else {
        // A balancer without servers answers with a page.
        serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()))
    };
    Ok(Reply {
        status,
        newest: (!newest.is_empty()).then(|| newest.to_owned()),
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_body_status_and_newest_microversion() {
        let full = reply("{\"nodes\": []}\n200 1.96").unwrap();
        assert_eq!((full.status, full.newest.as_deref()), (200, Some("1.96")));
        assert_eq!(full.body["nodes"], serde_json::json!([]));
        let page = reply("<html>\nNo server is available\n</html>\n\n503 ").unwrap();
        assert_eq!((page.status, page.newest), (503, None));
        assert!(page.body.as_str().unwrap().contains("No server is available"));
        assert_eq!(reply("\n204 1.96").unwrap().body, Value::Null);
        assert!(reply("nothing").is_err());
    }
}
