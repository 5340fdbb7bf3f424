//! Progress while a run is carried out: events scroll, and on a terminal a foot of a few lines is
//! redrawn below them. Elsewhere, one line an event and a heartbeat.

use jiff::{SignedDuration, Timestamp};
use stagger_core::run::{Entry, Run};
use stagger_core::view::{self, Verdict, Waiting};
use stagger_engine::backend::Anchor;
use stagger_engine::driver::{Listener, Notice};

use crate::print;
use stagger_report::names::{compress, fit};
use stagger_report::{duration, sentences};

/// The most lines of the foot.
const FOOT: usize = 8;
/// Between two heartbeats where nothing is redrawn.
const HEARTBEAT: SignedDuration = SignedDuration::from_secs(60);

/// Shows a run as it goes.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    live: bool,
    drawn: usize,
    last: Option<Timestamp>,
    lines: sentences::Lines,
}

impl Progress {
    /// Redrawing if both streams are terminals.
    pub(crate) fn new() -> Self {
        let mut this = Self::default();
        this.live = print::live();
        this
    }

    fn clear(&mut self) {
        if self.drawn > 0 {
            // Up and clear to the end of the screen: what scrolled above stays.
            print::raw(&format!("\x1b[{}A\x1b[J", self.drawn));
            self.drawn = 0;
        }
    }

    fn draw(&mut self, lines: &[String]) {
        self.clear();
        let width = print::width().saturating_sub(1);
        let shown: Vec<_> = lines.iter().take(FOOT).map(|line| fit(line, width)).collect();
        self.drawn = shown.len();
        print::raw(&(shown.join("\n") + "\n"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Listener for Progress {
    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Locked { holder, until } => print::talk(&format!(
                "the cluster is locked by {holder}; if that is not renewed, it is free at {until:.0}"
            )),
            Notice::Behind(Anchor { run, seq, .. }) => print::talk(&format!(
                "the journal of run {run} is older than the cluster, which was told of its event {seq}: it was restored, or \
                 its database lost its last writes. Each host is asked first to refuse what was begun since"
            )),
            Notice::Unheard(Anchor { run, .. }) => print::talk(&format!(
                "run {run} of this cluster began since, and this journal does not know it: it was restored from before, or that run \
                 has its journal elsewhere. Each host is asked first to refuse what was begun since"
            )),
        }
    }

    fn event(&mut self, entry: &Entry, run: &Run) {
        self.clear();
        self.last = Some(entry.at);
        if let Some((word, text)) = self.lines.line(entry, run) {
            if self.live {
                print::talk(&fit(
                    &format!("{} {word:<9}{text}", entry.at.strftime("%H:%M:%S")),
                    print::width(),
                ));
            } else {
                print::talk(&format!("{:.0} {word:<9}{text}", entry.at));
            }
        }
        if self.live && run.ended().is_none() {
            self.draw(&foot(run, None));
        }
    }

    fn waiting(&mut self, again: Timestamp, waiting: Waiting<'_>, run: &Run) {
        if self.live {
            self.draw(&foot(run, Some(waiting)));
            return;
        }
        if self
            .last
            .is_none_or(|last| again.duration_since(last) >= HEARTBEAT)
        {
            let view = view::run(run, Some(waiting));
            print::talk(&format!("{again:.0} {:<9}{} {}", "still", view.verdict, view.why));
            self.last = Some(again);
        }
    }
}

/// Verdict, bar, who is down, gates, time left.
fn foot(run: &Run, waiting: Option<Waiting<'_>>) -> Vec<String> {
    let view = view::run(run, waiting);
    let mut lines = vec!["-".repeat(print::width().saturating_sub(1))];
    let color = match view.verdict {
        Verdict::Running | Verdict::Done => "",
        Verdict::Held | Verdict::Interrupted | Verdict::NeedsYou | Verdict::Ended => "!! ",
    };
    lines.push(format!("{color}{}  {}", view.verdict, view.why));
    let total = view.waves_passed as usize + view.waves_left.max(usize::from(view.current.is_some()));
    let share = view.waves_passed as usize * 24 / total.max(1);
    lines.push(format!(
        "wave {} of {total} [{}{}] {} units done, about {} left",
        (view.waves_passed as usize + 1).min(total.max(1)),
        "=".repeat(share),
        ".".repeat(24 - share),
        view.changed,
        duration(SignedDuration::from_secs(view.seconds_left)),
    ));
    if let Some(current) = &view.current {
        for (doing, units) in &current.units {
            lines.push(format!("  {doing:<11} {}", compress(units)));
        }
        for (gate, why) in &current.shut {
            lines.push(format!("  gate x {gate}: {why}"));
        }
    }
    for group in &view.left_alone {
        lines.push(format!(
            "  left alone: {} ({})",
            group.units.join(" "),
            group.reason.code
        ));
    }
    lines
}
