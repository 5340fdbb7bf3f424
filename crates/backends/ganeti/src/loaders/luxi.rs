//! Loads a cluster from `luxid`, the master's daemon, over its socket.
//!
//! A request is one JSON object, as is an answer, each terminated by the byte 3 (`gnt-master(8)`,
//! "Communication protocol"). The fields of a query are those of RAPI's bulk bodies, so its rows are
//! converted to those.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::loaders::rapi::Bodies;

/// Where it listens on a master, as Ganeti is built by default.
pub const SOCKET: &str = "/var/run/ganeti/socket/ganeti-query";

/// Ends a message.
const END: u8 = 3;
/// As long as Ganeti's own clients wait for an answer.
const TIMEOUT: Duration = Duration::from_mins(1);

const GROUPS: &[&str] = &["name", "uuid", "alloc_policy", "tags", "ipolicy"];
const NODES: &[&str] = &[
    "name",
    "offline",
    "drained",
    "vm_capable",
    "group.uuid",
    "ndparams",
    "mtotal",
    "mnode",
    "mfree",
    "dtotal",
    "dfree",
    "ctotal",
    "cnos",
    "sptotal",
    "spfree",
    "tags",
];
const INSTANCES: &[&str] = &[
    "name",
    "status",
    "pnode",
    "snodes",
    "disk_template",
    "disk_usage",
    "disk.spindles",
    "beparams",
    "oper_ram",
    "tags",
    "forthcoming",
];

/// No cluster was had from a socket.
#[derive(Debug, thiserror::Error)]
pub enum LuxiError {
    /// Nobody listens there, or the talk ended early.
    #[error("ask for the {what} at {}", socket.display())]
    Talk {
        /// The socket.
        socket: PathBuf,
        /// What was asked for.
        what: &'static str,
        /// Why there is no answer.
        #[source]
        source: io::Error,
    },
    /// The daemon says no.
    #[error("luxid does not return the {what}: {said}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// Its words.
        said: String,
    },
    /// An answer that is not what luxid gives.
    #[error("luxid's answer about the {what} is not what Ganeti gives")]
    Answer {
        /// What was asked for.
        what: &'static str,
        /// Where, and what was expected there.
        #[source]
        source: serde_json::Error,
    },
}

/// Asks for a cluster.
///
/// # Errors
/// Nobody listens there, the daemon refuses, or its answer is not understood.
pub fn bodies_at(socket: &Path) -> Result<Bodies, LuxiError> {
    let failed = |what: &'static str| {
        move |source| LuxiError::Talk {
            socket: socket.to_owned(),
            what,
            source,
        }
    };
    let connected = UnixStream::connect(socket).and_then(|stream| {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(stream)
    });
    let mut stream = connected.map_err(failed("cluster"))?;
    let mut query = |what: &'static str, kind: &str, fields: &[&str]| {
        let said = exchange(&mut stream, "Query", &json!([kind, fields, null])).map_err(failed(what))?;
        rows(what, fields, &said)
    };
    Ok(Bodies {
        groups: query("groups", "group", GROUPS)?,
        nodes: query("nodes", "node", NODES)?,
        instances: query("instances", "instance", INSTANCES)?,
        info: {
            let said = exchange(&mut stream, "QueryClusterInfo", &json!([])).map_err(failed("cluster"))?;
            result::<Value>("cluster", &said)?.to_string()
        },
    })
}

/// One question and its answer.
fn exchange(stream: &mut (impl Read + Write), method: &str, args: &Value) -> io::Result<Vec<u8>> {
    let mut question = json!({ "method": method, "args": args }).to_string().into_bytes();
    question.push(END);
    stream.write_all(&question)?;
    let mut said = Vec::new();
    let mut part = [0; 16 * 1024];
    loop {
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => said.extend_from_slice(&part[..read]),
        }
        if said.last() == Some(&END) {
            said.pop();
            return Ok(said);
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    success: bool,
    #[serde(default)]
    result: Value,
}

#[derive(Deserialize)]
struct Table {
    /// Rows of pairs: a code, 0 where there is a value, and the value.
    data: Vec<Vec<(u8, Value)>>,
}

fn result<T: for<'a> Deserialize<'a>>(what: &'static str, said: &[u8]) -> Result<T, LuxiError> {
    let failed = |source| LuxiError::Answer { what, source };
    let answer: Answer = serde_json::from_slice(said).map_err(failed)?;
    if !answer.success {
        return Err(LuxiError::Refused {
            what,
            said: answer.result.to_string(),
        });
    }
    T::deserialize(answer.result).map_err(failed)
}

/// The rows of an answer, as RAPI would give them in one body. What has no value is left out.
fn rows(what: &'static str, fields: &[&str], said: &[u8]) -> Result<String, LuxiError> {
    let table: Table = result(what, said)?;
    let rows: Vec<Value> = table
        .data
        .into_iter()
        .map(|row| {
            let named = fields.iter().zip(row);
            let there = named.filter(|(_, (code, _))| *code == 0);
            let object: Map<_, _> = there
                .map(|(name, (_, value))| ((*name).to_owned(), value))
                .collect();
            object.into()
        })
        .collect();
    Ok(Value::from(rows).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_a_body_without_what_has_no_value() {
        let said = br#"{"success": true, "result": {"fields": [], "data": [[[0, "node1"], [4, null]]]}}"#;
        assert_eq!(
            rows("nodes", &["name", "mtotal"], said).unwrap(),
            r#"[{"name":"node1"}]"#
        );
    }

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let said = br#"{"success": false, "result": ["OpPrereqError", ["not the master"]]}"#;
        let error = rows("nodes", &["name"], said).unwrap_err();
        assert!(error.to_string().contains("not the master"), "{error}");
    }

    /// A daemon that answers in pieces, and one that ends in mid-word.
    #[test]
    fn an_answer_ends_with_its_mark() {
        let ask = |pieces: &'static [&'static [u8]]| {
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            let daemon = std::thread::spawn(move || {
                let mut asked = [0; 256];
                let read = theirs.read(&mut asked).unwrap();
                for piece in pieces {
                    theirs.write_all(piece).unwrap();
                    std::thread::sleep(Duration::from_millis(10));
                }
                asked[..read].to_vec()
            });
            let said = exchange(&mut ours, "QueryClusterInfo", &json!([]));
            (daemon.join().unwrap(), said)
        };
        let (asked, said) = ask(&[b"{\"success\": ", b"true}\x03"]);
        assert_eq!(asked, b"{\"args\":[],\"method\":\"QueryClusterInfo\"}\x03");
        assert_eq!(said.unwrap(), b"{\"success\": true}");
        let (_, cut) = ask(&[b"{\"success\""]);
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
