//! One case: both answers, and what of their difference is meant.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use stagger_core::model::Standbys;
use stagger_core::plan::plan_waves;
use stagger_e2e::command::say;
use stagger_e2e::ganeti::{self, Group, Htools};
use stagger_ganeti::hroller::{
    HrollerError, HrollerInput, HrollerOptions, HrollerOutput, OutputOptions, answer,
};
use stagger_ganeti::model::{Instance, Template};

use crate::case::Case;
use crate::judge::{Plain, findings, is_local};

/// In what ours and hroller differ, each on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// The first defect of hroller: it moves instances of nodes that are not rebooted, or cannot and gives up.
    Unselected,
    /// The second: it moves instances that do not run.
    Down,
    /// The third: it says where to migrate what has its disks on one node only.
    Local,
    /// It moves instances in an offline maintenance, where nothing runs.
    Offline,
    /// It looks at no N+1, processors, spindles or tags, at no secondary that is full or offline, and at no state of
    /// an instance: its answer breaks a rule of ours.
    Rules,
    /// It puts instances on the first node that has room, in the order of its list, and keeps memory for what is down; a
    /// DRBD instance that cannot be migrated ends a full evacuation. It gives up where there is an answer.
    GivesUp,
}

/// What came of one case.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Ways in which they differ.
    pub(crate) differences: BTreeSet<Difference>,
    /// How many groups ours has, and hroller's, of the same nodes.
    pub(crate) groups: Option<(usize, usize)>,
    /// Whether hroller's groups break no rule of ours, so that ours cannot have more.
    pub(crate) sound: bool,
    /// Whether both refuse.
    pub(crate) refused: bool,
}

/// What hroller says where instances have no place. The last is for DRBD in a full evacuation, also where a secondary is
/// offline; ours leaves such a node out.
const NO_ROOM: [&str; 3] = [
    "Not enough capacity to move non-redundant instances",
    "Not enough capacity to move secondaries",
    "Failed to migrate instances off nodes",
];

const ALL: OutputOptions = OutputOptions {
    headers: true,
    one_step_only: false,
    moves: true,
};

/// What ours answers, as hroller's answers are read.
fn printed(answer: &HrollerOutput) -> Result<Vec<Group>> {
    ganeti::groups(&(answer.lines(ALL).join("\n") + "\n"))
}

/// Compares both on one case.
pub(crate) fn compare(case: &Case, real: &Htools, loud: bool) -> Result<Outcome> {
    let mut flags = case.words();
    flags.push("--print-moves");
    let theirs = real.hroller(&case.text, &flags)?;
    let ours = answer(&case.cluster, &case.options);
    if loud {
        say(format!(
            "{}\nhroller {}\n{theirs:#?}\n{ours:#?}",
            case.text,
            flags.join(" ")
        ));
    }
    let mut outcome = Outcome::default();
    match (&ours, theirs.code) {
        (Err(error), 1) => {
            both_refuse(error, &theirs.stderr)?;
            outcome.refused = true;
        }
        (Err(error), 0) => {
            ensure!(is_capacity(error), "ours refuses, and hroller does not: {error}");
            let found = of_theirs(case, &case.options, &theirs.groups()?)?;
            ensure!(
                !found.1.is_empty(),
                "ours refuses ({error}), and hroller's answer is sound"
            );
            outcome.differences.insert(Difference::Rules);
        }
        (Ok(answer), 1) => {
            ensure!(
                NO_ROOM.iter().any(|words| theirs.stderr.contains(words)),
                "hroller refuses, and ours does not: {}",
                theirs.stderr
            );
            sound(case, &case.options, answer)?;
            outcome.differences.insert(why_given_up(case, real)?);
        }
        (Ok(answer), 0) => {
            sound(case, &case.options, answer)?;
            both_answer(case, answer, &theirs.groups()?, &mut outcome)?;
            same_warnings(answer, &theirs.stderr)?;
        }
        (_, code) => bail!("hroller ended with {code}: {}", theirs.stderr),
    }
    ensure!(
        case.sane || outcome.refused,
        "there is an answer to a question about what does not exist"
    );
    if let Ok(answer) = &ours {
        let theirs = if theirs.code == 0 {
            theirs.groups()?
        } else {
            Vec::new()
        };
        more_ways(case, answer, &theirs)?;
    }
    Ok(outcome)
}

fn is_capacity(error: &HrollerError) -> bool {
    matches!(
        error,
        HrollerError::NoCapacity(_) | HrollerError::NoCapacityForSecondaries(_)
    )
}

/// The last word of both is the same one, but for what there is no room for.
fn both_refuse(error: &HrollerError, stderr: &str) -> Result<()> {
    let theirs = stderr
        .lines()
        .rfind(|line| line.starts_with("Error: "))
        .context("hroller gives no reason")?;
    let ours = format!("Error: {error}");
    let both_capacity = is_capacity(error) && NO_ROOM.iter().any(|words| theirs.contains(words));
    ensure!(ours == theirs || both_capacity, "ours: {ours}; hroller: {theirs}");
    Ok(())
}

/// The plain judge of an answer of ours, and that it leaves nobody out without a reason that holds.
fn sound(case: &Case, options: &HrollerOptions, answer: &HrollerOutput) -> Result<()> {
    let plain = Plain::new(&case.cluster, options);
    let mut left = BTreeSet::new();
    for alone in &answer.left_out {
        let (name, slug) = (alone.unit.as_str(), alone.reason.code.code());
        ensure!(
            plain.reason_holds(name, slug)?,
            "{name} is left out: {}",
            alone.reason
        );
        left.insert(name);
    }
    plain.sound(case, &printed(answer)?, &left)
}

/// hroller's groups without the nodes that ours leaves out, and what the judge finds in them.
fn of_theirs(
    case: &Case,
    options: &HrollerOptions,
    groups: &[Group],
) -> Result<(usize, Vec<stagger_core::check::Finding>)> {
    let question = HrollerInput::new(&case.cluster, options)?;
    let ours = plan_waves(&question.ask());
    let left: BTreeSet<&str> = ours
        .left_alone
        .iter()
        .filter(|left| !left.reason.code.code().starts_with("no-room-"))
        .map(|left| left.unit.as_str())
        .collect();
    let kept = groups
        .iter()
        .filter(|group| group.nodes.iter().any(|node| !left.contains(node.as_str())));
    Ok((kept.count(), findings(&question, &left, groups)?))
}

/// Never more groups than hroller, unless its own break a rule; and the same instances are moved, but for its defects.
fn both_answer(case: &Case, answer: &HrollerOutput, theirs: &[Group], outcome: &mut Outcome) -> Result<()> {
    let chosen: BTreeSet<&str> = case
        .chosen()
        .iter()
        .map(|node| case.cluster.nodes[*node as usize].name.as_str())
        .collect();
    let named = theirs.iter().flat_map(|group| &group.nodes).map(String::as_str);
    let named: BTreeSet<&str> = named.collect();
    ensure!(
        named == chosen,
        "hroller has {named:?} in its groups, and {chosen:?} are selected"
    );

    let (count, found) = of_theirs(case, &case.options, theirs)?;
    never_more(answer.groups.len(), count, &found)?;
    outcome.groups = Some((answer.groups.len(), count));
    outcome.sound = found.is_empty();
    if answer.groups.len() > count
        || answer
            .left_out
            .iter()
            .any(|left| left.reason.code.code() != "non-redundant-running")
    {
        outcome.differences.insert(Difference::Rules);
    }
    same_moves(case, answer, theirs, &chosen, outcome)
}

fn never_more(ours: usize, theirs: usize, found: &[stagger_core::check::Finding]) -> Result<()> {
    ensure!(
        ours <= theirs || !found.is_empty(),
        "{ours} groups, and hroller has {theirs}, in which the judge finds nothing"
    );
    Ok(())
}

fn same_moves(
    case: &Case,
    answer: &HrollerOutput,
    theirs: &[Group],
    chosen: &BTreeSet<&str>,
    outcome: &mut Outcome,
) -> Result<()> {
    let printed = printed(answer)?;
    let moved = |groups: &[Group]| -> BTreeSet<String> {
        groups
            .iter()
            .flat_map(|group| &group.moves)
            .map(|a_move| a_move.instance.clone())
            .collect()
    };
    let (ours, theirs) = (moved(&printed), moved(theirs));
    let by_name: BTreeMap<&str, &Instance> = case
        .cluster
        .instances
        .iter()
        .map(|instance| (instance.name.as_str(), instance))
        .collect();
    let left: BTreeSet<&str> = answer.left_out.iter().map(|left| left.unit.as_str()).collect();
    let name = |instance: &Instance| case.cluster.node(instance.primary).name.as_str();
    for moved in theirs.difference(&ours) {
        let instance = by_name
            .get(moved.as_str())
            .with_context(|| format!("there is no {moved}"))?;
        let rebooted = |node: &str| chosen.contains(node) && !left.contains(node);
        let second = instance
            .secondary
            .map(|node| case.cluster.node(node).name.as_str());
        outcome.differences.insert(if !instance.status.may_run() {
            Difference::Down
        } else if case.options.offline_maintenance {
            Difference::Offline
        } else if is_local(instance) {
            Difference::Local
        } else if !chosen.contains(name(instance)) && second.is_none_or(|second| !chosen.contains(second)) {
            Difference::Unselected
        } else if !rebooted(name(instance)) && second.is_none_or(|second| !rebooted(second)) {
            Difference::Rules
        } else {
            bail!("hroller moves {moved}, and ours does not");
        });
    }
    if let Some(moved) = ours.difference(&theirs).next() {
        // hroller prints every instance that changes its node, but for those that only change their roles.
        bail!("ours moves {moved}, and hroller does not");
    }
    Ok(())
}

/// Why hroller finds no room where ours does: asked again without more and more of what it should not have moved.
fn why_given_up(case: &Case, real: &Htools) -> Result<Difference> {
    let chosen: BTreeSet<u32> = case.chosen().into_iter().collect();
    let mut cluster = case.cluster.clone();
    let mut has_room_without = |moved: &dyn Fn(&Instance) -> bool| -> Result<bool> {
        cluster
            .instances
            .retain(|instance| instance.template == Template::Drbd || !moved(instance));
        let answer = real.hroller(&stagger_ganeti::loaders::text::write(&cluster), &case.words())?;
        Ok(answer.code == 0)
    };
    if has_room_without(&|instance| !instance.status.may_run())? {
        return Ok(Difference::Down);
    }
    if has_room_without(&|instance| !chosen.contains(&instance.primary.0))? {
        return Ok(Difference::Unselected);
    }
    if has_room_without(&is_local)? {
        return Ok(Difference::Local);
    }
    Ok(if case.options.offline_maintenance {
        Difference::Offline
    } else {
        Difference::GivesUp
    })
}

/// The warnings of numbers that do not add up are the same.
fn same_warnings(answer: &HrollerOutput, stderr: &str) -> Result<()> {
    let missing = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.starts_with("  - node "));
        lines.map(str::to_owned).collect()
    };
    let ours = missing(&answer.warnings.join("\n"));
    let theirs = missing(stderr);
    ensure!(ours == theirs, "ours warns of {ours:?}, hroller of {theirs:?}");
    Ok(())
}

/// What hroller has no option for: sound too, and never worse than what it has.
fn more_ways(case: &Case, exclude: &HrollerOutput, theirs: &[Group]) -> Result<()> {
    let capacity = HrollerOptions {
        shared_secondary: Standbys::Capacity,
        ..case.options.clone()
    };
    let shared = answer(&case.cluster, &capacity).context("with --shared-secondary capacity")?;
    sound(case, &capacity, &shared).context("with --shared-secondary capacity")?;
    ensure!(
        shared.groups.len() <= exclude.groups.len(),
        "{} groups with --shared-secondary capacity, {} without",
        shared.groups.len(),
        exclude.groups.len()
    );
    let moving = HrollerOptions {
        move_non_redundant: true,
        ..case.options.clone()
    };
    if exclude
        .left_out
        .iter()
        .any(|left| left.reason.code.code() == "non-redundant-running")
    {
        match answer(&case.cluster, &moving) {
            Ok(moved) => {
                sound(case, &moving, &moved).context("with --move-non-redundant")?;
                if !theirs.is_empty() {
                    let (count, found) = of_theirs(case, &moving, theirs)?;
                    never_more(moved.groups.len(), count, &found).context("with --move-non-redundant")?;
                }
            }
            Err(error) => ensure!(is_capacity(&error), "with --move-non-redundant: {error}"),
        }
    }
    Ok(())
}
