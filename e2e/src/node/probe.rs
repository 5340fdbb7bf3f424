//! Probes: a command in the container, or a question by HTTP.

use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::process::Inside;

/// A probe's own numbers, with the API's defaults.
pub(super) struct Numbers {
    pub(super) delay: Duration,
    pub(super) period: Duration,
    pub(super) limit: Duration,
    pub(super) failures: u32,
    pub(super) successes: u32,
}

impl Numbers {
    pub(super) fn of(probe: &Probe) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(
                value
                    .and_then(|value| u64::try_from(value).ok())
                    .unwrap_or(default),
            )
        };
        let count = |value: Option<i32>, default: u32| {
            value
                .and_then(|value| u32::try_from(value).ok())
                .unwrap_or(default)
        };
        Self {
            delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(Duration::from_secs(1)),
            limit: seconds(probe.timeout_seconds, 1).max(Duration::from_secs(1)),
            failures: count(probe.failure_threshold, 3).max(1),
            successes: count(probe.success_threshold, 1).max(1),
        }
    }
}

/// A command that has not ended, with all that it has started. Dropping it kills them: `ceph --admin-daemon` for one reads for
/// ever what its daemon has ended.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill -KILL -- \"-$1\"", "kill", &leader.to_string()]);
            // Nobody is left to be told.
            kill.status().ok();
        }
    }
}

/// Asks once, beside the `first` process of the container.
pub(super) async fn ask(
    probe: &Probe,
    container: &Container,
    inside: &Inside,
    first: u32,
    limit: Duration,
) -> bool {
    if let Some(command) = probe.exec.as_ref().and_then(|exec| exec.command.as_ref()) {
        let Ok(mut child) = inside.beside(first, command).process_group(0).spawn() else {
            return false;
        };
        let mut group = Group(child.id());
        let ended = timeout(limit, child.wait()).await;
        if ended.is_ok() {
            group.0 = None;
        }
        return ended.is_ok_and(|ended| ended.is_ok_and(|status| status.success()));
    }
    if let Some(get) = &probe.http_get {
        let Some(port) = port(&get.port, container) else {
            return false;
        };
        let path = get.path.as_deref().unwrap_or("/");
        return timeout(limit, http(inside.address(), port, path))
            .await
            .unwrap_or(false);
    }
    // Others are not used here; what cannot be asked has not answered.
    false
}

/// A port by its number, or by the name that the container has for it.
fn port(asked: &IntOrString, container: &Container) -> Option<i32> {
    match asked {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name))?;
            Some(named.container_port)
        }
    }
}

/// Whether `GET path` is answered with a status from 200 to 399.
async fn http(address: &str, port: i32, path: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(format!("{address}:{port}")).await else {
        return false;
    };
    let question = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    if stream.write_all(question.as_bytes()).await.is_err() {
        return false;
    }
    let mut answer = [0_u8; 64];
    let Ok(read) = stream.read(&mut answer).await else {
        return false;
    };
    let text = String::from_utf8_lossy(&answer[..read]);
    let code = text.split(' ').nth(1).and_then(|code| code.parse::<u32>().ok());
    code.is_some_and(|code| (200..400).contains(&code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_port_is_found_by_its_number_and_by_its_name() {
        let ports = json!([{ "name": "metrics", "containerPort": 8080 }]);
        let container = serde_json::from_value(json!({ "name": "c", "ports": ports })).unwrap();
        assert_eq!(port(&IntOrString::Int(9), &container), Some(9));
        assert_eq!(
            port(&IntOrString::String("metrics".to_owned()), &container),
            Some(8080)
        );
        assert_eq!(port(&IntOrString::String("none".to_owned()), &container), None);
    }
}
