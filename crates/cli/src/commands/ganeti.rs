//! A Ganeti: the one of the configuration, or one that `--from` names, its text format or a folder of RAPI bodies.

pub(crate) mod live;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use stagger_ceph::config::SoftwareByKind;
use stagger_core::model::{
    ClusterName, Evacuate, Kind, LocalGuests, Moving, Policy, SharedGuests, Snapshot, Spare, Standbys, Target,
};
use stagger_ganeti::cluster::{Cluster, Template};
use stagger_ganeti::iallocator;
use stagger_ganeti::luxi;
use stagger_ganeti::rapi::{Bodies, FILES, KVM_NODE_MEMORY};
use stagger_ganeti::select::Selection;
use stagger_ganeti::target::{TargetError, Wish, reboot};
use stagger_ganeti::text;
use stagger_ganeti::translate::{KIND, View, snapshot};
use stagger_ganeti_rapi::translate::Wished;

use crate::args::{self, Cli, From, NonDrbd, SharedSecondary};
use crate::config;
use crate::error::CliError;
use crate::exit::Exit;
use crate::print;
use live::Live;

/// A Ganeti.
pub(crate) enum Found {
    /// A file or folder that describes it.
    At(PathBuf),
    /// The one of the configuration.
    Live(Box<Live>),
}

/// All that a plan is a function of.
pub(crate) struct Asked {
    /// What was observed.
    pub(crate) snapshot: Snapshot,
    /// What is wanted.
    pub(crate) target: Target,
    /// How bold to be.
    pub(crate) policy: Policy,
    /// The commands that change a Ceph, where a configuration was read: a plan may need some that are not given.
    pub(crate) software: Option<SoftwareByKind>,
}

/// Whether a Ganeti is meant. Of what `--from` names: by what is there, since nobody should have to say it twice.
pub(crate) fn found(cli: &Cli, from: &From) -> Result<Option<Found>, CliError> {
    if from.on.is_meant() {
        return Ok(None);
    }
    let Some(path) = from.from.as_deref() else {
        return Ok(Live::of_config(cli)?.map(|live| Found::Live(Box::new(live))));
    };
    let is_one = if path.is_dir() {
        FILES.iter().all(|file| path.join(file).is_file())
    } else {
        starts_as_text(path)
    };
    Ok(is_one.then(|| Found::At(path.to_owned())))
}

/// Its first line is a group: fields between bars, of which the third is an allocation policy.
fn starts_as_text(path: &Path) -> bool {
    use std::io::Read as _;
    let mut start = Vec::new();
    let read = std::fs::File::open(path).map(|file| file.take(4096).read_to_end(&mut start));
    if !matches!(read, Ok(Ok(_))) {
        return false;
    }
    let start = String::from_utf8_lossy(&start);
    let first = start.lines().next().unwrap_or_default();
    !first.trim_start().starts_with(['{', '[']) && first.split('|').count() >= 4
}

/// Refuses wishes for a Ganeti where there is none.
pub(crate) fn is_none(wish: &args::Reboot) -> Result<(), CliError> {
    if wish.reboot {
        return Err(CliError::usage("--reboot is for a Ganeti, and none is given")
            .hint("a configuration with kind = \"ganeti\", or --from FILE in its text format"));
    }
    let args::Nodes {
        groups,
        node_tags,
        matching,
        nodes,
        leave_out,
    } = &wish.nodes;
    let lists = [groups, node_tags, nodes, leave_out];
    if matching.is_some() || lists.iter().any(|list| !list.is_empty()) {
        return Err(CliError::usage("nodes are selected, and nothing is to be rebooted").hint("--reboot"));
    }
    Ok(())
}

/// Reads a cluster in the text format.
pub(crate) fn text_at(path: &Path) -> Result<Cluster, CliError> {
    let bytes =
        std::fs::read(path).map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    let wrong = |why: String| {
        let mut refused = CliError::usage(format!(
            "{} is no cluster in Ganeti's text format",
            path.display()
        ));
        refused.causes.push(why);
        refused
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line = good.matches('\n').count() + 1;
        wrong(format!("line {line}: it is not UTF-8"))
    })?;
    text::read(text).map_err(|error| wrong(error.to_string()))
}

/// Reads a request to an allocator. A node of a KVM cluster needs so much memory for itself, as everywhere below.
pub(crate) fn request_at(path: &Path, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CliError::usage(format!("read {}: {error}", path.display())))?;
    iallocator::read(&text, kvm_node_memory).map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Reads a folder of RAPI bodies.
pub(crate) fn bodies_at(folder: &Path, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let bodies = Bodies::in_folder(folder).and_then(|bodies| bodies.cluster_with(kvm_node_memory));
    bodies.map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Asks the daemon of the master that this machine is.
pub(crate) fn luxi_at(socket: &str, kvm_node_memory: u64) -> Result<Cluster, CliError> {
    let bodies = luxi::bodies_at(Path::new(socket)).map_err(|error| {
        CliError::caused(Exit::Unreachable, &error).hint(
            "ganeti-luxid listens on the master only; from elsewhere give -m with the cluster's address",
        )
    })?;
    bodies
        .cluster_with(kvm_node_memory)
        .map_err(|error| CliError::caused(Exit::Usage, &error))
}

impl Found {
    /// The snapshot.
    pub(crate) async fn snapshot(&self, cli: &Cli) -> Result<Snapshot, CliError> {
        match self {
            Self::At(path) => described(cli, path, &cluster_at(path)?, None),
            Self::Live(live) => Ok(live.look(Wished::default()).await?.snapshot),
        }
    }

    /// Snapshot, target and policy for a wish.
    pub(crate) async fn asked(
        &self,
        cli: &Cli,
        wish: &args::Wish,
        reboot_wish: &args::Reboot,
    ) -> Result<Asked, CliError> {
        let path = match self {
            Self::At(path) => path,
            Self::Live(live) => return Ok(live.asked(cli, wish, reboot_wish).await?.0),
        };
        is_meant(reboot_wish, &path.display().to_string())?;
        let cluster = cluster_at(path)?;
        warn(&cluster);
        Ok(Asked {
            snapshot: described(cli, path, &cluster, Some(reboot_wish))?,
            target: target(&cluster, reboot_wish)?,
            policy: config::over(Policy::default(), wish)?,
            software: None,
        })
    }
}

/// Refuses a Ganeti with which nothing is to be done.
fn is_meant(wish: &args::Reboot, name: &str) -> Result<(), CliError> {
    if wish.reboot {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{name} is a Ganeti, and what is to be done to it is not given"
    ))
    .hint("--reboot"))
}

fn cluster_at(path: &Path) -> Result<Cluster, CliError> {
    if path.is_dir() {
        bodies_at(path, KVM_NODE_MEMORY)
    } else {
        text_at(path)
    }
}

/// The snapshot of a cluster that a file or folder describes.
fn described(
    cli: &Cli,
    path: &Path,
    cluster: &Cluster,
    wish: Option<&args::Reboot>,
) -> Result<Snapshot, CliError> {
    if let Some(config) = &cli.config
        && config::read(cli)?.ganeti().is_none()
    {
        return Err(CliError::usage(format!(
            "the configuration {} is for a Ceph, and {} is a Ganeti",
            config.display(),
            path.display()
        ))
        .hint("leave out --config; flags say what is wished"));
    }
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    let name = stem.to_string_lossy().replace(char::is_whitespace, "-");
    let view = View {
        name: ClusterName::new(name).map_err(|error| CliError::usage(error.to_string()))?,
        // Files say nothing of when they were written, and the same file makes the same plan.
        at: Timestamp::UNIX_EPOCH,
        durations: wish.map_or_else(|| Ok(BTreeMap::new()), |wish| durations(&wish.takes))?,
        ignore_ipolicy: wish.is_some_and(|wish| wish.ignore_ipolicy),
    };
    snapshot(cluster, &view).map_err(|error| CliError::caused(Exit::Usage, &error))
}

/// Says on which nodes memory or disk does not add up: less is free there than should be, and nothing else tells why a
/// plan has no room.
fn warn(cluster: &Cluster) {
    const NAMED: usize = 5;
    let missing = cluster.missing();
    let named: Vec<String> = missing
        .iter()
        .take(NAMED)
        .map(|missing| {
            let amounts = [(missing.memory, 512, "memory"), (missing.disk, 1024, "disk")];
            let amounts: Vec<String> = amounts
                .into_iter()
                .filter(|(amount, bound, _)| amount > bound)
                .map(|(amount, _, what)| format!("{amount} MiB of {what}"))
                .collect();
            format!("{} ({})", missing.node, amounts.join(", "))
        })
        .collect();
    if named.is_empty() {
        return;
    }
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    print::talk(&format!(
        "warning: neither free nor in use, and so not counted on: {}{more}",
        named.join(", ")
    ));
}

/// What is wanted of a cluster.
fn target(cluster: &Cluster, wish: &args::Reboot) -> Result<Target, CliError> {
    let wanted = Wish {
        selection: selection(&wish.nodes)?,
        moving: moving(wish),
        local_storage: templates(&wish.local_storage)?,
    };
    reboot(cluster, &wanted).map_err(|error| {
        let exit = match &error {
            TargetError::Masters { .. } => Exit::No,
            TargetError::Select(_) | TargetError::NoSuchStorage(_) | TargetError::Name(_) => Exit::Usage,
        };
        CliError::new(exit, error.to_string())
    })
}

/// What is wished of instances.
fn wished(wish: &args::Reboot) -> Result<Wished, CliError> {
    Ok(Wished {
        moving: moving(wish),
        ignore_ipolicy: wish.ignore_ipolicy,
        durations: durations(&wish.takes)?,
    })
}

/// Which nodes are meant.
pub(crate) fn selection(nodes: &args::Nodes) -> Result<Selection, CliError> {
    let matching = nodes.matching.as_deref().map(regex::Regex::new).transpose();
    Ok(Selection {
        groups: nodes.groups.clone(),
        tags: nodes.node_tags.clone(),
        matching: matching.map_err(|error| {
            let mut refused = CliError::usage("--matching is no regular expression");
            refused.causes.push(error.to_string().replace('\n', "\n    "));
            refused
        })?,
        nodes: nodes.nodes.clone(),
        leave_out: nodes.leave_out.clone(),
    })
}

fn moving(wish: &args::Reboot) -> Moving {
    Moving {
        as_if_down: wish.assume_down,
        local: if wish.move_non_redundant {
            LocalGuests::Relocate
        } else if wish.accept_non_redundant {
            LocalGuests::Accept
        } else {
            LocalGuests::Skip
        },
        shared: wish.non_drbd.into(),
        standbys: wish.shared_secondary.into(),
        spare: if wish.spend_spare {
            Spare::Spend
        } else {
            Spare::Keep
        },
        evacuate: if wish.full_evacuation {
            Evacuate::Everything
        } else {
            Evacuate::Guests
        },
    }
}

impl std::convert::From<NonDrbd> for SharedGuests {
    fn from(way: NonDrbd) -> Self {
        match way {
            NonDrbd::One => Self::One,
            NonDrbd::Rolling => Self::Rolling,
            NonDrbd::Sets => Self::Sets,
        }
    }
}

impl std::convert::From<SharedSecondary> for Standbys {
    fn from(rule: SharedSecondary) -> Self {
        match rule {
            SharedSecondary::Capacity => Self::Capacity,
            SharedSecondary::Exclude => Self::Exclude,
        }
    }
}

fn templates(words: &[String]) -> Result<Vec<Template>, CliError> {
    let known: Vec<&str> = Template::ALL.iter().map(|template| template.word()).collect();
    words
        .iter()
        .map(|word| {
            Template::of_word(word).ok_or_else(|| {
                CliError::usage(format!("--local-storage {word:?} is no disk template"))
                    .hint(format!("there are: {}", known.join(", ")))
            })
        })
        .collect()
}

/// `--takes node=300,migrate=20`
fn durations(given: &[String]) -> Result<BTreeMap<Kind, SignedDuration>, CliError> {
    const KNOWN: [&str; 4] = [KIND, "migrate", "relocate", "replace-standby"];
    given
        .iter()
        .map(|text| {
            let parsed = text.split_once('=').and_then(|(what, seconds)| {
                let known = KNOWN.contains(&what).then(|| Kind::new(what).ok())??;
                Some((
                    known,
                    SignedDuration::from_secs(i64::from(seconds.parse::<u32>().ok()?)),
                ))
            });
            parsed.ok_or_else(|| {
                CliError::usage(format!("--takes {text:?} says not what takes how many seconds"))
                    .hint(format!("write node=300; there are: {}", KNOWN.join(", ")))
            })
        })
        .collect()
}
