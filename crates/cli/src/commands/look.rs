//! Commands that only look.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use stagger_core::check::check;
use stagger_core::explain::explain;
use stagger_core::model::{Snapshot, UnitState, Verdict};
use stagger_core::plan::{Ask, Plan};
use stagger_core::view;
use stagger_engine::inventory::write_whole;
use stagger_engine::supervisor;

use super::{artifacts, store, which};
use crate::args::{self, Cli, Goal, PlanFlags};
use crate::clusters::{self, Cluster};
use crate::documents::{self, Checked, Gathered, PlanFile};
use crate::error::CliError;
use crate::exit::Exit;
use crate::plan_file::Planned;
use crate::planning::{PlanningInput, made_for, refusal};
use crate::print;
use crate::show::{self, events};

/// `observe`
pub(crate) async fn observe(cli: &Cli, wish: &args::Observe) -> Result<Exit, CliError> {
    let cluster = clusters::open(cli, &wish.from)?;
    let Some(file) = &wish.save else {
        return Ok(show_snapshot(cli, &cluster.snapshot().await?));
    };
    let (inventory, snapshot) = cluster.inventory().await?;
    let bytes = inventory
        .to_json()
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    write_whole(file, &bytes)
        .map_err(|error| CliError::usage(format!("write the inventory to {}: {error}", file.display())))?;
    Ok(show_snapshot(cli, &snapshot))
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
    let goal = wish.goal.goal();
    let cluster = clusters::open(cli, &wish.goal.with().from)?;
    let mut input = cluster.planning_input(&goal).await?.selected(&goal.select)?;
    let made = made_for(&goal.policy, &mut input)?;
    shown(cli, &goal, wish.goal.with(), &*cluster, &input, &made)
}

/// Writes a plan where it is wished, and shows it.
fn shown(
    cli: &Cli,
    goal: &Goal,
    wish: &PlanFlags,
    cluster: &dyn Cluster,
    input: &PlanningInput,
    made: &Plan,
) -> Result<Exit, CliError> {
    let refusal = refusal(input, made);
    let next = match (&refusal, cluster.carried_out_by()) {
        (Some(_), _) => "see below".to_owned(),
        (None, Some(otherwise)) => otherwise.to_owned(),
        (None, None) => run_command(cli, goal.words(), wish.out.as_deref()),
    };
    let document = PlanFile {
        plan: made,
        flags: goal.words(),
    };
    if let Some(path) = &wish.out {
        let text = serde_json::to_string_pretty(&documents::PLAN.of(&document)).unwrap_or_default();
        std::fs::write(path, text)
            .map_err(|error| CliError::usage(format!("write the plan to {}: {error}", path.display())))?;
    }
    if cli.json {
        print::json(&documents::PLAN.of(&document));
    } else {
        print::out(&show::plan::plan(
            made,
            &input.snapshot,
            wish.all,
            print::width(),
            &next,
        ));
    }
    for missing in cluster.missing_commands(made) {
        print::talk(&format!("a run of it would be refused: {missing}"));
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

/// `check`
pub(crate) async fn check_plan(cli: &Cli, wish: &args::Check) -> Result<Exit, CliError> {
    let file = Planned::read(&wish.plan)?;
    // A goal beside the file says what else it is judged for.
    let goal = match &wish.goal {
        Some(goal) => goal.goal(),
        None => file.goal(&wish.plan)?,
    };
    let cluster = clusters::open(cli, &wish.from)?;
    let asked = cluster.planning_input(&goal).await?.selected(&goal.select)?;
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
    let goal = wish.goal.goal();
    let cluster = clusters::open(cli, wish.goal.with())?;
    let mut input = cluster.planning_input(&goal).await?.selected(&goal.select)?;
    let made = made_for(&goal.policy, &mut input)?;
    let said = explain(&input.snapshot, &input.target, &made, &wish.unit);
    let Some(said) = said else {
        return Err(unknown_unit(&input.snapshot, wish.unit.as_str()));
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
