//! The balancer's view: the CSV of haproxy's `show stat`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::BalancerServer;

/// The servers of all backends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BalancerStatus {
    /// By `backend/server`.
    pub servers: BTreeMap<BalancerServer, ServerReport>,
}

/// One server as the balancer has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerReport {
    /// Whether it gets requests.
    pub state: ServerState,
    /// Requests with it now, and those that wait for it.
    pub sessions: u64,
    /// Requests that it has had since the balancer began.
    pub total: u64,
    /// The balancer's own word.
    pub status: String,
}

/// Whether a server gets requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// It does.
    Up,
    /// Its check fails.
    Down,
    /// It gets no new ones, by somebody's wish.
    Drained,
    /// Nobody could tell; as one that is not checked.
    Unclear,
}

impl ServerState {
    fn of(status: &str) -> Self {
        // `UP 1/3` is on its way down, and still serves; `DOWN 1/2` is on its way up, and does not.
        match status.split(' ').next().unwrap_or_default() {
            "UP" => Self::Up,
            "DOWN" | "NOLB" => Self::Down,
            "DRAIN" | "MAINT" => Self::Drained,
            _ => Self::Unclear,
        }
    }
}

/// An answer that is not what `show stat` prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BalancerStatusError {
    /// Without the names of its columns.
    #[error("it does not start with `# pxname,svname,…`: {0:?}")]
    Header(String),
    /// A column that is not there.
    #[error("there is no column {0}")]
    Column(&'static str),
    /// A number that is none.
    #[error("{column} of {server} is {text:?}, and that is no number")]
    Number {
        /// Of which server.
        server: String,
        /// Which.
        column: &'static str,
        /// What stands there.
        text: String,
    },
}

impl BalancerStatus {
    /// Reads what `show stat` prints.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn read(csv: &str) -> Result<Self, BalancerStatusError> {
        let mut lines = csv.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default();
        let Some(header) = first.strip_prefix("# ") else {
            return Err(BalancerStatusError::Header(first.chars().take(80).collect()));
        };
        let names: Vec<&str> = header.split(',').collect();
        let column = |name: &'static str| {
            let at = names.iter().position(|known| *known == name);
            at.ok_or(BalancerStatusError::Column(name))
        };
        let (backend, server, status) = (column("pxname")?, column("svname")?, column("status")?);
        let (queue, current) = (column("qcur")?, column("scur")?);
        let total = column("stot")?;
        let mut servers = BTreeMap::new();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let cell = |at: usize| cells.get(at).copied().unwrap_or_default();
            // What stands for a whole frontend or backend is no server.
            if ["FRONTEND", "BACKEND"].contains(&cell(server)) || cell(server).is_empty() {
                continue;
            }
            let name = BalancerServer {
                backend: cell(backend).to_owned(),
                server: cell(server).to_owned(),
            };
            let number = |column: &'static str, at: usize| match cell(at) {
                "" => Ok(0),
                text => text.parse::<u64>().map_err(|_| BalancerStatusError::Number {
                    server: name.to_string(),
                    column,
                    text: text.to_owned(),
                }),
            };
            let says = ServerReport {
                state: ServerState::of(cell(status)),
                sessions: number("scur", current)? + number("qcur", queue)?,
                total: number("stot", total)?,
                status: cell(status).to_owned(),
            };
            servers.insert(name, says);
        }
        Ok(Self { servers })
    }

    /// That server; one that is not listed is unclear.
    pub fn server(&self, server: &BalancerServer) -> ServerReport {
        self.servers.get(server).cloned().unwrap_or_else(|| ServerReport {
            state: ServerState::Unclear,
            sessions: 0,
            total: 0,
            status: "not listed".to_owned(),
        })
    }

    /// The other servers of its backend that get requests.
    pub fn peers<'a>(&'a self, server: &'a BalancerServer) -> impl Iterator<Item = &'a BalancerServer> {
        self.servers
            .iter()
            .filter(move |(other, says)| {
                other.backend == server.backend && *other != server && says.state == ServerState::Up
            })
            .map(|(other, _)| other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first columns as haproxy 2.6 prints them.
    const CSV: &str = "\
# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,wretr,wredis,status,weight,act,bck,\n\
f,FRONTEND,,,3,7,500,120,9,9,0,0,0,,,,,OPEN,,,,\n\
b,a1,0,0,2,4,,60,9,9,,0,,0,0,0,0,UP,1,1,0,\n\
b,a2,1,0,1,4,,60,9,9,,0,,0,0,0,0,DRAIN,0,1,0,\n\
b,BACKEND,0,0,3,4,50,120,9,9,0,0,,0,0,0,0,UP,1,1,0,\n\
rpc1,c1,0,0,0,1,,9,9,9,,0,,0,0,0,0,UP 1/3,1,1,0,\n\
rpc1,c2,0,0,0,1,,9,9,9,,0,,0,0,0,0,DOWN,1,0,1,\n\
rpc2,c1,0,0,0,1,,9,9,9,,0,,0,0,0,0,no check,1,0,1,\n\n";

    fn server(text: &str) -> BalancerServer {
        BalancerServer::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn servers_are_read_by_the_names_of_the_columns() {
        let shown = BalancerStatus::read(CSV).unwrap();
        assert_eq!(shown.servers.len(), 5);
        for (name, state, sessions) in [
            ("b/a1", ServerState::Up, (2, 60)),
            ("b/a2", ServerState::Drained, (2, 60)),
            ("rpc1/c1", ServerState::Up, (0, 9)),
            ("rpc1/c2", ServerState::Down, (0, 9)),
            ("rpc2/c1", ServerState::Unclear, (0, 9)),
            ("rpc2/c9", ServerState::Unclear, (0, 0)),
        ] {
            let says = shown.server(&server(name));
            assert_eq!(
                (says.state, (says.sessions, says.total)),
                (state, sessions),
                "{name}"
            );
        }
        let peers: Vec<_> = shown.peers(&server("b/a2")).map(ToString::to_string).collect();
        assert_eq!(peers, ["b/a1"]);
        assert_eq!(shown.peers(&server("rpc1/c1")).count(), 0, "c2 is down");
    }

    #[test]
    fn what_is_no_csv_is_refused() {
        assert!(matches!(
            BalancerStatus::read(""),
            Err(BalancerStatusError::Header(_))
        ));
        assert!(matches!(
            BalancerStatus::read("Permission denied.\n"),
            Err(BalancerStatusError::Header(_))
        ));
        assert_eq!(
            BalancerStatus::read("# pxname,svname,status,qcur\n"),
            Err(BalancerStatusError::Column("scur"))
        );
        let odd = CSV.replace("b,a1,0,0,2", "b,a1,0,0,many");
        assert!(matches!(
            BalancerStatus::read(&odd),
            Err(BalancerStatusError::Number { .. })
        ));
    }
}
