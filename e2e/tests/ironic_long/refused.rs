//! What is refused before anything begins.

use anyhow::{Result, ensure};
use stagger_e2e::command::say;
use stagger_e2e::ironic::{Release, Service};
use stagger_e2e::stagger::{IronicSetup, Machine};

use super::case;

#[test]
#[ignore = "long; needs root and Ironic; cargo xtask test --long runs it"]
fn what_an_upgrade_cannot_begin_with() -> Result<()> {
    case(
        "what_an_upgrade_cannot_begin_with",
        Release::Dalmatian,
        |cluster, phases| {
            let before = cluster.servers()?;
            let whole = Machine::new(cluster, "anna", &IronicSetup::default())?;
            whole.call(&["plan", "upgrade", "--to", "29.0.6"])?.expect(0)?;
            let refused = |machine: &Machine, to: &str, said: &[&str]| {
                let ended = machine.call(&["run", "upgrade", "--to", to])?;
                say(&ended.said);
                ended.expect(1)?.expect_said(said)
            };
            // Over a release; one that is none; a number that says nothing of the patch; one that is older.
            refused(&whole, "32.0.1", &["upgrade-not-supported", "2025.1"])?;
            refused(&whole, "28.0.0", &["unknown-release"])?;
            refused(&whole, "29.0", &["release-without-patch"])?;
            refused(&whole, "24.1.5", &["upgrade-not-supported"])?;
            phases.lap("pairs that are not supported");

            let alone = |name: &str, without: Service| {
                let setup = IronicSetup {
                    without: vec![without],
                    ..IronicSetup::default()
                };
                Machine::new(cluster, name, &setup)
            };
            // The other one is there, and nobody would upgrade it.
            refused(
                &alone("bert", Service::Conductor2)?,
                "29.0.6",
                &["unknown-conductor", "127.0.1.2"],
            )?;
            refused(&alone("carl", Service::Api2)?, "29.0.6", &["unknown-api"])?;
            phases.lap("services that the configuration does not have");

            cluster.service(Service::Conductor2, "kill", &[])?;
            cluster.wait_for("c2 is missed", super::LIMIT, |cluster| {
                Ok(cluster.conductors()?.get("127.0.1.2") == Some(&false))
            })?;
            refused(&whole, "29.0.6", &["service-down", "c2"])?;
            cluster.service(Service::Conductor2, "start", &[])?;
            cluster.service(Service::Conductor2, "give-back", &[])?;
            cluster.wait_for("c2 is there again", super::LIMIT, |cluster| {
                Ok(cluster.conductors()?.values().all(|alive| *alive))
            })?;
            phases.lap("a conductor that is down");

            let node = r#"{ "driver": "fake-hardware", "name": "old" }"#;
            let made = cluster.api("POST", "/v1/nodes", Some(&serde_json::from_str(node)?))?;
            ensure!(made.status == 201, "{made:?}");
            let version = |version: &str| {
                cluster.sql(&format!(
                    "update nodes set version = {version} where name = 'old'"
                ))
            };
            version("null")?;
            refused(&whole, "29.0.6", &["rows-without-version", "1 of nodes"])?;
            version("'1.99'")?;
            refused(&whole, "29.0.6", &["rows-too-new", "1.99"])?;
            version("'1.40'")?;
            phases.lap("rows that nobody can read");

            whole.call(&["plan", "upgrade", "--to", "29.0.6"])?.expect(0)?;
            cluster.ensure_runs(Release::Dalmatian, None)?;
            let after = cluster.servers()?;
            ensure!(after == before, "{after:?}");
            let schema = cluster.code(Release::Dalmatian, "ironic-dbsync", &["version"])?;
            ensure!(schema.1.contains("66bd9c5604d5"), "{schema:?}");
            phases.lap("nothing was begun");
            Ok(())
        },
    )
}
