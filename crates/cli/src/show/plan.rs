//! A plan in about forty lines, whatever the size.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use jiff::SignedDuration;
use stagger_core::model::{GoingBack, MoveKind, Snapshot, Terms, Topology, UnitId};
use stagger_core::plan::{Move, Plan, PlannedPart, PlannedStage, PlannedStep, Wave};
use stagger_core::view;

use stagger_report::duration;
use stagger_report::forecast::RunForecast;
use stagger_report::names::{Places, fit};
use stagger_report::text::planned;
use stagger_risks::RiskFinding;

use super::paint::painted;
use crate::risks;

/// The most rows of the picture.
const PICTURE: usize = 10;
/// Waves listed before the rest is summed up.
const LISTED: usize = 12;

/// Units listed with what leaves them before the rest is summed up.
const EMPTIED: usize = 4;

/// So many lines of a terminal has each thing that is uncomfortable at most.
const LINES: usize = 6;

/// So much of why there is a step stands beside it at most.
const WHY: usize = 60;

/// So much of it fits beside the step's name.
fn room(name: &str, width: usize) -> usize {
    width
        .saturating_sub(name.chars().count().max(22) + 29)
        .clamp(30, WHY)
}

/// A count with its noun: `1 wave`, `6 waves`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        many => format!("{many} {noun}s"),
    }
}

/// What is told beside a plan, and is no part of it.
#[derive(Default)]
pub(crate) struct PlanNotes<'a> {
    /// Known risks of the way to its target.
    pub(crate) risks: &'a [RiskFinding],
    /// How long it takes by earlier runs; `None`: nothing is known of these.
    pub(crate) learned: Option<RunForecast>,
}

/// How much of a plan is listed: without these the first waves and moves, and how many more there are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Detail {
    /// Every unit of every wave, with what leaves it.
    pub(crate) all: bool,
    /// Every move.
    pub(crate) moves: bool,
}

/// What, shape, waves; then what is uncomfortable; then the summary and the next command.
pub(crate) fn plan(
    plan: &Plan,
    snapshot: &Snapshot,
    beside: &PlanNotes<'_>,
    detail: Detail,
    width: usize,
    next: &str,
) -> String {
    let Detail { all, .. } = detail;
    let mut text = String::new();
    let (units, terms) = (snapshot.units().len(), snapshot.terms());
    let _ = writeln!(
        text,
        "{}  {}   {}, {}\n",
        plan.cluster,
        plan.title,
        counted(units, &terms.unit),
        snapshot.generation()
    );
    if plan.is_empty() && plan.left_alone.is_empty() {
        text.push_str("Nothing to do.\n");
        return text;
    }
    if !plan.is_empty() {
        let _ = writeln!(
            text,
            "  {:<22} {:>5} {:>5}  {:>5} {:>5}  limited by",
            "stage", "waves", "units", "batch", "limit"
        );
    }
    for part in &plan.parts {
        match part {
            PlannedPart::Stage(stage) => {
                let units: usize = stage.waves.iter().map(|wave| wave.units.len()).sum();
                let most = stage.waves.iter().map(|wave| wave.units.len()).max().unwrap_or(0);
                let bound = fit(&stage.at_least_because, width.saturating_sub(52).max(30));
                let _ = writeln!(
                    text,
                    "  {:<22} {:>5} {units:>5}  {most:>5} {:>5}  {bound}",
                    stage.name,
                    stage.waves.len(),
                    stage.parallel
                );
            }
            PlannedPart::Step(step) => {
                let _ = writeln!(
                    text,
                    "  {:<22} {:>5}                     {}",
                    step.name,
                    "once",
                    fit(&step.why, room(step.name.as_str(), width))
                );
            }
        }
    }
    let topology = Topology::of(snapshot);
    let places = Places::of(&topology);
    picture(&mut text, plan, &topology, all, width);
    for stage in plan.stages().filter(|stage| stage.waves.len() > 1 || all) {
        text.push('\n');
        waves(&mut text, stage, &places, all, width);
    }
    evacuations(&mut text, plan, detail, width);
    print_warnings(&mut text, plan, terms, beside.risks, width);
    if plan.is_empty() {
        text.push_str("\nNothing can be done now: all remaining units are skipped, for the reasons above.");
        return text;
    }
    let distinct = self::units(plan);
    let visits = match plan.units() {
        all if all == distinct => String::new(),
        all => format!(" in {all} visits"),
    };
    let _ = writeln!(
        text,
        "\n{}, lower bound {}. {} of {units} {}s{}. About {}. Plan {}.",
        counted(plan.waves(), "wave"),
        plan.at_least(),
        distinct,
        terms.unit,
        visits,
        beside.learned.map_or_else(
            || format!("{}{}", duration(plan.forecast()), without_barriers(plan)),
            |learned| forecast_text(&learned)
        ),
        plan.id
    );
    let _ = write!(text, "Next: {next}");
    text
}

/// The largest stage of several waves over the map.
fn picture(text: &mut String, plan: &Plan, topology: &Topology, all: bool, width: usize) {
    let units = |stage: &&PlannedStage| stage.waves.iter().map(|wave| wave.units.len()).sum::<usize>();
    let several = plan.stages().filter(|stage| stage.waves.len() > 1);
    let Some(stage) = several.max_by_key(units) else {
        return;
    };
    let most = if all { usize::MAX } else { PICTURE };
    let rows = planned(stage, topology, width.saturating_sub(2), most);
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n  {} by the numbers of their waves:", stage.name);
    for row in &rows {
        let _ = writeln!(text, "  {}", painted(row));
    }
}

/// How many units a plan visits, each counted once: one may stand in several stages.
pub(crate) fn units(plan: &Plan) -> usize {
    let waves = plan.stages().flat_map(|stage| &stage.waves);
    let units: BTreeSet<&UnitId> = waves.flat_map(|wave| &wave.units).collect();
    units.len()
}

/// `3 h, 90 % under 4 h, as 4 earlier runs went`
fn forecast_text(learned: &RunForecast) -> String {
    let runs = match learned.runs {
        1 => "one earlier run".to_owned(),
        more => format!("{more} earlier runs"),
    };
    format!("{}, as {runs} went", learned.text())
}

/// How long it takes if nobody waits for whole waves, where that is known.
fn without_barriers(plan: &Plan) -> String {
    let mut stages = plan.stages().peekable();
    if stages.peek().is_none() || plan.stages().any(|stage| stage.schedule.is_none()) {
        return String::new();
    }
    let seconds: i64 = stages
        .filter_map(|stage| stage.schedule.as_ref())
        .map(|schedule| i64::from(schedule.seconds))
        .sum();
    format!(
        " in waves, {} without barriers",
        duration(SignedDuration::from_secs(seconds))
    )
}

/// What is done to guests, and what that costs them.
fn moves(lines: &mut Vec<String>, plan: &Plan, terms: &Terms) {
    let of = |how: MoveKind| -> Vec<&Move> {
        let waves = plan.stages().flat_map(|stage| &stage.waves);
        waves
            .flat_map(|wave| &wave.moves)
            .filter(|a_move| a_move.how == how)
            .collect()
    };
    let names = |moves: &[&Move]| {
        let shown: Vec<&str> = moves.iter().take(8).map(|a_move| a_move.guest.as_str()).collect();
        let more = if moves.len() > 8 {
            format!(" and {} more", moves.len() - 8)
        } else {
            String::new()
        };
        format!("{}{more}", shown.join(" "))
    };
    let (migrated, relocated, replaced) = (
        of(MoveKind::Migrate),
        of(MoveKind::Relocate),
        of(MoveKind::ReplaceStandby),
    );
    if !migrated.is_empty() {
        lines.push(format!(
            "Moves     {} {}s move while they run, and back",
            migrated.len(),
            terms.guest
        ));
    }
    if !relocated.is_empty() {
        lines.push(format!(
            "Downtime  stopped while their disks are copied, twice: {}",
            names(&relocated)
        ));
    }
    if !replaced.is_empty() {
        lines.push(format!(
            "Degraded  one copy of the disks until another is made, twice: {}",
            names(&replaced)
        ));
    }
}

fn waves(text: &mut String, stage: &PlannedStage, places: &Places<'_>, all: bool, width: usize) {
    let column = stage.name.as_str().len().max(8);
    for (at, wave) in stage.waves.iter().enumerate() {
        if at == LISTED && !all && stage.waves.len() > LISTED + 1 {
            let rest = &stage.waves[LISTED..];
            let units: usize = rest.iter().map(|wave| wave.units.len()).sum();
            let _ = writeln!(
                text,
                "  {:<column$} and {} more waves of {units} units (--all lists them)",
                "",
                rest.len()
            );
            return;
        }
        let name = if at == 0 { stage.name.as_str() } else { "" };
        let room = width.saturating_sub(24).max(40);
        let lines = if all {
            places.lines(&wave.units)
        } else {
            vec![places.describe(&wave.units, room)]
        };
        let mut lines = lines.into_iter();
        let units = lines.next().unwrap_or_default();
        let door = wave.door.as_ref().map_or_else(String::new, |door| {
            format!("   point of no return before it: {}", door.name)
        });
        let _ = writeln!(text, "  {name:<column$} {:>4}: {units}{door}", at + 1);
        for line in lines {
            let _ = writeln!(text, "  {:<column$}       {line}", "");
        }
        if all {
            for line in moves_of_units(wave) {
                let _ = writeln!(text, "  {:<column$}         {line}", "");
            }
        }
    }
}

/// Who is emptied, in the order of the waves, and where its guests go; where every wave is listed it stands there.
fn evacuations(text: &mut String, plan: &Plan, detail: Detail, width: usize) {
    for stage in plan.stages() {
        let lines: Vec<String> = stage.waves.iter().flat_map(moves_of_units).collect();
        if detail.all || lines.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n  moves of {}:", stage.name);
        let listed = if detail.moves || lines.len() <= EMPTIED + 1 {
            lines.len()
        } else {
            EMPTIED
        };
        for line in &lines[..listed] {
            let line = if detail.moves {
                line.clone()
            } else {
                fit(line, width.saturating_sub(4).max(40))
            };
            let _ = writeln!(text, "    {line}");
        }
        if listed < lines.len() {
            let more = lines.len() - listed;
            let _ = writeln!(text, "    and {more} more units (--print-moves lists them)");
        }
    }
}

/// What is moved because of each unit of a wave: `node3: web to node4, log to node5 (copied)`.
fn moves_of_units(wave: &Wave) -> Vec<String> {
    let mut of_units: BTreeMap<&UnitId, Vec<String>> = BTreeMap::new();
    for a_move in &wave.moves {
        let how = match a_move.how {
            MoveKind::Migrate => "",
            MoveKind::Relocate => " (stopped, its disks are copied)",
            MoveKind::ReplaceStandby => " (second copy)",
        };
        let text = format!("{} to {}{how}", a_move.guest, a_move.to);
        of_units.entry(&a_move.from).or_default().push(text);
    }
    let lines = of_units.into_iter();
    lines
        .map(|(unit, moves)| format!("{unit}: {}", moves.join(", ")))
        .collect()
}

fn print_warnings(text: &mut String, plan: &Plan, terms: &Terms, found: &[RiskFinding], width: usize) {
    let told = risks::lines(found).into_iter();
    let mut lines: Vec<String> = told.map(|risk| format!("Risk      {risk}")).collect();
    moves(&mut lines, plan, terms);
    for door in plan.doors() {
        lines.push(format!("No undo   {}: {}", door.name, door.why));
    }
    for stage in plan.stages() {
        match &stage.going_back {
            GoingBack::Restart => {}
            GoingBack::Rebuild { cost } => {
                lines.push(format!("Rollback  {} only by a rebuild: {cost}", stage.name));
            }
            GoingBack::Impossible { why } => {
                lines.push(format!("Rollback  none for {}: {why}", stage.name));
            }
        }
    }
    for interrupted in &plan.interruptions {
        let times = match interrupted.units {
            1 => String::new(),
            units => format!(", each of {units} times"),
        };
        let word = if interrupted.permitted { "" } else { "not " };
        lines.push(format!(
            "Outage    {}, for about {} s{times}; {} is {word}permitted",
            interrupted.what, interrupted.seconds, interrupted.name
        ));
    }
    absent(&mut lines, plan);
    for other in &plan.bystanders {
        let release = other.release.as_deref().unwrap_or("an unknown release");
        lines.push(format!(
            "Others    {} {} on {release}: not touched by this run",
            other.count, other.kind
        ));
    }
    let groups = view::group(
        plan.left_alone
            .iter()
            .map(|left| (left.unit.to_string(), &left.reason)),
    );
    for group in groups {
        // Whoever is left alone is named: nobody looks for what is not mentioned.
        let names = group.units.join(" ");
        let more = if group.count > group.units.len() {
            format!(" and {} more", group.count - group.units.len())
        } else {
            String::new()
        };
        lines.push(format!("Skipped   {names}{more}: {}", group.reason));
    }
    let cut: Vec<_> = plan
        .parts
        .iter()
        .filter_map(|part| cut_off(part, width))
        .collect();
    if !lines.is_empty() || !cut.is_empty() {
        text.push('\n');
    }
    for step in cut {
        let _ = writeln!(text, "  Step      {}: {}", step.name, step.why);
    }
    for line in lines {
        let _ = writeln!(text, "  {}", fit(&line, width.saturating_mul(LINES)));
    }
}

/// What nothing counts on is no part of the plan, and is named all the same.
fn absent(lines: &mut Vec<String>, plan: &Plan) {
    let all = plan.absent.iter();
    for group in view::group(all.map(|absent| (absent.unit.to_string(), &absent.reason))) {
        let names = group.units.join(" ");
        let more = if group.count > group.units.len() {
            format!(" and {} more", group.count - group.units.len())
        } else {
            String::new()
        };
        lines.push(format!("Absent    {names}{more}: {}", group.reason));
    }
}

/// A step of which the table has not told all, and no door does.
fn cut_off(part: &PlannedPart, width: usize) -> Option<&PlannedStep> {
    match part {
        PlannedPart::Step(step)
            if step.door.is_none() && step.why.chars().count() > room(step.name.as_str(), width) =>
        {
            Some(step)
        }
        PlannedPart::Step(_) | PlannedPart::Stage(_) => None,
    }
}
