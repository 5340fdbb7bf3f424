//! One `ceph` process for each query.

use std::process::Stdio;

use async_trait::async_trait;
use serde_json::Value;
use tokio::process::Command;

use super::{Access, CephAnswer, CephApi, CephApiError, QueryTarget, command_line};

/// How long after the polite end a process is killed, in seconds.
const GRACE: u64 = 5;
/// What `timeout` answers for a command that it ended, politely or not.
const ENDED: [i32; 2] = [124, 137];
/// What the `ceph` program says when it has no connection, in any of its releases.
const NO_CONNECTION: [&str; 5] = [
    "rror connecting to the cluster",
    "Error connecting to cluster",
    "Error initializing cluster client",
    "Cluster connection aborted",
    "unable to get monitor info",
];

/// Starts the `ceph` program for each question: 0.4 to 1.6 s a question.
///
/// Each call runs under coreutils' `timeout` in a process group of its own. So it ends in a known time
/// even when this process is killed, and a Ctrl-C in the terminal does not reach it.
#[derive(Debug, Clone)]
pub struct Exec {
    access: Access,
}

impl Exec {
    /// Asks this cluster.
    pub fn new(access: Access) -> Self {
        Self { access }
    }

    fn line(&self, whom: QueryTarget, command: &Value) -> Vec<String> {
        let Access {
            ceph,
            python: _,
            conf,
            name,
            keyring,
            timeout,
        } = &self.access;
        let seconds = timeout.as_secs().max(1);
        let mut line: Vec<String> = ["timeout", "-k", &GRACE.to_string(), &seconds.to_string()]
            .map(str::to_owned)
            .to_vec();
        line.extend(ceph.iter().cloned());
        if let Some(conf) = conf {
            line.extend(["-c".to_owned(), conf.display().to_string()]);
        }
        if let Some(name) = name {
            line.extend(["-n".to_owned(), name.clone()]);
        }
        if let Some(keyring) = keyring {
            line.extend(["--keyring".to_owned(), keyring.display().to_string()]);
        }
        line.extend(["--connect-timeout".to_owned(), seconds.to_string()]);
        if let Some(format) = command["format"].as_str() {
            line.extend(["--format".to_owned(), format.to_owned()]);
        }
        match whom {
            QueryTarget::Mon | QueryTarget::Mgr => {}
            QueryTarget::MonAt(rank) => line.extend(["tell".to_owned(), format!("mon.{rank}")]),
            QueryTarget::Osd(id) => line.extend(["tell".to_owned(), format!("osd.{id}")]),
        }
        line.extend(command_line(command));
        line
    }
}

#[async_trait]
impl CephApi for Exec {
    async fn command(&self, whom: QueryTarget, command: Value) -> Result<CephAnswer, CephApiError> {
        let asked = command_line(&command).join(" ");
        let line = self.line(whom, &command);
        let via = self.access.ceph.join(" ");
        let start_failed = |source| CephApiError::Start {
            program: line[0].clone(),
            command: asked.clone(),
            source,
        };
        // Not kill_on_drop: that would end `timeout` alone and leave the call without a bound.
        let output = Command::new(&line[0])
            .args(&line[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .output()
            .await
            .map_err(start_failed)?;
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        let rc = output.status.code().unwrap_or(ENDED[1]);
        if ENDED.contains(&rc) {
            return Err(CephApiError::TimedOut {
                command: asked,
                via,
                seconds: self.access.timeout.as_secs().max(1),
            });
        }
        if [126, 127].contains(&rc) && err.contains("timeout: ") {
            let kind = if rc == 127 {
                std::io::ErrorKind::NotFound
            } else {
                std::io::ErrorKind::PermissionDenied
            };
            return Err(CephApiError::Start {
                program: via,
                command: asked,
                source: std::io::Error::new(kind, err.trim().to_owned()),
            });
        }
        if rc != 0 && NO_CONNECTION.iter().any(|words| err.contains(words)) {
            return Err(CephApiError::Unreachable {
                command: asked,
                via,
                why: err.trim().to_owned(),
            });
        }
        Ok(CephAnswer {
            rc,
            out: output.stdout,
            err,
        })
    }
}
