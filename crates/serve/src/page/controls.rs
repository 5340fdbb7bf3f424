//! The commands of a run's page, with their consequences and their forms.

use axum::Extension;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use maud::{Markup, html};
use serde::Deserialize;
use stagger_core::model::{Door, GoingBack, Part, PartName};
use stagger_core::plan::{Plan, PlannedPart};
use stagger_core::run::Command;
use stagger_core::view::RunVerdict;
use stagger_report::duration;
use stagger_report::event_text::command_words;
use stagger_report::history::UnitProgress;

use super::PageError;
use crate::Shared;
use crate::access::{Caller, Role};
use crate::commands::{ask, refusal, role_of};
use crate::problem::ProblemDetails;
use crate::run_path::{RunPath, authorized_run};
use crate::runs::ReadRun;

/// The commands that the caller may give to a run, with their consequences.
pub(super) fn controls(seen: &ReadRun, caller: &Caller) -> Markup {
    let view = &seen.view;
    let cluster = &view.cluster;
    if view.ending.is_some() {
        return html! {};
    }
    if !caller.has_role(Role::Operate, cluster) {
        return html! { p.quiet { (caller.name) " may look at this run, not control it." } };
    }
    let plan = seen.journal.reading.run.plan();
    let words = seen.journal.reading.pending_approvals();
    html! {
        @for (command, by) in &seen.asked {
            p.asked role="status" {
                b { (command_words(command)) } " was requested by " (by)
                @if view.verdict == RunVerdict::Interrupted { "; the run is interrupted: " code { "stagger resume " (view.run) } " applies it" }
                @else { ", and is pending" }
            }
        }
        section.controls aria-label="what the run may be asked for" {
            form method="post" action={ "/runs/" (view.run) "/commands" } {
                div { (button("pause", "Pause")) p.quiet { "Starts no new wave. " (open_wave(seen)) } }
                div { (button("resume", "Resume")) p.quiet { "Goes on where it was paused or held." } }
            }
            @if let Some(plan) = plan {
                @if caller.has_role(Role::Approve, cluster) && !words.is_empty() {
                    details open[view.verdict == RunVerdict::NeedsYou] {
                        summary { "Approve (" (words.len()) ")" }
                        @for word in &words {
                            form method="post" action={ "/runs/" (view.run) "/commands" } {
                                input type="hidden" name="plan" value=(plan.id);
                                input type="hidden" name="door" value=(word);
                                h3 { code { (word) } }
                                @for line in cost(seen, word) { p { (line) } }
                                (confirmation_box("I understand the consequences"))
                                (button("approve", "Approve"))
                            }
                        }
                    }
                }
            }
            details {
                summary { "End it" }
                form method="post" action={ "/runs/" (view.run) "/commands" } {
                    p { "Abort finishes the wave, cleans up, and ends. " (progress_text(seen)) }
                    (confirmation_box("End it there"))
                    (button("abort", "Abort"))
                }
                form method="post" action={ "/runs/" (view.run) "/commands" } {
                    p { "Rollback brings the " (view.changed) " changed " @if view.changed == 1 { "unit" } @else { "units" } " back to the previous release where supported; each is down again." }
                    (confirmation_box("Roll back now"))
                    (button("rollback", "Roll back"))
                }
            }
        }
    }
}

fn button(word: &str, text: &str) -> Markup {
    html! { button name="command" value=(word) { (text) } }
}

/// A box that has to be ticked first.
fn confirmation_box(text: &str) -> Markup {
    html! { label { input type="checkbox" required; " " (text) } " " }
}

/// What becomes of the wave that is open.
fn open_wave(seen: &ReadRun) -> String {
    let waits = ["next", "preparing"];
    let units = seen.view.current.iter().flat_map(|current| &current.units);
    let count: usize = units
        .filter(|(doing, _)| !waits.contains(&doing.as_str()))
        .map(|(_, units)| units.len())
        .sum();
    match (&seen.view.current, count) {
        (None, _) => "None is open now.".to_owned(),
        (Some(_), 0) => "The open one is finished first.".to_owned(),
        (Some(_), 1) => "The open one, with 1 unit started, is finished first.".to_owned(),
        (Some(_), more) => format!("The open one, with {more} units started, is finished first."),
    }
}

/// How a cluster is left that is left now.
fn progress_text(seen: &ReadRun) -> String {
    let counts = seen.journal.reading.history.counts();
    let waiting = counts.get(&UnitProgress::Waiting).copied().unwrap_or_default();
    format!(
        "{} units stay changed, and {waiting} stay as they are: the cluster runs both.",
        seen.view.changed
    )
}

/// What the approval of a word comes to, line by line.
fn cost(seen: &ReadRun, word: &str) -> Vec<String> {
    let Some(plan) = seen.journal.reading.run.plan() else {
        return vec!["Nothing is planned now.".to_owned()];
    };
    if let Some(door) = plan.doors().into_iter().find(|door| door.name.as_str() == word) {
        let mut lines = vec![format!("Cannot be undone: {}", door.why)];
        lines.extend(after_approval(plan, word));
        return lines;
    }
    if let Some(found) = plan.interruptions.iter().find(|found| found.name == word) {
        let (units, each) = match found.units {
            1 => (1, ""),
            more => (more, " each time"),
        };
        return vec![format!(
            "{} is without service for about {} s{each}, {units} times",
            found.what, found.seconds
        )];
    }
    if let Some(door) = of_target(seen, word) {
        return vec![
            format!("Cannot be undone: {}", door.why),
            "No wave or step of the plan waits for it now.".to_owned(),
        ];
    }
    vec!["The run continues although units of the previous stage are skipped.".to_owned()]
}

/// A door of the target, on the way or behind the run.
fn of_target<'a>(seen: &'a ReadRun, word: &str) -> Option<&'a Door> {
    let parts = seen.journal.reading.run.start().target.parts.iter();
    let mut doors = parts.filter_map(|part| match part {
        Part::Stage(stage) => stage.door_before_last.as_ref(),
        Part::Step(step) => step.door.as_ref(),
    });
    doors.find(|door| door.name.as_str() == word)
}

/// What follows a door: how much, for how long, and what of it has no way back.
fn after_approval(plan: &Plan, word: &str) -> Option<String> {
    let holds = |part: &PlannedPart| match part {
        PlannedPart::Stage(stage) => {
            let doors = stage.waves.iter().filter_map(|wave| wave.door.as_ref());
            doors.into_iter().any(|door| door.name.as_str() == word)
        }
        PlannedPart::Step(step) => step.door.iter().any(|door| door.name.as_str() == word),
    };
    let from = plan.parts.iter().position(holds)?;
    let stages = plan.parts[from..].iter().filter_map(|part| match part {
        PlannedPart::Stage(stage) => Some(stage),
        PlannedPart::Step(_) => None,
    });
    let (mut units, mut seconds, mut no_way_back) = (0, 0, 0);
    for stage in stages {
        let of_stage: usize = stage.waves.iter().map(|wave| wave.units.len()).sum();
        units += of_stage;
        seconds += stage
            .waves
            .iter()
            .map(|wave| i64::from(wave.seconds))
            .sum::<i64>();
        if !matches!(stage.going_back, GoingBack::Restart) {
            no_way_back += of_stage;
        }
    }
    (units > 0).then(|| {
        let long = duration(jiff::SignedDuration::from_secs(seconds));
        let back = match no_way_back {
            0 => String::new(),
            some => format!("; {some} of them come back only by a rebuild, or not at all"),
        };
        format!("Behind it: {units} units, about {long}{back}")
    })
}

/// What a form of the page asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandForm {
    command: String,
    plan: Option<String>,
    door: Option<PartName>,
}

pub(super) async fn command(
    State(shared): State<Shared>,
    Extension(caller): Extension<Caller>,
    run: RunPath,
    wish: Result<Form<CommandForm>, FormRejection>,
) -> Result<Redirect, PageError> {
    let Path(run) = run.map_err(ProblemDetails::from)?;
    let Form(CommandForm { command, plan, door }) = wish.map_err(ProblemDetails::from)?;
    let command = match (command.as_str(), door) {
        ("pause", _) => Command::Pause,
        ("resume", _) => Command::Resume,
        ("abort", _) => Command::Abort,
        ("rollback", _) => Command::Rollback,
        ("approve", Some(door)) => Command::Approve { door },
        _ => return Err(ProblemDetails::malformed("no form of this page asks for that").into()),
    };
    let seen = authorized_run(&shared, &caller, &run, role_of(&command)).await?;
    let now = seen.journal.reading.run.plan().map(|plan| plan.id.clone());
    if matches!(command, Command::Approve { .. }) && (plan.is_none() || plan != now) {
        return Err(
            ProblemDetails::moved("it follows another plan than the one that you saw: look again").into(),
        );
    }
    if let Some(problem) = refusal(&seen, &command) {
        return Err(problem.into());
    }
    ask(&shared, &caller, &seen, command).await?;
    Ok(Redirect::to(&format!("/runs/{run}")))
}
