//! `plan`, `check` and `explain`.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;

use stagger_core::check::check;
use stagger_core::explain::explain;
use stagger_core::model::{Kind, Limit, MoveKind, Snapshot, USUAL_VISIT};
use stagger_core::plan::{Plan, PlannedStage, PlanningInput, plan};

use crate::args::{self, Cli, GoalArgs, PlanFlags};
use crate::clusters::{self, Cluster};
use crate::documents::{self, CheckReport, PlanFile};
use crate::error::CliError;
use crate::exit::Exit;
use crate::forecasts;
use crate::plan_file::SavedPlan;
use crate::planning::{PlanRequest, make_plan, refusal};
use crate::print;
use crate::risks;
use crate::show;
use crate::show::plan::{Detail, PlanNotes, counted};

/// `plan`
pub(crate) async fn show_plan(cli: &Cli, args: &args::PlanArgs) -> Result<Exit, CliError> {
    let goal = args.goal.goal();
    let cluster = clusters::open(cli, &args.goal.with().from).await?;
    let mut input = cluster.planning_input(&goal).await?.selected(&goal.select)?;
    let made = make_plan(&goal.policy, &mut input)?;
    print_plan(cli, &goal, args.goal.with(), &*cluster, &input, &made).await
}

/// Writes a plan to the file that is given, and shows it.
async fn print_plan(
    cli: &Cli,
    goal: &GoalArgs,
    args: &PlanFlags,
    cluster: &dyn Cluster,
    input: &PlanRequest,
    made: &Plan,
) -> Result<Exit, CliError> {
    let refusal = refusal(input, made);
    let next = match (&refusal, cluster.external_runner()) {
        (Some(_), _) => "see below".to_owned(),
        (None, Some(otherwise)) => otherwise.to_owned(),
        (None, None) => run_command(cli, goal.to_args(), args.out.as_deref()),
    };
    let learned = forecasts::of_plan(cli, input, made).await;
    let document = PlanFile {
        plan: made,
        flags: goal.to_args(),
        risks: &input.risks,
        learned,
    };
    if let Some(path) = &args.out {
        let text = serde_json::to_string_pretty(&documents::PLAN.of(&document)).unwrap_or_default();
        std::fs::write(path, text)
            .map_err(|error| CliError::usage(format!("write the plan to {}: {error}", path.display())))?;
    }
    if cli.json {
        print::json(&documents::PLAN.of(&document));
    } else {
        print::data_line(&show::plan::plan(
            made,
            &input.snapshot,
            &PlanNotes {
                risks: &input.risks,
                learned,
            },
            Detail {
                all: args.all,
                moves: goal.print_moves(),
            },
            print::width(),
            &next,
        ));
    }
    for line in larger_share_hint(input, made)
        .into_iter()
        .chain(assumed(input, made).filter(|_| learned.is_none()))
    {
        print::status_line(&line);
    }
    for missing in cluster.missing_commands(made) {
        print::status_line(&format!("a run of it would be refused: {missing}"));
    }
    match refusal {
        None => Ok(Exit::Done),
        // One document is enough: the plan names what stands in the way.
        Some(refusal) if cli.json => {
            print::status_line(refusal.text().trim_end());
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

/// Whether hosts are maintained, with guests or daemons on them, whatever is done to them.
fn is_maintenance(input: &PlanRequest, stage: &PlannedStage) -> bool {
    let spec = input.target.stage(&stage.name);
    stage.kind.as_str() == "host" || spec.is_some_and(|spec| spec.maintenance.is_some())
}

/// What a plan would come to that may take all nodes at once, where the share that is allowed is a single one: 15 % of a small
/// cluster. Only for what reboots nodes, whose own constraints say what is safe together.
fn larger_share_hint(input: &PlanRequest, made: &Plan) -> Option<String> {
    let Limit::Percent(percent) = input.policy.max_in_parallel else {
        return None;
    };
    let stage = made
        .stages()
        .find(|stage| stage.parallel == 1 && stage.waves.len() > 1 && is_maintenance(input, stage))?;
    let all = stage.waves.iter().map(|wave| wave.units.len()).sum::<usize>();
    let mut policy = input.policy.clone();
    policy.max_in_parallel = Limit::Percent(100);
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let larger = PlanningInput {
        snapshot: &input.snapshot,
        target: &input.target,
        policy: &policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let waves = plan(&larger).waves();
    (waves < made.waves()).then(|| {
        format!(
            "note: {percent} % of {all} nodes is one at a time, which takes {} waves; --max-in-parallel 100% takes {waves}, each as \
             large as instances, memory and growth permit",
            made.waves()
        )
    })
}

/// What the forecast of a plan that reboots nodes rests upon where nothing was measured or given.
fn assumed(input: &PlanRequest, made: &Plan) -> Option<String> {
    let stages = || made.stages().filter(|stage| is_maintenance(input, stage));
    let moves: BTreeSet<MoveKind> = stages()
        .flat_map(|stage| &stage.waves)
        .flat_map(|wave| &wave.moves)
        .map(|a_move| a_move.how)
        .collect();
    let visit = stages().next().map(|stage| (stage.kind.as_str(), USUAL_VISIT))?;
    let all = iter::once(visit).chain(moves.iter().map(|how| (how.name(), how.default_duration())));
    let unknown = all.filter(|(name, _)| {
        let kind = Kind::new(*name).ok();
        kind.and_then(|kind| input.snapshot.duration(&kind)).is_none()
    });
    let unknown: Vec<(&str, i64)> = unknown.map(|(name, takes)| (name, takes.as_secs())).collect();
    if unknown.is_empty() {
        return None;
    }
    let join = |sep: &str, word: &dyn Fn(&(&str, i64)) -> String| {
        unknown.iter().map(word).collect::<Vec<_>>().join(sep)
    };
    let note = format!(
        "note: assumed durations: {}",
        join(", ", &|(name, seconds)| format!("{name} {seconds} s"))
    );
    // The flag is of a Ganeti's goals alone.
    let is_told = input.snapshot.capacity().is_some();
    let told = is_told.then(|| {
        let takes = join(",", &|(name, _)| format!("{name}=SECONDS"));
        format!("; --takes {takes} says it")
    });
    Some(note + &told.unwrap_or_default())
}

/// `check`
pub(crate) async fn check_plan(cli: &Cli, args: &args::CheckArgs) -> Result<Exit, CliError> {
    let file = SavedPlan::read(&args.plan)?;
    // A goal beside the file says what else it is judged for.
    let goal = match &args.goal {
        Some(goal) => goal.goal(),
        None => file.goal(&args.plan)?,
    };
    let cluster = clusters::open(cli, &args.from).await?;
    let asked = cluster.planning_input(&goal).await?.selected(&goal.select)?;
    let given = file.plan;
    let (none, earned) = (BTreeMap::new(), BTreeMap::new());
    let ask = PlanningInput {
        snapshot: &asked.snapshot,
        target: &asked.target,
        policy: &asked.policy,
        aside: &none,
        earned: &earned,
        parent: None,
    };
    let findings = check(&ask, &given);
    if cli.json {
        print::json(&documents::CHECK.of(&CheckReport {
            plan: given.id.clone(),
            sound: findings.is_empty(),
            findings: findings.clone(),
            risks: asked.risks,
        }));
        return Ok(if findings.is_empty() { Exit::Done } else { Exit::No });
    }
    if findings.is_empty() {
        print::data_line(&format!(
            "Plan {} is sound: {}, {}.",
            given.id,
            counted(given.waves(), "wave"),
            counted(given.units(), "unit")
        ));
    } else {
        for finding in &findings {
            print::data_line(&format!(
                "{} in {}: {}",
                finding.fault, finding.part, finding.detail
            ));
        }
    }
    for line in risks::lines(&asked.risks) {
        print::data_line(&format!("risk {line}"));
    }
    Ok(if findings.is_empty() { Exit::Done } else { Exit::No })
}

/// `explain`
pub(crate) async fn explain_unit(cli: &Cli, args: &args::ExplainArgs) -> Result<Exit, CliError> {
    let goal = args.goal.goal();
    let cluster = clusters::open(cli, args.goal.with()).await?;
    let mut input = cluster.planning_input(&goal).await?.selected(&goal.select)?;
    let made = make_plan(&goal.policy, &mut input)?;
    let said = explain(&input.snapshot, &input.target, &made, &args.unit);
    let Some(said) = said else {
        return Err(unknown_unit(&input.snapshot, args.unit.as_str()));
    };
    for line in risks::lines(&input.risks) {
        print::status_line(&format!("risk {line}"));
    }
    if cli.json {
        print::json(&documents::EXPLANATION.of(&said));
        return Ok(Exit::Done);
    }
    print::data_line(&format!("{}.", said.place));
    for held in &said.held_by {
        print::data_line(&format!("  blocked   {held}"));
    }
    for freed in &said.freed_by {
        print::data_line(&format!("  freed by  {freed}"));
    }
    Ok(Exit::Done)
}

/// There is no such unit; the nearest one is named.
fn unknown_unit(snapshot: &Snapshot, asked: &str) -> CliError {
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
