//! The Ironic services: queries to them, and actions on their hosts.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use stagger_engine::cluster::BackendError;
use stagger_engine::hosts::{Hosts, Ran, WHENEVER};

use crate::config::{IronicSettings, PROMPT};
use crate::credentials::{Auth, Credentials};
use crate::facts::{ApiReport, ConductorReport, ConductorRow, DatabaseFacts, NodeCount, Rows};
use crate::http::Http;
use crate::in_flight::{self, NodeInFlight};
use crate::rabbitmq::{Routing, RoutingChange};
use crate::records::{integer, optional_text, text};
use crate::releases::holds_an_object;
use crate::routes::Management;
use crate::sql::{Engine, Sql, Statement, with_password};
use stagger_core::model::Fact;

/// An Ironic, seen and touched. The one of the configuration is [`RemoteIronic`]; tests have one in memory.
#[async_trait]
pub trait IronicClient: Send + Sync + std::fmt::Debug {
    /// What each API service says, by the service's name.
    async fn apis(&self) -> BTreeMap<String, ApiReport>;

    /// The conductors that it knows, by the name under which they are registered.
    async fn conductors(&self) -> Fact<BTreeMap<String, ConductorReport>>;

    /// What its database holds. Nothing is written there, and no tool of Ironic's is asked: those of the new release
    /// fail on the old schema.
    async fn database(&self) -> Fact<DatabaseFacts>;

    /// How RabbitMQ routes calls; `None`: Ironic's services do not call each other over it.
    async fn routing(&self) -> Option<Fact<Routing>>;

    /// Changes how RabbitMQ routes calls.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn reroute(&self, change: &RoutingChange) -> Result<(), String>;

    /// Asks a host something that changes nothing.
    ///
    /// # Errors
    /// It cannot be reached.
    async fn ask(&self, host: &str, question: &str) -> Result<Ran, BackendError>;

    /// Runs a command on a host, once for that key, unless a newer fencing token was seen there.
    ///
    /// # Errors
    /// As [`Hosts::run`].
    async fn run(&self, host: &str, key: &str, fence: u64, command: &str) -> Result<Ran, BackendError>;

    /// Makes a host refuse older fencing tokens.
    ///
    /// # Errors
    /// As [`Hosts::raise_fence`].
    async fn raise_fence(&self, host: &str, fence: u64) -> Result<(), BackendError>;

    /// Stops a conductor's heartbeat, by its JSON-RPC port.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    async fn halt_keepalive(&self, rpc: &str) -> Result<(), BackendError>;

    /// Writes into Ironic's table that a conductor is away, as of now.
    ///
    /// # Errors
    /// The database does not answer, or there is none that may be written.
    async fn write_offline(&self, registered: &str) -> Result<(), BackendError>;
}

/// The conductors that the API there lists, before there is a configuration. `token`: where it asks for one.
///
/// # Errors
/// No answer within 10 s, or another one; with what came.
pub async fn conductors_at(
    endpoint: &str,
    token: Option<&str>,
) -> Result<BTreeMap<String, ConductorReport>, String> {
    let http = Http::new(None, Duration::from_secs(10)).map_err(|error| error.to_string())?;
    http.conductors(endpoint, &Credentials::token(token)).await
}

/// The Ironic of a configuration.
#[derive(Debug)]
pub struct RemoteIronic {
    settings: IronicSettings,
    http: Http,
    database: Sql,
    writes: Option<Sql>,
    /// Who asks the API.
    who: Credentials,
    /// Who calls a conductor.
    caller: Credentials,
    /// Where calls are routed, if that is RabbitMQ.
    management: Option<Management>,
}

impl RemoteIronic {
    /// As the configuration says. Nothing is asked yet.
    ///
    /// # Errors
    /// What in it cannot be used.
    pub fn new(settings: IronicSettings) -> Result<Self, BackendError> {
        let cluster = &settings.cluster;
        cluster.verify().map_err(|why| {
            BackendError::permanent(format!("use the configuration of {}", cluster.name), why)
        })?;
        let password = cluster.password_file.as_deref();
        let credentials = |auth: Option<&Auth>, token: Option<&str>| {
            Credentials::configured(auth, token)
                .map_err(|why| BackendError::permanent("use the credentials of the configuration", why))
        };
        let writes = match &cluster.stopping.database {
            Some(url) => Some(Sql::new(
                &with_password(url, password)?,
                false,
                settings.pace.call,
            )?),
            None => None,
        };
        let http = Http::new(cluster.ca.as_deref(), settings.pace.call)?;
        let management = cluster.rabbitmq.as_ref().map(|rabbitmq| {
            Management::new(http.with_timeout(PROMPT), rabbitmq)
                .map_err(|why| BackendError::permanent("use the credentials of RabbitMQ", why))
        });
        Ok(Self {
            management: management.transpose()?,
            http,
            database: Sql::new(
                &with_password(&cluster.database, password)?,
                true,
                settings.pace.call,
            )?,
            writes,
            who: credentials(cluster.auth.as_ref(), cluster.token.as_deref())?,
            caller: match &cluster.rpc_auth {
                None => Credentials::none(),
                auth => credentials(auth.as_ref(), None)?,
            },
            settings,
        })
    }

    /// The hosts, with their own limit for questions.
    fn hosts(&self) -> &Hosts {
        &self.settings.hosts
    }
}

#[async_trait]
impl IronicClient for RemoteIronic {
    async fn apis(&self) -> BTreeMap<String, ApiReport> {
        let asked = self.settings.cluster.apis.iter().map(|api| async {
            let says = self.http.api(&api.url, &self.who).await;
            (api.name.clone(), says)
        });
        futures::future::join_all(asked).await.into_iter().collect()
    }

    async fn conductors(&self) -> Fact<BTreeMap<String, ConductorReport>> {
        let endpoint = &self.settings.cluster.endpoint;
        match self.http.conductors(endpoint, &self.who).await {
            Ok(found) => Fact::Yes(found),
            Err(why) => Fact::No(why),
        }
    }

    async fn database(&self) -> Fact<DatabaseFacts> {
        match read(&self.database).await {
            Ok(database) => Fact::Yes(database),
            Err(error) => Fact::No(error.to_string()),
        }
    }

    async fn ask(&self, host: &str, question: &str) -> Result<Ran, BackendError> {
        let hosts = Hosts {
            timeout: self.settings.cluster.timeout.max(1),
            ..self.hosts().clone()
        };
        hosts.ask(host, question).await
    }

    async fn run(&self, host: &str, key: &str, fence: u64, command: &str) -> Result<Ran, BackendError> {
        self.hosts().run(host, key, fence, command, WHENEVER).await
    }

    async fn routing(&self) -> Option<Fact<Routing>> {
        let management = self.management.as_ref()?;
        Some(match management.routing(&self.settings.cluster).await {
            Ok(routing) => Fact::Yes(routing),
            Err(why) => Fact::No(format!("RabbitMQ: {why}")),
        })
    }

    async fn reroute(&self, change: &RoutingChange) -> Result<(), String> {
        match &self.management {
            Some(management) => management.change(change).await,
            None => Err("the configuration has no `[cluster.rabbitmq]`".to_owned()),
        }
    }

    async fn raise_fence(&self, host: &str, fence: u64) -> Result<(), BackendError> {
        self.hosts().raise_fence(host, fence).await
    }

    async fn halt_keepalive(&self, rpc: &str) -> Result<(), BackendError> {
        let halted = self.http.halt_keepalive(rpc, &self.caller).await;
        halted.map_err(|why| BackendError::transient("stop the heartbeat of a conductor", why))
    }

    async fn write_offline(&self, registered: &str) -> Result<(), BackendError> {
        let tried = format!("write down that {registered} is away");
        let Some(sql) = &self.writes else {
            return Err(BackendError::permanent(tried, "`stopping.database` is not given"));
        };
        let (offline, now) = match sql.engine {
            Engine::Mysql => ("0", "utc_timestamp()"),
            Engine::Postgres => ("false", "timezone('utc', now())"),
            Engine::Sqlite => ("0", "datetime('now')"),
        };
        // With an old time of the last heartbeat the peers would break its locks.
        let text = format!("update conductors set online = {offline}, updated_at = {now} where hostname = ?");
        sql.change(&tried, vec![Statement::new(text, vec![registered.into()])])
            .await
            .map(drop)
    }
}

/// Everything that is looked at in Ironic's database, by plain SQL.
async fn read(sql: &Sql) -> Result<DatabaseFacts, BackendError> {
    const TRIED: &str = "look at Ironic's tables";
    let mut database = DatabaseFacts::default();
    let (cast, tables) = match sql.engine {
        Engine::Mysql => (
            "char",
            "select cast(table_name as char) from information_schema.columns \
             where table_schema = database() and column_name = 'version'",
        ),
        Engine::Postgres => (
            "text",
            "select cast(table_name as text) from information_schema.columns \
             where table_schema = current_schema() and column_name = 'version'",
        ),
        Engine::Sqlite => (
            "text",
            "select m.name from sqlite_master m join pragma_table_info(m.name) c on c.name = 'version' \
             where m.type = 'table'",
        ),
    };
    let revisions = format!("select cast(version_num as {cast}) from alembic_version");
    let mut found = Vec::new();
    for row in sql.fetch(TRIED, &revisions, Vec::new()).await? {
        found.push(text(TRIED, &row, 0)?);
    }
    database.revision = found.join(" ");
    let mut names = Vec::new();
    for row in sql.fetch(TRIED, tables, Vec::new()).await? {
        let name = text(TRIED, &row, 0)?;
        // It stands in the next question as it is, and Ironic's own need no quotes.
        if name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            names.push(name);
        }
    }
    for name in names {
        let question = format!("select cast(version as {cast}), count(*) from {name} group by version");
        let mut rows = Rows::default();
        for row in sql.fetch(TRIED, &question, Vec::new()).await? {
            let count = u64::try_from(integer(TRIED, &row, 1)?).unwrap_or(0);
            match optional_text(TRIED, &row, 0)? {
                Some(version) => {
                    rows.versions.insert(version, count);
                }
                None => rows.null = count,
            }
        }
        // Each table of Ironic's has that column, and those that hold no object never fill it. A newer release may have
        // objects of which nobody here has heard: what is seen of them counts, and what is not there does not.
        let is_known = holds_an_object(&name);
        if !is_known {
            rows.null = 0;
        }
        if is_known || !rows.versions.is_empty() {
            database.rows.insert(name, rows);
        }
    }
    let conductors = format!(
        "select cast(hostname as {cast}), cast(version as {cast}), case when online then 'yes' else 'no' end \
         from conductors"
    );
    for row in sql.fetch(TRIED, &conductors, Vec::new()).await? {
        let says = ConductorRow {
            version: optional_text(TRIED, &row, 1)?,
            online: text(TRIED, &row, 2)? == "yes",
        };
        database.conductors.insert(text(TRIED, &row, 0)?, says);
    }
    read_nodes(sql, cast, &mut database).await?;
    Ok(database)
}

/// PostgreSQL has microseconds where MariaDB has none.
fn to_seconds(time: String) -> String {
    time.split_once('.')
        .map(|(whole, _)| whole.to_owned())
        .unwrap_or(time)
}

/// What Ironic's nodes are, and what is being done with them; `cast` is the database's word for a text.
async fn read_nodes(sql: &Sql, cast: &str, database: &mut DatabaseFacts) -> Result<(), BackendError> {
    const TRIED: &str = "look at Ironic's nodes";
    let reserved = format!(
        "select cast(reservation as {cast}), count(*) from nodes where reservation is not null group by reservation"
    );
    for row in sql.fetch(TRIED, &reserved, Vec::new()).await? {
        let count = u64::try_from(integer(TRIED, &row, 1)?).unwrap_or(0);
        database.reserved.insert(text(TRIED, &row, 0)?, count);
    }
    let drivers = format!(
        "select distinct cast(c.hostname as {cast}), cast(i.hardware_type as {cast}) \
         from conductor_hardware_interfaces i join conductors c on c.id = i.conductor_id"
    );
    for row in sql.fetch(TRIED, &drivers, Vec::new()).await? {
        let of_conductor = database.drivers.entry(text(TRIED, &row, 0)?).or_default();
        of_conductor.insert(text(TRIED, &row, 1)?);
    }
    let counts = format!(
        "select cast(coalesce(conductor_group, '') as {cast}), cast(driver as {cast}), count(*) from nodes \
         where driver is not null group by conductor_group, driver order by conductor_group, driver"
    );
    for row in sql.fetch(TRIED, &counts, Vec::new()).await? {
        database.nodes.push(NodeCount {
            group: text(TRIED, &row, 0)?,
            driver: text(TRIED, &row, 1)?,
            nodes: u64::try_from(integer(TRIED, &row, 2)?).unwrap_or(0),
        });
    }
    let states = in_flight::STATES.map(|state| format!("'{state}'")).join(", ");
    let nodes = format!(
        "select cast(coalesce(n.name, n.uuid) as {cast}), cast(n.provision_state as {cast}), \
         cast(n.provision_updated_at as {cast}), cast(coalesce(n.reservation, c.hostname) as {cast}) \
         from nodes n left join conductors c on c.id = n.conductor_affinity \
         where n.provision_state in ({states}) order by n.provision_updated_at, n.id"
    );
    for row in sql.fetch(TRIED, &nodes, Vec::new()).await? {
        database.in_flight.push(NodeInFlight {
            node: text(TRIED, &row, 0)?,
            state: text(TRIED, &row, 1)?,
            since: optional_text(TRIED, &row, 2)?.map(to_seconds),
            conductor: optional_text(TRIED, &row, 3)?,
        });
    }
    Ok(())
}
