//! Commands that only look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use stagger_ceph::config::SoftwareByKind;
use stagger_ceph::preflight::missing_commands;
use stagger_core::check::check;
use stagger_core::explain::explain;
use stagger_core::model::{Policy, Reason, Snapshot, Target, UnitId, UnitState, Verdict};
use stagger_core::plan::{Ask, Plan, out_of_reach, plan};
use stagger_core::view;
use stagger_engine::supervisor;

use super::{artifacts, ganeti, ironic, store, which};
use crate::args::{self, Cli};
use crate::documents::{self, Checked, Gathered, PlanFile, VersionRow, Versions};
use crate::error::CliError;
use crate::exit::Exit;
use crate::improve;
use crate::plan_file::Planned;
use crate::print;
use crate::show::names::compress;
use crate::show::{self, events};
use crate::world::World;

/// `observe`
pub(crate) async fn observe(cli: &Cli, wish: &args::Observe) -> Result<Exit, CliError> {
    if let Some(live) = ironic::Live::at(cli, &wish.from)? {
        if wish.save.is_some() {
            return Err(CliError::usage("--save writes the answers of a Ceph cluster"));
        }
        return Ok(show_snapshot(cli, &live.snapshot().await?));
    }
    if let Some(found) = ganeti::found(cli, &wish.from)? {
        if wish.save.is_some() {
            return Err(CliError::usage("--save writes the answers of a Ceph cluster")
                .hint("`stagger hroller -t FILE -S COPY` writes a Ganeti anew"));
        }
        return Ok(show_snapshot(cli, &found.snapshot(cli).await?));
    }
    let world = match &wish.save {
        Some(file) => World::observe_and_save(cli, &wish.from, file).await?,
        None => World::observe(cli, &wish.from).await?,
    };
    Ok(show_snapshot(cli, &world.snapshot))
}

fn show_snapshot(cli: &Cli, snapshot: &Snapshot) -> Exit {
    if cli.json {
        print::json(&documents::SNAPSHOT.of(snapshot));
        return Exit::Done;
    }
    print::out(&format!(
        "{}  {}, observed {:.0}",
        snapshot.cluster(),
        snapshot.generation(),
        snapshot.observed_at()
    ));
    let mut kinds: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for unit in snapshot.units() {
        let counts = kinds.entry(unit.kind.as_str()).or_default();
        match unit.state {
            UnitState::Serving => counts[0] += 1,
            UnitState::Down => counts[1] += 1,
            UnitState::Unknown => counts[2] += 1,
        }
    }
    for (kind, [serving, down, unknown]) in kinds {
        print::out(&format!(
            "  {kind:<6} {serving} serving, {down} down, {unknown} unknown"
        ));
    }
    for absent in snapshot.absent() {
        print::out(&format!("  absent {}: {}", absent.unit, absent.reason));
    }
    print::out(&format!("  {} budgets", snapshot.budgets().len()));
    for condition in snapshot.conditions() {
        let mark = match condition.verdict {
            Verdict::Yes => '+',
            Verdict::No => 'x',
            Verdict::Unknown => '?',
        };
        print::out(&format!(
            "  {mark} {:<24} {:<8} {}",
            condition.name, condition.verdict, condition.why
        ));
    }
    Exit::Done
}

/// `plan`
pub(crate) async fn show_plan(cli: &Cli, wish: &args::Plan) -> Result<Exit, CliError> {
    let mut asked = asked(cli, &wish.from, &wish.wish, &wish.reboot).await?;
    let made = made_for(&wish.wish, &asked.snapshot, &asked.target, &mut asked.policy)?;
    shown(cli, wish, &asked, &made)
}

/// What is asked of the cluster that is meant.
async fn asked(
    cli: &Cli,
    from: &args::From,
    wish: &args::Wish,
    reboot: &args::Reboot,
) -> Result<ganeti::Asked, CliError> {
    if let Some(live) = ironic::Live::at(cli, from)? {
        return live.asked(wish, reboot).await;
    }
    if let Some(found) = ganeti::found(cli, from)? {
        return found.asked(cli, wish, reboot).await;
    }
    ganeti::is_none(reboot)?;
    let mut asked = asked_of(World::observe(cli, from).await?, wish)?;
    if from.on.is_meant() {
        // An operator changes it, by no command.
        asked.software = None;
    }
    Ok(asked)
}

/// What is asked of a Ceph cluster.
fn asked_of(world: World, wish: &args::Wish) -> Result<ganeti::Asked, CliError> {
    let policy = world.policy(wish)?;
    let world = world.permitting(&policy)?;
    Ok(ganeti::Asked {
        target: world.target(wish, &policy)?,
        software: world.software(),
        snapshot: world.snapshot,
        policy,
    })
}

/// Writes a plan where it is wished, and shows it.
fn shown(cli: &Cli, wish: &args::Plan, asked: &ganeti::Asked, made: &Plan) -> Result<Exit, CliError> {
    let ganeti::Asked { snapshot, policy, .. } = asked;
    let refusal = refusal(snapshot, made, policy);
    let next = if refusal.is_some() {
        "see below".to_owned()
    } else {
        next(cli, wish)
    };
    let document = PlanFile {
        plan: made,
        flags: wish.words(),
    };
    if let Some(path) = &wish.out {
        let text = serde_json::to_string_pretty(&documents::PLAN.of(&document)).unwrap_or_default();
        std::fs::write(path, text)
            .map_err(|error| CliError::usage(format!("write the plan to {}: {error}", path.display())))?;
    }
    if cli.json {
        print::json(&documents::PLAN.of(&document));
    } else {
        print::out(&show::plan::plan(made, snapshot, wish.all, print::width(), &next));
    }
    for lacking in lacking(asked.software.as_ref(), made) {
        print::talk(&format!("a run of it would be refused: {lacking}"));
    }
    match refusal {
        None => Ok(Exit::Done),
        // One document is enough: the plan names what stands in the way.
        Some(refusal) if cli.json => {
            print::talk(refusal.text().trim_end());
            Ok(refusal.exit)
        }
        Some(refusal) => Err(refusal),
    }
}

/// The commands that a run of this plan needs and that the configuration does not give.
pub(crate) fn lacking(software: Option<&SoftwareByKind>, made: &Plan) -> Vec<Reason> {
    let changed = made.stages().filter(|stage| !stage.waves.is_empty());
    let kinds = changed.map(|stage| stage.kind.as_str());
    software.map_or_else(Vec::new, |software| missing_commands(software, kinds))
}

/// How a plan is carried out.
fn next(cli: &Cli, wish: &args::Plan) -> String {
    if wish.from.on.is_meant() {
        return "the image in the CephMaintenance: docs/guides/kubernetes.md".to_owned();
    }
    run_command(cli, wish.words(), wish.out.as_deref())
}

/// The command that carries out the plan of these flags, or of that file, as it is written in a shell.
pub(crate) fn run_command(cli: &Cli, flags: Vec<String>, file: Option<&Path>) -> String {
    let path = |path: &Path| path.display().to_string();
    let mut words = vec!["stagger".to_owned()];
    for (flag, given) in [("--config", &cli.config), ("--state", &cli.state)] {
        words.extend(given.iter().flat_map(|given| [flag.to_owned(), path(given)]));
    }
    words.push("run".to_owned());
    words.extend(file.map_or(flags, |file| vec![path(file)]));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // A word that no shell can take is shown as it is.
    shlex::try_join(words.iter().copied()).unwrap_or_else(|_| words.join(" "))
}

/// Why a plan is not begun: it does not get to its target.
pub(crate) fn refusal(snapshot: &Snapshot, made: &Plan, policy: &Policy) -> Option<CliError> {
    let reasons = out_of_reach(made, policy, snapshot.nouns());
    (!reasons.is_empty()).then(|| {
        let mut error = CliError::refused("a run of this plan", &reasons);
        error.hints.insert(
            0,
            "--partial does what can be done, and ends before what waits".to_owned(),
        );
        error
    })
}

/// The plan that leads from that snapshot to a target. If it is searched for a time, the policy gets the steps that
/// were made.
pub(crate) fn made_for(
    wish: &args::Wish,
    snapshot: &Snapshot,
    target: &Target,
    policy: &mut Policy,
) -> Result<Plan, CliError> {
    let none = BTreeMap::new();
    let earned = BTreeMap::new();
    let ask = Ask {
        snapshot,
        target,
        policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let made = match improve::time(wish.improve.as_deref())? {
        Some(time) => improve::plan_within(&ask, time),
        None => plan(&ask),
    };
    // The judge never sees a plan of ours that it would not pass; if it does, that is a bug of ours.
    let findings = check(&ask, &made);
    match findings.first() {
        None => {
            policy.search.steps = made.search.steps;
            Ok(made)
        }
        Some(finding) => Err(CliError::new(
            Exit::Internal,
            format!("the plan is not sound: {finding:?}"),
        )),
    }
}

/// `check`
pub(crate) async fn check_plan(cli: &Cli, wish: &args::Check) -> Result<Exit, CliError> {
    let file = Planned::read(&wish.plan)?;
    // Flags beside the file say what else it is judged for.
    let own = if wish.wish.words().is_empty() && wish.reboot.words().is_empty() {
        Some(file.asked(&wish.plan)?)
    } else {
        None
    };
    let (goal, reboot) = own
        .as_ref()
        .map_or((&wish.wish, &wish.reboot), |(goal, reboot)| (goal, reboot));
    let asked = asked(cli, &wish.from, goal, reboot).await?;
    let given = file.plan;
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = Ask {
        snapshot: &asked.snapshot,
        target: &asked.target,
        policy: &asked.policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let findings = check(&ask, &given);
    if cli.json {
        print::json(&documents::CHECK.of(&Checked {
            plan: given.id.clone(),
            sound: findings.is_empty(),
            findings: findings.clone(),
        }));
    } else if findings.is_empty() {
        print::out(&format!(
            "Plan {} is sound: {} waves, {} units.",
            given.id,
            given.waves(),
            given.units()
        ));
    } else {
        for finding in &findings {
            print::out(&format!(
                "{} in {}: {}",
                finding.fault, finding.part, finding.detail
            ));
        }
    }
    Ok(if findings.is_empty() { Exit::Done } else { Exit::No })
}

/// `explain`
pub(crate) async fn explain_unit(cli: &Cli, wish: &args::Explain) -> Result<Exit, CliError> {
    let mut asked = asked(cli, &wish.from, &wish.wish, &wish.reboot).await?;
    let made = made_for(&wish.wish, &asked.snapshot, &asked.target, &mut asked.policy)?;
    let said = explain(&asked.snapshot, &asked.target, &made, &wish.unit);
    let Some(said) = said else {
        return Err(unknown_unit(&asked.snapshot, wish.unit.as_str()));
    };
    if cli.json {
        print::json(&documents::EXPLANATION.of(&said));
        return Ok(Exit::Done);
    }
    print::out(&format!("{}.", said.place));
    for held in &said.held_by {
        print::out(&format!("  held by   {held}"));
    }
    for freed in &said.freed_by {
        print::out(&format!("  freed by  {freed}"));
    }
    Ok(Exit::Done)
}

/// There is no such unit; the nearest one is named.
pub(crate) fn unknown_unit(snapshot: &Snapshot, asked: &str) -> CliError {
    let nearest = snapshot
        .units()
        .iter()
        .map(|unit| (strsim::jaro_winkler(asked, unit.id.as_str()), unit.id.as_str()))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let error = CliError::usage(format!("there is no unit {asked} in {}", snapshot.cluster()));
    match nearest {
        Some((_, nearest)) => error.hint(format!("the nearest is {nearest}; `stagger versions` lists all")),
        None => error,
    }
}

/// `versions`
pub(crate) async fn versions(cli: &Cli, wish: &args::Versions) -> Result<Exit, CliError> {
    let from = args::From {
        from: wish.from.clone(),
        ..args::From::default()
    };
    if let Some(live) = ironic::Live::at(cli, &from)? {
        return live.versions(cli, wish.all).await;
    }
    let snapshot = match ganeti::found(cli, &from)? {
        Some(found) => found.snapshot(cli).await?,
        None => World::observe(cli, &from).await?.snapshot,
    };
    let mut by: BTreeMap<(String, String), Vec<UnitId>> = BTreeMap::new();
    for unit in snapshot.units() {
        let revision = unit
            .revision
            .as_ref()
            .map_or("unknown".to_owned(), ToString::to_string);
        by.entry((unit.kind.to_string(), revision))
            .or_default()
            .push(unit.id.clone());
    }
    if cli.json {
        let rows = by.into_iter().map(|((kind, revision), units)| VersionRow {
            kind,
            revision,
            count: units.len(),
            units,
        });
        print::json(&documents::VERSIONS.of(&Versions {
            versions: rows.collect(),
            services: Vec::new(),
        }));
        return Ok(Exit::Done);
    }
    print::out(&format!("{:<6} {:<10} {:>5}  units", "kind", "release", "count"));
    for ((kind, revision), units) in by {
        let line = |units: &[UnitId]| {
            let names = show::names::fit(&compress(units), print::width().saturating_sub(26));
            print::out(&format!("{kind:<6} {revision:<10} {:>5}  {names}", units.len()));
        };
        if wish.all {
            units.chunks(1).for_each(line);
        } else {
            line(&units);
        }
    }
    Ok(Exit::Done)
}

/// `status`
pub(crate) fn status(cli: &Cli, wish: &args::Status) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = supervisor::replay(&*store, &which(&*store, wish.run.as_ref())?)?;
    let mut seen = view::run(&run, None);
    if let Some(why) = supervisor::nobody(&*store, &run)? {
        seen = seen.without_a_holder(why);
    }
    if cli.json {
        print::json(&seen);
    } else {
        print::out(&show::status::status(&seen, Timestamp::now(), wish.upgrade));
    }
    Ok(match seen.verdict {
        view::Verdict::NeedsYou => Exit::NeedsYou,
        view::Verdict::Ended => Exit::No,
        view::Verdict::Interrupted => Exit::Abandoned,
        view::Verdict::Running | view::Verdict::Held | view::Verdict::Done => Exit::Done,
    })
}

/// `history`
pub(crate) fn history(cli: &Cli, wish: &args::SomeRun) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let Some(run) = &wish.run else {
        // A run that cannot be read hides none of the others.
        let mut unreadable = None;
        for listed in store.runs()? {
            let run = match supervisor::replay(&*store, &listed.run) {
                Ok(run) => run,
                Err(error) => {
                    let error = CliError::from(error);
                    print::talk(&format!("{}: {}", listed.run, error.text().trim_end()));
                    unreadable.get_or_insert(error.exit);
                    continue;
                }
            };
            let mut seen = view::run(&run, None);
            if let Some(why) = supervisor::nobody(&*store, &run)? {
                seen = seen.without_a_holder(why);
            }
            if cli.json {
                print::line(&seen);
            } else {
                print::out(&format!(
                    "{}  {:.0}  {}  {}  {}: {}",
                    listed.run, listed.started, listed.cluster, seen.title, seen.verdict, seen.why
                ));
            }
        }
        return Ok(unreadable.unwrap_or(Exit::Done));
    };
    let entries = store.journal(run)?;
    let mut so_far: Option<stagger_core::run::Run> = None;
    let mut lines = events::Lines::default();
    for entry in entries {
        if cli.json {
            print::line(&documents::EVENT.of(&entry));
            continue;
        }
        let illegal = |error| CliError::from(stagger_engine::driver::DriveError::Illegal(error));
        match &mut so_far {
            None => so_far = Some(stagger_core::run::Run::begin(entry.clone()).map_err(illegal)?),
            Some(run) => run.apply(entry.clone()).map_err(illegal)?,
        }
        if let Some(run) = &so_far
            && let Some((word, text)) = lines.line(&entry, run)
        {
            print::out(&format!("{:>5}  {:.0}  {word:<9}{text}", entry.seq, entry.at));
        }
    }
    Ok(Exit::Done)
}

/// `artifacts`
pub(crate) fn show_artifacts(cli: &Cli, wish: &args::Artifacts) -> Result<Exit, CliError> {
    let store = store(cli)?;
    let run = which(&*store, wish.run.as_ref())?;
    let kept = artifacts(cli)?;
    let failed =
        |error: stagger_engine::artifacts::ArtifactsError| CliError::new(Exit::Internal, error.to_string());
    let folder = kept.of(&run);
    if let Some(file) = &wish.bundle {
        let journal: Vec<String> = store
            .journal(&run)?
            .iter()
            .map(|entry| serde_json::to_string(entry).unwrap_or_default())
            .collect();
        let extra = [("journal.jsonl".to_owned(), journal.join("\n").into_bytes())];
        kept.bundle(&run, &extra, file).map_err(failed)?;
    }
    let files = gathered(&folder);
    match (&wish.bundle, cli.json) {
        (bundle, true) => print::json(&documents::ARTIFACTS.of(&Gathered {
            run,
            folder,
            files,
            bundle: bundle.clone(),
        })),
        (Some(bundle), false) => print::out(&bundle.display().to_string()),
        (None, false) => {
            print::out(&folder.display().to_string());
            for file in files {
                print::out(&format!("  {}", file.display()));
            }
        }
    }
    Ok(Exit::Done)
}

/// All files below a run's folder, from there on: one folder for each time that they were gathered.
fn gathered(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|times| std::fs::read_dir(times.path()).into_iter().flatten().flatten())
        .map(|file| file.path())
        .map(|file| file.strip_prefix(folder).map(Path::to_owned).unwrap_or(file))
        .collect();
    files.sort();
    files
}
