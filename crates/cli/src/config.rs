//! The configuration: one TOML file, flags over it. Unknown keys are refused with the nearest known one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use stagger_asks::GatePolicy;
use stagger_ceph::config::{CephConfig, CephSettings, Reboot, SoftwareByKind};
use stagger_ceph::target::PgGate;
use stagger_ceph::translate::HealthPolicy;
use stagger_core::model::{ClusterName, Growth, Policy};
use stagger_engine::hosts::Hosts;
use stagger_engine::postgres::DatabaseAddress;
use stagger_engine::preflight::Template;
use stagger_engine::secrets;
use stagger_engine::template::unknown;
use stagger_ganeti::config::{GanetiSettings, RapiConfig};
use stagger_gates::{AlertGate, Endpoint, GateSettings, Measures, MetricGate};
use stagger_ironic::config::{IronicConfig, IronicSettings};

use crate::args::{Cli, PolicyFlags};
use crate::error::CliError;
use crate::notify::Receiver;

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Files of known risks that are heeded beside those of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) risks: Vec<PathBuf>,
    cluster: ClusterSection,
    /// How bold to be.
    #[serde(default)]
    pub(crate) policy: Policy,
    gates: Option<Gates>,
    health: Option<HealthPolicy>,
    #[serde(default)]
    hosts: Hosts,
    software: Option<SoftwareByKind>,
    reboot: Option<Reboot>,
    /// Read by [`store`] alone where no more of the file is needed.
    store: Option<StoreSection>,
    /// How those are answered who ask to take hosts down.
    gate: Option<GateSection>,
    /// Who is told of what. Read by [`receivers`] alone where no more of the file is needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notify: Vec<Receiver>,
}

/// Where journals are kept, if not in the folder of `--state`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreSection {
    url: String,
    password_file: Option<PathBuf>,
}

/// Which kind of cluster, and how to reach it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum ClusterSection {
    Ceph(Box<CephConfig>),
    Ganeti(Box<RapiConfig>),
    Ironic(Box<IronicConfig>),
}

impl ClusterSection {
    /// What people call it.
    fn kind(&self) -> &'static str {
        match self {
            Self::Ceph(_) => "a Ceph cluster",
            Self::Ganeti(_) => "a Ganeti cluster",
            Self::Ironic(_) => "an Ironic cluster",
        }
    }
}

/// How those are answered who ask to take hosts down.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GateSection {
    /// Seconds that one who asks is passed by others where they fit; after that nobody later keeps it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    patience: Option<u32>,
    /// The hosts behind other names: the ids that `FleetLock` clients send.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    hosts: BTreeMap<String, String>,
}

/// When health is good enough.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Gates {
    /// Of a Ceph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pgs: Option<PgGate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prometheus: Option<Endpoint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alertmanager: Option<Endpoint>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metric: Vec<MetricGate>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alert: Vec<AlertGate>,
}

impl Config {
    /// The settings of the Ceph backend.
    pub(crate) fn ceph(&self) -> Result<CephSettings, CliError> {
        let ClusterSection::Ceph(cluster) = &self.cluster else {
            let kind = self.cluster.kind();
            return Err(CliError::usage(format!(
                "the configuration is for {kind}; this is for a Ceph cluster"
            )));
        };
        Ok(CephSettings {
            cluster: CephConfig::clone(cluster),
            hosts: self.hosts_of(&cluster.name),
            software: self.software.clone().unwrap_or_default(),
            health: self.health.clone().unwrap_or_default(),
            reboot: self.reboot.clone().unwrap_or_default(),
        })
    }

    /// The settings of the Ganeti backend; `None`: the configuration is for another kind of cluster.
    pub(crate) fn ganeti(&self) -> Option<GanetiSettings> {
        match &self.cluster {
            ClusterSection::Ceph(_) | ClusterSection::Ironic(_) => None,
            ClusterSection::Ganeti(cluster) => Some(GanetiSettings::new(
                RapiConfig::clone(cluster),
                self.hosts_of(&cluster.name),
            )),
        }
    }

    /// The settings of the Ironic backend; `None`: the configuration is for another kind of cluster.
    pub(crate) fn ironic(&self) -> Option<IronicSettings> {
        match &self.cluster {
            ClusterSection::Ceph(_) | ClusterSection::Ganeti(_) => None,
            ClusterSection::Ironic(cluster) => Some(IronicSettings::new(
                IronicConfig::clone(cluster),
                self.hosts_of(&cluster.name),
            )),
        }
    }

    /// Each cluster has a fence of its own, also where two share hosts.
    fn hosts_of(&self, cluster: &ClusterName) -> Hosts {
        let mut hosts = self.hosts.clone();
        hosts.folder = hosts.folder.join(cluster.as_str());
        hosts
    }

    /// Every command in it.
    pub(crate) fn templates(&self) -> Vec<Template> {
        match &self.cluster {
            ClusterSection::Ceph(_) => {
                let software = self.software.as_ref();
                let mut templates = software.map_or_else(Vec::new, stagger_ceph::preflight::templates);
                let reboot = self.reboot.as_ref();
                templates.extend(reboot.map_or_else(Vec::new, stagger_ceph::preflight::templates_of_reboot));
                templates
            }
            ClusterSection::Ganeti(cluster) => stagger_ganeti::preflight::templates(cluster),
            ClusterSection::Ironic(cluster) => stagger_ironic::preflight::templates(cluster),
        }
    }

    /// What in it does not fit its kind of cluster, or would be run as nobody meant it.
    fn verify(&self) -> Result<(), String> {
        for Template { key, command, known } in &self.templates() {
            for name in unknown(command, known) {
                if let Some(meant) = nearest_of(name, known.iter().copied()) {
                    return Err(format!(
                        "{key}: nothing is filled in for {{{name}}}; did you mean {{{meant}}}?\n      {command}"
                    ));
                }
            }
        }
        for receiver in &self.notify {
            receiver.verify()?;
        }
        self.gate_settings().verify()?;
        if let ClusterSection::Ceph(_) = &self.cluster {
            let reboot = self.reboot.as_ref();
            return reboot.map_or(Ok(()), |reboot| reboot.verify(&self.hosts));
        }
        let sections = [
            (
                "`pgs` of [gates]",
                self.gates.as_ref().is_some_and(|gates| gates.pgs.is_some()),
            ),
            ("[health]", self.health.is_some()),
            ("[software]", self.software.is_some()),
            ("[reboot]", self.reboot.is_some()),
        ];
        if let Some((section, _)) = sections.into_iter().find(|(_, given)| *given) {
            let kind = self.cluster.kind();
            return Err(format!("{section} is for Ceph; the cluster is {kind}"));
        }
        match &self.cluster {
            ClusterSection::Ironic(cluster) => cluster.verify(),
            ClusterSection::Ceph(_) | ClusterSection::Ganeti(_) => {
                self.ganeti().map_or(Ok(()), |settings| settings.verify())
            }
        }
    }

    /// The same with the commands of the profile written out.
    pub(crate) fn with_profile(mut self) -> Self {
        self.software = self.software.map(SoftwareByKind::with_profile);
        self
    }

    /// What the cluster is called.
    pub(crate) fn cluster_name(&self) -> &ClusterName {
        match &self.cluster {
            ClusterSection::Ceph(cluster) => &cluster.name,
            ClusterSection::Ganeti(cluster) => &cluster.name,
            ClusterSection::Ironic(cluster) => &cluster.name,
        }
    }

    /// Who is told of what.
    pub(crate) fn receivers(&self) -> &[Receiver] {
        &self.notify
    }

    /// The gate on placement groups.
    pub(crate) fn pg_gate(&self) -> PgGate {
        self.gates
            .as_ref()
            .and_then(|gates| gates.pgs)
            .unwrap_or_default()
    }

    fn gate_settings(&self) -> GateSettings {
        let Gates {
            pgs: _,
            prometheus,
            alertmanager,
            metric,
            alert,
        } = self.gates.clone().unwrap_or_default();
        GateSettings {
            prometheus,
            alertmanager,
            metric,
            alert,
        }
    }

    /// What others measure of the cluster, where a gate asks for it.
    pub(crate) fn measures(&self) -> Result<Option<Arc<Measures>>, CliError> {
        let settings = self.gate_settings();
        if settings.is_empty() {
            return Ok(None);
        }
        Measures::new(&settings)
            .map(|measures| Some(Arc::new(measures)))
            .map_err(CliError::usage)
    }

    /// How those are answered who ask to take hosts down. `None`: nobody is, and runs claim nothing.
    pub(crate) fn gate_policy(&self) -> Option<GatePolicy> {
        let GateSection { patience, hosts } = self.gate.clone()?;
        let usual = GatePolicy::default();
        Some(GatePolicy {
            patience: patience.map_or(usual.patience, |seconds| {
                SignedDuration::from_secs(seconds.into())
            }),
            hosts,
            ..usual
        })
    }

    /// The policy with the flags over it.
    pub(crate) fn policy(&self, flags: &PolicyFlags) -> Result<Policy, CliError> {
        with_flags(self.policy.clone(), flags)
    }
}

/// A policy with the flags over it.
pub(crate) fn with_flags(mut policy: Policy, flags: &PolicyFlags) -> Result<Policy, CliError> {
    if let Some(limit) = flags.max_in_parallel {
        policy.max_in_parallel = limit;
        policy.max_in_parallel_of.clear();
    }
    if flags.no_growth {
        policy.growth = Growth::None;
    }
    policy.barrier &= !flags.no_barriers;
    policy.interruptions.extend(flags.interrupt.iter().cloned());
    policy.partial |= flags.partial;
    // How many steps fit into the time is known once there is something to plan for.
    crate::improve::time(flags.improve.as_deref())?;
    Ok(policy)
}

/// Where the configuration is looked for.
const PLACES: [&str; 2] = ["stagger.toml", "/etc/stagger/stagger.toml"];

/// Where the configuration is that the command line names, or the first of the usual ones.
pub(crate) fn path(cli: &Cli) -> Result<PathBuf, CliError> {
    if let Some(path) = &cli.config {
        return Ok(path.clone());
    }
    let usual = PLACES.iter().map(PathBuf::from);
    usual.into_iter().find(|path| path.exists()).ok_or_else(|| {
        CliError::usage(format!("there is no configuration at {}", PLACES.join(" or ")))
            .hint("`stagger config init ceph|ganeti|ironic --out stagger.toml` writes one; --config names another place")
    })
}

/// The kind of cluster that the configuration of this command line is of, if there is one that says so. Nothing is refused here: what
/// is wrong with it is told by whoever reads it.
pub(crate) fn kind() -> Option<String> {
    let given = typed("--config").map(PathBuf::from);
    let path = given.or_else(|| PLACES.iter().map(PathBuf::from).find(|path| path.exists()))?;
    // What can be read but once, as a pipe, is left to whoever needs it.
    std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
    let table: toml::Table = toml::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    Some(table.get("cluster")?.get("kind")?.as_str()?.to_owned())
}

/// The value of a flag as it was typed, before the command line is parsed.
pub(crate) fn typed(flag: &str) -> Option<String> {
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let after = words.iter().position(|word| word == flag).map(|at| at + 1);
    let with = words
        .iter()
        .find_map(|word| word.strip_prefix(flag)?.strip_prefix('='));
    after
        .and_then(|at| words.get(at).map(String::as_str))
        .or(with)
        .map(str::to_owned)
}

/// Reads that configuration.
pub(crate) fn read(cli: &Cli) -> Result<Config, CliError> {
    let path = path(cli)?;
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CliError::usage(format!("read the configuration {}: {error}", path.display())))?;
    parse(&text, &path)
}

/// The settings of the Ganeti of the configuration, if there is a configuration, and it is for one.
pub(crate) fn ganeti(cli: &Cli) -> Result<Option<GanetiSettings>, CliError> {
    if !path(cli).is_ok_and(|path| path.exists()) {
        return Ok(None);
    }
    Ok(read(cli)?.ganeti())
}

pub(crate) fn parse(text: &str, path: &Path) -> Result<Config, CliError> {
    let config: Config = read_as_toml(text, path)?;
    config.verify().map_err(|why| {
        let mut refused = CliError::usage(format!("the configuration {} is refused", path.display()));
        refused.causes.push(why);
        refused
    })?;
    Ok(config)
}

/// The database that the configuration names for journals, if there is a configuration, and it names one.
pub(crate) fn store(cli: &Cli) -> Result<Option<DatabaseAddress>, CliError> {
    match path(cli) {
        Ok(path) => store_of(&path),
        Err(_) => Ok(None),
    }
}

/// The same of that configuration.
pub(crate) fn store_of(path: &Path) -> Result<Option<DatabaseAddress>, CliError> {
    let Some((url, password)) = database_of(path)? else {
        return Ok(None);
    };
    match DatabaseAddress::new(&url, password.as_deref()) {
        Ok(address) => Ok(Some(address)),
        Err(error) => {
            let mut refused = CliError::usage(format!("the configuration {} is refused", path.display()));
            refused.causes.push(error.to_string());
            Err(refused)
        }
    }
}

/// Its URL and its password, as they are given.
pub(crate) fn database_of(path: &Path) -> Result<Option<(String, Option<String>)>, CliError> {
    /// Of the whole file only this is of interest: the rest may be for another release.
    #[derive(Deserialize)]
    struct Part {
        store: Option<StoreSection>,
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("read the configuration {}: {error}", path.display())))?;
    let Some(StoreSection { url, password_file }) = read_as_toml::<Part>(&text, path)?.store else {
        return Ok(None);
    };
    let password = match &password_file {
        None => None,
        Some(file) => Some(
            secrets::read(file)
                .map_err(|why| CliError::usage(format!("read the password of the store: {why}")))?,
        ),
    };
    Ok(Some((url, password)))
}

/// What the cluster of that configuration is called. Nothing else of it is looked at.
pub(crate) fn name_of(path: &Path) -> Result<ClusterName, CliError> {
    #[derive(Deserialize)]
    struct Part {
        cluster: Named,
    }
    #[derive(Deserialize)]
    struct Named {
        name: ClusterName,
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("read the configuration {}: {error}", path.display())))?;
    Ok(read_as_toml::<Part>(&text, path)?.cluster.name)
}

/// Who is told of what, if there is a configuration.
pub(crate) fn receivers(cli: &Cli) -> Result<Vec<Receiver>, CliError> {
    /// Of the whole file only this is of interest.
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        notify: Vec<Receiver>,
    }
    let Ok(path) = path(cli) else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(&path)
        .map_err(|error| CliError::usage(format!("read the configuration {}: {error}", path.display())))?;
    Ok(read_as_toml::<Part>(&text, &path)?.notify)
}

fn read_as_toml<T: serde::de::DeserializeOwned>(text: &str, path: &Path) -> Result<T, CliError> {
    toml::from_str(text).map_err(|error| {
        let message = error.to_string();
        let mut refused = CliError::usage(format!("the configuration {} is refused", path.display()));
        // In the words of a file's author, not of this program's.
        let words = message
            .trim_end()
            .replace("expected u32", "expected a whole number from 0 up");
        let words = words.replace("expected u64", "expected a whole number from 0 up");
        refused.causes.push(words.replace('\n', "\n    "));
        match (nearest(&message), line_of(&message, text)) {
            (Some(known), _) => refused.hint(format!("did you mean `{known}`?")),
            (None, Some(line)) => refused.hint(line),
            (None, None) => refused,
        }
    })
}

/// The line that has the value of which the message says no more than that it is in `[cluster]`, if there is but one.
fn line_of(message: &str, text: &str) -> Option<String> {
    message.lines().find(|line| line.ends_with("| [cluster]"))?;
    let (_, after) = message
        .split_once("invalid value: ")
        .or_else(|| message.split_once("invalid type: "))?;
    let (value, _) = after.split_once('`')?.1.split_once('`')?;
    let has = |line: &str| {
        line.split_once('=')
            .is_some_and(|(_, given)| given.split('#').next().unwrap_or_default().trim() == value)
    };
    let mut found = text.lines().zip(1..).filter(|(line, _)| has(line));
    let (line, number) = found.next()?;
    found
        .next()
        .is_none()
        .then(|| format!("line {number}: {}", line.trim()))
}

/// The known key nearest to the unknown one that the message names.
fn nearest(message: &str) -> Option<&str> {
    let (_, after) = message
        .split_once("unknown field `")
        .or_else(|| message.split_once("unknown variant `"))?;
    let (unknown, rest) = after.split_once('`')?;
    nearest_of(unknown, rest.split('`').skip(1).step_by(2))
}

/// The nearest of those names, if one is near enough to be meant.
pub(crate) fn nearest_of<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[cluster]\nkind = \"ceph\"\nname = \"lab\"\n";

    fn refused(more: &str) -> String {
        let error = parse(&format!("{GOOD}{more}"), Path::new("stagger.toml")).unwrap_err();
        error.text()
    }

    #[test]
    fn a_name_is_all_that_is_needed() {
        let config = parse(GOOD, Path::new("stagger.toml")).unwrap();
        assert_eq!(config.policy, Policy::default());
        assert_eq!(
            config.ceph().unwrap().hosts.folder,
            Path::new("/var/lib/stagger/lab")
        );
    }

    /// What is in a table with a kind is refused as a whole by the parser: the line is found by its value.
    #[test]
    fn a_value_that_cannot_be_is_named_with_its_line() {
        let told = refused("lock_expires = -30   # seconds\n");
        assert!(told.contains("line 4: lock_expires = -30"), "{told}");
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_known_one() {
        assert!(refused("[policy]\nmax_in_paralel = 3\n").contains("did you mean `max_in_parallel`?"));
        assert!(refused("[polcy]\n").contains("did you mean `policy`?"));
        assert!(refused("[software.osd]\nupgade = \"x\"\n").contains("did you mean `upgrade`?"));
    }

    #[test]
    fn a_word_in_braces_that_is_nearly_one_is_refused() {
        let text = refused("[software.osd]\nupgrade = \"apt-get install ceph-osd={relase}*\"\n");
        assert!(
            text.contains(
                "[software.osd] upgrade: nothing is filled in for {relase}; did you mean {release}?"
            ),
            "{text}"
        );
        let more = "[software.all]\nlogs = \"journalctl | awk '{print}' ${IFS} {kind}\"\n";
        parse(&format!("{GOOD}{more}"), Path::new("stagger.toml")).unwrap();
    }

    #[test]
    fn a_ganeti_is_reached_by_its_rapi() {
        let text = r#"
            [cluster]
            kind = "ganeti"
            name = "lab"
            addresses = ["ganeti.example.org"]
            user = "stagger"
            password_file = "/etc/stagger/rapi"
        "#;
        let path = Path::new("stagger.toml");
        let config = parse(text, path).unwrap();
        let settings = config.ganeti().unwrap();
        assert_eq!(settings.hosts.folder, Path::new("/var/lib/stagger/lab"));
        assert!(config.ceph().is_err());
        let refused = |more: &str| parse(&format!("{text}\n{more}"), path).unwrap_err().text();
        assert!(refused("[health]\n").contains("[health] is for Ceph"));
        assert!(refused("[cluster.visits]\nreboots = \"x\"\n").contains("did you mean `reboot`?"));
    }

    #[test]
    fn a_store_is_a_url_without_a_password() {
        use clap::Parser as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("stagger.toml");
        let read = |more: &str| {
            std::fs::write(&file, format!("{GOOD}{more}")).unwrap();
            store(&Cli::parse_from([
                "stagger",
                "--config",
                file.to_str().unwrap(),
                "history",
            ]))
        };
        assert_eq!(read("").unwrap(), None);
        let named = read("[store]\nurl = \"postgres://anna@db/stagger\"\n").unwrap();
        assert_eq!(named.unwrap().to_string(), "postgres://anna@db/stagger");
        let text = read("[store]\nurl = \"postgres://anna:pass@db/stagger\"\n")
            .unwrap_err()
            .text();
        assert!(
            text.contains("has a password in it") && !text.contains("pass@"),
            "{text}"
        );
        let text = read("[store]\nurl = \"postgres://db/s\"\npassword_file = \"/no/such\"\n").unwrap_err();
        assert!(text.text().contains("/no/such"), "{}", text.text());
        assert!(refused("[store]\nurll = \"x\"\n").contains("did you mean `url`?"));
        parse(&format!("{GOOD}[store]\nurl = \"postgres://db/s\"\n"), &file).unwrap();
    }

    #[test]
    fn a_share_is_of_a_hundred() {
        let text = refused("[policy]\nmax_reduced_redundancy = 200\n");
        assert!(text.contains("200 is not a percentage"), "{text}");
        let text = refused("[policy]\nsoak = -3\n");
        assert!(text.contains("expected a whole number from 0 up"), "{text}");
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        for bad in ["\"101%\"", "-1", "0", "\"many\""] {
            let text = refused(&format!("[policy]\nmax_in_parallel = {bad}\n"));
            assert!(text.contains("is not a limit"), "{bad}: {text}");
        }
    }
}
