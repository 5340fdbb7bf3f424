//! What an Ironic is after an upgrade, and what is left of whoever upgraded it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::spec::{Release, Service};
use super::{Cluster, DATABASE_OTHER};

impl Cluster {
    /// How the balancer has each server: `rpc1/c1` is `UP`.
    ///
    /// # Errors
    /// It does not answer.
    pub fn servers(&self) -> Result<BTreeMap<String, String>> {
        let csv = self.balancer(&["show", "stat"])?;
        let rows = csv
            .lines()
            .filter(|line| line.contains(',') && !line.starts_with('#'));
        let rows = rows.map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let status = cells.get(17).context("a line of the balancer without status")?;
            Ok((format!("{}/{}", cells[0], cells[1]), (*status).to_owned()))
        });
        let mut servers: BTreeMap<String, String> = rows.collect::<Result<_>>()?;
        servers.retain(|name, _| !name.ends_with("/FRONTEND") && !name.ends_with("/BACKEND"));
        Ok(servers)
    }

    /// Which release a service runs, and to which its next start is pinned.
    ///
    /// # Errors
    /// It does not run.
    pub fn runs(&self, service: Service) -> Result<(String, Option<String>)> {
        let status = self.service(service, "status", &[])?;
        let release = status.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let pin = self.service(service, "pinned", &[])?.trim().to_owned();
        Ok((release, (!pin.is_empty()).then_some(pin)))
    }

    /// Whether all services run that release and start pinned to that one, serve, and get requests.
    ///
    /// # Errors
    /// What is not so.
    pub fn ensure_runs(&self, release: Release, pin: Option<Release>) -> Result<()> {
        let wanted = (release.version().to_owned(), pin.map(|pin| pin.pin().to_owned()));
        for service in self.spec().services() {
            let runs = self.runs(service)?;
            ensure!(runs == wanted, "{service} runs {runs:?}, and not {wanted:?}");
        }
        for api in Service::APIS {
            let reply = self.api_of(api, "GET", "/")?;
            let newest = pin.unwrap_or(release).microversion();
            ensure!(reply.newest.as_deref() == Some(newest), "{api}: {reply:?}");
        }
        let conductors = self.conductors()?;
        ensure!(
            conductors.len() == self.spec().conductors().len() && conductors.values().all(|alive| *alive),
            "{conductors:?}"
        );
        let servers = self.servers()?;
        ensure!(servers.values().all(|status| status == "UP"), "{servers:?}");
        Ok(())
    }

    /// Whether nothing is left to be done on the way to that release: no pin, and every row is as it writes them, as its
    /// own tool finds too.
    ///
    /// # Errors
    /// What is not so.
    pub fn ensure_upgraded(&self, to: Release) -> Result<()> {
        self.ensure_runs(to, None)?;
        let nodes = self.row_versions("nodes")?;
        let current = Some(to.node_version().to_owned());
        ensure!(nodes.keys().all(|version| *version == current), "{nodes:?}");
        let ports = self.row_versions("ports")?;
        ensure!(ports.len() <= 1, "{ports:?}");
        let (code, said) = self.code(to, "ironic-dbsync", &["online_data_migrations"])?;
        ensure!(
            code == 0
                && !said
                    .lines()
                    .any(|line| migrated(line).is_some_and(|rows| rows > 0)),
            "exit code {code}: {said}"
        );
        Ok(())
    }

    /// Whether nobody has the lock, and of no service it is written that it is being changed.
    ///
    /// # Errors
    /// Somebody has it, or a service is.
    pub fn ensure_let_go(&self) -> Result<()> {
        let (other, _) = DATABASE_OTHER;
        let ours = |query: &str| self.sql_in(Some(other), query);
        let claims = ours("select claim from stagger_lock where claim is not null")?;
        ensure!(claims.is_empty(), "the lock is held: {claims:?}");
        let changing = ours("select service, rel, state from stagger_ironic_service where state <> 'runs'")?;
        ensure!(changing.is_empty(), "in the midst of a change: {changing:?}");
        Ok(())
    }
}

/// How many rows a migration says it has migrated.
fn migrated(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("() migrated ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrated_rows_are_read_from_what_the_tool_prints() {
        let line = "update_to_latest_versions() migrated 12 of 12 objects.";
        assert_eq!(migrated(line), Some(12));
        assert_eq!(migrated("Data migrations have completed."), None);
    }
}
